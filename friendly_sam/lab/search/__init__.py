"""Searching for settings with Optuna: what is tried, and the study that keeps it.

May import `runner` and what lies below it.
"""
