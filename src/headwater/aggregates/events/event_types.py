"""Event types: what kinds of events a history has, and the columns of each.

What it is: ``EventType``, declared by DDL, a dataclass or the parameters of a function; ``Event``, one that is to be
written; ``RecordedEvent``, one that was.
Invariants: the data of a type is one STRUCT column of the history's topic, named like the type, so SQL reads it with
its types. The column holds the fields of all versions of a type; an upcaster brings older data to the newest version as
it is read, and never changes what is stored.
Not here: the other columns, and rows (``event_rows.py``).
Read next: ``event_rows.py``.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.aggregates.interrupts import is_interrupt
from headwater.errors import InvalidDeclaration, ReplayFailed
from headwater.log.schema.ddl import parse_ddl
from headwater.log.schema.event_metadata import Metadata
from headwater.log.schema.normalization import normalize_type

Data = dict[str, Any]
Upcaster = Callable[[Data], Data]

ANNOTATED: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    dt.datetime: pa.timestamp("us", tz="UTC"),
    dt.date: pa.date32(),
    decimal.Decimal: pa.decimal128(38, 18),
}


@dataclass(frozen=True)
class Event:
    """An event that is to be written.

    >>> Event("enrolled", {"course": 7}, tags=["course:7"]).tags
    ['course:7']
    """

    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event as it is in the log.

    ``position`` is the offset after it, so it is what ``after=`` takes; ``version`` counts the events of its stream.
    """

    position: int
    partition: int
    stream: str | None
    version: int | None
    type: str
    data: Data
    tags: Sequence[str]
    at: dt.datetime
    request_id: str | None = None
    type_version: int = 1
    extra: Mapping[str, Any] | None = None  # further columns of an aggregate's events: command, deadline and so on
    metadata: Metadata | None = None

    def to_dict(self) -> dict[str, Any]:
        """The event as plain values, for people and programs.

        >>> moment = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
        >>> RecordedEvent(1, 0, "7", 1, "paid", {"cents": 5}, (), moment).to_dict()["at"]
        '2030-01-01T00:00:00+00:00'
        """
        said = dataclasses.asdict(self)
        said.pop("extra")
        said["tags"] = list(self.tags)
        return {**said, "at": self.at.isoformat(), "metadata": said["metadata"]}


@dataclass(frozen=True)
class EventType:
    """One type of event: its name, its fields, its newest version, and upcasters from older ones.

    >>> EventType.declared("moved", "cents BIGINT").fields
    StructType(struct<cents: int64>)
    >>> EventType.declared("moved", "cents BIGINT", version=2)
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: event type "moved" has version 2 and no upcaster from version 1
      Hint: Give one: upcasters={1: lambda data: {**data, …}}.
    """

    name: str
    fields: pa.StructType  # all may be null: an older version of the type may not have had them
    version: int = 1
    upcasters: Mapping[int, Upcaster] = field(default_factory=dict)
    required: frozenset[str] = frozenset()  # fields that a new event must have: NOT NULL

    @staticmethod
    def declared(
        name: str, given: Any, *, version: int = 1, upcasters: Mapping[int, Upcaster] | None = None
    ) -> EventType:
        """An event type of a DDL text, a dataclass, a struct or the annotated parameters of a function."""
        upcasters = dict(upcasters or {})
        for number in range(1, version):
            if number not in upcasters:
                raise InvalidDeclaration(
                    f'event type "{name}" has version {version} and no upcaster from version {number}',
                    hint=f"Give one: upcasters={{{number}: lambda data: {{**data, …}}}}.",
                )
        unknown = [number for number in upcasters if not 1 <= number < version]
        if unknown:
            raise InvalidDeclaration(
                f'event type "{name}" has an upcaster from version {unknown[0]}, and its version is {version}',
                hint=f"Upcasters lead from versions 1 to {version - 1}; raise version= when the data changes.",
            )
        fields = _struct(name, given)
        required = frozenset(each.name for each in fields if not each.nullable)
        nullable = pa.struct([each.with_nullable(True) for each in fields])
        return EventType(name, nullable, version, upcasters, required)

    @property
    def columns(self) -> pa.Schema:
        """The fields as the columns of rows, NOT NULL among them.

        >>> EventType.declared("moved", "cents BIGINT NOT NULL").columns.field("cents").nullable
        False
        """
        return pa.schema([each.with_nullable(each.name not in self.required) for each in self.fields])

    def upcast(self, data: Data, version: int, where: str) -> Data:
        """Data of an older version as that of the newest one; ``where`` names the event in errors."""
        if version > self.version:
            raise ReplayFailed(
                f'{where} has version {version} of event type "{self.name}", and this code knows versions up to '
                f"{self.version}",
                hint="It was written by newer code. Update this program.",
                type=self.name,
            )
        for number in range(version, self.version):
            try:
                data = dict(self.upcasters[number](dict(data)))
            except BaseException as error:
                if is_interrupt(error):
                    raise
                raise ReplayFailed(
                    f'the upcaster of event type "{self.name}" from version {number} failed over {where}: '
                    f"{type(error).__name__}: {error}",
                    hint="The stored event is as it was. Correct the upcaster.",
                    type=self.name,
                ) from error
        return data


