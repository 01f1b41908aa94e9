"""Giving up a tick: Ctrl-C while a first fill runs for minutes.

What it is: ``Cancellation``: a request of another thread, which ends the Spark jobs of the running tick and is seen
before its commit.
Invariants: a tick that is given up commits nothing, and no view is paused for it; its rows are taken by the next one.
A request outlives no tick: the next one begins without it.
Not here: who asks (``driver.py``). Read next: ``engine.py``.
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from headwater.views.spark.plans.lane_check import interrupt_lane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Cancellation:
    """Whether the running tick is to be given up."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._requested = threading.Event()

    def request(self) -> None:
        """Give the running tick up: its Spark jobs end, and it raises ``CancelledError`` instead of committing."""
        self._requested.set()
        interrupt_lane(self._spark)
        self._spark.sparkContext.cancelAllJobs()

    def begin(self) -> None:
        """A tick begins."""
        self._requested.clear()

    def check(self) -> None:
        """Before a stage, and before the commit."""
        if self._requested.is_set():
            raise CancelledError("the tick was given up")
