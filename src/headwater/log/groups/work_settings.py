"""Work settings: the columns of a topic that mean something to a work group.

What it is: ``WorkSettings``: from when on a message is delivered, until when, how urgent it is, and what must stay in
order; declared by the group's first worker, kept with the group.
Invariants: a group's settings never change; a worker that declares others is refused. The columns are the topic's, with
fitting types.
Not here: their effect (``staging.py``). Read next: ``staging.py``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import InvalidDeclaration, Misuse
from headwater.hints import suggestion
from headwater.log.catalog.catalog import Catalog

if TYPE_CHECKING:
    from headwater.log.topic import Topic


@dataclass(frozen=True)
class WorkSettings:
    """The columns that a work group looks at; none by default.

    >>> WorkSettings(priority="urgency").plain, WorkSettings().plain
    (False, True)
    """

    deliver_at: str | None = None
    expires_at: str | None = None
    priority: str | None = None
    ordered_by: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether no column means anything: messages are delivered as they come."""
        return self == WorkSettings()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are looked at before a message is delivered."""
        named = [self.deliver_at, self.expires_at, self.priority, *self.ordered_by]
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def to_json(self) -> str:
        """The catalog's text."""
        return json.dumps({name: value for name, value in asdict(self).items() if value})

    @staticmethod
    def from_json(text: str) -> WorkSettings:
        """The settings of a catalog's text."""
        values = json.loads(text)
        return WorkSettings(**{**values, "ordered_by": tuple(values.get("ordered_by", ()))})


def declared_settings(
    topic: Topic,
    *,
    deliver_at: str | None,
    expires_at: str | None,
    priority: str | None,
    ordered_by: str | Sequence[str] | None,
) -> WorkSettings | None:
    """What a worker declares, checked; None when it declares nothing and takes the group's."""
    order = (ordered_by,) if isinstance(ordered_by, str) else tuple(ordered_by or ())
    wanted = WorkSettings(deliver_at, expires_at, priority, order)
    if wanted.plain:
        return None
    for what, names in (
        ("deliver_at", (deliver_at,)),
        ("expires_at", (expires_at,)),
        ("priority", (priority,)),
        ("ordered_by", order),
    ):
        for name in names:
            if name is not None:
                _check_column(topic.schema, what, name)
    return wanted


def _check_column(schema: pa.Schema, what: str, name: str) -> None:
    if name not in schema.names:
        raise InvalidDeclaration(f'{what} "{name}" is not a column', hint=suggestion(name, schema.names), column=name)
    kind = schema.field(name).type
    if what in ("deliver_at", "expires_at") and not (kinds.is_timestamp(kind) and kind.tz is not None):
        raise InvalidDeclaration(f'{what} "{name}" is {kind}, not a time', hint="Use a TIMESTAMP column.")
    if what == "priority" and not kinds.is_integer(kind):
        raise InvalidDeclaration(f'{what} "{name}" is {kind}, not a whole number', hint="Use an INT or BIGINT column.")


def settle_settings(
    db: sqlite3.Connection, topic: Topic, group: str, group_id: int, wanted: WorkSettings | None
) -> WorkSettings:
    """The group's settings: those that it has, or those that its first worker declares; inside a transaction."""
    row = db.execute(
        "SELECT g.settings, (SELECT lease FROM work_groups w WHERE w.group_id = g.id) AS lease FROM groups g"
        " WHERE g.id = ?",
        (group_id,),
    ).fetchone()
    has = WorkSettings.from_json(row["settings"])
    if wanted is None or wanted == has:
        return has
    if row["lease"]:  # something was taken already
        raise Misuse(
            f'group "{group}" of topic "{topic.name}" was made with other settings',
            detail=f"It has {has.to_json()}, this worker declares {wanted.to_json()}.",
            hint="Declare the same, or nothing; or make another group: a group's settings never change.",
            group=group,
        )
    db.execute("UPDATE groups SET settings = ? WHERE id = ?", (wanted.to_json(), group_id))
    return wanted


def settings_of(catalog: Catalog, group_id: int) -> WorkSettings:
    """The settings of a group."""
    rows = catalog.read("SELECT settings FROM groups WHERE id = ?", (group_id,))
    return WorkSettings.from_json(rows[0]["settings"]) if rows else WorkSettings()
