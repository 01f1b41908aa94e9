"""The kit for testing what is built on Headwater.

What it is: a clock driven by hand, a disk that crashes, a sink that is a list, and given/when/then for aggregates.
Invariants: nothing here is imported by the rest of the package.
Not here: the tests themselves.
Read next: ``testing/manual_clock.py``, ``testing/crashing_disk.py``, ``list_sink.py``, ``given_when_then.py``.
"""

from headwater.testing.crashing_disk import Crash, CrashingFiles
from headwater.testing.given_when_then import AggregateScenario, given
from headwater.testing.list_sink import ListSink
from headwater.testing.manual_clock import ManualClock

__all__ = ["AggregateScenario", "Crash", "CrashingFiles", "ListSink", "ManualClock", "given"]
