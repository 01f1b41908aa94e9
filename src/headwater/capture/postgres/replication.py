"""Replication: the stream of a PostgreSQL replication slot.

What it is: ``PostgresStream`` starts replication on its own connection, passes each message to ``ChangeWriter``, and
confirms positions to the server. It uses libpq through psycopg's ``pq``.
Invariants: messages are passed on in order; a row's bytes are kept unparsed until a whole batch is read. A confirmed
position never goes back.
Not here: messages (``pgoutput.py``), the use of rows (``capture/change_writer.py``).
Read next: ``pgoutput.py``, ``capture/change_writer.py``.
"""

from __future__ import annotations

import select
import struct
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.capture.change_writer import ChangeWriter
from headwater.capture.database import SourceTable
from headwater.capture.postgres import pgoutput
from headwater.capture.postgres.pgoutput import EPOCH_US, RelationMessage, Tuples, after_tuple, values_of
from headwater.capture.table_follower import TableFollower
from headwater.capture.text_rows import TextRows
from headwater.errors import SourceUnavailable

if TYPE_CHECKING:
    from headwater.capture.postgres.postgres_database import PostgresDatabase

READ_SECONDS_MAX = 0.1  # then received rows are appended, also when more wait
LOOK_MESSAGES = 512
_STATUS = struct.Struct(">cQQQqB")
_KEEPALIVE = struct.Struct(">QqB")
HEADER = 25  # of a message of the log, in front of what pgoutput says
NEW, OLD_ROW = ord("N"), ord("O")


class PostgresRows:
    """Rows with the same columns, as messages."""

    def __init__(self) -> None:
        self.tuples = Tuples()
        self.gone: list[bool] = []
        self.moved: list[int] = []

    @property
    def bytes(self) -> int:
        return self.tuples.bytes

    def __len__(self) -> int:
        return len(self.gone)

    def sizes(self) -> list[int]:
        return list(map(len, self.tuples.messages))

    def take(self, count: int) -> TextRows:
        first, self.tuples = self.tuples.split(count)
        gone, self.gone = self.gone[:count], self.gone[count:]
        moved = frozenset(place for place in self.moved if place < count)
        self.moved = [place - count for place in self.moved if place >= count]
        columns = first.columns(self.width)
        unchanged = {place: column.unchanged for place, column in enumerate(columns) if column.unchanged is not None}
        return TextRows([column.values for column in columns], np.array(gone, np.bool_), unchanged, moved)

    width = 0  # the number of columns of a row


class _Sink:
    """The target of one table's rows during one transaction."""

    __slots__ = ("by_row", "changes", "follower", "key_place", "rows")

    def __init__(self, changes: ChangeWriter, follower: TableFollower, rows: PostgresRows, by_row: bool) -> None:
        self.changes = changes
        self.follower = follower
        self.rows = rows
        self.by_row = by_row
        self.key_place = follower.shape.key_places[0] if follower.shape.key else 0

    def add(self, data: memoryview, at: int, gone: bool, moved: bool = False) -> bool:
        """Add one row; whether it counts. A ``moved`` row was the last added row before."""
        if self.by_row:
            key = values_of(data, at)[self.key_place]
            if key is None or not self.changes.counts(self.follower, key.decode()):
                return False
        rows = self.rows
        if moved:
            rows.moved.append(len(rows.gone))
        tuples = rows.tuples
        tuples.messages.append(data)
        tuples.starts.append(at)
        tuples.bytes += len(data)
        rows.gone.append(gone)
        return True


