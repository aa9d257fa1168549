"""End a process that used gloo without tearing the interpreter down.

DistributedDataParallel keeps its process group alive after `destroy_process_group`. Should a
gloo thread let go of a tensor while Python is being torn down, the process aborts
("terminate called without an active exception") though its work is done: on a busy machine
once in some fifty ends. See https://github.com/pytorch/pytorch/pull/179291.

As a program it runs a script and leaves: `python tests/leaving.py SCRIPT ARGUMENTS`.
"""

import os
import runpy
import sys
from pathlib import Path
from typing import NoReturn


def leave() -> NoReturn:
    """End this process, successfully."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
    leave()
