"""Small runs: runs of few rows, kept in the catalog beside the manifests that list them.

What it is: ``SmallRuns``: the rows of small runs as Arrow, written by the transaction that commits the manifest, and
remembered here. Eight views that change by a few rows would write twenty files a tick, each synced with its folder.
Invariants: a manifest that is committed finds the rows of every small run that it lists; a tick that fails leaves none,
here or in the catalog.
Rows are removed when the last kept manifest that lists their run goes. They are compared with their checksum when they
are read from the catalog.
Not here: larger runs, which are files (``run.py``); when runs are merged (``merge.py``).
Read next: ``trace.py``, ``manifest.py``.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from headwater.errors import Corruption
from headwater.views import thresholds
from headwater.views.spark.scans import gathered
from headwater.views.state.manifest_entries import Place
from headwater.views.state.run import Run, SmallContent

if TYPE_CHECKING:
    from headwater.log.catalog.catalog import Catalog

REMEMBERED_MAX = 4096  # tables
REMEMBERED_BYTES_MAX = 32 << 20
PLAIN, COMPRESSED = pa.ipc.IpcWriteOptions(), pa.ipc.IpcWriteOptions(compression="zstd")


class SmallRuns:
    """The small runs of one app.

    >>> import headwater as hw, tempfile
    >>> small = SmallRuns(hw.Log(tempfile.mkdtemp()).local.catalog, "shop")
    >>> content = small.keep("users-1", "7-1", pa.table({"id": [1], "_weight": [1]}))
    >>> small.table("users-1", Run("7-1", (), 1, 7, 7, small=content)).to_pylist()
    [{'id': 1, '_weight': 1}]
    """

    def __init__(self, catalog: Catalog, app: str, *, pending_bytes_max: int | None = None) -> None:
        self.catalog = catalog
        self.app = app
        self.pending_bytes_max = pending_bytes_max  # of rows that one commit may have to take along
        self._lock = threading.Lock()
        self._pending: dict[Place, bytes] = {}  # of runs that no committed manifest lists yet
        self._pending_bytes = 0
        self._tables: OrderedDict[tuple[str, str, int], pa.Table] = OrderedDict()
        self._bytes = 0  # of these tables

    def keep(self, folder: str, name: str, table: pa.Table) -> SmallContent | None:
        """Take a run's rows, for the manifest that will list it; None when they are too many."""
        if table.nbytes > thresholds.SMALL_RUN_BYTES_MAX:
            return None
        table = gathered(table)
        if table.get_total_buffer_size() > table.nbytes:  # a slice: Arrow would write the rows after it too
            table = table.take(pa.array(range(table.num_rows), pa.int64()))
        sink = pa.BufferOutputStream()
        options = PLAIN if table.nbytes <= thresholds.TINY_RUN_BYTES_MAX else COMPRESSED
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        rows = sink.getvalue().to_pybytes()
        if len(rows) > thresholds.SMALL_RUN_STORED_BYTES_MAX:
            return None
        content = SmallContent(len(rows), xxhash.xxh3_64_intdigest(rows))
        with self._lock:
            if self.pending_bytes_max is not None and self._pending_bytes + len(rows) > self.pending_bytes_max:
                return None
            self._pending_bytes += len(rows) - len(self._pending.get((folder, name), b""))
            self._pending[folder, name] = rows
            self._remember((folder, name, content.checksum), table)
        return content

    def drop(self, folder: str, name: str | None = None) -> None:
        """Let go of a run that no manifest will list; without a name, of all such runs of a folder."""
        with self._lock:
            for place in [(folder, name)] if name is not None else [p for p in self._pending if p[0] == folder]:
                self._pending_bytes -= len(self._pending.pop(place, b""))

    def _remember(self, key: tuple[str, str, int], table: pa.Table) -> None:
        if key in self._tables:
            return
        self._tables[key] = table
        self._bytes += table.nbytes
        while len(self._tables) > REMEMBERED_MAX or self._bytes > REMEMBERED_BYTES_MAX:
            self._bytes -= self._tables.popitem(last=False)[1].nbytes

    def table(self, folder: str, run: Run) -> pa.Table:
        """The rows of a small run."""
        assert run.small is not None
        key = (folder, run.name, run.small.checksum)
        with self._lock:
            found = self._tables.get(key)
        if found is None:
            found = pa.ipc.open_stream(self.stored(folder, run)).read_all()
            with self._lock:
                self._remember(key, found)
        return found

    def stored(self, folder: str, run: Run) -> bytes:
        """The rows of a small run as they are stored, compared with their checksum."""
        assert run.small is not None
        problem = self.problem(folder, run)
        if problem is not None:
            raise Corruption(
                f"the rows of run {run.name} of {folder} in the catalog are {problem}",
                detail=f"It belongs to ticks {run.first_tick} to {run.last_tick} and was written once, "
                f"with {run.small.bytes} bytes and checksum {run.small.checksum}.",
                hint="State is derived from the log: rebuild the view.",
            )
        rows = self._stored(folder, run.name)
        assert rows is not None
        return rows

    def problem(self, folder: str, run: Run) -> str | None:
        """What is wrong with a run's rows in the catalog."""
        rows = self._stored(folder, run.name)
        if rows is None:
            return "missing"
        return None if run.small == SmallContent(len(rows), xxhash.xxh3_64_intdigest(rows)) else "damaged"

    def _stored(self, folder: str, name: str) -> bytes | None:
        with self._lock:
            pending = self._pending.get((folder, name))
        if pending is not None:
            return pending
        found = self.catalog.read(
            "SELECT rows FROM small_runs WHERE app = ? AND folder = ? AND name = ?", (self.app, folder, name)
        )
        return bytes(found[0]["rows"]) if found else None

    # Within the commit of a manifest

    def write(self, db: sqlite3.Connection, listed: Iterable[Place]) -> list[Place]:
        """Write the rows of runs that a manifest lists for the first time; returns them, for ``written``."""
        rows = self.pending(listed)
        insert_small(db, self.app, rows)
        return list(rows)

    def pending(self, listed: Iterable[Place]) -> dict[Place, bytes]:
        """The rows of runs that a manifest lists for the first time."""
        with self._lock:
            return {place: self._pending[place] for place in listed if place in self._pending}

    def written(self, places: Iterable[Place]) -> None:
        """The manifest was committed, or will never be."""
        with self._lock:
            for place in places:
                self._pending_bytes -= len(self._pending.pop(place, b""))


def insert_small(db: sqlite3.Connection, app: str, rows: Mapping[Place, bytes]) -> None:
    """Store the rows of small runs, by folder and name."""
    db.executemany(
        "INSERT OR REPLACE INTO small_runs (app, folder, name, rows) VALUES (?, ?, ?, ?)",
        [(app, *place, data) for place, data in rows.items()],
    )
