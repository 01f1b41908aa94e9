"""Seeds: random cases are the same in every run, until somebody asks for others.

What it is: ``seed``, for tests that draw by themselves; ``steady``, for hypothesis.
Invariants: a run of an unchanged commit tries what the run before tried, so it cannot fail for what nobody changed.
``HEADWATER_THOROUGH=n``, with n above one, tries n times as many and draws anew; ``HEADWATER_SEED=n`` repeats.
Not here: at which moment a process is killed, which no seed decides.
Read next: ``CONTRIBUTING.md``.
"""

from __future__ import annotations

import os
from random import SystemRandom

import hypothesis

ASKED = os.environ.get("HEADWATER_SEED")
ANEW = int(os.environ.get("HEADWATER_THOROUGH", "1")) > 1


def seed(usual: int) -> int:
    """The seed that was asked for; a new one in a thorough run; else the usual one."""
    if ASKED:
        return int(ASKED)
    return SystemRandom().randrange(2**32) if ANEW else usual


def steady() -> None:
    """Hypothesis, too, draws anew only in a thorough run; and a busy machine is no reason to fail."""
    hypothesis.settings.register_profile(
        "headwater", derandomize=not ANEW, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("headwater")
