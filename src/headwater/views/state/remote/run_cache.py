"""Run cache: the files of an app's runs, on the object store and on this machine.

What it is: ``RunCache`` uploads the files of runs that are written here, downloads those that are read and are not
here, keeps what is here within a bound, and deletes from the store what no kept manifest lists. It is the one place
that knows where a run's files are.
Invariants: a run's files are on the store before a manifest lists it, under names that were never used before. What is
here is a copy: it may be deleted at any time, is compared with its checksum before a process first reads it, and is
fetched again when it is damaged. A file goes from the store only when no kept manifest lists it, and only by the
process that may commit: the store is listed first, and then asked who that is. So a file that a newer process has
written is either not in the listing or that process is known.
Not here: rows of small runs, which commits hold (``commit_body.py``); lookup indexes (``lookups/arrangements.py``).
Read next: ``views/state/trace.py``, ``store_manifests.py``.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.log.catalog.catalog import Catalog
from headwater.log.storage.checksums import has_checksum
from headwater.log.storage.files import Files
from headwater.objects.object_address import ObjectAddress
from headwater.views.state.manifest_entries import Listed
from headwater.views.state.remote import executor_files
from headwater.views.state.remote.executor_files import ExecutorFiles
from headwater.views.state.remote.stored_file import RUNS, StoredFile, download
from headwater.views.state.run import STAGING, Run, RunFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECENT_SECONDS = 600  # what was asked for so lately stays: a query may be about to open it
NOTED_SECONDS = 60  # between two notes that a file is in use


class RunCache:
    """The files of one app's runs.

    >>> import tempfile
    >>> from headwater.log.storage.checksums import checksum_of
    >>> cache = RunCache(ObjectAddress.parse(f"file://{tempfile.mkdtemp()}"), Files())
    >>> folder = Path(tempfile.mkdtemp()) / "users-1"
    >>> folder.mkdir()
    >>> _ = (folder / "7.parquet").write_bytes(b"rows")
    >>> run = Run("7", (RunFile("7.parquet", 4, checksum_of(folder / "7.parquet")),), 1, 7, 7)
    >>> cache.upload(folder, run)
    >>> (folder / "7.parquet").unlink()
    >>> cache.bring(folder, run)
    >>> (folder / "7.parquet").read_bytes()
    b'rows'
    """

    def __init__(self, address: ObjectAddress, files: Files) -> None:
        self.store = address.open()
        self.executors = ExecutorFiles(address)
        self.bytes_max = address.cache_bytes
        self.files = files
        self._noted: dict[Path, float] = {}  # when a file was last noted to be in use

    @staticmethod
    def of(catalog: Catalog, app: str, files: Files) -> RunCache | None:
        """The files of an app's runs, when its state is on an object store."""
        rows = catalog.read("SELECT address FROM remote_states WHERE app = ?", (app,))
        return RunCache(ObjectAddress.parse(rows[0]["address"]), files) if rows else None

    def upload(self, folder: Path, run: Run) -> None:
        """Bring the files of a run that was written here to the store."""
        for file in run.files:
            self.store.put(StoredFile(folder.name, file).name, folder / file.name)
            self._note(folder / file.name)

    def executors_of(self, spark: SparkSession) -> ExecutorFiles | None:
        """The same files for the executors of a cluster, which need not see this machine's disk; None: they do."""
        return self.executors if executor_files.on_cluster(spark) else None

    def bring(self, folder: Path, run: Run) -> None:
        """Have the files of a run here. A file that is not in the store stays missing, and its reader says so."""
        for file in run.files:
            path = folder / file.name
            try:
                here = has_checksum(path, file.checksum, size=file.bytes)
            except FileNotFoundError:
                here = False
            if not here:
                self._download(folder, file)
            self._note(path)

    def _download(self, folder: Path, file: RunFile) -> None:
        self.files.make_dir(folder, label="cache.make_directory")
        path = folder / f"{file.name}.{uuid.uuid4().hex}{STAGING}"
        try:
            if download(self.store, StoredFile(folder.name, file), path):
                self.files.rename(path, folder / file.name, label="cache.rename")
        finally:
            self.files.unlink(path, label="cache.unlink")

    def _note(self, path: Path) -> None:
        """Remember that a file is in use, for all processes of this machine."""
        now = time.time()
        if now - self._noted.get(path, 0.0) < NOTED_SECONDS:
            return
        try:
            # The time of the last access: the other one tells whether the checksum was compared.
            os.utime(path, ns=(int(now * 1e9), path.stat().st_mtime_ns))
        except FileNotFoundError:
            return
        self._noted[path] = now

    # Housekeeping

    def trim(self, folder: Path) -> int:
        """Delete copies below an app's folder that were not used lately, until the rest is within the bound."""
        self._noted = {path: at for path, at in self._noted.items() if time.time() - at < RECENT_SECONDS}
        found = []
        for path in folder.glob("*-*/*.parquet"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            found.append((stat.st_atime, stat.st_size, path))
        total, deleted = sum(size for _, size, _ in found), 0
        for used, size, path in sorted(found):
            if total <= self.bytes_max or time.time() - used < RECENT_SECONDS:
                break
            self.files.unlink(path, label="cache.trim")
            total, deleted = total - size, deleted + 1
        return deleted

    def delete(self, folder: str, name: str) -> None:
        """Delete a file from the store."""
        self.store.delete(f"{RUNS}{folder}/{name}")

    def collect(self, listed: Callable[[], Listed], *, older_s: float) -> int:
        """Delete files of this age from the store that no manifest lists; returns how many.

        ``listed`` raises when another process has taken over. Younger files may be about to be listed by this one.
        """
        there = self.store.list(RUNS)
        known, deleted = listed(), 0
        newest = max((each.modified_s for each in there), default=0.0)
        for each in there:
            folder, _, name = each.name.removeprefix(RUNS).partition("/")
            # By the store's clock alone: ours may be another one.
            if name not in known.get(folder, ()) and newest - each.modified_s > older_s:
                self.delete(folder, name)
                deleted += 1
        return deleted
