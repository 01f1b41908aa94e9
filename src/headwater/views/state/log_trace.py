"""A log trace: a range of a topic, read as the state of a relation.

What it is: ``LogTrace``. The log itself is the state of a topic without a key, and of the versions of one with a key:
each record is there for good, with weight 1. Nothing is copied.
Invariants: reading gives exactly the rows from ``start`` up to ``stop``; a frame is made again when the files behind it
have changed (sealed, dropped, archived). Lookups know the log by *spans*: ranges of one partition that begin and end at
multiples of fixed sizes, so that the blocks sorted from them are found again after a restart, whatever ``stop`` is.
Not here: the current rows of a topic with a key, whose state is a trace of runs (``trace.py``).
Read next: ``state_trace.py``, ``views/spark/topic_scan.py``, ``arrangements.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.log.storage.file_listing import Range
from headwater.log.storage.files import Files
from headwater.views.compiler.plan import WEIGHT
from headwater.views.spark.scans import FrameCache, fitted
from headwater.views.spark.topic_scan import SYSTEM, quoted
from headwater.views.state.algebra import weighted_schema
from headwater.views.state.delta import Delta
from headwater.views.state.lookups.arrangements import Arrangements
from headwater.views.state.lookups.sorted_blocks import StatePiece
from headwater.views.state.multisets import WeightedPart, expanded
from headwater.views.state.omissions import Omitted, count_within, frame_without, mark, without
from headwater.views.state.state_trace import Restriction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.contract import EventTopic

# The rows behind the last multiple of the smallest size are sorted again in each tick: a few milliseconds.
SPAN_ROWS = (2_097_152, 262_144, 32_768, 4_096)


def spans(partition: int, start: int, stop: int) -> list[Range]:
    """A range cut at multiples of the largest sizes that fit, the rest as it is.

    >>> [(span.start, span.stop) for span in spans(0, 4_000, 41_000)]
    [(4000, 4096), (4096, 8192), (8192, 12288), (12288, 16384), (16384, 20480), (20480, 24576), (24576, 28672), \
(28672, 32768), (32768, 36864), (36864, 40960), (40960, 41000)]
    """
    cut = []
    position = start
    while position < stop:
        size = next((size for size in SPAN_ROWS if position % size == 0 and position + size <= stop), None)
        smallest = SPAN_ROWS[-1]
        end = position + size if size else min(stop, position - position % smallest + smallest)
        cut.append(Range(partition, position, end))
        position = end
    return cut


class LogTrace:
    """The records of a topic, from ``start`` up to ``stop`` ({partition: offset}, not included).

    ``columns`` are those that it has; without them, the topic's.

    >>> import headwater as hw, tempfile
    >>> clicks = hw.Log(tempfile.mkdtemp()).topic("clicks", "user_id BIGINT, page STRING")
    >>> _ = clicks.append([{"user_id": n % 2, "page": f"p{n}"} for n in range(4)])
    >>> trace = LogTrace(clicks, {0: 0}, {0: 3}, folder=Path(tempfile.mkdtemp()))
    >>> trace.lookup(["user_id"], pa.table({"user_id": [0]}), ["page"]).to_pylist()
    [{'page': 'p0', '_weight': 1}, {'page': 'p2', '_weight': 1}]
    >>> trace.with_range({0: 4}).rows
    4
    """

    def __init__(
        self,
        topic: EventTopic,
        start: Mapping[int, int],
        stop: Mapping[int, int],
        *,
        folder: Path,
        columns: pa.Schema | None = None,
        files: Files | None = None,
        omitted: Omitted | None = None,
    ) -> None:
        self.topic = topic
        self._columns = columns
        self.omitted = omitted or {}  # records that views leave out
        self.start = {number: start.get(number, 0) for number in stop}
        self.stop = dict(stop)
        self.folder = folder
        self._arrangements = Arrangements(folder / "arrangements", files or Files())
        self._frames = FrameCache()

    @property
    def schema(self) -> pa.Schema:
        """The columns, then ``_weight``."""
        return weighted_schema(self._fields)

    @property
    def _fields(self) -> pa.Schema:
        return self.topic.schema if self._columns is None else self._columns

    @property
    def rows(self) -> int:
        """How many rows, or more where the log cannot tell without reading them."""
        return self.topic.rows_most(self.start, self.stop) - count_within(self.omitted, self.start, self.stop)

    def with_range(self, stop: Mapping[int, int]) -> LogTrace:
        """The same, up to a later place."""
        # Retention may have removed rows that no stage reads any more.
        kept = self.topic.start_offsets()
        start = {number: max(self.start.get(number, 0), min(kept.get(number, 0), stop[number])) for number in stop}
        trace = LogTrace(
            self.topic, start, {**self.stop, **stop}, folder=self.folder, columns=self._columns, omitted=self.omitted
        )
        trace._arrangements = self._arrangements
        trace._frames = self._frames
        gone = {piece.name for piece in self._pieces()} - {piece.name for piece in trace._pieces()}
        trace._arrangements.forget(gone)
        return trace

    # Reading

    def frame(self, spark: SparkSession, columns: Sequence[str] | None = None) -> DataFrame:
        """The rows with ``_weight``, which is 1. ``columns`` may also name ``_partition``, ``_offset`` and so on."""
        names = self._fields.names if columns is None else columns
        return self._whole(spark, names).selectExpr(*map(quoted, names), f"1L AS {WEIGHT}")

    def bag(
        self,
        spark: SparkSession,
        columns: Sequence[str] | None = None,
        changes: Delta | None = None,
        restrict: Restriction | None = None,
    ) -> DataFrame:
        """The rows; with ``changes``, after these were added. See ``Trace.bag``."""
        names = self._fields.names if columns is None else list(columns)
        frame = self._whole(spark, names)
        if changes is not None and changes.rows:
            every = self._every(names)
            part = WeightedPart(changes.frame(spark), changes.rows, positive=True, plain=changes.plain)
            frame = frame.select(*map(quoted, every)).union(expanded([part], every))
        return (restrict(frame) if restrict else frame).select(*map(quoted, names))

    def _every(self, names: Sequence[str]) -> tuple[str, ...]:
        """The topic's columns, and those of each record that are among these."""
        own = self._fields.names
        return (*own, *(name for name in names if name in SYSTEM.names and name not in own))

    def _whole(self, spark: SparkSession, names: Sequence[str]) -> DataFrame:
        """The rows, with these columns and others."""
        every = self._every(names)
        # Sealing and retention replace files; a frame over those that are gone would fail when it is run.
        source = (every, self.topic.schema_version, self.topic.layout(self.start, self.stop))
        return self._frames.get(
            spark, source, lambda: frame_without(spark, self.topic, self.start, self.stop, list(every), self.omitted)
        )

    def lookup(self, columns: Sequence[str], keys: pa.Table, wanted: Sequence[str]) -> pa.Table:
        """The rows whose ``columns`` equal some row of ``keys``: ``wanted`` and ``_weight``. See ``Trace.lookup``."""
        own = self._fields
        schema = pa.schema([*own, *(field for field in SYSTEM if field.name not in own.names)])
        return self._arrangements.lookup(self._pieces(), weighted_schema(schema), columns, keys, wanted)

    def read(self) -> Iterator[pa.RecordBatch]:
        """The weighted rows, on the driver."""
        for number in sorted(self.stop):
            if self.stop[number] > self.start[number]:
                yield from self._read(Range(number, self.start[number], self.stop[number]), self.schema)

    def content(self) -> pa.Table:
        """The same, as a table: for a small topic."""
        return pa.Table.from_batches(self.read(), schema=self.schema)

    def _pieces(self) -> list[StatePiece]:
        return [
            self._piece(span)
            for number in sorted(self.stop)
            for span in spans(number, self.start[number], self.stop[number])
        ]

    def prune(self) -> None:
        """Delete the cached files of spans that larger ones have replaced."""
        self._arrangements.prune({piece.name for piece in self._pieces()})

    def _piece(self, span: Range) -> StatePiece:
        left_out = mark(self.omitted, span.partition, span.start, span.stop)
        name = f"{span.partition}-{span.start}-{span.stop}-{self.topic.schema_version}{left_out}"
        start, stop = {span.partition: span.start}, {span.partition: span.stop}
        rows = self.topic.rows_most(start, stop) - count_within(self.omitted, start, stop)
        return StatePiece(name, rows, lambda fields: self._read(span, fields))

    def _read(self, span: Range, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        names = [name for name in fields.names if name != WEIGHT]
        # A batch needs a column to know its length.
        wanted = names or ["_offset"]
        for batch in self.topic.read_partition(span.partition, span.start, stop=span.stop, columns=wanted):
            data = without(batch, self.omitted)
            weights = pa.array(np.ones(data.num_rows, np.int64))
            rows = pa.Table.from_batches([data]).append_column(WEIGHT, weights)
            yield from fitted(rows, fields).to_batches()

    def __repr__(self) -> str:
        return f"LogTrace({self.topic.name}, {self.rows} rows)"
