"""Binlog stream: the transactions of a MariaDB or MySQL server.

What it is: ``MySQLStream`` reads events and passes transactions to ``ChangeWriter``.
Invariants: a transaction is passed on from its GTID event to its commit, if its position is not before the requested
one. A table's columns are those that the binlog names before the rows, not the table's present ones. Anything that
would be captured wrongly (statements in place of rows, XA, dropped partitions) is an error.
Not here: events and values (``binlog_events.py``, ``binlog_values.py``), the start position (``binlog_position.py``).
Read next: ``binlog_events.py``, ``capture/change_writer.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.capture.change_writer import ChangeWriter
from headwater.capture.database import SourceColumn, SourceTable
from headwater.capture.mysql import binlog_events, mysql_errors
from headwater.capture.mysql.binlog_connection import BinlogConnection
from headwater.capture.mysql.binlog_events import HEADER_BYTES, Header, TableMap
from headwater.capture.mysql.binlog_position import LastTransaction
from headwater.capture.mysql.binlog_statements import BinlogStatement, statement_of
from headwater.capture.mysql.binlog_values import RowLayout, reader_of
from headwater.capture.mysql.mysql_types import arrow_of_field, to_arrow
from headwater.capture.table_follower import TableFollower
from headwater.capture.text_rows import RowBuffer, TextRows
from headwater.errors import SourceUnavailable

if TYPE_CHECKING:
    from headwater.capture.mysql.mysql_database import MySQLDatabase

READ_SECONDS_MAX = 0.1  # then received rows are appended, also when more wait
LOOK_EVENTS = 64
ERROR, END = 0xFF, 0xFE
BINLOG_NOT_FOUND = {1236, 1220}


class MySQLRows(RowBuffer):
    """Rows of the binlog with the same columns."""

    def __init__(self, kinds: list[pa.DataType]) -> None:
        super().__init__()
        self.kinds = kinds

    def take(self, count: int) -> TextRows:
        rows, gone = self.split(count)
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, self.kinds, strict=True)]
        return TextRows(arrays, gone)


class _Table:
    """A table as the binlog described it last, and the target of its rows."""

    def __init__(self, follower: TableFollower, layout: RowLayout, kinds: list[pa.DataType]) -> None:
        self.follower = follower
        self.layout = layout
        self.kinds = kinds

    def rows(self) -> MySQLRows:
        """The target of the next row."""
        segments = self.follower.segments
        if segments and isinstance(segments[-1][1], MySQLRows) and segments[-1][0] is self.follower.shape:
            last: MySQLRows = segments[-1][1]
            return last
        segments.append((self.follower.shape, MySQLRows(self.kinds)))
        made: MySQLRows = segments[-1][1]
        return made


class MySQLStream:
    """The binlog from one position on."""

    def __init__(self, server: MySQLDatabase, changes: ChangeWriter, position: int) -> None:
        self.server = server
        self.changes = changes
        self.position = position
        self._asked = position
        self._log = server.binlog
        self._marker = changes.markers.last() if changes.marked else None  # of this generation
        self._domain = self._log.domain() if self._log.is_gtid else 0
        self._tables: dict[int, _Table | None] = {}
        self._described: dict[str, tuple[bytes, _Table]] = {}
        self._skipping = False  # the transaction was handed over before
        self._in_transaction = False
        self._open: tuple[int, int, str] | None = None  # of the transaction that comes: position, byte, GTID
        self._prepared = self._touched = False
        self._connect(trust=True)
        changes.passed(position)

    def _connect(self, *, trust: bool) -> None:
        begin = self._log.begin(self._asked, self._marker, trust=trust)
        self._expected = begin.gtid
        self._file, self._byte = begin.file, begin.byte
        self._connection = BinlogConnection(self.server, begin.file, begin.byte)

    # Reading

    def read(self, seconds: float) -> bool:
        """Pass on received changes, waiting this long for the first; whether any came."""
        came, until = 0, 0.0
        while True:
            packet = self._connection.take(0 if came else seconds)
            if packet is None:
                return came > 0
            if packet[0] != 0:
                self._refused(packet)
                continue
            self._event(packet)
            came += 1
            if came % LOOK_EVENTS == 0:
                if self._open is not None and not self._skipping:
                    for follower in self.changes.followers.values():
                        self.changes.cut(follower)
                until = until or time.monotonic() + READ_SECONDS_MAX
                if self.changes.full or time.monotonic() > until:
                    return True

    def _refused(self, packet: memoryview) -> None:
        if packet[0] == END:
            raise SourceUnavailable("the stream of the binlog ended", hint="It is tried again.")
        code = int.from_bytes(packet[1:3], "little")
        message = bytes(packet[9:]).decode(errors="replace")
        if code in BINLOG_NOT_FOUND and self._expected is not None:
            self._again()
            return
        if code in BINLOG_NOT_FOUND and not self._log.is_gtid:
            raise mysql_errors.purged(self._log.text(self.position), message)
        raise mysql_errors.map_error(mysql_errors.driver().OperationalError(code, message))

    def _again(self) -> None:
        """Search the position in all files, because the one in the marker was not found."""
        self._connection.close()
        self._tables.clear()
        self._connect(trust=False)

    def _event(self, packet: memoryview) -> None:
        header = binlog_events.header_of(packet, 1)
        at, end, kind = 1 + HEADER_BYTES, len(packet), header.kind
        if kind in binlog_events.ROWS:
            if not self._skipping:
                self._rows(kind, packet, at, end)
        elif kind == binlog_events.TABLE_MAP:
            if not self._skipping:
                self._table_map(packet, at, end)
        elif kind == binlog_events.MARIADB_GTID:
            gtid = binlog_events.mariadb_gtid_of(packet, at)
            self._mariadb_begins(header, gtid)
        elif kind in (binlog_events.GTID, binlog_events.ANONYMOUS):
            self._begins(self._log.number(self._file, self._byte), "", transaction=False)
        elif kind == binlog_events.XID:
            self._ends(header)
        elif kind in (binlog_events.QUERY, binlog_events.QUERY_COMPRESSED):
            self._query(
                header, *binlog_events.query_of(packet, at, end, compressed=kind == binlog_events.QUERY_COMPRESSED)
            )
        elif kind == binlog_events.ROTATE:
            self._file, self._byte = binlog_events.rotate_of(packet, at, end)
            self._tables.clear()
            return
        elif kind == binlog_events.XA_PREPARE:
            self._prepared_xa(header)
        elif kind in (binlog_events.TRANSACTION_PAYLOAD, binlog_events.PARTIAL_UPDATE):
            name = (
                "binlog_transaction_compression"
                if kind == binlog_events.TRANSACTION_PAYLOAD
                else "binlog_row_value_options"
            )
            raise mysql_errors.not_understood(
                f"the binlog is written with {name}, which is not captured",
                f"Turn it off on the server; {mysql_errors.THEN_RESTART}",
            )
        if header.end:
            self._byte = header.end
            self._log.read_to = (self._file, header.end)
            if self._open is None and not self._log.is_gtid:
                self._passed(self._log.number(self._file, header.end))

    # Transactions

    def _mariadb_begins(self, header: Header, gtid: binlog_events.MariadbGtid) -> None:
        text = f"{gtid.domain}-{header.server}-{gtid.sequence}"
        if self._expected is not None:
            expected, self._expected = self._expected, None
            if expected != text:
                self._again()
                return
        if self._log.is_gtid and gtid.domain != self._domain:
            # Its order relative to ours is unknown. It is skipped, unless it has rows of captured tables.
            self._skipping, self._open, self._in_transaction = False, None, not gtid.flags & binlog_events.STANDALONE
            return
        self._prepared = bool(gtid.flags & binlog_events.PREPARED_XA)
        if self._log.is_gtid:
            self._check_history(gtid.sequence, text)
        position = gtid.sequence if self._log.is_gtid else self._log.number(self._file, self._byte)
        self._begins(position, text, transaction=not gtid.flags & binlog_events.STANDALONE)

    def _check_history(self, sequence: int, text: str) -> None:
        """Check that a replica that took over has the last seen transaction, not another one of its number."""
        marker = self._marker
        if marker is not None and sequence == marker.number - 1:
            seen = marker.position.split(" ")[0]
            if seen != text and "?" not in seen:
                raise mysql_errors.other_history(seen, text)

    def _begins(self, position: int, gtid: str, *, transaction: bool) -> None:
        self._open = (position, self._byte, gtid)
        self._in_transaction = transaction
        self._touched = False
        self._skipping = position < self._asked
        if not self._skipping:
            self.changes.begin(position, position)

    def _ends(self, header: Header) -> None:
        self._in_transaction = False
        if self._open is None:
            return
        position, byte, gtid = self._open
        self._open = None
        end = position + 1 if self._log.is_gtid else self._log.number(self._file, header.end)
        if self._skipping:
            self._skipping = False
            return
        self._log.passed = LastTransaction(end, gtid, self._file, byte)
        self.position = end
        self.changes.commit(end, header.time_seconds * 1_000_000)

    def _passed(self, position: int) -> None:
        if position > self.position and position >= self._asked:
            self.position = position
            self.changes.passed(position)

    def _prepared_xa(self, header: Header) -> None:
        if self._touched:
            raise self._xa()
        self._ends(header)

    def _xa(self) -> Exception:
        return mysql_errors.not_understood("an XA transaction changed a captured table, and XA is not captured")

    # Statements

    def _query(self, header: Header, database: str, text: str) -> None:
        statement = statement_of(text, database)
        if statement.kind == "begin":
            self._in_transaction = True
        elif statement.kind == "commit":
            self._ends(header)
        elif statement.kind == "rollback":
            if self._touched:
                raise mysql_errors.not_understood("the binlog has a transaction that was rolled back")
            self._ends(header)
        else:
            if not self._skipping and self._open is not None:
                self._statement(statement)
            if not self._in_transaction:
                self._ends(header)

    def _statement(self, statement: BinlogStatement) -> None:
        for name, follower in self.changes.followers.items():
            if self.changes.verdict(follower) is False or not statement.names(name):
                continue
            if statement.kind == "empty":
                self.changes.empty(follower)
            elif statement.kind == "write":
                raise mysql_errors.not_understood(
                    f"a session wrote {name} with binlog_format=STATEMENT: {statement.text[:80]}"
                )
            elif statement.kind == "partition":
                raise mysql_errors.not_understood(f"rows of {name} went with a partition: {statement.text[:80]}")

    # Rows

    def _table_map(self, packet: memoryview, at: int, end: int) -> None:
        number, database, name, _ = binlog_events.table_map_name(packet, at)
        follower = self.changes.followers.get(f"{database}.{name}")
        if follower is None or not follower.streams:
            self._tables[number] = None
            return
        raw = bytes(packet[at + 6 : end])
        known = self._described.get(follower.source)
        if known is None or known[0] != raw:
            known = raw, self._taken_up(follower, binlog_events.table_map_of(packet, at, end))
            self._described[follower.source] = known
        self._tables[number] = known[1]

    def _taken_up(self, follower: TableFollower, described: TableMap) -> _Table:
        """Use these columns for the table from here on."""
        source = follower.source
        if not described.named:
            raise mysql_errors.not_understood(
                f"the binlog does not name the columns of {source}",
                f"SET GLOBAL binlog_row_metadata = FULL; {mysql_errors.THEN_RESTART}",
            )
        generated = self.server.generated(source)
        readers, kinds, columns, kept = [], [], [], []
        for field in described.fields:
            assert field.name is not None
            encoding = self.server.charset(field.collation) if field.collation is not None else None
            made, arrow = reader_of(field, encoding), arrow_of_field(field)
            if made is None or arrow is None:
                raise mysql_errors.unknown_type(source, field.name, f"number {field.kind}")
            readers.append(made[0])
            kept.append(field.name not in generated)
            if kept[-1]:
                kinds.append(made[1])
                columns.append(SourceColumn(field.name, arrow, to_arrow))
        key = tuple(str(described.fields[place].name) for place in described.key)
        shape = SourceTable(source, tuple(columns), key, follower.shape.rows_estimated)
        shape = self.server.at_door(shape)
        self.changes.reshape(follower, shape)
        return _Table(follower, RowLayout(readers, kept), kinds)

    def _rows(self, kind: int, packet: memoryview, at: int, end: int) -> None:
        table = self._tables.get(binlog_events.rows_table(packet, at))
        if table is None:
            return
        follower = table.follower
        if self._open is None:
            raise mysql_errors.not_understood(f"rows of {follower.source} came in another replication domain")
        verdict = self.changes.verdict(follower)
        if verdict is False:
            return
        if self._prepared:
            raise self._xa()
        self._touched = True
        event = binlog_events.rows_of(kind, packet, at, end)
        if not all(map(table.layout.whole, event.present)):
            raise mysql_errors.not_understood(
                f"the binlog does not have the whole rows of {follower.source}",
                f"SET GLOBAL binlog_row_image = FULL; {mysql_errors.THEN_RESTART}",
            )
        rows, places = table.rows(), follower.shape.key_places
        data, at, end = event.data, event.at, event.end
        first = places[0] if places else 0

        def add(row: list[Any], gone: bool, size: int) -> None:
            if verdict is not None or self.changes.counts(follower, str(row[first])):
                rows.add(row, gone, size)

        while at < end:
            row, after = table.layout.row(data, at, event.present[0])
            if kind in binlog_events.UPDATES:
                new, stop = table.layout.row(data, after, event.present[1])
                if not places or any(row[place] != new[place] for place in places):
                    add(row, True, after - at)
                add(new, False, stop - after)
                at = stop
            else:
                add(row, kind in binlog_events.DELETES, after - at)
                at = after

    # Position

    def confirm(self, position: int) -> None:
        """Nothing: the server retains nothing for the capture."""

    def ask(self) -> None:
        """Nothing: the end of the binlog comes by itself."""

    def close(self) -> None:
        self._connection.close()
        self._log.read_to = None
