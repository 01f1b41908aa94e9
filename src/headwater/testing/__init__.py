"""The kit for testing what is built on Headwater.

What it is: a clock driven by hand, a disk that crashes, and a sink that is a list.
Invariants: nothing here is imported by the rest of the package.
Not here: the tests themselves.
Read next: ``clock.py``, ``disk.py``, ``list_sink.py``.
"""

from headwater.testing.clock import ManualClock
from headwater.testing.disk import Crash, CrashingFiles
from headwater.testing.list_sink import ListSink

__all__ = ["Crash", "CrashingFiles", "ListSink", "ManualClock"]
