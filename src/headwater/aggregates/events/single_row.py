"""Single row: one row in the bytes that a segment stores, made without Arrow's builders.

What it is: ``SingleRowFormat``, the layout of a row of one schema.
Invariants: the bytes are those that Arrow itself would write for a batch of this row: an Arrow IPC message whose
metadata differ from row to row only in numbers at known places. A format is used only after it has written a row as
Arrow does. A value that does not plainly fit its column gives no row: the strict way (``row_conversion.py``) then says
what is wrong, or converts it. Numbers are of their column's class: True for a number is for the caller to refuse.
Not here: several rows, and columns of other types: a batch costs a builder for each column, which is what most of an
append of one event would be spent on. Read next: ``event_rows.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headwater.log.schema.ddl import TIMESTAMP
from headwater.log.storage.framing import StoredRow

PREFIX = struct.Struct("<II")  # a message begins with a mark and the length of its metadata
EMPTY, NULL = b"", bytes(8)
ONE, FLAG = struct.Struct("<q"), struct.Struct("<B7x")
FIXED = {pa.int64(): ONE, TIMESTAMP: ONE, pa.int32(): struct.Struct("<i4x"), pa.float64(): struct.Struct("<d")}
WIDTH = {pa.int64(): 8, TIMESTAMP: 8, pa.int32(): 4, pa.float64(): 8}
TEXT_ENDS = struct.Struct("<ii")

# Adds the nodes, spans and bytes of one value, of which the first byte is at ``at``; returns the byte after them.
Column = Callable[[Any, "list[int]", "list[int]", "list[bytes]", int], int]


class SingleRowFormat:
    """How one row of a schema is stored.

    >>> schema = pa.schema([("name", pa.string()), ("cents", pa.int64())])
    >>> form = SingleRowFormat.of(schema)
    >>> form.stored(("ada", 5), 0).batch().to_pylist()
    [{'name': 'ada', 'cents': 5}]
    >>> form.stored(("ada", "5"), 0) is None, SingleRowFormat.of(pa.schema([("on", pa.date32())])) is None
    (True, True)
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[Column]) -> None:
        self._schema = schema
        self._columns = columns
        self._required = [place for place, field in enumerate(schema) if not field.nullable]
        sample = _as_arrow_writes(schema, {})
        _, length = PREFIX.unpack_from(sample)
        self._head = sample[: PREFIX.size + length]
        nodes: list[int] = []  # of each column: how many values, how many of them are null
        spans: list[int] = []  # of each of its buffers: where in the body, how long
        for column in columns:
            column(None, nodes, spans, [], 0)
        # The metadata end with these numbers: all spans, eight bytes with the count of the nodes, all nodes.
        self._nodes, self._spans = struct.Struct(f"<{len(nodes)}q"), struct.Struct(f"<{len(spans)}q")
        self._nodes_at = len(self._head) - self._nodes.size
        self._spans_at = self._nodes_at - 8 - self._spans.size
        self._body_at = self._head.find(ONE.pack(len(sample) - len(self._head)), PREFIX.size)

    @staticmethod
    def of(schema: pa.Schema) -> SingleRowFormat | None:
        """The format of a schema; None when it has a column of a type that is not written here."""
        columns = [column for field in schema if (column := _column(field.type)) is not None]
        if not columns or len(columns) < len(schema):
            return None
        made = SingleRowFormat(schema, columns)
        full = {field.name: _sample(field.type) for field in schema}
        sparse = {field.name: None if field.nullable else full[field.name] for field in schema}
        return made if all(made._is_as_arrow_writes(row) for row in (full, sparse)) else None

    def _is_as_arrow_writes(self, row: dict[str, Any]) -> bool:
        mine = self.stored(list(row.values()), 0)
        return mine is not None and mine.payload.to_pybytes() == _as_arrow_writes(self._schema, row)

    def stored(self, values: Sequence[Any], moment_us: int) -> StoredRow | None:
        """A row, its values in the order of the columns; None when one of them needs a closer look."""
        nodes: list[int] = []
        spans: list[int] = []
        body: list[bytes] = []
        at = 0
        for place in self._required:
            if values[place] is None:
                return None
        try:
            for column, value in zip(self._columns, values, strict=True):
                at = column(value, nodes, spans, body, at)
            head = bytearray(self._head)
            ONE.pack_into(head, self._body_at, at)
            self._spans.pack_into(head, self._spans_at, *spans)
            self._nodes.pack_into(head, self._nodes_at, *nodes)
            return StoredRow(pa.py_buffer(EMPTY.join((head, *body))), self._schema, moment_us)
        except (AttributeError, TypeError, UnicodeEncodeError, struct.error):
            return None


