"""Ingest: messages become rows of a topic, each message once.

What it is: ``Ingest`` takes parsed messages, skips those that the topic has (by id, if an id column is declared),
checks the rows, and appends new ones as one batch.
Invariants: when ``take`` returns, the log has the rows, as durably as the topic's policy says; a message that does not
fit is refused whole, and does not hold up the others. Ids are stored with the rows, in one transaction
(``log/commits/request_ids.py``), so a message is written once, over threads, processes and crashes.
Not here: receiving (``inlets/webhook/webhook_receiver.py``, ``inlets/amqp/amqp_inlet.py``, …), the handling of refused
messages. Read next: ``log/commits/request_ids.py``, ``docs/inlets.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import Backpressure, InvalidDeclaration, RowRefused
from headwater.inlets.counters import CounterStore
from headwater.inlets.message_door import MessageDoor
from headwater.log.commits.request_ids import IdsKnown
from headwater.log.contract import EventTopic
from headwater.log.schema.event_metadata import Metadata, with_metadata


@dataclass(frozen=True)
class IncomingMessage:
    """One message: its rows, its id if the sender gave one outside the rows, and what it says about itself."""

    rows: tuple[dict[str, Any], ...]
    id: str | None = None
    metadata: Metadata | None = None


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

    def __init__(self, topic: EventTopic, counter_store: CounterStore, *, id_column: str | None = None) -> None:
        schema = topic.schema
        if id_column is not None and (
            id_column not in schema.names or not pa.types.is_string(schema.field(id_column).type)
        ):
            raise InvalidDeclaration(
                f'topic "{topic.name}" has no STRING column "{id_column}" for the ids of messages',
                hint=f'Declare it with "{id_column} STRING" among its columns, or name another one: id_column="…".',
                topic=topic.name,
                column=id_column,
            )
        self.topic = topic
        self.counter_store = counter_store
        self.id_column = id_column
        self.door: MessageDoor | None = None

    def take(self, messages: Sequence[IncomingMessage]) -> Ingested:
        """Append the new ones of these messages, and count."""
        batches, refused = self._checked(messages)
        ids = self._ids(batches.values())
        while True:
            new, repeated = self._new(batches, self.topic.known_ids(ids) if ids else set())
            try:
                dropped = self._appended(new) if new else 0
                break
            except IdsKnown:  # another thread or process was first, with at least one of them
                continue
        taken = Ingested(sum(batch.num_rows for batch in new) - dropped, dropped, repeated, refused)
        self.counter_store.count(appended=taken.appended_rows, dropped=dropped, repeated=repeated, refused=len(refused))
        return taken

    def _appended(self, new: list[pa.RecordBatch]) -> int:
        """Append rows with their ids; returns how many were dropped, for the topic's policy may be that."""
        topic, rows = self.topic, _joined(new)
        rows = rows if self.door is None else self.door.batch(rows)
        try:
            return topic.append_messages(rows, self._ids(new)).dropped_rows
        except Backpressure:
            if topic.settings.overflow != "drop":
                raise
            topic.count_dropped(rows.num_rows)
            dropped: int = rows.num_rows
            return dropped

    def _checked(self, messages: Sequence[IncomingMessage]) -> tuple[dict[int, pa.RecordBatch], dict[int, RowRefused]]:
        """The rows of each message as a batch, by its index; and the refused messages."""
        batches: dict[int, pa.RecordBatch] = {}
        refused: dict[int, RowRefused] = {}
        whole = self._converted_at_once(messages)
        at = 0
        for place, message in enumerate(messages):
            if whole is not None:
                batches[place] = with_metadata(whole.slice(at, len(message.rows)), message.metadata)
                at += len(message.rows)
                continue
            try:
                batches[place] = with_metadata(self.topic.json_batch(self._rows(message)), message.metadata)
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
        rows = message.rows if self.door is None else [self.door.row(row) for row in message.rows]
        if self.id_column is None or message.id is None:
            return list(rows)
        return [{**row, self.id_column: message.id} for row in rows]

    def _ids(self, batches: Iterable[pa.RecordBatch]) -> set[str]:
        if self.id_column is None:
            return set()
        return {one for batch in batches for one in batch.column(self.id_column).to_pylist()} - {None}

    def _new(self, batches: dict[int, pa.RecordBatch], known: set[str]) -> tuple[list[pa.RecordBatch], int]:
        """The rows whose ids are not known, message by message, and how many messages were recognised."""
        if self.id_column is None:
            return [batch for batch in batches.values() if batch.num_rows], 0
        new: list[pa.RecordBatch] = []
        repeated = 0
        seen = set(known)  # and the ids of the messages before, which are to be written now
        for batch in batches.values():
            keep = [one is None or one not in seen for one in batch.column(self.id_column).to_pylist()]
            seen |= self._ids([batch])
            if any(keep):
                new.append(batch if all(keep) else batch.filter(pa.array(np.array(keep, dtype=bool))))
            elif keep:
                repeated += 1
        return new, repeated


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    # Messages without metadata lack its columns: these are null then.
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="default").combine_chunks().to_batches()[0]
