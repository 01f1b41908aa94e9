"""Debezium source: a topic of Debezium messages as a captured database.

What it is: ``Debezium``, the user's declaration, and the contract of ``capture/database.py`` for it: the topic is the
replication log, and a position is an offset.
Invariants: each message is taken once, in the topic's order. The table is visible after the messages that the topic
held at the first run were read; there is no other backfill.
Not here: the message format (``envelope.py``). Read next: ``envelope.py``, ``docs/debezium.md``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from headwater.capture.change_writer import ChangeWriter
from headwater.capture.database import BackfillChunk, CaptureLag, ChunkRead, Losses, SourceColumn, SourceTable
from headwater.capture.debezium.envelope import EMPTIED, GONE, NOTHING, PUT, UNAVAILABLE, Change, change_of, text_of
from headwater.capture.mysql.mysql_types import to_arrow
from headwater.capture.position import Prefix
from headwater.capture.table_follower import TableFollower
from headwater.capture.text_rows import RowBuffer, TextRows
from headwater.errors import CaptureLost, InvalidDeclaration, OffsetOutOfRange, SourceRefused, SourceUnavailable
from headwater.log.contract import EventLog, EventTopic
from headwater.log.schema.normalization import normalize_schema

PLACES_PER_OFFSET = 8
ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Debezium:
    """A topic of JSON messages of Debezium as the source of a table.

    ``schema`` and ``key`` declare the rows; messages need no schema. ``value`` is the topic's column with the message.
    ``time_unit`` is the unit of a TIMESTAMP where the message has no schema.

    >>> import headwater as hw
    >>> hw.capture.Debezium("dbz.users", schema="id BIGINT, name STRING", key="id")
    Debezium(topic='dbz.users', schema='id BIGINT, name STRING', key='id', value='value', time_unit='us')
    """

    topic: str
    schema: str
    key: str | tuple[str, ...]
    value: str = "value"
    time_unit: str = "us"

    def __post_init__(self) -> None:
        names = normalize_schema(self.schema).names
        missing = [name for name in self.keys if name not in names]
        if missing:
            raise InvalidDeclaration(f"the key {missing[0]!r} is no column of the schema", hint=f"Columns: {names}")
        if self.time_unit not in ("ms", "us", "ns"):
            raise InvalidDeclaration(f"time_unit cannot be {self.time_unit!r}", hint="Use ms, us or ns.")

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)

    @property
    def door(self) -> None:
        """None: the messages are in the log already, as they came."""

    @property
    def table(self) -> str:
        return self.topic

    def capture_name(self, app: str) -> str:
        plain = re.sub("[^a-z0-9_]", "_", f"{app}_{self.topic}".lower())
        return f"debezium_{plain[:50]}"

    def server(self, app: str, log: EventLog | None = None) -> DebeziumDatabase:
        assert log is not None
        return DebeziumDatabase(self, self.capture_name(app), log)


class DebeziumDatabase:
    """One topic of messages."""

    def __init__(self, source: Debezium, name: str, log: EventLog) -> None:
        self.source = source
        self.name = name
        self.log = log
        self.base = 0

    def topic(self) -> EventTopic:
        topic = self.log.find_topic(self.source.topic)
        if topic is None:
            raise SourceUnavailable(
                f'there is no topic "{self.source.topic}" yet', hint="Declare it, and append the messages to it."
            )
        if len(topic.end_offsets()) != 1:
            raise SourceRefused(
                f'topic "{self.source.topic}" has several partitions, and a table follows one order',
                hint="Copy the messages into a topic with one partition.",
            )
        if self.source.value not in topic.schema.names or not kinds.is_string(
            topic.schema.field(self.source.value).type
        ):
            raise SourceRefused(
                f'topic "{self.source.topic}" has no column "{self.source.value}" of STRING',
                hint="Name the column with the messages: Debezium(…, value=…).",
            )
        return topic

    def describe(self, table: str) -> SourceTable:
        fields = normalize_schema(self.source.schema)
        # Texts and bytes may be missing in an update, so they are remembered (``large_values.py``).
        columns = tuple(
            SourceColumn(
                field.name, field.type, _read, 8 if kinds.is_string(field.type) or kinds.is_binary(field.type) else 0
            )
            for field in fields
        )
        return SourceTable(table, columns, self.source.keys)

    def identity(self) -> str:
        return f"{self.source.topic}#{self.topic().id}"

    def remove_leftovers(self, *, ours: bool) -> None:
        """Nothing to remove."""

    def create(self, tables: Sequence[str]) -> int:  # noqa: ARG002
        return self.topic().start_offsets()[0]

    def check(self, confirmed: Callable[[], int | None]) -> None:
        """Nothing: the stream checks it."""

    def claim(self) -> None:
        """Nothing: the process that holds the producers follows, and the other one is fenced."""

    def include(self, tables: Sequence[str], stopping: Callable[[], bool]) -> None:
        """Nothing: the topic has everything."""

    def chunks(self, shape: SourceTable) -> list[BackfillChunk]:  # noqa: ARG002
        """None: the table becomes visible when the topic was read up to its present end."""
        return [BackfillChunk(0, None, None)]

    def read(self, shape: SourceTable, chunk: BackfillChunk) -> ChunkRead:  # noqa: ARG002
        return ChunkRead(str(Prefix(self.base)), self.reach(), iter(()))

    def filled(self, table: str, columns: Sequence[str]) -> bool:  # noqa: ARG002
        return False

    def in_chunk(self, shape: SourceTable, chunk: BackfillChunk, key: str) -> bool:  # noqa: ARG002
        return True

    def reach(self) -> int:
        return self.topic().end_offsets()[0]

    def stream(self, changes: ChangeWriter, position: int) -> DebeziumStream:
        return DebeziumStream(self, changes, position)

    def lag(self) -> CaptureLag:
        return CaptureLag(None, False, "topic")

    def drop(self) -> None:
        """Nothing to remove."""

    def text(self, position: int) -> str:
        return f"{self.source.topic}@{position}"

    def place(self, position: int) -> int:
        return max(0, position - self.base) * PLACES_PER_OFFSET

    def close(self) -> None:
        """Nothing: the log belongs to the caller."""


class DebeziumRows(RowBuffer):
    """Rows of one shape, as texts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def take(self, count: int) -> TextRows:
        rows, gone = self.split(count)
        columns, unchanged = [], {}
        for place in range(self.width):
            values = [row[place] for row in rows]
            absent = np.array([value == UNAVAILABLE for value in values], np.bool_) & ~gone
            if absent.any():
                unchanged[place] = absent
                values = [None if value == UNAVAILABLE else value for value in values]
            columns.append(pa.array(values, pa.string()))
        return TextRows(columns, gone, unchanged)


