"""Event rows: events as rows of a history's topic, and back.

What it is: ``EventRows``, the columns of a history and the conversion of events; ``EventDraft``, one event with all
that its row says.
Invariants: data that does not fit its type refuses the whole append, with the field and the expected type; what is read
back is equal to what was written. A type that this code does not know is read as plain data.
Not here: which events are written (``event_store.py``).
Read next: ``event_index.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.aggregates.events.event_types import Data, EventType, RecordedEvent
from headwater.aggregates.events.single_row import SingleRowFormat
from headwater.errors import InvalidDeclaration, RowRefused
from headwater.hints import closest
from headwater.log.schema.ddl import TIMESTAMP
from headwater.log.schema.event_metadata import METADATA_COLUMNS, Metadata
from headwater.log.schema.personal_columns import Personal
from headwater.log.schema.row_conversion import to_batches, to_values
from headwater.log.storage.framing import StoredRow
from headwater.log.topic_settings import check_name

COLUMNS = pa.schema(
    [
        ("stream", pa.string()),
        ("version", pa.int64()),
        ("type", pa.string()),
        ("type_version", pa.int32()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("at", TIMESTAMP),
        ("request_id", pa.string()),
    ]
)
NOT_PERSONAL = ("version", "type", "type_version", "at")  # of an event of a person
INDEX_COLUMNS = ("stream", "version", "type", "tags", "request_id")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)
# Types whose Python values need no closer look than their class. All others take the strict way of any row.
PLAIN: dict[pa.DataType, tuple[type, ...]] = {
    pa.string(): (str,),
    pa.bool_(): (bool,),
    pa.float64(): (float,),
    pa.int64(): (int,),
}


@dataclass(slots=True)
class EventDraft:
    """One event on its way into a history."""

    type: str
    data: Mapping[str, Any]
    tags: Sequence[str] = ()
    stream: str | None = None
    version: int | None = None
    at_us: int = 0
    request_id: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    counted: bool = True  # it has a version; a rejected command has none


@dataclass(frozen=True)
class EventRowLayout:
    """How the rows of a schema are made: the row as one value, the place of each column, one row alone."""

    record: pa.StructType
    places: dict[str, int]
    single: SingleRowFormat | None


def personal_events(subject: str, columns: pa.Schema) -> dict[str, Personal]:
    """The personal columns of a history whose streams are persons: all that an event says.

    >>> list(personal_events("account_id", COLUMNS))
    ['stream', 'tags', 'request_id']
    """
    names = [name for name in columns.names if name not in NOT_PERSONAL]
    return {name: Personal(subject, by="stream") for name in names}


class EventRows:
    """The columns of one history.

    >>> rows = EventRows([EventType.declared("moved", "cents BIGINT")])
    >>> batch = rows.batch([EventDraft("moved", {"cents": 5}, ["account:7"])])
    >>> batch.column("moved").to_pylist(), batch.column("tags").to_pylist()
    ([{'cents': 5}], [['account:7']])
    >>> rows.batch([EventDraft("moved", {"cents": "5"})])
    Traceback (most recent call last):
        ...
    headwater.errors.RowRefused: row 0 (counted from 0), column "moved.cents": '5' is of type str, expected BIGINT
    """

    def __init__(self, types: Iterable[EventType], extra: pa.Schema | None = None) -> None:
        self.extra = pa.schema([]) if extra is None else extra
        self.types: dict[str, EventType] = {}
        taken = {*COLUMNS.names, *self.extra.names}
        for each in types:
            check_name("event type", each.name)
            if each.name.lower() in taken:
                raise InvalidDeclaration(
                    f'an event type cannot be named "{each.name}"',
                    detail=f"Every history has the columns {', '.join(sorted(taken))}.",
                    hint="Name it by what has happened: opened, paid, cancelled.",
                )
            if each.name in self.types:
                raise InvalidDeclaration(f'event type "{each.name}" is declared twice')
            self.types[each.name] = each
        self.schema = self._schema()
        self._plain = {each.name: _plain_fields(each.fields) for each in self.types.values()}
        self._layout_of: tuple[pa.Schema, EventRowLayout] | None = None

    def _schema(self) -> pa.Schema:
        # A struct without fields is no column of Parquet: an event without data has one that is always null.
        columns = [
            pa.field(each.name, each.fields if each.fields.num_fields else pa.struct([("_", pa.bool_())]))
            for each in self.types.values()
        ]
        return pa.schema([*COLUMNS, *self.extra, *columns])

    def beside(self, stored: pa.Schema) -> pa.Schema:
        """The columns of a history that exists: those of this code, and those that other code has declared.

        >>> rows = EventRows([EventType.declared("moved", "cents BIGINT")])
        >>> note, left = pa.struct([("note", pa.string())]), pa.struct([("on", pa.date32())])
        >>> other = pa.schema([("moved", note), ("left", left)])
        >>> found = rows.beside(other)
        >>> found.field("moved").type, "left" in found.names
        (StructType(struct<note: string, cents: int64>), True)
        """
        mine = {each.name: each for each in self.schema}
        columns = [_merged(each, mine.get(each.name)) for each in stored]
        return pa.schema([*columns, *(each for each in self.schema if each.name not in stored.names)])

    def type(self, name: str) -> EventType:
        """A declared type, or the error."""
        known = self.types.get(name)
        if known is None:
            near = closest(name, list(self.types))
            raise InvalidDeclaration(
                f'there is no event type "{name}"',
                hint=(f'Did you mean "{near}"? ' if near else "") + f"Declared: {', '.join(self.types) or 'none'}.",
                type=name,
            )
        return known

    # Writing

    def stored(self, drafts: Sequence[EventDraft], schema: pa.Schema) -> pa.RecordBatch | StoredRow:
        """Checked rows as ``append_if`` takes them: one event mostly in the bytes that are stored, several as a batch.

        >>> rows = EventRows([EventType.declared("moved", "cents BIGINT")])
        >>> row = rows.stored([EventDraft("moved", {"cents": 5})], rows.schema)
        >>> row.batch().column("moved").to_pylist()
        [{'cents': 5}]
        """
        if len(drafts) == 1 and self.is_plain(drafts[0]):
            layout = self._layout(schema)
            if layout.single is not None:
                row = self._row(drafts[0], layout.places, with_data=True)
                stored = layout.single.stored(row, drafts[0].at_us)
                if stored is not None:
                    return stored
        return self.batch(drafts, schema)

    def batch(self, drafts: Sequence[EventDraft], schema: pa.Schema | None = None) -> pa.RecordBatch:
        """Checked rows, in the columns of ``schema``: the topic's, which may have more than this code declares."""
        schema = self.schema if schema is None else schema
        ways = (True, False) if all(self.is_plain(each) for each in drafts) else (False,)
        for plain in ways:
            layout = self._layout(schema)
            rows = [self._row(each, layout.places, with_data=plain) for each in drafts]
            with suppress(UnicodeEncodeError):  # a text with half of a character: the strict way says where
                # One conversion for all columns, and of tuples: it takes a third of the time of one for each column.
                batch = pa.RecordBatch.from_struct_array(pa.array(rows, layout.record))
                if plain:
                    return batch
                return pa.RecordBatch.from_arrays(self._with_checked_data(batch, drafts).columns, schema=schema)
        raise InvalidDeclaration("a stream, a tag or a request id has half of a character, which is no text")

    def _row(self, draft: EventDraft, places: Mapping[str, int], *, with_data: bool) -> tuple[Any, ...]:
        # The columns of every history come first: later declarations add columns at the end.
        fixed = (
            draft.stream,
            draft.version,
            draft.type,
            self.type_version(draft.type),
            draft.tags,
            draft.at_us,
            draft.request_id,
        )
        if len(places) == len(fixed):
            return fixed
        more: list[Any] = [None] * (len(places) - len(fixed))
        for name, value in draft.extra.items():
            more[places[name] - len(fixed)] = value
        if with_data and draft.type in self.types:
            more[places[draft.type] - len(fixed)] = draft.data
        return (*fixed, *more)

    def is_plain(self, draft: EventDraft) -> bool:
        """Whether the data is surely stored as it is given: it needs no closer look."""
        fields = self._plain.get(draft.type, {})
        if fields is None or not _fits(draft.data, fields):
            return False
        known = self.types.get(draft.type)
        return known is None or not known.required or _null_field(known, draft.data) is None

    def _layout(self, schema: pa.Schema) -> EventRowLayout:
        known = self._layout_of
        if known is None or known[0] is not schema:
            places = {name: place for place, name in enumerate(schema.names)}
            layout = EventRowLayout(pa.struct(list(schema)), places, SingleRowFormat.of(schema))
            known = self._layout_of = (schema, layout)
        return known[1]

    def _with_checked_data(self, batch: pa.RecordBatch, drafts: Sequence[EventDraft]) -> pa.RecordBatch:
        for name in {each.type for each in drafts} & self.types.keys():
            data = self._data(name, [each.data if each.type == name else None for each in drafts])
            place = batch.schema.get_field_index(name)
            kind = batch.schema.field(place).type
            # The column may have fields of versions that this code does not declare.
            batch = batch.set_column(place, name, data if data.type == kind else pa.array(to_values(data), kind))
        return batch

    def type_version(self, name: str) -> int:
        """The newest version of a type; 1 for one of the system's own."""
        known = self.types.get(name)
        return 1 if known is None else known.version

    def _data(self, name: str, values: list[Mapping[str, Any] | None]) -> pa.Array:
        declared = self.types[name]
        self._refuse_unknown(name, values)
        self._refuse_null(name, values)
        if not declared.fields.num_fields:
            return pa.array([None if each is None else {"_": None} for each in values], pa.struct([("_", pa.bool_())]))
        column = pa.schema([pa.field(name, declared.fields)])
        return to_batches([{name: None if each is None else dict(each)} for each in values], column).column(0)

    def _refuse_unknown(self, name: str, values: Iterable[Mapping[str, Any] | None]) -> None:
        known = [each.name for each in self.types[name].fields]
        for value in values:
            for given in value or ():
                if given not in known:
                    near = closest(str(given), known)
                    raise RowRefused(
                        f'event type "{name}" has no field "{given}"',
                        detail="Nothing was written.",
                        hint=(f'Did you mean "{near}"? ' if near else "")
                        + f"It has {', '.join(known) or 'no fields'}.",
                        type=name,
                    )

    def _refuse_null(self, name: str, values: Iterable[Mapping[str, Any] | None]) -> None:
        for value in values:
            missing = None if value is None else _null_field(self.types[name], value)
            if missing is not None:
                raise RowRefused(
                    f'event type "{name}" has no value of "{missing}", which is NOT NULL',
                    detail="Nothing was written.",
                    hint="Give it, or declare the field without NOT NULL.",
                    type=name,
                )

    # Reading

    def recorded(self, drafts: Sequence[EventDraft], partition: int, position: int) -> list[RecordedEvent]:
        """Events that were just written, as they are read back; ``position`` is that of the last one."""
        first = position - len(drafts)
        if not all(self.is_plain(each) for each in drafts):
            return self.events(self.batch(drafts), partition, range(first, position))
        return [
            RecordedEvent(
                first + place + 1,
                partition,
                draft.stream,
                draft.version,
                draft.type,
                dict(draft.data),
                tuple(draft.tags),
                EPOCH + draft.at_us * MICROSECOND,
                draft.request_id,
                self.type_version(draft.type),
                {name: self._extra_value(name, value) for name, value in draft.extra.items()} or None,
            )
            for place, draft in enumerate(drafts)
        ]

    def is_read_as_given(self, draft: EventDraft) -> bool:
        """Whether what is read back is surely ``recorded``; the data of the system's own types is elsewhere."""
        return draft.type not in self.extra.names and self.is_plain(draft)

    def _extra_value(self, name: str, value: Any) -> Any:
        if type(value) is int and pa.types.is_timestamp(self.extra.field(name).type):
            return EPOCH + value * MICROSECOND
        return value

    def events(self, batch: pa.RecordBatch, partition: int, offsets: Sequence[int]) -> list[RecordedEvent]:
        """The rows of a batch (which may have metadata) as events."""
        said = {name: batch.column(name) for name in batch.schema.names}
        plain = {name: said[name].to_pylist() for name in COLUMNS.names if name != "at"}
        moments = said["at"].cast(pa.int64()).to_pylist()
        extra = [name for name in self.extra.names if name in said and said[name].null_count < len(batch)]
        extras = {name: to_values(said[name]) for name in extra}
        data: dict[str, list[Any]] = {}
        for name in set(plain["type"]):
            # A type that this code does not know may be named like any column: data is a struct.
            found = name in said and pa.types.is_struct(said[name].type)
            data[name] = to_values(said[name]) if found else [None] * len(batch)
        metadata = _metadata(said, len(batch))
        return [
            RecordedEvent(
                offset + 1,
                partition,
                plain["stream"][row],
                plain["version"][row],
                kind,
                _without_placeholder(data[kind][row]),
                tuple(plain["tags"][row] or ()),
                EPOCH + moments[row] * MICROSECOND,
                plain["request_id"][row],
                plain["type_version"][row],
                {name: extras[name][row] for name in extra if extras[name][row] is not None} or None,
                metadata[row] if metadata else None,
            )
            for row, (offset, kind) in enumerate(zip(offsets, plain["type"], strict=True))
        ]


