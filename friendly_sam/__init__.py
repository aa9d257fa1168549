"""Friendly Sharpness-Aware Minimization and its family for PyTorch."""

__version__ = "0.1.0"
