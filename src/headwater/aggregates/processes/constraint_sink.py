"""Constraint sink: follows a view of violations, and enters those that appear in a book.

What it is: ``ConstraintSink``, a sink like any other, whose other system is a history in the same log.
Invariants: the tick and what it changed are one append, conditional on the version of the book that was read; so no
tick counts twice, and a process that was replaced enters nothing. Ticks that change nothing are not written down.
Not here: what is entered (``violations.py``), compensation (``constraint.py``), when ticks are delivered
(``sinks/runner/sink_task.py``). Read next: ``constraint.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.aggregates.aggregate_repository import AggregateRepository
from headwater.aggregates.command_arguments import to_text
from headwater.aggregates.processes.violations import BOOK, NOT_KNOWN, ViolationBook
from headwater.errors import Misuse, VersionConflict
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_rows
from headwater.sinks.sink import Sink, SinkContext, StoredProgress, Target, check_fence, is_next, reached
from headwater.sinks.text_values import key_text

if TYPE_CHECKING:
    from headwater.log.contract import EventLog
    from headwater.views.serving.deliveries import Delivery

ATTEMPTS_MAX = 100  # violations were settled so often while a tick was entered


@dataclass(frozen=True)
class ConstraintSink(Sink):
    """Enters the violations of a constraint in its book. Without a ``key`` the whole row is one."""

    name: str
    key: tuple[str, ...]
    book: AggregateRepository

    kind = "constraint"
    merges = False  # a violation that goes and comes back in the next tick is another one

    def open(self, context: SinkContext, log: EventLog) -> Target:
        unknown = [name for name in self.key if name not in context.schema.names]
        if unknown:
            raise Misuse(
                f'constraint "{self.name}" has the key "{unknown[0]}", which its query does not give',
                hint=f"Its columns: {', '.join(context.schema.names)}.",
            )
        del log
        return ConstraintTarget(context, self)

    def __str__(self) -> str:
        return f"constraint: {self.name}"


class ConstraintTarget(Target):
    """The book of violations."""

    def __init__(self, context: SinkContext, sink: ConstraintSink) -> None:
        super().__init__(context)
        self._sink = sink
        self._passed: StoredProgress | None = None  # ticks without changes are not written down

    def progress(self) -> StoredProgress | None:
        return self._stored()[0]

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        stored, version = self._stored()
        check_fence(stored, self.context, epoch, filling=True)
        changes = [change for batch in rows for change in self._changes(to_rows(batch), None)]
        return self._follow(version, tick, epoch, changes, whole=True)

    def apply(self, delivery: Delivery) -> StoredProgress:
        stored, version = self._stored()
        if not is_next(self._passed or stored, self.context, delivery):
            return reached(stored, self.context)
        check_fence(stored, self.context, delivery.epoch)
        weights = delivery.changes.column(WEIGHT).to_pylist()
        plain = delivery.changes.drop_columns([WEIGHT])
        listed = [row for batch in plain.to_batches() for row in to_rows(batch)]
        changes = self._changes(listed, weights)
        if changes:
            return self._follow(version, delivery.tick, delivery.epoch, changes)
        self._passed = StoredProgress(delivery.tick, delivery.epoch, self.context.version)
        return self._passed

    def _follow(
        self, version: int, tick: int, epoch: int, changes: Sequence[Any], *, whole: bool = False
    ) -> StoredProgress:
        said: dict[str, Any] = {"tick": tick, "epoch": epoch, "version": self.context.version, "changes": list(changes)}
        before = self._stored()[0]
        for _ in range(ATTEMPTS_MAX):
            try:
                self._sink.book.send(BOOK, "follow", expected=version, name=self._sink.name, whole=whole, **said)
            except VersionConflict:
                stored, version = self._stored()
                if stored != before:  # a newer process: go on from what it has entered
                    break
                continue  # a violation was settled meanwhile
            self._passed = StoredProgress(tick, epoch, self.context.version)
            return self._passed
        self._passed = None
        return reached(self._stored()[0], self.context)

    def _changes(self, rows: list[dict[str, Any]], weights: Sequence[int] | None) -> list[list[Any]]:
        """For each key by how many rows it changes, and a row that came; where rows only change, nothing."""
        counts: dict[str, int] = {}
        texts: dict[str, str] = {}
        for place, row in enumerate(rows):
            weight = 1 if weights is None else weights[place]
            key = key_text([row[name] for name in self._sink.key or row])
            counts[key] = counts.get(key, 0) + weight
            if weight > 0:
                texts[key] = to_text(row, self._sink.name)
        return [[key, count, texts.get(key)] for key, count in counts.items() if count]

    def _stored(self) -> tuple[StoredProgress | None, int]:
        states = self._sink.book.states
        with states.lock(BOOK):
            loaded = states.load(BOOK)
            book: ViolationBook = loaded.instance
            if book.tick == NOT_KNOWN:
                return None, loaded.version
            return StoredProgress(book.tick, book.epoch, book.version), loaded.version
