"""Executor tasks: what an executor's Python does with the files of runs on the object store.

What it is: ``read_task`` gives the rows of some files, ``write_task`` makes files of the rows that it gets and tells
what it wrote, ``check_task`` compares files with their checksums. ``StoreAccess`` is how a process reaches the store.
Invariants: a file is compared with its size and checksum before any of its rows is given. A file that is written has a
name that was never used before: a task that is repeated writes other ones, and what no manifest lists is collected. On
the executor's disk is one file at a time, in Spark's own local directory. Credentials travel inside the task, are never
shown, and are those that the driver has in its environment now; where it has none, the executor's machine has a role.
Not here: sending the tasks (``executor_files.py``). No pyspark.
Read next: ``executor_files.py``.
"""

from __future__ import annotations

import functools
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headwater.log.storage.checksums import checksum_of
from headwater.objects.object_address import ObjectAddress, made_store
from headwater.objects.object_store import ObjectStore
from headwater.views.compiler.plan import WEIGHT
from headwater.views.spark.scans import fitted
from headwater.views.state.remote.stored_file import StoredFile, download, missing
from headwater.views.state.run import GROUP_ROWS, RowWriter, RunFile, Weighed, read_parquet, weigh

CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "HADOOP_USER_NAME",
)
# What a task tells of a file that it wrote.
WRITTEN = pa.schema(
    [
        ("name", pa.string()),
        ("bytes", pa.int64()),
        ("checksum", pa.int64()),
        ("rows", pa.int64()),
        ("weight_min", pa.int64()),
        ("weight_max", pa.int64()),
    ]
)
PROBLEMS = pa.schema([("problem", pa.string())])


@dataclass(frozen=True)
class StoreAccess:
    """How a process of another machine reaches the store."""

    address: ObjectAddress
    credentials: tuple[tuple[str, str], ...] = field(repr=False)

    @staticmethod
    def here(address: ObjectAddress) -> StoreAccess:
        """With the credentials of this process.

        >>> StoreAccess.here(ObjectAddress.parse("file:///mnt/shop")).address.path
        PosixPath('/mnt/shop')
        """
        return StoreAccess(address, tuple((name, os.environ[name]) for name in CREDENTIALS if name in os.environ))

    def open(self) -> ObjectStore:
        """The store, opened once in a process."""
        return _opened(self)


@functools.lru_cache(maxsize=8)
def _opened(access: StoreAccess) -> ObjectStore:
    os.environ.update(dict(access.credentials))
    return made_store(access.address)


def read_task(
    access: StoreAccess, tasks: Sequence[Sequence[StoredFile]], fields: pa.Schema, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of the files of some tasks, which come by their numbers."""
    store = access.open()
    for number in _numbers(numbers):
        for stored in tasks[number]:
            yield from read_stored(store, stored, fields)


def read_stored(store: ObjectStore, stored: StoredFile, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    """These columns of a file, in exactly these types."""
    with _fetched(store, stored) as path:
        for batch in read_parquet(path, fields):
            if batch.num_rows:
                yield batch


def check_task(
    access: StoreAccess, tasks: Sequence[Sequence[StoredFile]], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the files of some tasks; a damaged or missing one fails the task."""
    for number in _numbers(numbers):
        for stored in tasks[number]:
            with _fetched(access.open(), stored):
                pass
    yield pa.RecordBatch.from_pylist([], schema=PROBLEMS)


def write_task(
    access: StoreAccess, folder: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows as files of at most about ``GROUP_ROWS`` rows, so that several tasks can read them."""
    writing: ObjectWriter | None = None
    store = access.open()
    with tempfile.TemporaryDirectory(prefix="headwater-", dir=_disk()) as place:
        for batch in batches:
            if not batch.num_rows:
                continue
            writing = writing or ObjectWriter(store, folder, Path(place), schema)
            writing.add(fitted(pa.Table.from_batches([batch]), schema))
            if writing.rows >= GROUP_ROWS:
                yield writing.stored()
                writing = None
        if writing is not None:
            yield writing.stored()


class ObjectWriter:
    """One file on its way to the store."""

    def __init__(self, store: ObjectStore, folder: str, place: Path, schema: pa.Schema) -> None:
        self._store = store
        self._folder = folder
        self._path = place / f"{uuid.uuid4().hex}.parquet"
        self._writer = RowWriter(self._path, schema)
        self._weighed = Weighed(0)
        self._has_weights = WEIGHT in schema.names

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self._writer.rows

    def add(self, rows: pa.Table) -> None:
        """Write these rows behind the others."""
        self._writer.add(rows)
        if self._has_weights:
            self._weighed = self._weighed.and_also(weigh(rows))

    def stored(self) -> pa.RecordBatch:
        """Bring it to the store; returns what there is to tell of it."""
        with self._writer:
            pass
        size, checksum = self._path.stat().st_size, checksum_of(self._path)
        stored = StoredFile(self._folder, RunFile(self._path.name, size, checksum))
        self._store.put(stored.name, self._path)
        self._path.unlink()
        told = (stored.file.name, size, checksum, self.rows, self._weighed.weight_min, self._weighed.weight_max)
        return pa.RecordBatch.from_arrays([pa.array([value]) for value in told], schema=WRITTEN)


@contextmanager
def _fetched(store: ObjectStore, stored: StoredFile) -> Iterator[Path]:
    """A file on this machine's disk, as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="headwater-", dir=_disk()) as place:
        path = Path(place) / "file.parquet"
        if not download(store, stored, path):
            raise missing(store, stored)
        yield path


def _disk() -> str | None:
    """Where Spark lets an executor put files; elsewhere Python's own choice."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()
