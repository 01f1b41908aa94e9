"""A run: weighted rows, written once and never changed: some Parquet files, or, when they are few, in the catalog.

What it is: the description of a run, which the manifest keeps, and its files: writing, adopting, verifying, reading.
Invariants: a run's files are on disk and synced before a manifest names it; what the description says (size,
checksum) is compared with the bytes before a process reads a file for the first time, so damage is an error and never
data. A run is *positive* when no weight is below 1, and *plain* when each weight is 1.
Not here: the rows of small runs (``small_runs.py``); which runs make up a relation (``trace.py``); which of them are
current, which the manifest knows.
Read next: ``trace.py``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds
import xxhash

from headwater.errors import Corruption
from headwater.log.storage.checksums import checksum_of, has_checksum
from headwater.log.storage.files import Files, translated
from headwater.views.compiler.plan import WEIGHT
from headwater.views.spark.scans import fitted

READ_ROWS = 131_072
GROUP_ROWS = 1 << 20  # of a file that is written in batches: each group of rows is one task's work at most
STAGING = ".parquet.tmp"  # the ending of what is not yet a run's file: a file, or a folder that Spark writes into


@dataclass(frozen=True)
class Weighed:
    """How many weighted rows there are, and the least and the greatest weight (both 1 when there is no row)."""

    rows: int
    weight_min: int = 1
    weight_max: int = 1

    def and_also(self, other: Weighed) -> Weighed:
        """Both together.

        >>> Weighed(0).and_also(Weighed(2, -1, 1)).and_also(Weighed(1, 3, 3))
        Weighed(rows=3, weight_min=-1, weight_max=3)
        """
        if not self.rows or not other.rows:
            return self if self.rows else other
        low, high = min(self.weight_min, other.weight_min), max(self.weight_max, other.weight_max)
        return Weighed(self.rows + other.rows, low, high)


@dataclass(frozen=True)
class RunFile:
    """One file of a run, by its name in the trace's folder."""

    name: str
    bytes: int
    checksum: int


@dataclass(frozen=True)
class SmallContent:
    """The rows of a run that has no file: their size and checksum in the catalog (``small_runs.py``)."""

    bytes: int
    checksum: int


class RunEntry(TypedDict):
    """A run as JSON holds it."""

    name: str
    files: list[list[Any]]  # name, bytes, checksum
    rows: int
    first_tick: int
    last_tick: int
    weight_min: int
    weight_max: int
    small: NotRequired[list[int]]  # bytes, checksum


@dataclass(frozen=True)
class Run:
    """What the manifest keeps of a run.

    >>> run = Run("7-1", (RunFile("7-1.parquet", 812, 99),), rows=3, first_tick=7, last_tick=7)
    >>> run.positive, run.plain, Run.from_json(run.to_json()) == run
    (True, True, True)
    """

    name: str
    files: tuple[RunFile, ...]
    rows: int
    first_tick: int
    last_tick: int
    weight_min: int = 1
    weight_max: int = 1
    small: SmallContent | None = None  # of a run without files

    @property
    def positive(self) -> bool:
        """No weight is below 1."""
        return self.weight_min >= 1

    @property
    def plain(self) -> bool:
        """Each weight is 1."""
        return self.weight_min == 1 and self.weight_max == 1

    @property
    def bytes(self) -> int:
        """The size of its rows as they are stored."""
        return sum(file.bytes for file in self.files) + (self.small.bytes if self.small is not None else 0)

    @functools.cached_property
    def identity(self) -> str:
        """A name for exactly these bytes: a tick that is repeated may write others under the same name."""
        return f"{self.name}-{xxhash.xxh3_64_hexdigest(repr((self.files, self.small)).encode())}"

    def to_json(self) -> RunEntry:
        """As JSON can hold it."""
        # Not dataclasses.asdict, which takes a millisecond for a handful of runs: a manifest lists all of them.
        entry: RunEntry = {
            "name": self.name,
            "files": [[file.name, file.bytes, file.checksum] for file in self.files],
            "rows": self.rows,
            "first_tick": self.first_tick,
            "last_tick": self.last_tick,
            "weight_min": self.weight_min,
            "weight_max": self.weight_max,
        }
        if self.small is not None:
            entry["small"] = [self.small.bytes, self.small.checksum]
        return entry

    @staticmethod
    def from_json(data: RunEntry) -> Run:
        """The run that ``to_json`` described."""
        return Run(
            data["name"],
            tuple(RunFile(*file) for file in data["files"]),
            data["rows"],
            data["first_tick"],
            data["last_tick"],
            data["weight_min"],
            data["weight_max"],
            SmallContent(*data["small"]) if "small" in data else None,
        )

    def paths(self, folder: Path) -> list[Path]:
        """Where its files are."""
        return [folder / file.name for file in self.files]


def weigh(table: pa.Table) -> Weighed:
    """Count a table's rows and find its least and greatest weight.

    >>> weigh(pa.table({"id": [1, 1], "_weight": [-1, 1]}))
    Weighed(rows=2, weight_min=-1, weight_max=1)
    """
    if table.num_rows == 0:
        return Weighed(0)
    weights = table.column(WEIGHT).to_numpy()
    return Weighed(table.num_rows, int(weights.min()), int(weights.max()))


def weigh_files(paths: Sequence[Path]) -> Weighed:
    """The same for Parquet files, from their footers."""
    rows, low, high = 0, [], []
    for path in paths:
        metadata = pq.read_metadata(path)
        rows += metadata.num_rows
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for place in range(group.num_columns):
                column = group.column(place)
                if column.path_in_schema == WEIGHT and group.num_rows:
                    statistics = column.statistics
                    known = statistics is not None and statistics.has_min_max
                    # A writer may leave statistics out: then anything is possible.
                    low.append(statistics.min if known else -1)
                    high.append(statistics.max if known else 2)
    return Weighed(rows, min(low), max(high)) if rows else Weighed(0)


