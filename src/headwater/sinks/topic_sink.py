"""Topic: a view's changes as events of another topic.

What it is: ``TopicSink``, a sink that appends a row for each change: its kind, its tick, and the view's columns.
Invariants: exactly once: a tick is one append under a producer's sequence, which the topic deduplicates. Ticks are
never merged, so a retried tick is the same append; a committed tick never changes, so an older process could only
repeat it. A full copy begins with a row of kind "reset", which voids the rows before it.
Not here: appending (``log/topic.py``).
Read next: ``log/producer.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import SinkRefused
from headwater.log.contract import EventLog
from headwater.log.home import Log
from headwater.log.schema.normalization import WEIGHT
from headwater.log.topic_reader import last_rows
from headwater.sinks.runner.kept_progress import kept_progress
from headwater.sinks.sink import Leftover, Sink, SinkContext, StoredProgress, Target, check_fence, is_next, reached
from headwater.views.serving.deliveries import Delivery

CHANGE, TICK, EPOCH, VERSION = "change", "view_tick", "view_epoch", "view_version"
INSERT, DELETE, RESET = "insert", "delete", "reset"
OWN = (
    pa.field(CHANGE, pa.string()),
    pa.field(TICK, pa.int64()),
    pa.field(EPOCH, pa.int64()),
    pa.field(VERSION, pa.string()),
)


@dataclass(frozen=True)
class TopicSink(Sink):
    """A topic of this home, or of another one.

    Its columns are ``change`` ("insert", "delete" or "reset"), ``view_tick``, ``view_epoch``, ``view_version``, and
    those of the view. An update is a delete and an insert of the same tick.

    >>> TopicSink("revenue_changes")
    TopicSink(name='revenue_changes', home=None)
    """

    name: str
    home: str | os.PathLike[str] | None = None

    kind = "topic"
    merges = False

    def open(self, context: SinkContext, log: EventLog) -> Target:
        return TopicTarget(context, log if self.home is None else Log(self.home), self.name, own=self.home is not None)

    def __str__(self) -> str:
        return f"topic:{self.name}" if self.home is None else f"topic:{self.name} in {os.fspath(self.home)}"


class TopicTarget(Target):
    """The topic."""

    def __init__(self, context: SinkContext, log: EventLog, name: str, *, own: bool) -> None:
        super().__init__(context)
        self._log = log if own else None  # to be closed
        taken = [field.name for field in context.schema if field.name in [one.name for one in OWN]]
        if taken:
            raise SinkRefused(
                f'a view that goes to a topic cannot have a column "{taken[0]}"',
                detail="The topic uses a column of that name for the kind of a change.",
                hint="Rename it in the view's SQL: AS …",
                column=taken[0],
            )
        self.schema = pa.schema([*OWN, *(field.with_nullable(True) for field in context.schema)])
        self.topic = log.topic(name, self.schema)
        producers = self.topic.producer_names().values()
        others = [each for each in producers if each.startswith("sink ") and not each.startswith(self._producer)]
        if others:
            raise SinkRefused(
                f'topic "{name}" is that of another sink: {others[0].split(" ")[1]}',
                hint="Give each sink a topic of its own.",
                topic=name,
            )
        self.memory = kept_progress(log, context)

    def progress(self) -> StoredProgress | None:
        """See ``Target.progress``. Ticks without changes are recorded in the home only."""
        remembered, _ = self.memory.recall()
        last = self._last_row()
        if last is None or (remembered is not None and remembered.version == last.version):
            return remembered if last is None or remembered is None or remembered.tick >= last.tick else last
        return last

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        check_fence(self.progress(), self.context, epoch, filling=True)
        table = pa.Table.from_batches(list(rows), schema=self.context.schema)
        reset = pa.Table.from_pylist([dict.fromkeys(self.context.schema.names)], schema=self.context.schema)
        kinds = pa.array([RESET] + [INSERT] * table.num_rows, pa.string())
        return self._append(pa.concat_tables([reset, table]), kinds, tick, epoch)

    def forget(self) -> Leftover | None:
        return Leftover(
            "its topic keeps the older events: declare its personal columns, with privacy=, and erase again"
        )

    def apply(self, delivery: Delivery) -> StoredProgress:
        progress = self.progress()
        if not is_next(progress, self.context, delivery):
            return reached(progress, self.context)
        changes = delivery.changes
        weights = changes.column(WEIGHT).to_numpy()
        order = np.argsort(weights > 0, kind="stable")  # deletions first
        places = np.repeat(order, np.abs(weights[order]))
        kinds = pc.if_else(pa.array(weights[places] > 0), INSERT, DELETE).cast(pa.string())
        return self._append(changes.drop_columns([WEIGHT]).take(pa.array(places)), kinds, delivery.tick, delivery.epoch)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _append(self, rows: pa.Table, kinds: pa.Array, tick: int, epoch: int) -> StoredProgress:
        count = rows.num_rows
        if count:
            own = [
                kinds,
                pa.array(np.full(count, tick)),
                pa.array(np.full(count, epoch)),
                pa.array([self.context.version] * count, pa.string()),
            ]
            table = pa.Table.from_arrays([*own, *rows.columns], schema=self.schema)
            # Another version restarts its ticks at 1, so it is another producer.
            self.topic.append(table, producer=f"{self._producer} {self.context.version}", sequence=tick)
        return self.memory.remember(tick, epoch)

    @property
    def _producer(self) -> str:
        return f"sink {self.context.identity}"

    def _last_row(self) -> StoredProgress | None:
        """The progress in the last row that a sink of this name appended, searched in the last rows."""
        found = []
        for number, end in self.topic.end_offsets().items():
            for batch in last_rows(self.topic, number, end, columns=[TICK, EPOCH, VERSION]):
                found += batch.data.to_pylist()
        rows = [row for row in found if row[VERSION] is not None]
        if not rows:
            return None
        last = max(rows, key=lambda row: (row[EPOCH], row[TICK]))
        return StoredProgress(last[TICK], last[EPOCH], last[VERSION])
