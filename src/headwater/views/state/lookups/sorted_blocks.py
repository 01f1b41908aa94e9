"""Blocks: rows sorted by the hash of their key, in memory or mapped from a file.

What it is: sorting a piece of state into blocks, searching them, and the files that hold large ones.
Invariants: a block is sorted by ``_hash``, its first column, and its rows keep nothing but the columns that were ever
wanted. A file is complete or it does not exist under its name; it says which piece it was made from, and one that says
otherwise, lacks a column or was written before the machine last started is not used.
Not here: which blocks a lookup needs (``arrangements.py``).
Read next: ``arrangements.py``.

Files are not synced: they are a cache. After a power cut a file that was not synced may have its name and its length
and yet hold zeros; therefore a file carries the number of the boot it was written under.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headwater.log.storage.files import Files, translated
from headwater.log.storage.routing import Hashes
from headwater.views.compiler.plan import WEIGHT
from headwater.views.state.row_hash import hash_rows

HASH = pa.field("_hash", pa.uint64(), nullable=False)
BLOCK_ROWS = 1 << 20  # sorting takes some four times the memory of a block
BOOT_PATH = Path("/proc/sys/kernel/random/boot_id")
NOTE = b"headwater"
UNFINISHED = ".tmp"


@dataclass(frozen=True)
class StatePiece:
    """A part of a relation's state that never changes: a run, or a range of the log."""

    name: str  # may be a file's name; never used for other rows
    rows: int
    read: Callable[[pa.Schema], Iterator[pa.RecordBatch]]  # these columns, among them _weight


@dataclass(frozen=True)
class BlockOrder:
    """What blocks are sorted by: these columns, each hashed as it will be compared."""

    columns: tuple[str, ...]
    comparisons: tuple[str, ...]

    def hashes(self, rows: pa.RecordBatch | pa.Table) -> Hashes:
        """The hash of each row."""
        return hash_rows([rows.column(name) for name in self.columns], self.comparisons)


class SortedBlock:
    """Some rows in the order of their hashes."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self.hashes: Hashes = rows.column(0).to_numpy()

    def find(self, hashes: Hashes, columns: Sequence[str]) -> pa.RecordBatch | None:
        """These columns of the rows that have one of the hashes (sorted, each once); None when there is none."""
        starts = self.hashes.searchsorted(hashes)
        there = self.hashes[np.minimum(starts, len(self.hashes) - 1)] == hashes
        starts, found = starts[there], hashes[there]
        if not len(found):
            return None
        counts = self.hashes.searchsorted(found, side="right") - starts
        if len(found) == 1:  # its rows lie together: as a rule in the small runs of the last ticks
            return self.rows.select(columns).slice(int(starts[0]), int(counts[0]))
        before = np.cumsum(counts) - counts  # how many rows the hashes before this one have found
        places = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
        return self.rows.select(columns).take(pa.array(places))


def sort_blocks(batches: Iterable[pa.RecordBatch], order: BlockOrder, held: pa.Schema) -> Iterator[SortedBlock]:
    """Blocks of at most ``BLOCK_ROWS`` rows (and a batch), with the columns ``held``."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= BLOCK_ROWS:
            yield _sorted(waiting, order, held)
            waiting, rows = [], 0
    if rows:
        yield _sorted(waiting, order, held)


def _sorted(batches: Sequence[pa.RecordBatch], order: BlockOrder, held: pa.Schema) -> SortedBlock:
    together = pa.concat_batches(batches)
    hashes = order.hashes(together)
    places = np.argsort(hashes)
    taken = together.select(held.names).take(pa.array(places))
    columns = [pa.array(hashes[places]), *taken.columns]
    return SortedBlock(pa.RecordBatch.from_arrays(columns, schema=pa.schema([HASH, *held])))


def write_blocks(
    path: Path, piece: StatePiece, blocks: Iterable[SortedBlock], held: pa.Schema, *, files: Files
) -> None:
    """Put the blocks of a piece into a file."""
    files.make_dir(path.parent, label="blocks.make_directory")
    # Two processes may be at it at once, one of them shut out already: each writes a file of its own.
    temporary = path.with_suffix(f".{uuid.uuid4().hex}{UNFINISHED}")
    schema = pa.schema([HASH, *held], metadata={NOTE: _note(piece)})
    with translated(f"blocks {path}"), pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for block in blocks:
            writer.write_batch(block.rows)
    files.rename(temporary, path, label="blocks.rename")


def open_blocks(path: Path, piece: StatePiece) -> tuple[list[SortedBlock], pa.Schema] | None:
    """The blocks of a piece and the columns they hold, mapped; None when the file is not there or not right."""
    try:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        blocks = [SortedBlock(file.get_batch(number)) for number in range(file.num_record_batches)]
    except (OSError, pa.ArrowInvalid):
        return None
    noted = (file.schema.metadata or {}).get(NOTE)
    if noted != _note(piece) or sum(block.rows.num_rows for block in blocks) != piece.rows:
        return None
    return blocks, file.schema.remove_metadata().remove(0)


def _note(piece: StatePiece) -> bytes:
    return json.dumps({"piece": piece.name, "rows": piece.rows, "boot": _boot()}).encode()


@functools.cache
def _boot() -> str:
    """The number of the machine's running system; where it has none, files are of use to this process only."""
    try:
        return BOOT_PATH.read_text(encoding="ascii").strip()
    except OSError:
        return uuid.uuid4().hex


def held_fields(names: Iterable[str], schema: pa.Schema) -> pa.Schema:
    """The columns a block holds, in a fixed order: those named, then ``_weight``."""
    return pa.schema([schema.field(name) for name in [*sorted(set(names) - {WEIGHT}), WEIGHT]])
