"""Whether code that a network of the hub or of a folder brings is run: only when it is said.

The word comes from the command line and is handed to worker processes by the environment. No
config, run folder or model can say it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

OPTION = "--trust-remote-code"
_VARIABLE = "FSAM_TRUST_REMOTE_CODE"


def remote_code_is_trusted() -> bool:
    """Whether the command line said `--trust-remote-code`."""
    return os.environ.get(_VARIABLE) == "1"


@contextlib.contextmanager
def trusting(said: bool) -> Iterator[None]:
    """Trust code that networks bring, or not, whatever the environment said before."""
    before = os.environ.pop(_VARIABLE, None)
    if said:
        os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
        if before is not None:
            os.environ[_VARIABLE] = before
