"""Input files: JSON lines, CSV and Parquet, from a file or stdin, in batches.

What it is: ``InputFile.portions`` yields record batches of the topic's schema, each with the line or row number that
its rows have in the file. A refused row is named by that number.
Invariants: the same input with the same ``rows`` is cut into the same portions (a producer's sequence depends on
it), except that with ``linger`` a slow stdin is not made to wait for a full portion; memory holds one portion, not
the file (Parquet from stdin excepted: its index is at the end).
Not here: appending and progress (``append_rows.py``); how text in a CSV becomes a value (``csv_text.py``).
Read next: ``append_rows.py``.
"""

from __future__ import annotations

import gzip
import io
import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from headwater.errors import InvalidDeclaration, Misuse, RowRefused

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log.contract import EventTopic

Format = Literal["jsonl", "csv", "parquet"]
SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
FORMATS: tuple[Format, ...] = ("jsonl", "csv", "parquet")
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Portion:
    """Rows that are appended together. ``numbers`` are their line or row numbers in the input."""

    batch: pa.RecordBatch
    numbers: Sequence[int]
    bytes_read: int


@dataclass(frozen=True)
class InputFile:
    """An input and its format.

    >>> InputFile.named("orders.csv.gz", None)
    InputFile(path=PosixPath('orders.csv.gz'), format='csv')
    >>> InputFile.named("-", None).shown
    'stdin'
    """

    path: Path | None
    format: Format

    @staticmethod
    def named(name: str, file_format: str | None) -> InputFile:
        """The input of a file name (``-`` is stdin); the format defaults to the suffix."""
        path = None if name == "-" else Path(name)
        known = next((form for form in FORMATS if form == file_format), None)
        if file_format is not None and known is None:
            raise InvalidDeclaration(f"unknown format {file_format!r}", hint=f"Use one of: {', '.join(FORMATS)}.")
        if known is None:
            known = "jsonl" if path is None else SUFFIXES.get(Path(name.removesuffix(".gz")).suffix.lower())
        if known is None:
            raise Misuse(f"the format of {name} is unknown", hint="Add --format jsonl, csv or parquet.")
        return InputFile(path, known)

    @property
    def shown(self) -> str:
        """The input's name for messages."""
        return "stdin" if self.path is None else self.path.name

    @property
    def unit(self) -> str:
        """The unit in messages: lines of JSON, rows of other formats (without a CSV's heading)."""
        return "line" if self.format == "jsonl" else "row"

    @property
    def bytes_total(self) -> int | None:
        """The number of bytes, if known."""
        return self.path.stat().st_size if self.path is not None and self.path.is_file() else None

    def portions(self, topic: EventTopic, *, rows: int, linger: float | None = None) -> Iterator[Portion]:
        """The input in portions of ``rows`` rows, each a batch of the topic's schema."""
        with self._opened() as (stream, raw):
            if self.format == "jsonl":
                yield from self._json_lines(topic, stream, raw, rows, linger)
            else:
                batches = _csv(stream, topic.schema) if self.format == "csv" else _parquet(stream, rows)
                yield from self._batches(topic, batches, raw, rows)

    @contextmanager
    def _opened(self) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """The stream to read, and the raw one, whose position shows the progress."""
        if self.path is None:
            yield sys.stdin.buffer, sys.stdin.buffer
            return
        try:
            raw = self.path.open("rb")
        except OSError as error:
            raise Misuse(f"{self.path} cannot be read: {error.strerror}", hint="Check the path.") from error
        with raw:
            if self.path.suffix != ".gz":
                yield raw, raw
                return
            with gzip.GzipFile(fileobj=raw) as unzipped:
                yield cast("IO[bytes]", unzipped), raw

    def _json_lines(
        self, topic: EventTopic, stream: IO[bytes], raw: IO[bytes], rows: int, linger: float | None
    ) -> Iterator[Portion]:
        from headwater.log.schema.json_lines import json_lines

        done = 0
        for numbers, lines in _portions_of_lines(stream, rows, linger if self.path is None else None):
            done += sum(map(len, lines))
            required = frozenset(filter(None, (*topic.settings.routed_by, topic.settings.event_time)))
            with self.naming(numbers):
                batch = json_lines(lines, topic.schema, not_null=required)
            yield Portion(batch, numbers, done if self.path is None else raw.tell())

    def _batches(
        self, topic: EventTopic, batches: Iterator[pa.RecordBatch], raw: IO[bytes], rows: int
    ) -> Iterator[Portion]:
        from headwater.cli.log.csv_text import typed

        first = 1
        for batch in _cut(batches, rows):
            numbers = range(first, first + batch.num_rows)
            first = numbers.stop
            if self.format == "csv":
                with self.naming(numbers):
                    batch = typed(batch, topic.schema)
            yield Portion(batch, numbers, raw.tell() if self.path is not None else 0)

    @contextmanager
    def naming(self, numbers: Sequence[int]) -> Iterator[None]:
        """Name a refused row by its number in the input."""
        try:
            yield
        except RowRefused as error:
            row = error.data.get("row")
            if not isinstance(row, int):  # an error about all rows, or already named
                raise
            place = f"{self.unit} {numbers[row]} of {self.shown}"
            message = error.message.replace(f"row {row} (counted from 0)", place, 1)
            data = {name: value for name, value in error.data.items() if name != "row"}
            data |= {self.unit: numbers[row], "input": self.shown}
            raise RowRefused(
                message if message != error.message else f"{place}: {message}",
                detail=error.detail,
                hint=error.hint,
                **data,
            ) from None


