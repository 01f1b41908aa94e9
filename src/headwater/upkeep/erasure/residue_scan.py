"""Residue scan: every byte of a home, looked through for a person.

What it is: ``scan`` searches the files below some folders for texts (markers), and for a person's id in the columns
that topics declare to hold it.
Invariants: Parquet is decompressed and read by value, so are small runs in the catalog; all other files are searched as
bytes, SQLite's free pages and logs included. A file that vanishes meanwhile was a file of the past. Nothing is changed.
Short texts and numbers are not searched as bytes: they are everywhere.
Not here: erasing (``person_erasure.py``).
Read next: ``person_erasure.py``.
"""

from __future__ import annotations

import contextlib
import mmap
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.log.erasure.erased_people import ErasedPeople
from headwater.log.storage.sealed_segment import ROW_GROUP_ROWS

MARKER_BYTES_MIN = 4
ID_BYTES_MIN = 6
PARQUET = b"PAR1"
SQLITE = b"SQLite format 3\0"
TOPIC_FOLDER = re.compile(r"/(\d{6})-[^/]+/\d+/|-t(\d+)v\d+/")  # segments, and runs of a topic's state


@dataclass(frozen=True)
class Residue:
    """Something of a person that is still there."""

    path: str
    what: str  # "column user_id", or "bytes"
    count: int

    def __str__(self) -> str:
        return f"{self.path}: {self.what}, {self.count}×"


@dataclass
class ScanReport:
    """What a scan looked at, and found."""

    files: int = 0
    bytes: int = 0
    found: list[Residue] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing was found, and everything could be read."""
        return not self.found and not self.unread

    def to_dict(self) -> dict[str, Any]:
        """The shape programs get."""
        return {
            "files": self.files,
            "bytes": self.bytes,
            "ok": self.ok,
            "found": [vars(each) for each in self.found],
            "unread": self.unread,
        }

    def __str__(self) -> str:
        head = f"{self.files:,} files, {self.bytes:,} bytes"
        if self.ok:
            return f"Nothing is left: {head}"
        lines = [*map(str, self.found), *(f"not searched: {each}" for each in self.unread)]
        return "\n  ".join([f"{len(lines)} places hold something, in {head}:", *lines])


@dataclass(frozen=True)
class SoughtPerson:
    """What is looked for."""

    people: Sequence[ErasedPeople]
    columns: frozenset[str] = frozenset()  # that hold ids of the subject, wherever they are
    of_topics: Mapping[int, frozenset[str]] = field(default_factory=dict)  # the same of each topic, by its number
    markers: tuple[bytes, ...] = ()

    def columns_at(self, place: str) -> frozenset[str]:
        """The columns with ids in a file: of the topic whose rows it has, if its path tells.

        >>> sought = SoughtPerson((), frozenset({"user_id"}), {3: frozenset({"id"})})
        >>> sorted(sought.columns_at("home/topics/000003-users/0/0.parquet")), sorted(sought.columns_at("copy.parquet"))
        (['id'], ['user_id'])
        """
        found = TOPIC_FOLDER.search(place)
        return self.columns if found is None else self.of_topics.get(int(found[1] or found[2]), frozenset())


def scan(folders: Collection[Path], sought: SoughtPerson) -> ScanReport:
    """Search every file below these folders.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.log").write_text("mail to ada@example.org")
    >>> print(scan([folder], SoughtPerson((), markers=(b"ada@",))).found[0].what)
    bytes
    """
    report = ScanReport()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            try:
                if path.is_file() and not path.is_symlink():
                    scan_file(path, sought, report)
            except FileNotFoundError:
                continue
            except (OSError, pa.ArrowException) as error:
                report.unread.append(f"{path} ({error})")
    return report


def scan_bytes(place: str, data: bytes, sought: SoughtPerson, report: ScanReport) -> None:
    """Search bytes that are no file here, for markers."""
    report.files, report.bytes = report.files + 1, report.bytes + len(data)
    if count := sum(data.count(marker) for marker in sought.markers):
        report.found.append(Residue(place, "bytes", count))


def scan_file(path: Path, sought: SoughtPerson, report: ScanReport) -> None:
    """Search one file; add to a report."""
    size = path.stat().st_size
    report.files += 1
    report.bytes += size
    if not size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        head = data[:16]
        count = sum(_count(data, marker) for marker in sought.markers)
    if count:
        report.found.append(Residue(str(path), "bytes", count))
    if head.startswith(PARQUET):
        scan_batches(str(path), _parquet(path), sought, report)
    elif head.startswith(SQLITE) and path.name == "catalog.sqlite":
        for name, table in _small_runs(path):
            scan_batches(f"{path} ({name})", table.to_batches(), sought, report)


def _count(data: mmap.mmap, marker: bytes) -> int:
    found, at = 0, data.find(marker)
    while at >= 0:
        found, at = found + 1, data.find(marker, at + len(marker))
    return found


def _parquet(path: Path) -> Iterator[pa.RecordBatch]:
    yield from pq.ParquetFile(path).iter_batches(batch_size=ROW_GROUP_ROWS)


def _small_runs(path: Path) -> Iterator[tuple[str, pa.Table]]:
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as db:
        for folder, name, rows in db.execute("SELECT folder, name, rows FROM small_runs").fetchall():
            yield f"{folder}/{name}", pa.ipc.open_stream(rows).read_all()


def scan_batches(place: str, batches: Iterable[pa.RecordBatch], sought: SoughtPerson, report: ScanReport) -> None:
    """Search rows by value; add to a report."""
    ids, marks, columns = dict[str, int](), 0, sought.columns_at(place)
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in columns:
                found = sum(int(people.found_in(column).sum()) for people in sought.people)
                ids[name] = ids.get(name, 0) + found
            marks += sum(_holds(column, marker) for marker in sought.markers)
    report.found += [Residue(place, f"column {name}", count) for name, count in ids.items() if count]
    if marks:
        report.found.append(Residue(place, "values", marks))


def _holds(column: pa.Array, marker: bytes) -> int:
    """In how many values of a column, of texts at any depth, a marker is."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _holds(column.dictionary_decode(), marker)
    if pa.types.is_struct(kind):
        return sum(_holds(column.field(place), marker) for place in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _holds(column.keys, marker) + _holds(column.items, marker)
    if pa.types.is_nested(kind):
        return _holds(column.flatten(), marker)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return int(pc.sum(pc.match_substring(column, marker.decode())).as_py() or 0)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return sum(marker in value for value in column.to_pylist() if value is not None)
    return 0


def usable_markers(value: str, texts: Collection[str]) -> tuple[bytes, ...]:
    """The texts that can be searched as bytes: an id that is a number would be found by chance.

    >>> usable_markers("1000", ["ada@example.org", "x"]), usable_markers("customer-17", [])
    ((b'ada@example.org',), (b'customer-17',))
    """
    ids = [value] if len(value.encode()) >= ID_BYTES_MIN and not value.isdigit() else []
    return tuple(sorted({text.encode() for text in (*ids, *texts) if len(text.encode()) >= MARKER_BYTES_MIN}))
