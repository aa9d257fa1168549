"""`python -m friendly_sam.lab` is the command `fsam`."""

from friendly_sam.lab.cli import program

if __name__ == "__main__":
    program()
