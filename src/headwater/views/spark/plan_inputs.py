"""Pads: small tables in files of a fixed size, which a query that was planned once reads again and again.

What it is: an Arrow table as the bytes of a Parquet file, padded so that files of different content have one length.
Invariants: whoever remembers only the path and the length of such a file reads whatever was written to it last.
Not here: who reads them (``plan_cache.py``); the files of the state, which never change (``views/state/run.py``).
Read next: ``plan_cache.py``.
"""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SMALLEST_BYTES = 1 << 22
TRAILER_BYTES = 8  # the footer's length and the magic word


def encoded(table: pa.Table) -> bytes:
    """The table as a Parquet file, written for speed."""
    target = io.BytesIO()
    # No dictionaries: see ``views/state/run.py``. No statistics: everything is read, and then forgotten.
    pq.write_table(
        table,
        target,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        row_group_size=max(1, table.num_rows),
    )
    return target.getvalue()


def length_for(size: int) -> int:
    """The padded length of a file of ``size`` bytes. There are few lengths, so that few queries must be planned.

    >>> length_for(100) == length_for(1_000_000), length_for(5_000_000)
    (True, 16777216)
    """
    length = SMALLEST_BYTES
    while length < size:
        length *= 4
    return length


def write(path: Path, file: bytes, length: int) -> None:
    """Write an encoded table, ``length`` bytes long: the footer stands at the end, a hole before it."""
    footer = int.from_bytes(file[-TRAILER_BYTES:-4], "little") + TRAILER_BYTES
    with path.open("wb") as target:
        target.write(file[:-footer])
        target.seek(length - footer)
        target.write(file[-footer:])
