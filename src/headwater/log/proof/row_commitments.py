"""Row commitments: hashes of rows that can be kept when their values have to go.

What it is: ``RowParts``, how the columns of a topic are divided, and the texts, commitments and leaves of its rows.
Invariants: a row has one part for the columns of each person that it names, and one for everything else, with the
append time, the producer and the metadata. A part's commitment is SHA-256 of a random salt and of the part's text,
which is JSON as everywhere; without the salt it tells nothing of the text, so erasing a part is to drop its values and
its salt. A leaf is the offset and the commitments of all parts. Columns that came with a later schema are no part of
the row, and null in it. A row that was not there when its segment was hashed has commitments of zeros.
Not here: where commitments are kept (``commitment_file.py``), the tree (``merkle_tree.py``).
Read next: ``commitment_file.py``; ``docs/audit.md``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from headwater.log.catalog.registry import TopicRow
from headwater.log.proof.merkle_tree import HASH_BYTES, LEAF
from headwater.log.schema.event_metadata import METADATA_COLUMNS
from headwater.log.schema.json_text import batch_to_json_lines
from headwater.log.storage.active_segment import FrameRange
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.sealed_segment import appended_of, metadata_of, producer_of

SALT_BYTES = 16
NO_ROW = bytes(HASH_BYTES)
SYSTEM = ("_appended_at", "_producer")


@dataclass(frozen=True)
class RowParts:
    """The parts of a topic's rows: for each the columns in it. The first one is of everything that is no person's.

    >>> import headwater as hw, tempfile
    >>> declared = {"user_id": hw.Personal("user_id"), "name": hw.Personal("user_id", by="user_id")}
    >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "id INT, user_id INT, name STRING", privacy=declared)
    >>> parts = RowParts.of(topic.row(), 1, metadata=False)
    >>> parts.columns
    (('_appended_at', '_producer', 'id'), ('user_id', 'name'))
    >>> RowParts.parse(parts.to_json()) == parts, parts.touched_by(["name"])
    (True, [1])
    """

    columns: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(row: TopicRow, version: int, *, metadata: bool) -> RowParts:
        """The parts of rows of a schema version, as the topic's declaration says now."""
        by: dict[str, list[str]] = {}
        names = stored_schema(row.schemas[version], row).names
        for name, personal in row.settings.privacy.items():
            if name in names and name != row.settings.event_time:  # the event time stays
                by.setdefault(personal.by or name, []).append(name)
        theirs = {name for group in by.values() for name in group}
        said = METADATA_COLUMNS if metadata else ()
        open_columns = (*SYSTEM, *said, *(name for name in names if name not in theirs))
        return RowParts((open_columns, *(tuple(name for name in names if name in by[each]) for each in by)))

    @staticmethod
    def parse(text: str) -> RowParts:
        """The parts of such a text."""
        return RowParts(tuple(tuple(each) for each in json.loads(text)))

    def to_json(self) -> str:
        """The parts as text."""
        return json.dumps(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def touched_by(self, columns: Sequence[str]) -> list[int]:
        """The numbers of the parts with one of these columns."""
        return [number for number, part in enumerate(self.columns) if not set(part).isdisjoint(columns)]

    def texts(self, chunk: FrameRange, schema: pa.Schema) -> list[list[str]]:
        """For each part, the text of each row, as it was under the schema that the rows were hashed with."""
        columns = self._columns(chunk, schema)
        batches = [pa.RecordBatch.from_arrays([columns[name] for name in part], names=part) for part in self.columns]
        return [batch_to_json_lines(batch) for batch in batches]

    def _columns(self, chunk: FrameRange, schema: pa.Schema) -> dict[str, pa.Array]:
        columns = {name: narrowed(chunk.batch.column(name), schema.field(name).type) for name in schema.names}
        columns["_appended_at"], columns["_producer"] = appended_of(chunk), producer_of(chunk)
        for name in METADATA_COLUMNS:
            columns[name] = metadata_of(chunk, name)
        return columns

    def beyond(self, chunk: FrameRange) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which rows have a value in a column that is in no part: none had one when they were hashed."""
        known = {name for part in self.columns for name in part}
        more = [
            column
            for name, column in zip(chunk.batch.schema.names, chunk.batch.columns, strict=True)
            if name not in known
        ]
        if METADATA_COLUMNS[0] not in known and chunk.metadata is not None:
            more += [metadata_of(chunk, name) for name in METADATA_COLUMNS]
        found = np.zeros(chunk.batch.num_rows, np.bool_)
        for column in more:
            found |= column.is_valid().to_numpy(zero_copy_only=False)
        return found


def committed(texts: Sequence[str], salts: bytes) -> list[bytes]:
    """The commitments to texts, with as many salts."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    places = range(0, len(salts), SALT_BYTES)
    return [sha256(salts[at : at + SALT_BYTES] + text).digest() for at, text in zip(places, encoded, strict=True)]


def leaf_data(offset: int, commitments: bytes) -> bytes:
    """What a leaf of the tree is made of.

    >>> leaf_data(258, b"c").hex()
    '000000000000010263'
    """
    return offset.to_bytes(8, "big") + commitments


def leaves_of(first_offset: int, commitments: bytes, parts: int) -> list[bytes]:
    """The hashes of the leaves from an offset on; each row has its parts' commitments side by side."""
    width = parts * HASH_BYTES
    rows = len(commitments) // width
    offsets = np.arange(first_offset, first_offset + rows, dtype=">i8").tobytes()
    return [
        sha256(LEAF + offsets[at * 8 : at * 8 + 8] + commitments[at * width : at * width + width]).digest()
        for at in range(rows)
    ]


def narrowed(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Values in the type that they were written in, of which theirs is a wider one (``log/schema/evolution.py``).

    >>> narrowed(pa.array([{"a": 1, "b": None}]), pa.struct([("a", pa.int32())])).to_pylist()
    [{'a': 1}]
    """
    if array.type == target:
        return array
    mask = array.is_null() if array.null_count else None
    if kinds.is_struct(target):
        have = {field.name: part for field, part in zip(array.type, array.flatten(), strict=True)}
        arrays = [narrowed(have[field.name], field.type) for field in target]
        return pa.StructArray.from_arrays(arrays, fields=list(target), mask=mask)
    if kinds.is_list(target):
        offsets = pa.array(array.offsets.to_numpy(), pa.int32())
        return pa.ListArray.from_arrays(offsets, narrowed(array.values, target.value_type), type=target, mask=mask)
    if kinds.is_map(target):
        offsets = pa.array(array.offsets.to_numpy(), pa.int32())
        keys, items = array.values.flatten()
        return pa.MapArray.from_arrays(offsets, keys, narrowed(items, target.item_type), type=target, mask=mask)
    return array.cast(target)
