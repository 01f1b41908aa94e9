"""SQLite in WAL mode: the log most Python programs could have had already.

Invariants: 1 000 rows a transaction, ``synchronous=NORMAL``, a table of typed columns; no index, as a log has none.
Reads go over the same connection with ``fetchmany``, which was as fast as ``fetchall`` or faster.
Not here: more than one writer; SQLite lets them take turns.
Read next: ``redis_streams.py``.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from bench.log.order_rows import COLUMNS, Rows
from bench.log.peers.peer import Mode, Peer, Reading, stopwatch

_TRANSACTION_ROWS = 1_000
_FETCH_ROWS = 10_000
# Measured: pages of 8 KiB append 5–15 % faster than the default 4 KiB; larger ones gain nothing more.
_PAGE_BYTES = 8_192
_CACHE_KIB = 65_536


class SqliteWal(Peer):
    """``executemany`` into one table."""

    title: ClassVar[str] = "SQLite WAL"
    modes: ClassVar[tuple[Mode, ...]] = (Mode("executemany of tuples"), Mode("executemany of dicts", given="dicts"))

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def setup(self, directory: Path) -> None:
        place = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sqlite-", dir=directory))
        self._connection = sqlite3.connect(Path(place) / "orders.db", isolation_level=None)
        self._stack.callback(self._connection.close)
        self._connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")

    def append(self, rows: Rows, mode: Mode) -> float:
        values: list[Any] = rows.tuples if mode.given == "ready" else rows.plain_dicts
        places = ", ".join("?" if mode.given == "ready" else f":{column}" for column in COLUMNS)
        insert = f"INSERT INTO orders VALUES ({places})"
        execute, executemany = self._connection.execute, self._connection.executemany
        execute("DROP TABLE IF EXISTS orders")
        execute(
            "CREATE TABLE orders (order_id INTEGER, user_id INTEGER, amount REAL, country TEXT, url TEXT, at INTEGER)"
        )
        execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with stopwatch() as watch:
            for start in range(0, rows.count, _TRANSACTION_ROWS):
                execute("BEGIN")
                executemany(insert, values[start : start + _TRANSACTION_ROWS])
                execute("COMMIT")
        return watch.seconds

    def read_all(self, *, check: bool = False) -> Reading:
        count, checksum = 0, 0
        with stopwatch() as watch:
            cursor = self._connection.execute("SELECT * FROM orders")
            while rows := cursor.fetchmany(_FETCH_ROWS):
                count += len(rows)
                if check:
                    checksum += sum(row[0] for row in rows)
        return Reading(count, watch.seconds, checksum if check else None)

    def teardown(self) -> None:
        self._stack.close()
