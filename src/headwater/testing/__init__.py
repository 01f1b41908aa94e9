"""The kit for testing what is built on Headwater.

What it is: a clock driven by hand and a disk that crashes. More tools (a list sink) will live beside them.
Invariants: nothing here is imported by the rest of the package.
Not here: the tests themselves.
Read next: ``clock.py``, ``disk.py``.
"""

from headwater.testing.clock import ManualClock
from headwater.testing.disk import Crash, CrashingFiles

__all__ = ["Crash", "CrashingFiles", "ManualClock"]
