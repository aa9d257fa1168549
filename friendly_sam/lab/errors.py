"""The errors whose message is meant for the person at the keyboard."""


class LabError(Exception):
    """A mistake the user can mend; the command line prints it as one line, exit code 2."""


class RunError(LabError):
    """A run that started well and failed (NaN, full disk, ...): one line, exit code 1."""
