"""Every byte below a folder: where a text is, found without any code of Headwater.

What it is: ``places_with``: Parquet files decompressed by pyarrow, Arrow that is stored in SQLite likewise, all others
as they are, SQLite's free pages and logs included.
Not here: the scan that users have (``upkeep/erasure/residue_scan.py``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def places_with(folder: Path, *texts: str) -> list[str]:
    """The files below a folder that have one of the texts, with the text."""
    return [
        f"{path.relative_to(folder)}: {text}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for text in texts
        if any(text.encode() in part for part in _parts(path))
    ]


def _parts(path: Path) -> Iterable[bytes]:
    data = path.read_bytes()
    yield data
    if data[:4] == b"PAR1":
        yield str(pq.read_table(path).to_pylist()).encode()
    if data[:6] == b"SQLite" and path.name == "catalog.sqlite":
        with closing(sqlite3.connect(path)) as db:
            for (rows,) in db.execute("SELECT rows FROM small_runs"):
                yield str(pa.ipc.open_stream(rows).read_all().to_pylist()).encode()
