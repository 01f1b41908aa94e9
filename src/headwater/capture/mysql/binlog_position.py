"""Binlog positions: places in the binlog as rising numbers.

What it is: ``Binlog`` gives the end of a server's binlog, the position of a snapshot, and the file and byte of a
position.
Invariants: a position is the first transaction that was *not* seen. By GTID it is a sequence number within one domain,
which continues on a replica that takes over; by file it is the file's number and a byte, valid on one server only.
Not here: reading the binlog (``binlog_stream.py``). Read next: ``binlog_stream.py``, ``docs/mysql.md``, "Positions".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.capture.mysql import mysql_errors
from headwater.errors import SourceRefused

if TYPE_CHECKING:
    from headwater.capture.mysql.mysql_database import MySQLDatabase
    from headwater.log.event_time.capture_markers import Marker

FILE_SHIFT = 32
FILE_START = 4
# The smallest transaction has more than 40 bytes, so two are five places apart, as ``position.py`` requires.
FILE_UNIT = 8
PLACES_PER_GTID = 8
MARKER = re.compile(r"(\d+)-(\d+)-(\d+) (\S+):(\d+)")
LIST = re.compile(r"(\d+)-(\d+)-(\d+)")


def place_of(position: int, base: int, is_gtid: bool) -> int:
    """A position as a number for sequences, counted from where the capture began.

    >>> place_of(12, 10, True), place_of((1 << 32) + 80, 1 << 32, False)
    (16, 10)
    """
    after = max(0, position - base)
    return after * PLACES_PER_GTID if is_gtid else after // FILE_UNIT


@dataclass(frozen=True)
class BinlogBegin:
    """The start of a read."""

    file: str
    byte: int
    gtid: str | None = None  # of the transaction that must be there


@dataclass(frozen=True)
class LastTransaction:
    """The last transaction that was read."""

    position: int  # behind it
    gtid: str
    file: str
    byte: int  # where it began


class Binlog:
    """The binlog of one server."""

    def __init__(self, server: MySQLDatabase, positions: str | None) -> None:
        self.server = server
        self.passed: LastTransaction | None = None
        self.read_to: tuple[str, int] | None = None  # the file and byte that the stream is at
        self._wanted = positions
        self._is_mariadb: bool | None = None
        self._domain: int | None = None
        self._stem = ""

    @property
    def is_mariadb(self) -> bool:
        if self._is_mariadb is None:
            ((version,),) = self.server.ask("SELECT version()")
            self._is_mariadb = "mariadb" in version.lower()
        return self._is_mariadb

    @property
    def is_gtid(self) -> bool:
        """Whether positions are GTIDs of MariaDB."""
        if self._wanted == "gtid" and not self.is_mariadb:
            raise SourceRefused(
                "only MariaDB's GTIDs can be counted, and this server is MySQL", hint='Use positions="file".'
            )
        return self.is_mariadb and self._wanted != "file"

    def identity(self) -> str:
        """The identity that a replica shares with this server; by file: one that no other server has."""
        if self.is_gtid:
            return f"domain {self.domain()}"
        unique = "@@server_uid" if self.is_mariadb else "@@server_uuid"
        ((number, name),) = self.server.ask(f"SELECT @@server_id, {unique}")
        return f"{number}-{name}"

    def domain(self) -> int:
        if self._domain is None:
            ((domain,),) = self.server.ask("SELECT @@GLOBAL.gtid_domain_id")
            self._domain = int(domain)
        return self._domain

    # The end

    def end(self) -> int:
        """The position after everything that is committed."""
        if self.is_gtid:
            ((text,),) = self.server.ask("SELECT @@GLOBAL.gtid_binlog_pos")
            return self._sequence(text) + 1
        file, byte = self._status()
        return self.number(file, byte)

    def of_snapshot(self, reader: Any) -> int:
        """The position after everything that this connection's transaction sees. MariaDB keeps it with the snapshot."""
        rows = self.server.ask("SHOW STATUS LIKE 'binlog_snapshot_%'", on=reader)
        found = {_text(name).lower(): _text(value) for name, value in rows}
        file, byte = found["binlog_snapshot_file"], found["binlog_snapshot_position"]
        ((gtid,),) = self.server.ask("SELECT BINLOG_GTID_POS(%s, %s)", (file, int(byte)))
        return self._sequence(gtid or "") + 1

    def _sequence(self, gtids: str) -> int:
        domain = self.domain()
        return max((int(each[2]) for each in LIST.findall(gtids) if int(each[0]) == domain), default=0)

    def _status(self) -> tuple[str, int]:
        try:
            rows = self.server.ask("SHOW MASTER STATUS")
        except SourceRefused:  # MySQL 8.4 has another name for it
            rows = self.server.ask("SHOW BINARY LOG STATUS")
        if not rows:
            raise mysql_errors.setting("log_bin", "OFF", "ON")
        return rows[0][0], int(rows[0][1])

    def number(self, file: str, byte: int) -> int:
        """A file and a byte in it as one number."""
        self._stem, _, number = file.rpartition(".")
        return (int(number) << FILE_SHIFT) + byte

    def name(self, position: int) -> tuple[str, int]:
        """The file and the byte of a number."""
        if not self._stem:
            self._status_stem()
        return f"{self._stem}.{position >> FILE_SHIFT:06d}", position & ((1 << FILE_SHIFT) - 1)

    def _status_stem(self) -> None:
        self._stem = self._status()[0].rpartition(".")[0]

    def text(self, position: int) -> str:
        """A position as text: the last GTID that was seen, and its place; or the file and the byte."""
        passed = self.passed
        if not self.is_gtid:
            file, byte = self.name(position)
            return f"{file}:{byte}"
        if passed is not None and passed.position == position:
            return f"{passed.gtid} {passed.file}:{passed.byte}"
        return f"{self.domain()}-?-{position - 1}"

    def bytes_behind(self) -> int | None:
        """The bytes that the stream has not read; None: there is no stream."""
        if self.read_to is None:
            return None
        file, byte = self.read_to
        later = [int(row[1]) for row in self.server.ask("SHOW BINARY LOGS") if row[0] >= file]
        return max(0, sum(later) - byte)

    # The start

    def begin(self, position: int, marker: Marker | None, *, trust: bool = True) -> BinlogBegin:
        """The start from which nothing at or after this position is missed."""
        files = [row[0] for row in self.server.ask("SHOW BINARY LOGS")]
        end = self.end()
        if position > end:
            raise mysql_errors.behind(self.text(position), self.text(end))
        if not self.is_gtid:
            file, byte = self.name(position)
            if file not in files:
                raise mysql_errors.purged(self.text(position), files[0])
            return BinlogBegin(file, max(byte, FILE_START))
        noted = MARKER.fullmatch(marker.position) if marker is not None and marker.number == position else None
        if noted and trust and noted[4] in files:
            gtid = "-".join(noted.groups()[:3])
            self.passed = LastTransaction(position, gtid, noted[4], int(noted[5]))
            return BinlogBegin(noted[4], int(noted[5]), gtid)
        for file in reversed(files):
            if self._before(file) < position:
                return BinlogBegin(file, FILE_START)
        raise mysql_errors.purged(self.text(position), files[0])

    def _before(self, file: str) -> int:
        """The last sequence number in the files before this one: each file begins with it."""
        rows = self.server.ask("SHOW BINLOG EVENTS IN %s LIMIT 4", (file,))
        return next((self._sequence(row[5]) for row in rows if row[2] == "Gtid_list"), 0)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
