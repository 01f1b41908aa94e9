"""Event metadata: who caused an append, and what it belongs to.

What it is: ``Metadata``, as users give it; the columns ``_correlation_id``, ``_causation_id`` and ``_actor`` that every
topic has; ``RowMetadata``, the values of some rows as a frame stores them.
Invariants: rows without metadata store nothing for it: neither in a frame nor as a column of a sealed segment. On the
way to a frame the values are columns of the batch, after the topic's own, so they are routed with their rows.
Not here: the frame (``log/storage/framing.py``), the sealed columns (``log/storage/sealed_segment.py``).
Read next: ``log/storage/framing.py``; ``docs/writing.md``, "Who did it".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidDeclaration

CHARACTERS_MAX = 1000
METADATA_COLUMNS = ("_correlation_id", "_causation_id", "_actor")
METADATA_SCHEMA = pa.schema([(name, pa.string()) for name in METADATA_COLUMNS])


@dataclass(frozen=True, slots=True)
class Metadata:
    """What an append says about itself: the conversation it belongs to, its cause, and who acted.

    >>> import headwater as hw, tempfile
    >>> orders = hw.Log(tempfile.mkdtemp()).topic("orders", "order_id BIGINT")
    >>> _ = orders.append([{"order_id": 1}], metadata=hw.Metadata(actor="anna", correlation_id="basket-7"))
    >>> list(orders.rows(columns=["order_id", "_actor", "_correlation_id", "_causation_id"]))
    [{'order_id': 1, '_actor': 'anna', '_correlation_id': 'basket-7', '_causation_id': None}]
    >>> hw.Metadata(actor=7)
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: actor is text, not int
    """

    correlation_id: str | None = None
    causation_id: str | None = None
    actor: str | None = None

    def __post_init__(self) -> None:
        for name in METADATA_NAMES:
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, str):
                raise InvalidDeclaration(f"{name} is text, not {type(value).__name__}")
            if not 1 <= len(value) <= CHARACTERS_MAX:
                raise InvalidDeclaration(f"{name} has 1 to {CHARACTERS_MAX} characters, not {len(value)}")

    @staticmethod
    def carried(correlation_id: object = None, causation_id: object = None, actor: object = None) -> Metadata | None:
        """What another system says: as text, cut after 1000 characters; None when it says nothing.

        >>> Metadata.carried(correlation_id=7, actor="")
        Metadata(correlation_id='7', causation_id=None, actor=None)
        """
        given = (correlation_id, causation_id, actor)
        values = [None if value is None or value == "" else str(value)[:CHARACTERS_MAX] for value in given]
        return Metadata(*values) if any(value is not None for value in values) else None

    @property
    def empty(self) -> bool:
        """Whether nothing is said.

        >>> Metadata().empty, Metadata(actor="ada").empty
        (True, False)
        """
        return self.correlation_id is None and self.causation_id is None and self.actor is None


METADATA_NAMES = tuple(field.name for field in fields(Metadata))


@dataclass(frozen=True, slots=True)
class RowMetadata:
    """The metadata of some rows: for each of ``METADATA_COLUMNS`` one value for all of them, or an array.

    >>> some = RowMetadata((None, None, pa.array(["anna", None, "bob"])))
    >>> RowMetadata.unpack(some.pack()).column("_actor", 3).to_pylist()
    ['anna', None, 'bob']
    >>> one = RowMetadata(("basket-7", None, "anna"))
    >>> one.pack()
    b'{"_correlation_id":"basket-7","_actor":"anna"}'
    >>> joined_metadata([one, None, some], [1, 2, 3]).column("_actor", 6).to_pylist()
    ['anna', None, None, 'anna', None, 'bob']
    """

    values: tuple[str | pa.Array | None, ...]

    @staticmethod
    def of_columns(batch: pa.RecordBatch) -> RowMetadata | None:
        """The metadata columns of a batch; one value where all rows have the same, None where nothing is said."""
        found: list[str | pa.Array | None] = []
        for name in METADATA_COLUMNS:
            column = batch.column(name) if name in batch.schema.names else None
            if column is None or column.null_count == len(column):
                found.append(None)
            elif not column.null_count and pc.count_distinct(column).as_py() == 1:
                found.append(column[0].as_py())
            else:
                found.append(column)
        return RowMetadata(tuple(found)) if any(value is not None for value in found) else None

    def pack(self) -> bytes:
        """As bytes, for a frame."""
        said = {
            name: value.to_pylist() if isinstance(value, pa.Array) else value
            for name, value in zip(METADATA_COLUMNS, self.values, strict=True)
            if value is not None
        }
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()

    @staticmethod
    def unpack(data: bytes) -> RowMetadata:
        """The metadata that ``pack`` wrote."""
        said = json.loads(data)
        values = (said.get(name) for name in METADATA_COLUMNS)
        return RowMetadata(tuple(pa.array(v, pa.string()) if isinstance(v, list) else v for v in values))

    def column(self, name: str, rows: int) -> pa.Array:
        """One of the columns, for so many rows."""
        value = self.values[METADATA_COLUMNS.index(name)]
        if isinstance(value, pa.Array):
            return value
        return pa.repeat(pa.scalar(value, pa.string()), rows)

    def slice(self, skip: int, keep: int) -> RowMetadata:
        """That of a part of the rows."""
        return RowMetadata(tuple(v.slice(skip, keep) if isinstance(v, pa.Array) else v for v in self.values))

    def filter(self, mask: pa.Array) -> RowMetadata:
        """That of the rows that a mask keeps."""
        return RowMetadata(tuple(v.filter(mask) if isinstance(v, pa.Array) else v for v in self.values))


def joined_metadata(parts: Sequence[RowMetadata | None], counts: Sequence[int]) -> RowMetadata | None:
    """The metadata of consecutive rows; ``counts`` says how many rows each part has."""
    if all(part is None for part in parts):
        return None
    return RowMetadata(
        tuple(
            _joined_values([None if part is None else part.values[place] for part in parts], counts)
            for place in range(len(METADATA_COLUMNS))
        )
    )


def _joined_values(values: Sequence[str | pa.Array | None], counts: Sequence[int]) -> str | pa.Array | None:
    plain = [value for value in values if not isinstance(value, pa.Array)]
    if len(plain) == len(values):
        if all(value == plain[0] for value in plain):
            return plain[0]
        return pa.array(plain, pa.string()).take(pa.array(np.repeat(np.arange(len(plain)), counts)))
    return pa.concat_arrays(
        [
            value if isinstance(value, pa.Array) else pa.repeat(pa.scalar(value, pa.string()), count)
            for value, count in zip(values, counts, strict=True)
        ]
    )


def with_metadata(batch: pa.RecordBatch, metadata: Metadata | Sequence[Metadata | None] | None) -> pa.RecordBatch:
    """A batch with the columns of what is said about it: of all rows, or of each.

    >>> with_metadata(pa.record_batch({"x": [1, 2]}), [Metadata(actor="anna"), None]).column("_actor").to_pylist()
    ['anna', None]
    """
    if metadata is None or (isinstance(metadata, Metadata) and metadata.empty):
        return batch
    if not isinstance(metadata, Metadata) and not isinstance(metadata, Sequence):
        raise InvalidDeclaration(
            f"metadata is hw.Metadata, not {type(metadata).__name__}", hint='For example hw.Metadata(actor="anna").'
        )
    columns = list(batch.columns)
    for name in METADATA_NAMES:
        if isinstance(metadata, Metadata):
            columns.append(pa.repeat(pa.scalar(getattr(metadata, name), pa.string()), batch.num_rows))
        else:
            values = [None if each is None else getattr(each, name) for each in metadata]
            columns.append(pa.array(values, pa.string()))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*batch.schema, *METADATA_SCHEMA]))


def taken_apart(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, RowMetadata | None]:
    """The rows without their metadata, and the metadata.

    >>> rows, metadata = taken_apart(with_metadata(pa.record_batch({"x": [1, 2]}), Metadata(actor="anna")))
    >>> rows.schema.names, metadata.values
    (['x'], (None, None, 'anna'))
    """
    names = batch.schema.names
    if not any(name in names for name in METADATA_COLUMNS):
        return batch, None
    return batch.select([name for name in names if name not in METADATA_COLUMNS]), RowMetadata.of_columns(batch)