def _as_arrow_writes(schema: pa.Schema, row: dict[str, Any]) -> bytes:
    record = pa.array([row], pa.struct([field.with_nullable(True) for field in schema]))
    batch = pa.RecordBatch.from_arrays(record.flatten(), schema=schema)
    return bytes(batch.serialize().to_pybytes())


def _column(kind: pa.DataType) -> Column | None:
    if kind in FIXED:
        return _fixed(FIXED[kind], WIDTH[kind])
    if kind == pa.bool_():
        return _flag
    if kind == pa.string():
        return _text
    if kind == pa.binary():
        return _bytes
    if pa.types.is_list(kind) and kind.value_type == pa.string():
        return _texts
    if pa.types.is_struct(kind) and kind.num_fields:
        inner = [_column(each.type) for each in kind]
        found = [each for each in inner if each is not None]
        return _record(kind, found) if len(found) == len(inner) else None
    return None


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def _fixed(form: struct.Struct, width: int) -> Column:
    def add(value: Any, nodes: list[int], spans: list[int], body: list[bytes], at: int) -> int:
        if value is None:
            nodes += (1, 1)
            spans += (at, 1, at + 8, width)
            body += (NULL, NULL)
            return at + 16
        nodes += (1, 0)
        spans += (at, 0, at, width)
        body.append(form.pack(value))
        return at + 8

    return add


def _flag(value: Any, nodes: list[int], spans: list[int], body: list[bytes], at: int) -> int:
    if value is None:
        nodes += (1, 1)
        spans += (at, 1, at + 8, 1)
        body += (NULL, NULL)
        return at + 16
    nodes += (1, 0)
    spans += (at, 0, at, 1)
    body.append(FLAG.pack(value))
    return at + 8


def _text(value: Any, nodes: list[int], spans: list[int], body: list[bytes], at: int) -> int:
    return _bytes(None if value is None else value.encode(), nodes, spans, body, at)


def _bytes(value: Any, nodes: list[int], spans: list[int], body: list[bytes], at: int) -> int:
    if value is None:
        nodes += (1, 1)
        spans += (at, 1, at + 8, 8, at + 16, 0)
        body += (NULL, NULL)
        return at + 16
    length = len(value)
    nodes += (1, 0)
    spans += (at, 0, at, 8, at + 8, length)
    body += (TEXT_ENDS.pack(0, length), value, bytes(-length % 8))
    return at + 8 + length + -length % 8


def _texts(value: Any, nodes: list[int], spans: list[int], body: list[bytes], at: int) -> int:
    if value is None:
        nodes += (1, 1)
        spans += (at, 1, at + 8, 8)
        body += (NULL, NULL)
        at += 16
    else:
        nodes += (1, 0)
        spans += (at, 0, at, 8)
        body.append(TEXT_ENDS.pack(0, len(value)))
        at += 8
    if not value:
        nodes += (0, 0)
        spans += (at, 0, at, 4, at + 8, 0)
        body.append(NULL)
        return at + 8
    if isinstance(value, str):
        raise TypeError("a text is no list of texts")
    ends, texts = [0], [each.encode() for each in value]
    for each in texts:
        ends.append(ends[-1] + len(each))
    packed, joined = struct.pack(f"<{len(ends)}i", *ends), EMPTY.join(texts)
    nodes += (len(texts), 0)
    begin = at + len(_padded(packed))
    spans += (at, 0, at, len(packed), begin, len(joined))
    body += (_padded(packed), _padded(joined))
    return begin + len(_padded(joined))


def _record(kind: pa.StructType, columns: Sequence[Column]) -> Column:
    names = [each.name for each in kind]
    blank = {each.name: _blank(each.type) for each in kind}

    def add(value: Any, nodes: list[int], spans: list[int], body: list[bytes], at: int) -> int:
        if value is None:
            nodes += (1, 1)
            spans += (at, 1)
            body.append(NULL)
            at += 8
        else:
            nodes += (1, 0)
            spans += (at, 0)
        for name, column in zip(names, columns, strict=True):
            at = column(blank[name] if value is None else value.get(name), nodes, spans, body, at)
        return at

    return add


def _blank(kind: pa.DataType) -> Any:
    """What Arrow writes inside of a record that is null: no null."""
    if pa.types.is_struct(kind):
        return {each.name: _blank(each.type) for each in kind}
    if pa.types.is_list(kind):
        return ()
    return {pa.string(): "", pa.binary(): b"", pa.bool_(): False}.get(kind, 0)


def _sample(kind: pa.DataType) -> Any:
    """Some value of a type, to see whether it is written as Arrow writes it."""
    if pa.types.is_struct(kind):
        return {each.name: _sample(each.type) for each in kind}
    if pa.types.is_list(kind):
        return ["a", "bcd"]
    return {pa.string(): "text", pa.binary(): b"12345", pa.bool_(): True, pa.float64(): 2.5}.get(kind, 7)
