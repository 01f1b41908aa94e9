"""The kit for testing what is built on Headwater.

What it is: a clock driven by hand, a disk that crashes, and a sink that is a list.
Invariants: nothing here is imported by the rest of the package.
Not here: the tests themselves.
Read next: ``testing/manual_clock.py``, ``testing/crashing_disk.py``, ``list_sink.py``.
"""

from headwater.testing.crashing_disk import Crash, CrashingFiles
from headwater.testing.list_sink import ListSink
from headwater.testing.manual_clock import ManualClock

__all__ = ["Crash", "CrashingFiles", "ListSink", "ManualClock"]
