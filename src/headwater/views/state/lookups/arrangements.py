"""Arrangements: a relation's rows indexed by some columns, for lookups on the driver in milliseconds.

What it is: the rows sorted by the hash of the columns, so that a small tick fetches the few old rows it needs without
a Spark job.
Invariants: an arrangement is a cache of its pieces (runs, ranges of the log). Each piece is sorted into blocks of its
own when a lookup first needs it; a block that is missing or does not match is made again. A small piece stays in
memory, a larger one is one mapped file. A lookup answers with weighted rows, consolidated; rows of other keys may be
among them, if their hashes meet, and none is missing. While one thread sorts a piece, others look into the rest.
Not here: how blocks are sorted, searched and stored (``sorted_blocks.py``); which pieces are current (``trace.py``).
Read next: ``trace.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from headwater.errors import InvalidDeclaration
from headwater.log.storage.files import Files
from headwater.log.storage.routing import Hashes
from headwater.views import thresholds
from headwater.views.compiler.plan import WEIGHT
from headwater.views.state.algebra import consolidate
from headwater.views.state.lookups.sorted_blocks import (
    UNFINISHED,
    BlockOrder,
    SortedBlock,
    StatePiece,
    held_fields,
    open_blocks,
    sort_blocks,
    write_blocks,
)
from headwater.views.state.row_hash import comparisons

SUFFIX = ".arrow"

Made = tuple[list[SortedBlock], pa.Schema]  # a piece's blocks, and the columns they hold


class Arrangement:
    """One order of one relation: blocks for each piece that was asked for."""

    def __init__(self, folder: Path, order: BlockOrder, files: Files) -> None:
        self.folder = folder
        self.order = order
        self.wanted: set[str] = set()  # never changed, only replaced
        self._known: tuple[set[str], pa.Schema, pa.Schema] | None = None
        self._files = files
        self._blocks: dict[str, Made] = {}
        self._making: dict[str, threading.Lock] = {}  # of pieces that are being sorted: held by who sorts
        self._lock = threading.Lock()  # never held while a piece is sorted: lookups in the others go on

    def blocks(self, piece: StatePiece, schema: pa.Schema) -> list[SortedBlock]:
        """The blocks of a piece with every column that was ever wanted; made when there are none."""
        with self._lock:
            found = self._found(piece, schema)
            if found is not None:
                return found
            making = self._making.setdefault(piece.name, threading.Lock())
        with making:  # who else needs it meanwhile waits for it
            with self._lock:
                found, held = self._found(piece, schema), self._held(schema)
            if found is not None:
                return found
            made = self._opened(piece, held) or self._made(piece, piece.read(self._needed(schema)), held)
            with self._lock:
                if self._making.get(piece.name) is making:  # else it was let go meanwhile
                    self._blocks[piece.name] = made
                    del self._making[piece.name]
            return made[0]

    def add(self, piece: StatePiece, table: pa.Table) -> None:
        """Sort a piece whose rows are at hand."""
        held = held_fields(self.wanted, table.schema)
        batches = table.select(self._needed(table.schema).names).to_batches()
        made = self._made(piece, batches, held)
        with self._lock:
            self._blocks[piece.name] = made

    def forget(self, names: Iterable[str]) -> None:
        """Let go of the blocks of some pieces; their files stay."""
        with self._lock:
            for name in names:
                self._blocks.pop(name, None)
                self._making.pop(name, None)

    def _found(self, piece: StatePiece, schema: pa.Schema) -> list[SortedBlock] | None:
        found = self._blocks.get(piece.name)
        return found[0] if found is not None and _holds(found[1], self._held(schema)) else None

    def _held(self, schema: pa.Schema) -> pa.Schema:
        """The columns that were ever wanted; a lookup asks for them once for each piece."""
        known = self._known
        if known is None or known[0] is not self.wanted or known[1] is not schema:
            known = self._known = (self.wanted, schema, held_fields(self.wanted, schema))
        return known[2]

    def _needed(self, schema: pa.Schema) -> pa.Schema:
        """What is to be read of a piece: the columns to hold and those to sort by."""
        return held_fields(self.wanted | set(self.order.columns), schema)

    def _path(self, piece: StatePiece) -> Path:
        return self.folder / f"{piece.name}{SUFFIX}"

    def _opened(self, piece: StatePiece, held: pa.Schema) -> Made | None:
        if piece.rows < thresholds.ARRANGEMENT_FILE_ROWS_MIN:
            return None
        found = open_blocks(self._path(piece), piece)
        return found if found is not None and _holds(found[1], held) else None

    def _made(self, piece: StatePiece, batches: Iterable[pa.RecordBatch], held: pa.Schema) -> Made:
        blocks = sort_blocks(batches, self.order, held)
        if piece.rows < thresholds.ARRANGEMENT_FILE_ROWS_MIN:
            return list(blocks), held
        write_blocks(self._path(piece), piece, blocks, held, files=self._files)
        made = open_blocks(self._path(piece), piece)
        assert made is not None, f"{self._path(piece)} was just written"
        return made


def _holds(have: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether blocks with these columns serve a lookup that wants those."""
    if have.equals(wanted):
        return True
    return all(field.name in have.names and have.field(field.name).type == field.type for field in wanted)