def _portions_of_lines(stream: IO[bytes], rows: int, linger: float | None) -> Iterator[tuple[list[int], list[bytes]]]:
    """Non-empty lines with their numbers from 1; cut at ``rows``, or when nothing came for ``linger`` seconds."""
    numbers: list[int] = []
    lines: list[bytes] = []
    number = 0
    for line in _lines(stream, linger):
        if line is None:
            if lines:
                yield numbers, lines
                numbers, lines = [], []
            continue
        number += 1
        if not line.strip():
            continue
        numbers.append(number)
        lines.append(line)
        if len(lines) >= rows:
            yield numbers, lines
            numbers, lines = [], []
    if lines:
        yield numbers, lines


def _lines(stream: IO[bytes], linger: float | None) -> Iterator[bytes | None]:
    """The lines of a stream; None while a slow stream has none."""
    fd = _descriptor(stream) if linger is not None else None
    if fd is None:
        yield from stream
        return
    rest = b""
    while True:
        if not select.select([fd], [], [], linger)[0]:
            yield None
            select.select([fd], [], [])
        block = os.read(fd, READ_BYTES)
        if not block:
            break
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _descriptor(stream: IO[bytes]) -> int | None:
    try:
        return stream.fileno()
    except (OSError, io.UnsupportedOperation):  # a test's stdin is no file
        return None


def _cut(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Rebatch to exactly ``rows`` rows, so that a corrected file is cut alike."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while count + batch.num_rows >= rows:
            yield pa.concat_batches([*waiting, batch.slice(0, rows - count)])
            batch = batch.slice(rows - count)
            waiting, count = [], 0
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
    if waiting:
        yield pa.concat_batches(waiting)


def _csv(stream: IO[bytes], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyarrow import csv

    # Read as text first, so that an invalid value can be named with its row.
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(schema.names, pa.string()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    first = stream.read(READ_BYTES)
    if not first.strip():
        return
    source = pa.PythonFile(_Again(first, stream), mode="r")
    try:
        reader = csv.open_csv(
            source,
            read_options=csv.ReadOptions(use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=convert,
        )
        yield from reader
    except pa.ArrowInvalid as error:
        raise RowRefused(f"the CSV is malformed: {error}", hint="The first line names the columns.") from None


class _Again(io.RawIOBase):
    """A stream whose first bytes were read already."""

    def __init__(self, first: bytes, stream: IO[bytes]) -> None:
        self._first = first
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._first:
            block, self._first = self._first[:size], self._first[size:]
            return block
        return self._stream.read(size)


def _parquet(stream: IO[bytes], rows: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyarrow import parquet

    source: Any = stream
    if not stream.seekable():
        source = pa.BufferReader(stream.read())
    try:
        yield from parquet.ParquetFile(source).iter_batches(batch_size=rows)
    except (pa.ArrowInvalid, OSError) as error:
        raise RowRefused(f"not a readable Parquet file: {error}", hint="Check --format.") from None
