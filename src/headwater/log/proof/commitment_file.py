"""Commitment file: the commitments and salts of the rows of a checkpoint, beside the segments.

What it is: one Arrow file for each checkpoint: for every offset and part a commitment, and a salt as long as the row's
values may be known; writing it, reading it, and writing it anew without salts that have to go.
Invariants: a commitment never changes; a salt only goes. Where it goes no byte of it is left in the new file. The file
is whole, synced and renamed before the catalog names it, which has its checksum.
Not here: when (``checkpoints.py``, ``proof_release.py``).
Read next: ``checkpoints.py``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import CorruptSegment
from headwater.log.proof.merkle_tree import HASH_BYTES
from headwater.log.proof.row_commitments import SALT_BYTES
from headwater.log.storage.checksums import checksum_of, has_checksum
from headwater.log.storage.file_descriptors import open_file, with_room
from headwater.log.storage.files import Files, translated

SUFFIX = ".proof"
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Kept = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Commitments:
    """The commitments of consecutive offsets, and what is left of their salts."""

    first_offset: int
    commitments: Bytes  # rows × parts × 32
    salts: Bytes  # rows × parts × 16; zeros where there is none
    kept: Kept  # rows × parts: whether there is a salt

    @property
    def next_offset(self) -> int:
        """The offset after the last."""
        return self.first_offset + len(self.commitments)

    def batch(self) -> pa.RecordBatch:
        """The rows as the file has them."""
        arrays, names = [], []
        for part in range(self.commitments.shape[1]):
            arrays += [
                _fixed(self.commitments[:, part], None),
                _fixed(np.where(self.kept[:, part, None], self.salts[:, part], 0), self.kept[:, part]),
            ]
            names += [f"commitment_{part}", f"salt_{part}"]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    @staticmethod
    def of(first_offset: int, batch: pa.RecordBatch) -> Commitments:
        """The rows of a batch of the file."""
        commitments = [_bytes_of(column, HASH_BYTES) for column in batch.columns[::2]]
        salts = [_bytes_of(column, SALT_BYTES) for column in batch.columns[1::2]]
        kept = [column.is_valid().to_numpy(zero_copy_only=False) for column in batch.columns[1::2]]
        return Commitments(first_offset, np.stack(commitments, 1), np.stack(salts, 1), np.stack(kept, 1))


@dataclass(frozen=True)
class CommitmentFile:
    """A file, as the catalog names it."""

    path: Path
    bytes: int
    checksum: int

    def read(self, first_offset: int) -> Iterator[Commitments]:
        """The commitments from the first offset on; ``CorruptSegment`` when the bytes are not those in the catalog."""
        try:
            if not has_checksum(self.path, self.checksum, size=self.bytes):
                raise self.damaged("Its bytes do not match the checksum in the catalog.", first_offset)
            with with_room(lambda: pa.memory_map(str(self.path))) as source:
                reader = pa.ipc.open_file(source)
                for number in range(reader.num_record_batches):
                    found = Commitments.of(first_offset, reader.get_batch(number))
                    yield found
                    first_offset = found.next_offset
        except FileNotFoundError:
            raise self.damaged("It is missing.", first_offset) from None
        except (pa.ArrowInvalid, OSError, IndexError, ValueError) as error:
            raise self.damaged(str(error), first_offset) from error

    def between(self, first_offset: int, start: int, stop: int) -> Commitments:
        """The commitments of some offsets, in a file that was read before; it begins at ``first_offset``."""
        with with_room(lambda: pa.memory_map(str(self.path))) as source:
            table = pa.ipc.open_file(source).read_all().slice(start - first_offset, stop - start)
            batches = table.combine_chunks().to_batches()
            batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
            return Commitments.of(start, batch)

    def damaged(self, reason: str, offset: int) -> CorruptSegment:
        """The error for a damaged file."""
        return CorruptSegment(
            f"the commitments in {self.path} are damaged",
            detail=f"{reason} Rows from offset {offset} on cannot be compared with the checkpoint.",
            hint="Restore the file from a backup.",
            file=str(self.path),
            offset=offset,
        )


def write_commitments(path: Path, every: Iterable[Commitments], files: Files) -> CommitmentFile:
    """Write commitments under their final name, synced, but not yet in the catalog."""
    temporary = path.with_name(path.name + ".tmp")
    with translated(f"write {path.name}"):
        writer: Any = None
        try:
            for each in every:
                batch = each.batch()
                if writer is None:
                    writer = with_room(functools.partial(pa.ipc.new_file, str(temporary), batch.schema))
                writer.write_batch(batch)
        finally:
            if writer is not None:
                writer.close()
    fd = open_file(temporary, os.O_RDONLY)
    try:
        files.sync(fd, label="proof.sync")
        written = CommitmentFile(path, os.fstat(fd).st_size, checksum_of(temporary))
    finally:
        os.close(fd)
    files.rename(temporary, path, label="proof.rename")
    files.sync_dir(path.parent, label="proof.sync_directory")
    return written


def _fixed(values: Bytes, valid: Kept | None) -> pa.Array:
    width = values.shape[1]
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    data = pa.py_buffer(np.ascontiguousarray(values).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(values), [bitmap, data])


def _bytes_of(column: pa.Array, width: int) -> Bytes:
    data = column.buffers()[1]
    start = column.offset * width
    found = np.frombuffer(data, np.uint8)[start : start + len(column) * width]
    return found.reshape(len(column), width)
