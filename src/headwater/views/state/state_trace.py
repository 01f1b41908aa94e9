"""``StateTrace``: the protocol of a relation's state, as stages read it.

What it is: what ``Trace`` (runs of Parquet files) and ``LogTrace`` (a range of the log) have in common.
Invariants: a trace is immutable; its content is the sum of the weights of equal rows.
Not here: writing and merging, which only a ``Trace`` has.
Read next: ``trace.py``, ``log_trace.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from headwater.views.state.delta import Delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Restriction = Callable[["DataFrame"], "DataFrame"]


class StateTrace(Protocol):
    """The content of a relation before a tick."""

    @property
    def folder(self) -> Path:
        """The folder of its files, or of its sorted copies."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, then ``_weight``."""

    @property
    def rows(self) -> int:
        """The number of weighted rows: an upper bound of the distinct rows."""

    def frame(self, spark: SparkSession, columns: Sequence[str] | None = None) -> DataFrame:
        """The weighted rows, not consolidated."""

    def bag(
        self,
        spark: SparkSession,
        columns: Sequence[str] | None = None,
        changes: Delta | None = None,
        restrict: Restriction | None = None,
    ) -> DataFrame:
        """The rows without weights, each as often as it is there; with ``changes``, after these were added."""

    def lookup(self, columns: Sequence[str], keys: pa.Table, wanted: Sequence[str]) -> pa.Table:
        """At least the rows whose ``columns`` equal a row of ``keys``: ``wanted`` and ``_weight``, consolidated."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """The weighted rows, not consolidated, on the driver."""

    def content(self) -> pa.Table:
        """The weighted rows, consolidated, on the driver: for a small relation."""


Traces = dict[str, StateTrace]  # by relation