class Arrangements:
    """All arrangements of one relation. Successive ticks' traces share them; so do threads."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.folder = folder
        self._files = files
        self._by_order: dict[BlockOrder, Arrangement] = {}
        self._lock = threading.Lock()

    def arrangement(self, order: BlockOrder, wanted: Collection[str]) -> Arrangement:
        """The arrangement in this order; from now on it holds these columns too."""
        with self._lock:
            found = self._by_order.get(order)
            if found is None:
                name = xxhash.xxh3_64_hexdigest(repr(order).encode())
                found = self._by_order[order] = Arrangement(self.folder / name, order, self._files)
            if not found.wanted.issuperset(wanted):
                found.wanted = found.wanted | set(wanted)
            return found

    def lookup(
        self,
        pieces: Sequence[StatePiece],
        schema: pa.Schema,
        columns: Sequence[str],
        keys: pa.Table,
        wanted: Sequence[str],
    ) -> pa.Table:
        """The rows of these pieces whose ``columns`` equal some row of ``keys`` (by place): ``wanted``, ``_weight``."""
        _check(schema, [*columns, *wanted])
        order = BlockOrder(tuple(columns), comparisons(columns, schema, keys.schema))
        result = held_fields(wanted, schema)
        arrangement = self.arrangement(order, wanted)
        found = []
        if keys.num_rows:
            hashes = _each_once(BlockOrder(tuple(keys.schema.names), order.comparisons).hashes(keys))
            for piece in pieces:
                for block in arrangement.blocks(piece, schema):
                    rows = block.find(hashes, result.names)
                    if rows is not None:
                        found.append(rows)
        table = pa.Table.from_batches(found, schema=result)
        return consolidate(table).select([*(name for name in wanted if name != WEIGHT), WEIGHT])

    def add(self, piece: StatePiece, table: pa.Table) -> None:
        """Sort a new piece, whose rows are at hand, for every arrangement there is."""
        for arrangement in list(self._by_order.values()):
            arrangement.add(piece, table)

    def prepare(self, piece: StatePiece, schema: pa.Schema) -> None:
        """Sort a new piece for every arrangement there is, so that no lookup has to wait for it."""
        for arrangement in list(self._by_order.values()):
            arrangement.blocks(piece, schema)

    def forget(self, names: Collection[str]) -> None:
        """Let go of pieces that others have replaced."""
        for arrangement in list(self._by_order.values()):
            arrangement.forget(names)

    def prune(self, keep: Collection[str]) -> None:
        """Delete the files of all pieces but these."""
        for path in self.folder.glob("*/*"):
            if path.suffix == UNFINISHED or path.name.removesuffix(SUFFIX) not in keep:
                self._files.unlink(path, label="blocks.unlink")


def _each_once(hashes: Hashes) -> Hashes:
    """Sorted, each once. Not ``np.unique``, which numbers a million hashes in 0.8 s (numpy 2.4) instead of 0.02 s."""
    ranked: Hashes = np.sort(hashes)
    first: Hashes = ranked[np.append(True, ranked[1:] != ranked[:-1])]
    return first


def _check(schema: pa.Schema, names: Sequence[str]) -> None:
    for name in names:
        if name not in schema.names:
            raise InvalidDeclaration(
                f'there is no column "{name}" to look up',
                hint="The columns are " + ", ".join(schema.names) + ".",
                column=name,
            )
