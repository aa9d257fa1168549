"""`python -m friendly_sam.lab` is the command `fsam`."""

import sys

from friendly_sam.lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
