"""Text rows: rows of a captured table before they are appended.

What it is: ``TextRows``, rows as columns of text with a delete mark for each; ``RowBuffer``, which collects rows of a
stream; ``batch_of``, which converts ``TextRows`` to the topic's record batch.
Invariants: rows are in the order of their changes; columns that the database no longer has are null; rows of a multiset
carry a weight instead of a mark.
Not here: the wire format (``capture/postgres/pgoutput.py``), values that were not sent (``large_values.py``).
Read next: ``change_writer.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.database import Losses, SourceTable
from headwater.log.schema.normalization import WEIGHT

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class TextRows:
    """Rows as the database wrote them, column by column."""

    columns: list[pa.Array]
    gone: Mask  # of each row: it was deleted
    unchanged: dict[int, Mask] = field(default_factory=dict)  # by column: unchanged values that were not sent
    moved: frozenset[int] = frozenset()  # rows that stand for the row before them, under another key

    def __len__(self) -> int:
        return len(self.gone)

    def with_columns(self, columns: list[pa.Array]) -> TextRows:
        """The same rows, with every value filled in."""
        return replace(self, columns=columns, unchanged={})


class RowBuffer:
    """Changed rows with the same columns, value by value, until they are taken to be written."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.gone: list[bool] = []
        self.row_bytes: list[int] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.gone)

    def add(self, row: list[Any], gone: bool, size: int) -> None:
        """Add one row; ``gone``: it was deleted."""
        self.rows.append(row)
        self.gone.append(gone)
        self.row_bytes.append(size)
        self.bytes += size

    def sizes(self) -> list[int]:
        """The bytes of each row."""
        return self.row_bytes

    def split(self, count: int) -> tuple[list[list[Any]], Mask]:
        """Take the first rows out, with their delete marks."""
        rows, self.rows = self.rows[:count], self.rows[count:]
        gone, self.gone = self.gone[:count], self.gone[count:]
        self.bytes -= sum(self.row_bytes[:count])
        self.row_bytes = self.row_bytes[count:]
        return rows, np.array(gone, np.bool_)


def batch_of(rows: TextRows, shape: SourceTable, schema: pa.Schema, losses: Losses) -> pa.RecordBatch:
    """The rows in a topic's schema; deleted ones, if there is a key, with the key alone."""
    given = {
        column.name: texts if column.enter is not None else column.read(texts, column.arrow, losses)
        for column, texts in zip(shape.columns, rows.columns, strict=True)
        if column.taken
    }
    tombs = pa.array(rows.gone) if shape.key and rows.gone.any() else None
    arrays = []
    for each in schema:
        if each.name == WEIGHT:
            arrays.append(pa.array(np.where(rows.gone, -1, 1), pa.int64()))
        elif each.name not in given:
            arrays.append(pa.nulls(len(rows), each.type))
        else:
            array = given[each.name]
            array = array if array.type == each.type else array.cast(each.type)
            if tombs is not None and each.name not in shape.key:  # REPLICA IDENTITY FULL sends the whole old row
                array = pc.if_else(tombs, pa.scalar(None, each.type), array)
            arrays.append(array)
    nullable = pa.schema([each.with_nullable(True) for each in schema])
    return pa.RecordBatch.from_arrays(arrays, schema=nullable)
