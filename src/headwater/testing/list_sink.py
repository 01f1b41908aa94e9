"""A list sink: a view's rows in memory, for tests of what is built on views.

What it is: ``ListSink`` keeps the contract of sinks and holds the rows as a list; ``fail`` lets it raise errors.
Invariants: ``rows`` is the view at ``tick``; deliveries are counted, so that a test can tell a full copy from changes.
Not here: sinks that keep anything (``headwater.sinks``).
Read next: ``sinks/sink.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from headwater.log.contract import EventLog
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_rows
from headwater.sinks.sink import Sink, SinkContext, StoredProgress, Target, check_fence, is_next, reached
from headwater.views.serving.deliveries import Delivery
from headwater.views.state.algebra import consolidate, expand


class ListSink(Sink):
    """A sink in memory.

    >>> import headwater as hw, tempfile
    >>> from headwater.testing import ListSink
    >>> app, copy = hw.App("shop", home=tempfile.mkdtemp()), ListSink()
    >>> users = app.table("users", "id BIGINT, country STRING", key="id")
    >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
    >>> _ = app.sink("countries", copy)
    >>> _ = users.upsert([{"id": 1, "country": "DE"}])
    >>> app.tick().tick, copy.rows
    (1, [{'country': 'DE', 'users': 1}])
    """

    kind = "list"

    def __init__(self) -> None:
        self.progress: StoredProgress | None = None
        self.fills = 0
        self.deliveries: list[Delivery] = []
        self._content: pa.Table | None = None
        self._errors: list[BaseException] = []

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows, in no particular order."""
        if self._content is None:
            return []
        return [row for batch in expand(self._content).to_batches() for row in to_rows(batch)]

    @property
    def tick(self) -> int:
        """The last tick that it has; -1 when it has none."""
        return -1 if self.progress is None else self.progress.tick

    def fail(self, *errors: BaseException) -> None:
        """Raise these errors, one in each of the next deliveries and full copies, in place of taking them."""
        self._errors += errors

    def open(self, context: SinkContext, log: EventLog) -> Target:
        del log
        return ListTarget(context, self)

    def __str__(self) -> str:
        return "a list"

    def _take(self, content: pa.Table, progress: StoredProgress) -> StoredProgress:
        self._content, self.progress = content, progress
        return progress

    def _maybe_fail(self) -> None:
        if self._errors:
            raise self._errors.pop(0)


class ListTarget(Target):
    """The list."""

    def __init__(self, context: SinkContext, sink: ListSink) -> None:
        super().__init__(context)
        self.sink = sink

    def progress(self) -> StoredProgress | None:
        return self.sink.progress

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        self.sink._maybe_fail()
        check_fence(self.sink.progress, self.context, epoch, filling=True)
        table = pa.Table.from_batches(list(rows), schema=self.context.schema)
        self.sink.fills += 1
        ones = pa.array([1] * table.num_rows, pa.int64())
        return self.sink._take(
            consolidate(table.append_column(WEIGHT, ones)), StoredProgress(tick, epoch, self.context.version)
        )

    def apply(self, delivery: Delivery) -> StoredProgress:
        self.sink._maybe_fail()
        if not is_next(self.sink.progress, self.context, delivery):
            return reached(self.sink.progress, self.context)
        assert self.sink._content is not None
        self.sink.deliveries.append(delivery)
        content = consolidate(pa.concat_tables([self.sink._content, delivery.changes.cast(self.sink._content.schema)]))
        return self.sink._take(content, StoredProgress(delivery.tick, delivery.epoch, self.context.version))