class PostgresStream:
    """The stream of one slot."""

    def __init__(self, server: PostgresDatabase, changes: ChangeWriter, position: int) -> None:
        from psycopg.pq import ExecStatus

        self.server = server
        self.changes = changes
        self.position = position
        self.confirmed = 0
        self._relations: dict[int, TableFollower | None] = {}
        self._sinks: dict[int, _Sink | None] = {}
        self._in_transaction = False
        self._answered = time.monotonic()
        self._connection = server.connect(replication="database")
        self._pq = self._connection.pgconn
        options = f"proto_version '1', publication_names '\"{server.name}\"'"
        start = f'START_REPLICATION SLOT "{server.name}" LOGICAL {server.text(position)} ({options})'
        result = self._pq.exec_(start.encode())
        if result.status != ExecStatus.COPY_BOTH:
            message = result.error_message.decode(errors="replace").strip()
            self._connection.close()
            raise server.refused(message)
        self._pq.nonblocking = 1

    def read(self, seconds: float) -> bool:
        """Pass on received changes, waiting this long for the first; whether any came."""
        from psycopg import OperationalError

        try:
            return self._read(seconds)
        except OperationalError as error:
            raise self.server.unavailable(error) from error

    def _read(self, seconds: float) -> bool:
        take, came, until = self._pq.get_copy_data, 0, 0.0
        socket = self._pq.socket
        while True:
            size, data = take(1)
            if size > 0:
                self._message(data)
                came += 1
                if came % LOOK_MESSAGES == 0:
                    self._cut()
                    until = until or time.monotonic() + READ_SECONDS_MAX
                    if self.changes.full or time.monotonic() > until:
                        return True
                continue
            if size < 0:
                raise self._ended()
            if not _readable(socket, 0 if came else seconds):
                self._keep_alive()
                return came > 0
            self._pq.consume_input()

    def _ended(self) -> Exception:
        result = self._pq.get_result()
        message = result.error_message.decode(errors="replace").strip() if result else ""
        return SourceUnavailable(f'the stream of slot "{self.server.name}" ended', detail=message or None)

    # Messages

    def _message(self, data: memoryview) -> None:
        if data[0] != 119:  # w: log data; otherwise k: a keepalive
            self._alive(data)
            return
        kind = data[HEADER]
        if kind == 73:  # I: insert
            sink = self._sink(data)
            if sink is not None:
                sink.add(data, HEADER + 6, False)
        elif kind == 85:  # U: update
            sink = self._sink(data)
            if sink is not None:
                self._update(sink, data)
        elif kind == 68:  # D: delete
            sink = self._sink(data)
            if sink is not None:
                sink.add(data, HEADER + 6, True)
        elif kind == 66:  # B
            begin = pgoutput.begin_of(data, HEADER)
            self._in_transaction = True
            self._sinks.clear()
            self.changes.begin(begin.place, begin.number)
        elif kind == 67:  # C
            commit = pgoutput.commit_of(data, HEADER)
            self._in_transaction = False
            self.changes.commit(commit.end, commit.committed_us)
            self.position = commit.end
        elif kind == 82:  # R
            self._relation(pgoutput.relation_of(data, HEADER))
        elif kind == 84:  # T
            for number in pgoutput.truncate_of(data, HEADER).relations:
                follower = self._relations.get(number)
                if follower is not None and self.changes.verdict(follower) is not False:
                    self._sinks.pop(number, None)
                    self.changes.empty(follower)
                    follower.segments.append((follower.shape, _rows(follower.shape)))

    def _sink(self, data: memoryview) -> _Sink | None:
        number = int.from_bytes(data[HEADER + 1 : HEADER + 5], "big")
        if number in self._sinks:
            return self._sinks[number]
        follower = self._relations.get(number)
        sink = None
        if follower is not None:
            verdict = self.changes.verdict(follower)
            if verdict is not False:
                if not follower.segments or not isinstance(follower.segments[-1][1], PostgresRows):
                    follower.segments.append((follower.shape, _rows(follower.shape)))
                sink = _Sink(self.changes, follower, follower.segments[-1][1], verdict is None)
        self._sinks[number] = sink
        return sink

    def _update(self, sink: _Sink, data: memoryview) -> None:
        at = HEADER + 6
        if data[at - 1] == NEW:
            sink.add(data, at, False)
            return
        new = after_tuple(data, at) + 1
        if data[at - 1] == OLD_ROW and sink.follower.shape.key and self._same_key(sink.follower.shape, data, at, new):
            sink.add(data, new, False)
            return
        counted = sink.add(data, at, True)
        sink.add(data, new, False, moved=counted)

    def _same_key(self, shape: SourceTable, data: memoryview, old: int, new: int) -> bool:
        before, after = values_of(data, old), values_of(data, new)
        return all(before[place] == after[place] for place in shape.key_places)

    def _relation(self, relation: RelationMessage) -> None:
        follower = self.changes.followers.get(f"{relation.schema}.{relation.name}")
        self._relations[relation.number] = follower
        self._sinks.pop(relation.number, None)
        if follower is None or not follower.streams:
            return
        shape = self.server.shape_of(relation, follower.shape)
        self.changes.reshape(follower, shape)
        follower.segments.append((follower.shape, _rows(follower.shape)))

    def _cut(self) -> None:
        for sink in self._sinks.values():
            if sink is not None:
                self.changes.cut(sink.follower)

    # Position

    def _alive(self, data: memoryview) -> None:
        end, _, wanted = _KEEPALIVE.unpack_from(data, 1)
        if not self._in_transaction:
            self.position = max(self.position, end)
            self.changes.passed(end)
        if wanted:
            self._send(0)

    def _keep_alive(self) -> None:
        if time.monotonic() - self._answered > 5:
            self._send(0)

    def confirm(self, position: int) -> None:
        if position > self.confirmed:
            self.confirmed = position
            self._send(0)

    def ask(self) -> None:
        """Request a keepalive, which has the server's position in its log."""
        self._send(1)

    def _send(self, wanted: int) -> None:
        from psycopg import OperationalError

        now = int(time.time() * 1e6) - EPOCH_US
        confirmed = self.confirmed
        try:
            self._pq.put_copy_data(_STATUS.pack(b"r", confirmed, confirmed, confirmed, now, wanted))
            self._pq.flush()
        except OperationalError as error:
            raise self.server.unavailable(error) from error
        self._answered = time.monotonic()

    def close(self) -> None:
        self._connection.close()


def _rows(shape: SourceTable) -> Any:
    rows = PostgresRows()
    rows.width = len(shape.columns)
    return rows


def _readable(descriptor: int, seconds: float) -> bool:
    """Whether data arrives in time. Not select, which is limited to the first 1024 descriptors."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(seconds * 1000))
