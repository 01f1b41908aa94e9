"""Partition audit: every sealed row of a partition against its commitment, and these against the checkpoints.

What it is: ``audit_partition`` reads everything again and says what differs: at which offset, in which file, and how: a
row was changed, removed, added, or is another one's.
Invariants: it changes nothing, and holds the maintenance lock meanwhile, so that files stay. A difference in a file
that cannot be read to its end is told with the first offset that could not be. A row whose values were erased is
compared in its other parts, and has to be blank in the erased ones.
Not here: how a checkpoint is made (``log/proof/checkpoints.py``), all topics (``log_audit.py``).
Read next: ``log_audit.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import CorruptSegment
from headwater.log.erasure.erasure_records import ErasureRecords
from headwater.log.erasure.personal_rows import empty_value
from headwater.log.proof.checkpoints import Checkpoint, Checkpoints
from headwater.log.proof.commitment_file import Commitments
from headwater.log.proof.merkle_tree import HASH_BYTES, CompactRange
from headwater.log.proof.row_commitments import committed, leaves_of
from headwater.log.storage.active_segment import FrameRange
from headwater.log.storage.checksums import has_checksum
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.partition_layout import maintenance_lock
from headwater.log.storage.sealed_segment import SealedSegment, offsets_of

if TYPE_CHECKING:
    from headwater.log.topic import Topic

Kind = Literal["changed", "removed", "added", "reordered", "unreadable", "file", "checkpoint", "noted"]
SWAPS_MAX = 300  # rows among which those are looked for that have changed places
UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, IndexError)
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class AuditDifference:
    """Something that is not as it was."""

    kind: Kind
    topic: str
    partition: int
    offset: int | None  # the first one
    rows: int
    file: str
    message: str

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        place = f"{self.topic}[{self.partition}]" + ("" if self.offset is None else f"@{self.offset}")
        return f"{place}: {self.message}" + (f" ({self.file})" if self.file else "")


@dataclass
class PartitionAudit:
    """What an audit found in a partition."""

    topic: str
    partition: int
    checkpoints: int = 0
    rows: int = 0  # that were compared
    erased: int = 0  # of these: rows some of whose values were erased, and which cannot be shown any more
    removed: int = 0  # rows that compaction or an erasure took away
    pending: int = 0  # sealed rows without a checkpoint
    size: int = 0
    root: str = ""
    differences: list[AuditDifference] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return asdict(self)


def audit_partition(topic: Topic, number: int) -> PartitionAudit:
    """Compare a partition."""
    work = _Work(topic, number)
    directory = topic.directory / str(number)
    locked = directory.exists() and not topic.log.read_only
    with maintenance_lock(directory, wait=True) if locked else contextlib.nullcontext():
        work.run()
    return work.found


class _Work:
    def __init__(self, topic: Topic, number: int) -> None:
        self.topic = topic
        self.number = number
        self.found = PartitionAudit(topic.name, number)
        self.directory = topic.directory / str(number)
        self.file = ""

    def run(self) -> None:
        registry = self.topic.log.registry
        start, _ = registry.start(self.topic.id, self.number)
        sealed = registry.sealed(self.topic.id, self.number, self.directory)
        known = Checkpoints.of(self.topic, self.number).all()
        self._check_files(sealed if known else [])
        tree, end = CompactRange(0, 0, ()), None
        for each in known:
            tree = self._check_root(each, tree)
            self._check_rows(each, [s for s in sealed if s.next_offset > start], start)
            end = each.next_offset
        self.found.checkpoints = len(known)
        if known:
            self.found.size, self.found.root = known[-1].size, known[-1].root.hex()
        after = [s for s in sealed if end is None or s.next_offset > end]
        self.found.pending = sum(s.rows for s in after) if self.topic.settings.proof else 0
        self._check_removals()

    def _differs(self, kind: Kind, offset: int | None, rows: int, message: str, file: str | Path | None = None) -> None:
        place = str(self.file if file is None else file)
        last = self.found.differences[-1] if self.found.differences else None
        if last is not None and offset is not None and last.offset is not None and kind != "reordered":
            same = (last.kind, last.file, last.offset + last.rows) == (kind, place, offset)
            if same and last.message == message:
                more = AuditDifference(kind, last.topic, last.partition, last.offset, last.rows + rows, place, message)
                self.found.differences[-1] = more
                return
        self.found.differences.append(AuditDifference(kind, self.topic.name, self.number, offset, rows, place, message))

    # Files and roots

    def _check_files(self, sealed: Sequence[SealedSegment]) -> None:
        for segment in sealed:
            try:
                if not has_checksum(segment.path, segment.checksum):
                    what = "the file's bytes are not those that were written"
                    self._differs("file", segment.base_offset, segment.rows, what, segment.path)
            except FileNotFoundError:
                self._differs("file", segment.base_offset, segment.rows, "the file is missing", segment.path)

    def _check_root(self, each: Checkpoint, tree: CompactRange) -> CompactRange:
        """The checkpoint's own hashes against its root."""
        catalog = self.topic.log.catalog.path
        try:
            tree = tree + each.subtrees
            if (
                tree == each.tree
                and tree.root() == each.root
                and each.subtrees.end - each.subtrees.begin == each.next_offset - each.base_offset
            ):
                return tree
        except ValueError:
            tree = CompactRange(0, each.subtrees.end, ())
        rows = each.next_offset - each.base_offset
        self._differs(
            "checkpoint", each.base_offset, rows, "the checkpoint's hashes do not add up to its root", catalog
        )
        return tree

    def _check_commitments(self, each: Checkpoint) -> bool:
        """The file of commitments against the checkpoint: without it rows cannot be compared."""
        assert each.file is not None
        self.file = str(each.file.path)
        subtrees = CompactRange(each.subtrees.begin, each.subtrees.begin, ())
        try:
            for found in each.read():
                leaves = leaves_of(found.first_offset, found.commitments.tobytes(), len(each.parts))
                subtrees += CompactRange.of(subtrees.end, leaves)
        except CorruptSegment as error:
            rows = each.next_offset - each.base_offset
            self._differs("file", each.base_offset, rows, f"the commitments are damaged. {error.detail or ''}".strip())
            return False
        if subtrees == each.subtrees:
            return True
        was = {(level, index): root for level, index, root in each.subtrees.nodes()}
        for level, index, root in subtrees.nodes():
            if was.get((level, index)) != root:
                first = each.base_offset + (index << level) - each.subtrees.begin
                self._differs("changed", first, 1 << level, "the commitments are not those of the checkpoint")
        return True

    # Rows

    def _check_rows(self, each: Checkpoint, sealed: Sequence[SealedSegment], start: int) -> None:
        begin = max(start, each.base_offset)
        if begin >= each.next_offset:
            return
        if each.file is None:
            rows = each.next_offset - begin
            self._differs("file", begin, rows, "the checkpoint has lost its commitments", self.topic.log.catalog.path)
            return
        if not self._check_commitments(each):
            return
        row = self.topic.row_for_reading(each.schema_version)
        schema, position = stored_schema(row.schemas[each.schema_version], row), begin
        for segment in sealed:
            low, high = max(begin, segment.base_offset), min(each.next_offset, segment.next_offset)
            if low >= high:
                continue
            self.file = str(segment.path)
            try:
                for chunk in segment.read(low, high, None, verified=False):
                    stop = max(position, chunk.next_offset)
                    self._compare(each, chunk, schema, each.file.between(each.base_offset, position, stop))
                    position = stop
            except FileNotFoundError:
                position = max(position, high)  # told already
            except UNREADABLE as error:
                rows = high - position
                if rows > 0:
                    why = str(error).splitlines()[0] if str(error) else type(error).__name__
                    self._differs("unreadable", position, rows, f"rows cannot be read from here on: {why}")
                position = max(position, high)
        if position < each.next_offset:
            self._compare_none(each.file.between(each.base_offset, position, each.next_offset))

    def _compare_none(self, expected: Commitments) -> None:
        """No segment has these offsets."""
        self.file = str(self.topic.log.catalog.path)
        self._missing(expected, np.zeros(len(expected.kept), np.bool_))

    def _compare(self, each: Checkpoint, chunk: FrameRange, schema: pa.Schema, expected: Commitments) -> None:
        offsets = offsets_of(chunk).to_numpy()
        rises = np.ones(len(offsets), np.bool_)
        rises[1:] = np.diff(offsets) > 0
        for offset in offsets[~rises].tolist():
            self._differs("reordered", int(offset), 1, "the offsets of the file do not rise here")
        places = offsets - expected.first_offset
        inside = rises & (places >= 0) & (places < len(expected.kept))
        there = np.zeros(len(expected.kept), np.bool_)
        there[places[inside]] = True
        self._missing(expected, there)
        self.found.rows += int(inside.sum())
        wrong = np.zeros(len(offsets), np.bool_)
        wrong[inside] = each.parts.beyond(chunk)[inside]
        texts = each.parts.texts(chunk, schema)
        for part, of_part in enumerate(texts):
            wrong |= inside & self._part_differs(each, chunk, part, of_part, expected, np.where(inside, places, 0))
        kept = expected.kept[np.where(inside, places, 0)]
        new = inside & ~expected.commitments[np.where(inside, places, 0)].any(axis=(1, 2))
        self.found.erased += int((inside & ~new & ~kept.all(1)).sum())
        for place in np.flatnonzero(new).tolist():
            self._differs("added", int(offsets[place]), 1, "there was no row here when the segment was sealed")
        self._tell_changed(offsets, np.flatnonzero(wrong & ~new), texts, expected)

    def _part_differs(
        self, each: Checkpoint, chunk: FrameRange, part: int, texts: list[str], expected: Commitments, places: Any
    ) -> Mask:
        """Which rows have another text than was committed to, or values although these were erased."""
        kept, salts = expected.kept[places, part], expected.salts[places, part]
        hashed = np.frombuffer(b"".join(committed(texts, salts.tobytes())), np.uint8).reshape(-1, HASH_BYTES)
        differs = np.asarray((hashed != expected.commitments[places, part]).any(1), np.bool_)
        if kept.all():
            return differs
        blank = np.zeros(len(texts), np.bool_)
        for name in each.parts.columns[part]:
            if name in chunk.batch.schema.names:
                blank |= _blank(chunk.batch.column(name))
        return np.asarray(np.where(kept, differs, ~blank), np.bool_)

    def _missing(self, expected: Commitments, there: Mask) -> None:
        expects = expected.kept.any(1)
        self.found.removed += int((~there & ~expects & expected.commitments.any(axis=(1, 2))).sum())
        for place in np.flatnonzero(expects & ~there).tolist():
            self._differs("removed", expected.first_offset + place, 1, "the row was removed")

    def _tell_changed(self, offsets: Any, wrong: Any, texts: list[list[str]], expected: Commitments) -> None:
        """Changed rows; where it is another offset's row that is there, which."""
        few = wrong.tolist() if len(wrong) <= SWAPS_MAX else []
        for place in wrong.tolist():
            offset = int(offsets[place])
            origin = next(
                (at for at in few if at != place and self._is_row_of(at, place, offsets, texts, expected)), None
            )
            if origin is None:
                self._differs("changed", offset, 1, "the row was changed")
            else:
                self._differs("reordered", offset, 1, f"the row of offset {int(offsets[origin])} is here")

    @staticmethod
    def _is_row_of(at: int, place: int, offsets: Any, texts: list[list[str]], expected: Commitments) -> bool:
        """Whether the row at ``place`` is what was committed to at ``at``."""
        row = int(offsets[at]) - expected.first_offset
        if not expected.kept[row].all():
            return False
        return all(
            committed([of_part[place]], expected.salts[row, part].tobytes())[0]
            == expected.commitments[row, part].tobytes()
            for part, of_part in enumerate(texts)
        )

    def _check_removals(self) -> None:
        """Salts that are gone where nothing takes rows away."""
        gone, settings = self.found.removed + self.found.erased, self.topic.settings
        records = ErasureRecords(self.topic.log.catalog)
        if not gone or settings.compact or records.all() or records.expiry() is not None:
            return
        message = f"{gone} rows pass for erased, and nobody was ever erased here"
        self._differs("removed", None, gone, message, self.directory)


def _blank(column: pa.Array) -> Mask:
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    try:
        empty = pc.equal(column, empty_value(column.type)[0])
        return np.asarray(nulls | pc.fill_null(empty, True).to_numpy(zero_copy_only=False), np.bool_)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # nested: by the values
        blank: tuple[Any, ...] = (None, [], {})
        return np.array([value in blank for value in column.to_pylist()], np.bool_)