def _metadata(said: Mapping[str, pa.Array], count: int) -> list[Metadata | None]:
    if not any(name in said and said[name].null_count < count for name in METADATA_COLUMNS):
        return []
    columns = [said[name].to_pylist() if name in said else [None] * count for name in METADATA_COLUMNS]
    return [Metadata.carried(*values) for values in zip(*columns, strict=True)]


def _merged(stored: pa.Field, mine: pa.Field | None) -> pa.Field:
    if mine is None or not pa.types.is_struct(stored.type) or not pa.types.is_struct(mine.type):
        return stored if mine is None else mine.with_nullable(stored.nullable)
    declared = {each.name: each for each in mine.type}
    known = {each.name for each in stored.type}
    fields = [declared.get(each.name, each) for each in stored.type]
    return stored.with_type(pa.struct([*fields, *(each for each in mine.type if each.name not in known)]))


def _without_placeholder(data: Data | None) -> Data:
    if not data:
        return {}
    data.pop("_", None)
    return data


def _plain_fields(fields: pa.StructType) -> dict[str, tuple[type, ...]] | None:
    if any(each.type not in PLAIN for each in fields):
        return None
    return {each.name: PLAIN[each.type] for each in fields}


def _null_field(declared: EventType, data: Mapping[str, Any]) -> str | None:
    """A field that is NOT NULL and has no value."""
    return next((name for name in sorted(declared.required) if data.get(name) is None), None)


def _fits(data: Mapping[str, Any], plain: Mapping[str, tuple[type, ...]]) -> bool:
    """Whether each value is surely one of its column, and none is left out: no closer look is needed."""
    if len(data) != len(plain):
        return False
    for name, value in data.items():
        allowed = plain.get(name)
        if allowed is None:
            return False
        if value is not None and (
            type(value) not in allowed or (allowed == (int,) and not -(1 << 63) <= value < 1 << 63)
        ):
            return False
    return True
