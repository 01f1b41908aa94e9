"""Append marks: where appends end, and to which cut they belong.

What it is: ``AppendMarks``, made from a segment's index and kept in the catalog when the segment is sealed.
Invariants: an append lies in one segment; its rows are never shown in part. An append of one row needs no mark. Cut
numbers rise along a partition. Marks are offsets, so they stay right when compaction removes rows.
Not here: reading in whole appends (``log/storage/partition_reader.py``), cuts (``consistent_cut.py``).
Read next: ``consistent_cut.py``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.log.storage.frame_index import CONTINUES, Entries

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class AppendMarks:
    """The appends of a range of offsets that have several rows, and the last offset of each cut.

    >>> marks = AppendMarks(*(np.array(each) for each in ([10], [14], [7, 8], [12, 20])))
    >>> [marks.whole_after(offset) for offset in (9, 10, 11, 14)], marks.whole_before(13)
    ([9, 10, 14, 14], 10)
    >>> AppendMarks.unpack(marks.pack()) == marks
    True
    """

    starts: Numbers
    ends: Numbers
    cut_numbers: Numbers
    cut_ends: Numbers  # the offset after the last row of each cut

    @staticmethod
    def of_entries(entries: Entries) -> AppendMarks:
        """The marks of the frames that a segment's index lists."""
        base, rows, cut_numbers = entries["base_offset"], entries["rows"].astype(np.int64), entries["cut_number"]
        ends = base + rows
        last = (entries["flags"] & CONTINUES) == 0
        first = np.concatenate([[True], last[:-1]]) if len(last) else last
        starts, ends_of_appends = base[first], ends[last]
        count = min(len(starts), len(ends_of_appends))
        several = ends_of_appends[:count] - starts[:count] > 1
        change = np.concatenate([cut_numbers[1:] != cut_numbers[:-1], [True]]) if len(cut_numbers) else last
        return AppendMarks(
            starts[:count][several].copy(), ends_of_appends[:count][several].copy(), cut_numbers[change], ends[change]
        )

    @staticmethod
    def joined(parts: Sequence[AppendMarks]) -> AppendMarks:
        """The marks of consecutive ranges."""
        if len(parts) == 1:
            return parts[0]
        cut_numbers, cut_ends = (
            np.concatenate([getattr(p, name) for p in parts]) for name in ("cut_numbers", "cut_ends")
        )
        change = (
            np.concatenate([cut_numbers[1:] != cut_numbers[:-1], [True]]) if len(cut_numbers) else np.empty(0, bool)
        )
        starts, ends = (np.concatenate([getattr(part, name) for part in parts]) for name in ("starts", "ends"))
        return AppendMarks(starts, ends, cut_numbers[change], cut_ends[change])

    def whole_after(self, offset: int) -> int:
        """The smallest offset from this one on at which no append is cut."""
        at = int(np.searchsorted(self.starts, offset)) - 1
        return max(offset, int(self.ends[at])) if at >= 0 else offset

    def whole_before(self, offset: int) -> int:
        """The largest offset up to this one at which no append is cut."""
        at = int(np.searchsorted(self.starts, offset)) - 1
        return int(self.starts[at]) if at >= 0 and self.ends[at] > offset else offset

    def end_of_cut(self, number: int) -> int | None:
        """The offset after the last row of this cut or an earlier one; None when all rows here are later."""
        at = int(np.searchsorted(self.cut_numbers, number, side="right")) - 1
        return int(self.cut_ends[at]) if at >= 0 else None

    def pack(self) -> bytes:
        """As compressed bytes, for the catalog."""
        arrays = (self.starts, self.ends - self.starts, self.cut_numbers, self.cut_ends)
        head = np.array([len(self.starts), len(self.cut_numbers)], dtype="<i8")
        return zlib.compress(b"".join(array.astype("<i8").tobytes() for array in (head, *arrays)), 1)

    @staticmethod
    def unpack(data: bytes) -> AppendMarks:
        """The marks that ``pack`` wrote."""
        stored = np.frombuffer(zlib.decompress(data), dtype="<i8")
        appends, cuts = int(stored[0]), int(stored[1])
        starts, lengths, cut_numbers, cut_ends = np.split(stored[2:], [appends, 2 * appends, 2 * appends + cuts])
        return AppendMarks(starts, starts + lengths, cut_numbers, cut_ends)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AppendMarks):
            return NotImplemented
        names = ("starts", "ends", "cut_numbers", "cut_ends")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


NO_MARKS = AppendMarks(*(np.empty(0, dtype=np.int64) for _ in range(4)))