def write_run(folder: Path, name: str, table: pa.Table, *, first_tick: int, last_tick: int, files: Files) -> Run:
    """Write a table that is here on the driver as a run; a file of that name that a crash left is replaced."""
    files.make_dir(folder, label="run.make_directory")
    path = folder / f"{name}.parquet"
    temporary = folder / f"{name}{STAGING}"
    with translated(f"run {path}"):
        pq.write_table(table, temporary, **_options(table.schema))
    settled = _settle(temporary, path, files)
    files.sync_dir(folder, label="run.sync_directory")
    return described(name, [settled], weigh(table), first_tick, last_tick)


class RowWriter:
    """Rows that come in batches, into one Parquet file such as a run has.

    >>> import tempfile
    >>> schema = pa.schema([("id", pa.int64()), ("_weight", pa.int64())])
    >>> with RowWriter(Path(tempfile.mkdtemp()) / "rows.parquet", schema) as writer:
    ...     writer.add(pa.table({"id": [7, 8], "_weight": [1, 1]}, schema=schema))
    >>> writer.rows, pq.read_table(writer.path).num_rows
    (2, 2)
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        with translated(f"run {path}"):
            self._file = pq.ParquetWriter(path, schema, **_options(schema))

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._flush()
        self._file.close()

    def add(self, rows: pa.Table) -> None:
        """Write these rows behind the others."""
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self.rows += rows.num_rows
        if self._waiting_rows >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting_rows:
            with translated(f"run {self.path}"):
                self._file.write_table(pa.concat_tables(self._waiting), row_group_size=GROUP_ROWS)
        self._waiting, self._waiting_rows = [], 0


def _options(schema: pa.Schema) -> dict[str, Any]:
    """How run files are written.

    Numbers by their differences: a million orders are written in 0.07 s of processor time and read in 0.03 s, and are
    4 to 7 MB. By the values they were 0.13 s, 0.07 s, and 6 to 8.5 MB; a weight, nearly always 1, as much as any other.
    """
    return {
        "compression": "zstd",
        "compression_level": 1,
        "write_page_checksum": True,
        "use_dictionary": [*_repeating(schema), WEIGHT],
        "column_encoding": {field.name: "DELTA_BINARY_PACKED" for field in schema if _is_number(field)},
    }


def _repeating(schema: pa.Schema) -> list[str]:
    """The columns to be written with a dictionary: plain texts.

    Never a part of a nested column: when all its values are null Arrow writes an empty dictionary, and Spark's reader
    looks into it (seen with 4.3: ArrayIndexOutOfBoundsException).
    """
    return [field.name for field in schema if kinds.is_string(field.type) or kinds.is_binary(field.type)]


def _is_number(field: pa.Field) -> bool:
    """Whether a column's values are whole numbers to Parquet, times too. Not the weight, which has a dictionary."""
    tests = (kinds.is_signed_integer, kinds.is_timestamp, kinds.is_date32)
    return field.name != WEIGHT and any(test(field.type) for test in tests)


def adopt_run(
    folder: Path, name: str, paths: Sequence[Path], weighed: Weighed, *, first_tick: int, last_tick: int, files: Files
) -> Run:
    """Make files that Spark wrote a run, by moving them into the folder."""
    files.make_dir(folder, label="run.make_directory")
    settled = [_settle(path, folder / f"{name}.{number}.parquet", files) for number, path in enumerate(paths)]
    files.sync_dir(folder, label="run.sync_directory")
    return described(name, settled, weighed, first_tick, last_tick)


def _settle(source: Path, target: Path, files: Files) -> RunFile:
    """Sync a file, then give it its name."""
    fd = os.open(source, os.O_RDONLY)
    try:
        files.sync(fd, label="run.sync_parquet")
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    settled = RunFile(target.name, size, checksum_of(source))
    files.rename(source, target, label="run.rename_parquet")
    return settled


def described(name: str, files: Sequence[RunFile], weighed: Weighed, first_tick: int, last_tick: int) -> Run:
    """The run that has these files."""
    return Run(name, tuple(files), weighed.rows, first_tick, last_tick, weighed.weight_min, weighed.weight_max)


def read_run(folder: Path, run: Run, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    """These columns of a run, batch by batch."""
    verify_run(folder, run)
    for path in run.paths(folder):
        yield from read_parquet(path, fields)


def read_parquet(path: Path, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    """These columns of a Parquet file, whoever wrote it, in exactly these types."""
    # Spark writes a TIMESTAMP as INT96, as sessions are set by default; Arrow would make nanoseconds of it.
    file = pq.ParquetFile(
        pa.memory_map(str(path)), coerce_int96_timestamp_unit="us", page_checksum_verification=True, pre_buffer=False
    )
    for batch in file.iter_batches(batch_size=READ_ROWS, columns=fields.names):
        yield from fitted(pa.Table.from_batches([batch]), fields).to_batches()


def verify_run(folder: Path, run: Run) -> None:
    """Compare each file with its size and checksum, once per process."""
    for file in run.files:
        path = folder / file.name
        try:
            problem = None if has_checksum(path, file.checksum, size=file.bytes) else "damaged"
        except FileNotFoundError:
            problem = "missing"
        if problem is not None:
            raise Corruption(
                f"the state file {path} is {problem}",
                detail=f"It belongs to ticks {run.first_tick} to {run.last_tick} and was written once, "
                f"with {file.bytes} bytes and checksum {file.checksum}.",
                hint="State is derived from the log: rebuild the view.",
                file=str(path),
            )
