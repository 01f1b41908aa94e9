"""Binlog connection: packets of a server's binlog.

What it is: ``BinlogConnection`` requests the binlog from a file and byte on, as a replica does, and splits it into
packets. pymysql makes the connection.
Invariants: a wait that ends early loses no part of a packet. A server that is silent for longer than its heartbeats
allow is unavailable. Checksums are verified.
Not here: the events (``binlog_events.py``). Read next: ``binlog_stream.py``.
"""

from __future__ import annotations

import random
import struct
import time
import zlib
from typing import TYPE_CHECKING, Any

from headwater.capture.mysql import mysql_errors
from headwater.errors import SourceUnavailable

if TYPE_CHECKING:
    from headwater.capture.mysql.mysql_database import MySQLDatabase

COM_BINLOG_DUMP = 0x12
HEARTBEAT_SECONDS = 5
SILENT_SECONDS_MAX = 30.0
RECEIVE_BYTES = 1 << 18
PACKET_BYTES_MAX = 0xFFFFFF
KIND_AT, FORMAT_DESCRIPTION = 5, 15
CRC32, CHECKSUM_BYTES = 1, 4


class BinlogConnection:
    """A server's binlog, packet by packet."""

    def __init__(self, server: MySQLDatabase, file: str, byte: int) -> None:
        self._connection = server.connect()
        for name, value in {
            "master_binlog_checksum": "@@GLOBAL.binlog_checksum",  # otherwise a server with checksums does not send
            "master_heartbeat_period": str(HEARTBEAT_SECONDS * 1_000_000_000),
            "mariadb_slave_capability": "4",  # real GTIDs, not the form for older replicas
        }.items():
            server.ask(f"SET @{name} = {value}", on=self._connection)
            # The name on newer MySQL servers.
            server.ask(f"SET @{name.replace('master_', 'source_')} = {value}", on=self._connection)
        ((checksum,),) = server.ask("SELECT @@GLOBAL.binlog_checksum")
        self._summed = checksum != "NONE"  # until the file says it
        # A unique number: a server has one reader for each, and disconnects an older one.
        number = random.randrange(1 << 31, 1 << 32)
        request = struct.pack("<BIHI", COM_BINLOG_DUMP, byte, 0, number) + file.encode()
        self._socket: Any = self._connection._sock
        self._buffer = bytearray()
        self._start = 0
        self._heard = time.monotonic()
        try:
            self._socket.sendall(struct.pack("<I", len(request)) + request)
        except OSError as error:
            raise mysql_errors.map_error(error) from error

    def take(self, seconds: float) -> memoryview | None:
        """The next packet, waiting this long for it; None: none came."""
        until = time.monotonic() + seconds
        while (parts := self._parts()) is None:
            if not self._receive(until - time.monotonic()):
                return None
        buffer = self._buffer
        found = [bytes(buffer[start:end]) for start, end in parts]
        self._start = parts[-1][1]
        return self._checked(found[0] if len(found) == 1 else b"".join(found))

    def _checked(self, packet: bytes) -> memoryview:
        """The packet without the checksum at its end."""
        if packet[0] != 0:
            return memoryview(packet)
        if packet[KIND_AT] == FORMAT_DESCRIPTION:  # says for its file whether events have one, and has one itself
            self._summed = packet[-CHECKSUM_BYTES - 1] == CRC32
            return memoryview(packet)
        if not self._summed:
            return memoryview(packet)
        view = memoryview(packet)
        body = view[:-CHECKSUM_BYTES]
        if zlib.crc32(body[1:]) != int.from_bytes(view[-CHECKSUM_BYTES:], "little"):
            raise SourceUnavailable("an event of the binlog was damaged in transit", hint="It is tried again.")
        return body

    def _parts(self) -> list[tuple[int, int]] | None:
        """The positions of the next packet's parts; None: it is incomplete. Only a packet of 16 MB has several."""
        buffer, at, parts = self._buffer, self._start, []
        while len(buffer) - at >= 4:
            size = buffer[at] | buffer[at + 1] << 8 | buffer[at + 2] << 16
            at += 4 + size
            if at > len(buffer):
                return None
            parts.append((at - size, at))
            if size < PACKET_BYTES_MAX:
                return parts
        return None

    def _receive(self, seconds: float) -> bool:
        del self._buffer[: self._start]
        self._start = 0
        try:
            self._socket.settimeout(max(seconds, 0.000_1))
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            if time.monotonic() - self._heard > SILENT_SECONDS_MAX:
                raise SourceUnavailable("the database sends no heartbeats", hint="It is tried again.") from None
            return False
        except OSError as error:
            raise mysql_errors.map_error(error) from error
        if not data:
            raise SourceUnavailable("the database closed the connection", hint="It is tried again.")
        self._heard = time.monotonic()
        self._buffer += data
        return True

    def close(self) -> None:
        self._connection._force_close()
