"""Batch: consecutive rows of one partition, as a reader returns them.

What it is: an Arrow record batch with the offsets of its rows.
Invariants: rows are in offset order; ``next_offset`` is where reading goes on (compaction may leave gaps).
Not here: reading (``log/storage/partition_reader.py``). Read next: ``topic.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.log.schema.row_conversion import to_rows

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Batch:
    """Rows of one partition.

    >>> import headwater as hw, tempfile
    >>> topic = hw.Log(tempfile.mkdtemp()).topic("greetings", "who STRING")
    >>> _ = topic.append([{"who": "Ada"}, {"who": "Grace"}])
    >>> batch = next(topic.read())
    >>> batch
    Batch(greetings[0]@0..1, 2 rows)
    >>> batch.to_pylist()
    [{'who': 'Ada'}, {'who': 'Grace'}]
    >>> batch.num_rows, batch.offsets.tolist(), len(batch.to_pandas())
    (2, [0, 1], 2)
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    data: pa.RecordBatch
    _offsets: np.ndarray[Any, np.dtype[np.int64]] | None = field(default=None, repr=False, compare=False)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.data.num_rows)

    @property
    def offsets(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Each row's offset."""
        if self._offsets is not None:
            return self._offsets
        return np.arange(self.first_offset, self.first_offset + self.num_rows, dtype=np.int64)

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return to_rows(self.data)

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame (needs the extra ``pandas``)."""
        return self.data.to_pandas()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        return (
            f"Batch({self.topic}[{self.partition}]@{self.first_offset}..{self.next_offset - 1}, {self.num_rows} rows)"
        )
