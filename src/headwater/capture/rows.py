"""Rows of a captured table on their way to its topic.

What it is: ``Texts``, some rows as columns of text with a mark for each (put, or taken away), and ``batch_of``, which
makes the topic's record batch of them.
Invariants: the order of the rows is the order of their changes; columns that the topic has and the database has not any
more are null; a bag's rows carry a weight instead of a mark.
Not here: the wire (``pgoutput.py``), values that were not sent (``large_values.py``).
Read next: ``changes.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.capture.source import Losses, Shape
from headwater.log.schema import WEIGHT

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Texts:
    """Rows as the database wrote them, column by column."""

    columns: list[pa.Array]
    gone: Mask  # of each row: it was taken away
    unchanged: dict[int, Mask] = field(default_factory=dict)  # by column: values that were left alone and not sent
    moved: frozenset[int] = frozenset()  # rows that stand for the row before them, under another key

    def __len__(self) -> int:
        return len(self.gone)

    def with_columns(self, columns: list[pa.Array]) -> Texts:
        """The same rows, with every value there."""
        return replace(self, columns=columns, unchanged={})


def batch_of(rows: Texts, shape: Shape, schema: pa.Schema, losses: Losses) -> tuple[pa.RecordBatch, bool | pa.Array]:
    """The rows in a topic's schema, and which of them are tombstones."""
    given = {
        column.name: column.read(texts, column.arrow, losses)
        for column, texts in zip(shape.columns, rows.columns, strict=True)
    }
    arrays, deleted = [], pa.array(rows.gone)
    for each in schema:
        if each.name == WEIGHT:
            arrays.append(pa.array(np.where(rows.gone, -1, 1), pa.int64()))
        elif each.name not in given:
            arrays.append(pa.nulls(len(rows), each.type))
        else:
            array = given[each.name]
            arrays.append(array if array.type == each.type else array.cast(each.type))
    nullable = pa.schema([each.with_nullable(True) for each in schema])
    batch = pa.RecordBatch.from_arrays(arrays, schema=nullable)
    if not shape.key or not rows.gone.any():
        deleted = False
    return batch, deleted
