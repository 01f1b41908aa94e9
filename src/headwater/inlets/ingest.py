"""Ingest: messages become rows of a topic, each message once.

What it is: ``Ingest`` takes parsed messages, skips those that the topic has (by id, if an id column is declared),
checks the rows, and appends new ones as one batch.
Invariants: when ``take`` returns, the log has the rows, as durably as the topic's policy says; a message that does not
fit is refused whole, and does not hold up the others.
Not here: receiving (``inlets/webhook/webhook_receiver.py``, ``inlets/amqp/amqp_inlet.py``, …), the handling of refused
messages. Read next: ``dedup_window.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.errors import InvalidDeclaration, RowRefused
from headwater.inlets.counters import CounterStore
from headwater.inlets.dedup_window import WINDOW_ROWS, DedupWindow
from headwater.log.topic import Topic


@dataclass(frozen=True)
class IncomingMessage:
    """One message: its rows, and its id if the sender gave one outside the rows."""

    rows: tuple[dict[str, Any], ...]
    id: str | None = None


@dataclass(frozen=True)
class Ingested:
    """The result for some messages. ``refused`` has the index of each refused message and the reason."""

    appended_rows: int = 0
    dropped_rows: int = 0
    repeated: int = 0
    refused: dict[int, RowRefused] = field(default_factory=dict)


class Ingest:
    """Appends messages to a topic.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> ingest = Ingest(log.topic("hooks", "x INT, id STRING"), CounterStore(log, "", "hooks"), id_column="id")
    >>> ingest.take([IncomingMessage(({"x": 1},), id="a"), IncomingMessage(({"x": 2},), id="b")]).appended_rows
    2
    >>> ingest.take([IncomingMessage(({"x": 1},), id="a")]).repeated
    1
    >>> ingest.take([IncomingMessage(({"x": "two"},), id="c")]).refused[0].message
    'row 0 (counted from 0), column "x": \\'two\\' is of type str, expected INT'
    """

    def __init__(
        self,
        topic: Topic,
        counter_store: CounterStore,
        *,
        id_column: str | None = None,
        remember_rows: int = WINDOW_ROWS,
    ) -> None:
        if remember_rows < 1:
            raise InvalidDeclaration(f"remember_rows cannot be {remember_rows}", hint="Use a number above zero.")
        self.topic = topic
        self.counter_store = counter_store
        self.id_column = id_column
        self.dedup_window = DedupWindow(topic, id_column, window=remember_rows) if id_column is not None else None

    def take(self, messages: Sequence[IncomingMessage]) -> Ingested:
        """Append the new ones of these messages, and count."""
        batches, refused = self._checked(messages)
        with nullcontext() if self.dedup_window is None else self.dedup_window.claimed(self._ids(batches)):
            new, repeated = self._new(batches)
            token = self.topic.append_batch(_joined(new)) if new else None
        rows = sum(batch.num_rows for batch in new)
        dropped = token.dropped_rows if token is not None else 0
        taken = Ingested(rows - dropped, dropped, repeated, refused)
        self.counter_store.count(appended=taken.appended_rows, dropped=dropped, repeated=repeated, refused=len(refused))
        return taken

    def _checked(self, messages: Sequence[IncomingMessage]) -> tuple[dict[int, pa.RecordBatch], dict[int, RowRefused]]:
        """The rows of each message as a batch, by its index; and the refused messages."""
        batches: dict[int, pa.RecordBatch] = {}
        refused: dict[int, RowRefused] = {}
        whole = self._converted_at_once(messages)
        at = 0
        for place, message in enumerate(messages):
            if whole is not None:
                batches[place] = whole.slice(at, len(message.rows))
                at += len(message.rows)
                continue
            try:
                batches[place] = self.topic.json_batch(self._rows(message))
            except RowRefused as error:
                refused[place] = error
        return batches, refused

    def _converted_at_once(self, messages: Sequence[IncomingMessage]) -> pa.RecordBatch | None:
        """All rows as one batch, which is far quicker than one by one; None when some row does not fit."""
        if len(messages) < 2:
            return None
        try:
            return self.topic.json_batch([row for message in messages for row in self._rows(message)])
        except RowRefused:
            return None

    def _rows(self, message: IncomingMessage) -> list[dict[str, Any]]:
        """The rows with the message's id; those of a message without one may have ids of their own."""
        if self.id_column is None or message.id is None:
            return list(message.rows)
        return [{**row, self.id_column: message.id} for row in message.rows]

    def _ids(self, batches: dict[int, pa.RecordBatch]) -> set[str]:
        found = {one for batch in batches.values() for one in batch.column(self.id_column).to_pylist()}
        return found - {None}

    def _new(self, batches: dict[int, pa.RecordBatch]) -> tuple[list[pa.RecordBatch], int]:
        """The batches that are not in the log, and how many messages were recognised."""
        if self.dedup_window is None:
            return [batch for batch in batches.values() if batch.num_rows], 0
        new: list[pa.RecordBatch] = []
        repeated = 0
        before: set[str] = set()  # ids of the messages before, which are to be written now
        for place, batch in batches.items():
            rest = self.dedup_window.missing(batch, besides=before)
            before |= self._ids({place: batch})
            if rest.num_rows:
                new.append(rest)
            elif batch.num_rows:
                repeated += 1
        return new, repeated


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
