"""The door of an inlet: what of its messages is taken, and in which form.

What it is: ``MessageDoor``, the door of captures (``capture/door.py``) for the rows of messages; ``TakingInlet``, the
declaration of an inlet with one.
Invariants: rows pass it before anything is written. What a message says that is not a row is not kept: a dead letter
has neither its body nor its headers, nor the words of its refusal, which may quote it. Ids of messages are kept as they
are, so a column of ids cannot be hashed.
Not here: the declaration's form, masks and hashes (``capture/door.py``).
Read next: ``ingest.py``, ``docs/privacy.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from headwater.capture.database import Losses, SourceColumn, SourceTable
from headwater.capture.door import Door
from headwater.errors import InvalidDeclaration
from headwater.inlets.inlet import Inlet, InletDeclaration
from headwater.log.contract import EventLog, EventTopic


class MessageDoor:
    """The door of one inlet.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> topic = log.topic("pushes", "repository STRING, author STRING")
    >>> door = MessageDoor(Door.declared(["repository"], None, [], None), log, topic)
    >>> door.row({"repository": "headwater", "author": "Ada", "more": 1})
    {'repository': 'headwater'}
    """

    def __init__(self, door: Door | None, log: EventLog, topic: EventTopic, id_column: str | None = None) -> None:
        if door is None:
            raise InvalidDeclaration(
                "this inlet leaves nothing out", hint='Name columns, mask or hash: taking(columns=["id"]).'
            )
        columns = tuple(SourceColumn(field.name, field.type, _as_it_is) for field in topic.schema)
        shape, opened = SourceTable(topic.name, columns, topic.settings.routed_by), door.opened(log)
        opened.check(shape, ())
        self._columns = {column.name: column for column in opened.applied(shape).columns}
        self._named = door.columns
        for name, column in self._columns.items():
            if not column.taken and not topic.schema.field(name).nullable:
                raise InvalidDeclaration(
                    f'column "{name}" of "{topic.name}" cannot be left out: it is never null',
                    hint="Take it, or hash it.",
                )
            if name == id_column and (column.enter is not None or not column.taken):
                raise InvalidDeclaration(
                    f'column "{name}" has the ids of messages, and they are kept as they are',
                    hint="Let the sender give ids that say nothing of a person.",
                )
            if column.enter is not None and column.kind != column.arrow:
                raise InvalidDeclaration(
                    f'column "{name}" of "{topic.name}" cannot be hashed: a hash is a text', hint="Declare it STRING."
                )
            if name in door.hashed and not kinds.is_string(column.arrow):
                raise InvalidDeclaration(
                    f'column "{name}" of "{topic.name}" cannot be hashed: a hash is a text', hint="Declare it STRING."
                )

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A message's row without what is not taken."""
        return dict(row) if self._named is None else {name: row[name] for name in row if name in self._named}

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as they may be written. Columns of event metadata stay."""
        arrays = [self._entered(name, array) for name, array in zip(batch.schema.names, batch.columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)

    def _entered(self, name: str, array: pa.Array) -> pa.Array:
        column = self._columns.get(name)
        if column is None:  # metadata, or a column that the topic got since
            is_left_out = self._named is not None and not name.startswith("_")
            return pa.nulls(len(array), array.type) if is_left_out else array
        if not column.taken:
            return pa.nulls(len(array), array.type)
        return array if column.enter is None else column.enter(array, None)


@dataclass(frozen=True)
class TakingInlet(InletDeclaration):
    """An inlet with a door: what ``taking`` of a declaration returns."""

    inlet: InletDeclaration
    door: Door | None

    @property
    def kind(self) -> str:  # type: ignore[override]
        """That of the inlet."""
        return self.inlet.kind

    @property
    def topic(self) -> Any:  # type: ignore[override]
        """That of the inlet."""
        return self.inlet.topic

    def open(self, log: EventLog, name: str, *, app: str = "") -> Inlet:
        """The inlet, which passes its messages through the door."""
        found = self.inlet.open(log, name, app=app)
        found.pass_by(self.door)
        return found


def _as_it_is(values: pa.Array, kind: pa.DataType, losses: Losses) -> pa.Array:
    del kind, losses
    return values
