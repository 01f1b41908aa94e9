"""A finding: the result of one check.

What it is: ``Finding`` and its three states.
Invariants: a warning or failure says how to fix it.
Not here: the checks (``machine_checks.py``, ``home_checks.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class FindingState(StrEnum):
    """Well, worth a look, or wrong."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """The result of a check, and how to mend it.

    >>> Finding("java", FindingState.FAIL, "not found", "Install Java 17 or newer.").to_dict()
    {'check': 'java', 'state': 'fail', 'found': 'not found', 'mend': 'Install Java 17 or newer.'}
    """

    check: str
    state: FindingState
    found: str
    mend: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"check": self.check, "state": str(self.state), "found": self.found, "mend": self.mend}


def graded(value: float, *, warn: float, fail: float) -> FindingState:
    """The state of a value of which more is better.

    >>> str(graded(5, warn=10, fail=1)), str(graded(0.5, warn=10, fail=1)), str(graded(20, warn=10, fail=1))
    ('warn', 'fail', 'ok')
    """
    return FindingState.FAIL if value < fail else FindingState.WARN if value < warn else FindingState.OK
