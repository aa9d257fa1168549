"""The command `fsam`, one file per command. May import every other room."""

from friendly_sam.lab.cli.dispatch import main, program

__all__ = ["main", "program"]
