"""The kit for testing what is built on Headwater.

What it is: a clock driven by hand. More tools (a disk that crashes, a list sink) live beside it.
Invariants: nothing here is imported by the rest of the package.
Not here: the tests themselves.
Read next: ``clock.py``.
"""

from headwater.testing.clock import ManualClock

__all__ = ["ManualClock"]
