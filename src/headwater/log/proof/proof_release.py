"""Proof release: the salts of rows that are erased or compacted away go; commitments, and so all proofs, stay.

What it is: ``ProofRelease`` writes the commitments of a rewritten range anew, and names the new files in the
transaction in which the catalog names the rewritten segment.
Invariants: the segment and its commitments change together: after a crash both are old or both are new, and what the
catalog does not name is swept. An erasure is never held up: where the old file is damaged it is given up, which verify
tells.
Not here: which rows go (``log/erasure/``, ``log/maintenance/compaction.py``).
Read next: ``commitment_file.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.errors import CorruptSegment
from headwater.log.proof.checkpoints import Checkpoint, Checkpoints
from headwater.log.proof.commitment_file import CommitmentFile, Commitments, write_commitments

if TYPE_CHECKING:
    from headwater.log.topic import Topic

Offsets = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class BlankedRows:
    """Rows some of whose columns were blanked."""

    columns: tuple[str, ...]
    offsets: Offsets


class ProofRelease:
    """What one rewriting of segments makes of the commitments of their rows. The caller holds the maintenance lock."""

    def __init__(
        self, topic: Topic, number: int, base: int, stop: int, present: Offsets, blanked: Sequence[BlankedRows] = ()
    ) -> None:
        """``present``: the offsets from ``base`` up to ``stop`` that still have a row, in order."""
        self._files = topic.log.files
        self._known = Checkpoints.of(topic, number)
        self._range = base, stop
        self._present = present
        self._blanked = blanked
        self._changed: list[tuple[Checkpoint, CommitmentFile | None]] = []
        for each in self._known.all(base, stop):
            if each.file is not None and self._changes(each):
                self._changed.append((each, self._rewritten(each)))

    def note(self, db: sqlite3.Connection) -> None:
        """Name the new files, in the transaction of the segment."""
        for each, file in self._changed:
            self._known.name_file(db, each.base_offset, file)

    def finish(self) -> None:
        """Remove the old files, once the transaction has ended."""
        for each, _ in self._changed:
            assert each.file is not None
            self._files.unlink(each.file.path, label="proof.remove_old")

    def undo(self) -> None:
        """Remove the new files: the transaction was given up."""
        for _, file in self._changed:
            if file is not None:
                self._files.unlink(file.path, label="proof.remove_new")

    def _changes(self, each: Checkpoint) -> bool:
        try:
            return any(bool((self._kept(each, found) != found.kept).any()) for found in each.read())
        except CorruptSegment:
            return True

    def _rewritten(self, each: Checkpoint) -> CommitmentFile | None:
        assert each.file is not None

        def every() -> Iterator[Commitments]:
            for found in each.read():
                yield replace(found, kept=self._kept(each, found))

        try:
            return write_commitments(_next_name(each.file.path), every(), self._files)
        except CorruptSegment:
            return None

    def _kept(self, each: Checkpoint, found: Commitments) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whose salts are left of some rows."""
        kept = found.kept.copy()
        low = max(found.first_offset, self._range[0]) - found.first_offset
        high = min(found.next_offset, self._range[1]) - found.first_offset
        if low < high:
            there = np.zeros(len(kept), np.bool_)
            there[_within(self._present, found)] = True
            kept[low:high][~there[low:high]] = False
        for blanked in self._blanked:
            rows = _within(blanked.offsets, found)
            for part in each.parts.touched_by(blanked.columns):
                kept[rows, part] = False
        return kept


def _within(offsets: Offsets, found: Commitments) -> Offsets:
    """The places of those offsets that some commitments are of."""
    low, high = np.searchsorted(offsets, [found.first_offset, found.next_offset])
    return offsets[low:high] - found.first_offset


def _next_name(path: Path) -> Path:
    """A new file's name: offsets, and how often it was written anew."""
    base, _, count = path.stem.partition("-r")
    return path.with_name(f"{base}-r{int(count or 0) + 1}{path.suffix}")