def _struct(name: str, given: Any) -> pa.StructType:
    if isinstance(given, pa.DataType) and pa.types.is_struct(given):
        return normalize_type(given)
    if isinstance(given, str):
        try:
            return pa.struct(list(parse_ddl(given)) if given.strip() else [])
        except InvalidDeclaration as error:
            raise InvalidDeclaration(
                f'event type "{name}": {error.message}', detail=error.detail, hint=error.hint
            ) from error
    if dataclasses.is_dataclass(given):
        hints = typing.get_type_hints(given)
        return pa.struct(
            [(each.name, arrow_type(name, each.name, hints[each.name])) for each in dataclasses.fields(given)]
        )
    if callable(given):
        return parameters_of(name, given)
    raise InvalidDeclaration(
        f'event type "{name}" cannot be declared by {type(given).__name__}',
        hint='Use DDL ("cents BIGINT, note STRING"), or a dataclass.',
    )


def parameters_of(name: str, function: Callable[..., Any]) -> pa.StructType:
    """The fields of an event whose data are the parameters of a method."""
    hints = typing.get_type_hints(function)
    found = []
    for each in list(inspect.signature(function).parameters.values())[1:]:
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            raise InvalidDeclaration(
                f'event method "{name}" has *{each.name}, which is no column',
                hint="Name its parameters, each with a type.",
            )
        if each.name not in hints:
            raise InvalidDeclaration(
                f'parameter "{each.name}" of event method "{name}" has no type',
                detail="The parameters of an event method are the columns of its events.",
                hint=f'Write it, for example {each.name}: int. Or give the columns: @event("{each.name} BIGINT").',
            )
        found.append((each.name, arrow_type(name, each.name, hints[each.name])))
    return pa.struct(found)


def arrow_type(event: str, where: str, hint: Any) -> pa.DataType:
    """The column type of an annotation.

    >>> arrow_type("moved", "tags", list[str])
    ListType(list<item: string>)
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [each for each in arguments if each is not type(None)]
        if len(inner) == 1:
            return arrow_type(event, where, inner[0])
    if hint in ANNOTATED:
        return ANNOTATED[hint]
    if origin in (list, tuple, Sequence) and arguments and (origin is not tuple or arguments[1:] == (...,)):
        return normalize_type(pa.list_(arrow_type(event, where, arguments[0])))
    if origin in (dict, Mapping):
        return normalize_type(pa.map_(arrow_type(event, where, arguments[0]), arrow_type(event, where, arguments[1])))
    if dataclasses.is_dataclass(hint):
        return _struct(event, hint)
    raise InvalidDeclaration(
        f'"{where}" of event "{event}" has the type {getattr(hint, "__name__", hint)}, which is no type of a column',
        hint="Use int, float, str, bool, bytes, date, datetime, Decimal, a list, a dict, a dataclass; or give DDL.",
    )
