"""Point cut: where each partition of a backup ended at a point in time, or with a token.

What it is: ``cut_at_time`` and ``cut_of_token`` find a cut number in the catalog and the Arrow segments of a backup;
``ends_of`` gives the end of each partition.
Invariants: a point is a cut number, so what is before it is causally closed and holds whole transactions, as every cut
(``log/commits/cut_numbers.py``). The cut of a time is the last one that has no later row; the cut of a token is the
first one that has all of its rows. A cut that compaction has reached beyond is refused: of keys that changed after it
the older rows are gone.
Not here: cutting files (``point_restore.py``). Read next: ``point_restore.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headwater.errors import NotBackedUp
from headwater.log.commits.append_marks import NO_MARKS, AppendMarks
from headwater.log.storage.frame_index import Entry
from headwater.log.storage.sealed_segment import SealedSegment, appended_of, offsets_of
from headwater.log.token import Token

Ends = dict[str, dict[int, int]]


@dataclass(frozen=True)
class BackedPartition:
    """A partition as a backup has it."""

    topic: str
    topic_id: int
    number: int
    start: int
    directory: Path
    sealed: tuple[tuple[SealedSegment, AppendMarks], ...]
    frames: tuple[Entry, ...]  # of all Arrow segments

    @property
    def sealed_end(self) -> int:
        return self.sealed[-1][0].next_offset if self.sealed else self.start

    def end_of_cut(self, number: int) -> int:
        """The offset after the last row of this cut or an earlier one."""
        for frame in reversed(self.frames):
            if frame.cut_number <= number:
                return frame.next_offset
        for _, marks in reversed(self.sealed):
            if (end := marks.end_of_cut(number)) is not None:
                return end
        return self.start

    def cut_number(self, offset: int) -> int | None:
        """The cut that a row belongs to; None for one that is not there any more."""
        for frame in self.frames:
            if frame.base_offset <= offset < frame.next_offset:
                return frame.cut_number
        for segment, marks in self.sealed:
            if segment.base_offset <= offset < segment.next_offset:
                return int(marks.cut_numbers[np.searchsorted(marks.cut_ends, offset, side="right")])
        return None

    def first_after(self, at_us: int, fetch: Callable[[Path], None]) -> int | None:
        """The first row that was appended after a moment."""
        for segment, _ in self.sealed:
            if segment.rows and segment.appended_max > at_us:
                if segment.appended_min > at_us:
                    return segment.base_offset
                fetch(segment.path)
                return _first_row_after(segment, at_us)
        return next((frame.base_offset for frame in self.frames if frame.appended_us > at_us), None)


def _first_row_after(segment: SealedSegment, at_us: int) -> int | None:
    for chunk in segment.read(segment.base_offset, segment.next_offset, ["_appended_at"]):
        late = np.flatnonzero(appended_of(chunk).cast("int64").to_numpy() > at_us)
        if len(late):
            return int(offsets_of(chunk).to_numpy()[late[0]])
    return None


def partitions_of(
    catalog: sqlite3.Connection, home: Path, frames: Callable[[Path], list[Entry]]
) -> list[BackedPartition]:
    """Every partition of a backup whose catalog and Arrow segments are there."""
    found = []
    rows = catalog.execute(
        "SELECT id, name, partition, start_offset FROM topics JOIN partitions ON topic_id = id ORDER BY id, partition"
    ).fetchall()
    for topic_id, name, number, start in rows:
        directory = home / "topics" / f"{topic_id:06d}-{name}" / str(number)
        sealed = []
        for row in catalog.execute(
            "SELECT * FROM segments WHERE topic_id = ? AND partition = ? ORDER BY base_offset", (topic_id, number)
        ):
            segment = SealedSegment.of(row, directory)
            marks = catalog.execute(
                "SELECT marks FROM append_marks WHERE topic_id = ? AND partition = ? AND base_offset = ?",
                (topic_id, number, segment.base_offset),
            ).fetchone()
            sealed.append((segment, AppendMarks.unpack(bytes(marks[0])) if marks else NO_MARKS))
        arrow = [frame for path in sorted(directory.glob("*.arrow")) for frame in frames(path)]
        found.append(BackedPartition(name, topic_id, number, start, directory, tuple(sealed), tuple(arrow)))
    return found


def cut_at_time(partitions: list[BackedPartition], at_us: int, last: int, fetch: Callable[[Path], None]) -> int:
    """The last cut without a row that was appended after a moment; ``last`` is the backup's own."""
    later = [
        number
        for each in partitions
        if (offset := each.first_after(at_us, fetch)) is not None and (number := each.cut_number(offset)) is not None
    ]
    return min([last, *(number - 1 for number in later)])


def cut_of_token(partitions: list[BackedPartition], token: Token, last: int) -> int:
    """The first cut that has all rows of a token."""
    numbers = [0]
    for each in partitions:
        offset = token.frontier.get(each.topic, {}).get(each.number, 0)
        if offset > each.start:
            found = each.cut_number(offset - 1)
            numbers.append(last if found is None else found)
    return max(numbers)


def ends_of(partitions: list[BackedPartition], number: int, backup: str) -> Ends:
    """The ends of a cut; ``NotBackedUp`` when compaction has reached beyond it."""
    ends: Ends = {}
    for each in partitions:
        end = ends.setdefault(each.topic, {})[each.number] = each.end_of_cut(number)
        if end < each.sealed_end and any(segment.compacted for segment, _ in each.sealed):
            raise NotBackedUp(
                f'backup {backup} does not have topic "{each.topic}" as it was at this point',
                detail="Compaction has since removed rows of keys that changed later. Covered are the moments of the "
                "backups themselves, and those after a topic was last compacted.",
                hint="headwater backup ls shows the moments; back up more often than the topic is compacted.",
                topic=each.topic,
            )
    return ends


def cut_marks(marks: AppendMarks, end: int) -> AppendMarks:
    """The marks of the rows before an offset at which no append is cut."""
    appends, cuts = marks.starts < end, np.concatenate([[True], marks.cut_ends[:-1] < end])[: len(marks.cut_ends)]
    return AppendMarks(
        marks.starts[appends], marks.ends[appends], marks.cut_numbers[cuts], np.minimum(marks.cut_ends[cuts], end)
    )


def covers(ends: Mapping[str, Mapping[int, int]], frontier: Mapping[str, Mapping[int, int]]) -> bool:
    """Whether a frontier lies within a cut."""
    return all(ends.get(topic, {}).get(p, 0) >= at for topic, of in frontier.items() for p, at in of.items())
