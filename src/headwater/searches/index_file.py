"""The file of an index of queries: what a process read of them, for the next one.

What it is: ``packed`` and ``unpacked``: what JSON can hold and arrays of whole numbers as bytes, in Arrow's form, for
another process; and ``IndexFile``, where they are kept.
Invariants: a file is used only if its checksum is right and it was written by the same code for the same columns, so
that the next process would have read the same of the same queries; else it is as good as none, and one line in the log
says so. It only saves time: it holds the queries that it was made of, and whoever reads it compares them with those
that there are. It is written beside, and renamed. No sync: a file that a power cut damaged has the wrong checksum.
Not here: what is in it (``query_index.py``).
Read next: ``query_index.py``.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import sys
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from headwater.searches.search_columns import SearchColumns

logger = logging.getLogger("headwater.searches")

MAGIC = b"HWQUERIES1\n"
FOLDER = "searches"
UnpackedIndex: TypeAlias = tuple[dict[str, Any], dict[str, npt.NDArray[np.int64]]]
DIGEST = 16  # bytes of each of the two: of who wrote it, and of what


def index_path(app_folder: Path, searches: str) -> Path:
    """Where an app keeps the index of some searches.

    >>> index_path(Path("data/views/news"), "watch").as_posix()
    'data/views/news/searches/watch.index'
    """
    return app_folder / FOLDER / f"{searches}.index"


class IndexFile:
    """Where the index of some searches is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, packed: bytes) -> None:
        """Put this in the place of what is there. A disk that refuses is no error: the next start reads the queries."""
        beside = self.path.with_suffix(".part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(packed)
            beside.replace(self.path)
        except OSError as error:
            logger.warning("the index of stored searches is not kept in %s: %s", self.path, error)

    def read(self, columns: SearchColumns) -> UnpackedIndex | None:
        """What was written; None when nothing was, or nothing that can be used."""
        try:
            return unpacked(self.path.read_bytes(), columns)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("the kept index %s is made anew from the stored searches: %s", self.path, error)
            return None


def packed(about: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[np.int64]], columns: SearchColumns) -> bytes:
    """What JSON can hold and arrays as bytes, with the mark of this code and of the columns.

    >>> columns = SearchColumns(pa.schema([("title", pa.string())]), text=["title"])
    >>> unpacked(packed({"a": Decimal("1.50")}, {"b": np.array([3, 4])}, columns), columns)
    ({'a': Decimal('1.50')}, {'b': array([3, 4])})
    """
    said = json.dumps(about, ensure_ascii=False, default=_plain, separators=(",", ":"))
    parts = {"about": pa.array([said.encode("utf-8", "surrogatepass")], pa.large_binary())}
    for name, array in arrays.items():
        ends = pa.array([0, len(array)], pa.int64())
        parts[name] = pa.LargeListArray.from_arrays(ends, pa.array(array, pa.int64()))
    sink = pa.BufferOutputStream()
    batch = pa.record_batch(parts)
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    body = sink.getvalue()
    return b"".join([MAGIC, _author(columns), xxhash.xxh3_128_digest(body), body])


def unpacked(given: bytes, columns: SearchColumns) -> UnpackedIndex:
    """What ``packed`` was given; ValueError, with the reason, when it cannot be used."""
    start = len(MAGIC) + 2 * DIGEST
    body = memoryview(given)[start:]
    if given[: len(MAGIC)] != MAGIC or given[start - DIGEST : start] != xxhash.xxh3_128_digest(body):
        raise ValueError("its checksum is wrong")
    if given[len(MAGIC) : start - DIGEST] != _author(columns):
        raise ValueError("it was written by another version, or for other columns")
    batch = pa.ipc.open_stream(body).read_next_batch()
    about = json.loads(batch.column("about")[0].as_py().decode("utf-8", "surrogatepass"), object_hook=_value)
    names = [name for name in batch.schema.names if name != "about"]
    return about, {name: np.array(batch.column(name).values) for name in names}  # copies: the text is let go


def of_this_build(given: bytes, columns: SearchColumns) -> UnpackedIndex | None:
    """What another process packed; None when it is of another build, as on a cluster with another Python."""
    with suppress(ValueError):
        return unpacked(given, columns)
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    raise TypeError(f"a {type(value).__name__} cannot be kept")


def _value(given: dict[str, Any]) -> Any:
    return Decimal(given["decimal"]) if given.keys() == {"decimal"} else given


def _author(columns: SearchColumns) -> bytes:
    """What the reading of a query depends on: the code, and the columns."""
    parts = [*map(repr, columns.by_name.values()), repr(columns.text), columns.tokenizer]
    return xxhash.xxh3_128_digest("\0".join([_code(), *parts]).encode())


@lru_cache(maxsize=1)
def _code() -> str:
    """The text of this package: whatever changes in it, files of others are not used."""
    digest = xxhash.xxh3_128()
    for each in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(each.read_bytes())
    versions = [importlib.metadata.version("tantivy"), unicodedata.unidata_version, sys.version, np.__version__]
    return "\0".join([digest.hexdigest(), *versions])
