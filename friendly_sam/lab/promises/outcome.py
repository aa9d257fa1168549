"""One check and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What can come of a check."""

    OK = "ok"
    FAILED = "FAILED"
    NOT_APPLICABLE = "not applicable"
    NOT_TRIED = "not tried here"


class BrokenPromiseError(Exception):
    """A promise that does not hold; the message says what was seen."""


class NotApplicableError(Exception):
    """A check that does not apply to this device; the message says why."""


class NotTriedError(Exception):
    """A check that this machine cannot run; the message says what it would need."""


@dataclass(frozen=True)
class Check:
    """A promise by name; `run` returns a detail, or raises one of the errors above."""

    name: str
    run: Callable[[], str]


@dataclass(frozen=True)
class Outcome:
    """What came of a check."""

    name: str
    verdict: Verdict
    detail: str

    def line(self) -> str:
        """Return the outcome as one line of text."""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.verdict.value:<14}  {self.name}{detail}"


def carry_out(check: Check) -> Outcome:
    """Run a check; whatever goes wrong in it is its outcome."""
    try:
        return Outcome(check.name, Verdict.OK, check.run())
    except BrokenPromiseError as error:
        return Outcome(check.name, Verdict.FAILED, str(error))
    except NotApplicableError as error:
        return Outcome(check.name, Verdict.NOT_APPLICABLE, str(error))
    except NotTriedError as error:
        return Outcome(check.name, Verdict.NOT_TRIED, str(error))
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        return Outcome(check.name, Verdict.FAILED, f"{type(error).__name__}: {said}")