class DebeziumStream:
    """The topic from one offset on. Each offset is a transaction."""

    def __init__(self, server: DebeziumDatabase, changes: ChangeWriter, position: int) -> None:
        self.server = server
        self.changes = changes
        self.position = position
        self._topic = server.topic()
        (self._follower,) = changes.followers.values()
        changes.passed(position)

    def read(self, seconds: float) -> bool:
        """Pass on received changes, waiting this long for the first; whether any came."""
        topic, column = self._topic, self.server.source.value
        if topic.end_offsets()[0] <= self.position and not topic.wait({0: self.position}, timeout=seconds):
            return False
        try:
            for batch in topic.read_partition(0, self.position, columns=[column], rows_max=ROWS_AT_ONCE):
                rows = zip(batch.offsets.tolist(), batch.data.column(column).to_pylist(), strict=True)
                for offset, texts in groupby(rows, key=itemgetter(0)):
                    self._messages(offset, [change_of(text, f"{topic.name}@{offset}") for _, text in texts])
                self.position = batch.next_offset
                self.changes.passed(self.position)
                if self.changes.full or batch.num_rows:
                    break
        except OffsetOutOfRange as error:
            raise CaptureLost(
                f'topic "{topic.name}" has dropped messages that the table has not seen',
                detail=str(error),
                hint="Raise the topic's retention; then: headwater capture restart APP.py",
            ) from error
        return True

    def _messages(self, offset: int, changes: Sequence[Change]) -> None:
        """The messages at one offset, which are one transaction: rows that Kafka holds as one have the same."""
        said = [change for change in changes if change.kind != NOTHING]
        if not said:
            self.changes.passed(offset + 1)
            return
        self.changes.begin(offset, offset)
        if self.changes.verdict(self._follower) is not False:
            for change in said:
                self._take(self._follower, change)
        self.changes.commit(offset + 1, said[-1].at_ms * 1000)

    def _take(self, follower: TableFollower, change: Change) -> None:
        if change.kind == EMPTIED:
            self.changes.empty(follower)
            return
        shape = follower.shape
        if not follower.segments or not isinstance(follower.segments[-1][1], DebeziumRows):
            follower.segments.append((shape, DebeziumRows(len(shape.columns))))
        rows: DebeziumRows = follower.segments[-1][1]
        before = self._texts(change.before, change, shape) if change.before is not None else None
        if change.kind == GONE and before is not None:
            rows.add(before, True, _size(before))
        elif change.kind == PUT:
            after = self._texts(change.after, change, shape)
            places = shape.key_places
            if before is not None and any(before[place] not in (None, after[place]) for place in places):
                rows.add(before, True, _size(before))
            rows.add(after, False, _size(after))

    def _texts(self, row: dict[str, Any] | None, change: Change, shape: SourceTable) -> list[str | None]:
        units, unit, values = change.units or {}, self.server.source.time_unit, row or {}
        return [
            UNAVAILABLE
            if values.get(column.name) == UNAVAILABLE
            else text_of(values.get(column.name), column.arrow, units.get(column.name, unit))
            for column in shape.columns
        ]

    def confirm(self, position: int) -> None:
        """Nothing: the topic has its own retention."""

    def ask(self) -> None:
        """Nothing: the end of a topic is known."""

    def close(self) -> None:
        """Nothing: the log belongs to the caller."""


def _size(row: list[str | None]) -> int:
    return sum(len(text) for text in row if text is not None)


def _read(texts: pa.Array, arrow: pa.DataType, losses: Losses) -> pa.Array:
    if kinds.is_binary(arrow):
        return pa.array([None if text is None else base64.b64decode(text) for text in texts.to_pylist()], arrow)
    return to_arrow(texts, arrow, losses)
