"""Masked answers: what a key without the right sees of personal columns.

What it is: ``MaskedAnswers``, which every route that shows values goes through: it masks tables and rows, tells queries
which columns are hidden, and refuses what cannot be masked.
Invariants: a key sees the values of a masked column only with the scope ``personal`` or with the column's purpose. What
is declared counts from the next request on. What is shown of personal columns is on record first (``read_audit.py``). A
masked column is no way to ask for a row: whether a value is there would be told. On a server without keys all of it
costs nothing.
Not here: which columns are personal (``views/privacy/personal_data.py``), masks (``log/schema/column_masks.py``).
Read next: ``keys.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from fastapi import Depends
from starlette.requests import HTTPConnection

from headwater.errors import Forbidden
from headwater.log.maintenance.audit_trail import AUDIT_TOPIC
from headwater.log.schema.column_masks import ColumnMasks
from headwater.log.schema.personal_columns import Mask
from headwater.server.http.keys import Holder
from headwater.server.http.read_audit import ReadAudit
from headwater.views.privacy.hidden_columns import HiddenColumns
from headwater.views.privacy.personal_data import PersonalData, PersonalMark, PrivacyRights

if TYPE_CHECKING:
    from headwater.app import App


# Of the audit trail a query sees nothing, unless the key has the scope admin.
ALL_OF_TRAIL = {AUDIT_TOPIC: HiddenColumns(frozenset(), others=True).to_json()}


class MaskedAnswers:
    """What the holders of keys see of one app. Threads may share it."""

    def __init__(self, app: App, *, audited: bool = False) -> None:
        """``audited``: what is shown of personal columns is put on record."""
        self._app = app
        self.audit = ReadAudit(app, enabled=audited)
        self._data: PersonalData = app.personal_data
        self._lock = threading.Lock()
        self._made: ColumnMasks | None = None

    @property
    def _masks(self) -> ColumnMasks:
        with self._lock:
            if self._made is None:
                self._made = ColumnMasks(self._app.log.local.catalog.mask_secret())
            return self._made

    def concern(self, holder: Holder) -> bool:
        """Whether anything may have to be masked for a key, or put on record."""
        return self.audit.enabled or not holder.privacy.everything

    def masks(self, holder: Holder, relation: str, columns: Iterable[str]) -> dict[str, Mask]:
        """What masks which of these columns of a topic or view for a key."""
        return self.masks_of(holder.privacy, relation, columns)

    def masks_of(self, rights: PrivacyRights, relation: str, columns: Iterable[str]) -> dict[str, Mask]:
        """The same by the rights."""
        return {} if rights.everything else self._data.of(relation).masks(columns, rights)

    def table(self, holder: Holder, relation: str, table: pa.Table, how: str) -> pa.Table:
        """Rows of a topic or view as a key may see them. ``how``: the route, for the record."""
        self.audit.shown(holder, relation, table.schema.names, table.num_rows, how)
        return self.masked(table, self.masks(holder, relation, table.schema.names))

    def masked(self, table: pa.Table, masks: Mapping[str, Mask]) -> pa.Table:
        """Rows with these masks."""
        return self._masks.table(table, masks) if masks else table

    def row(self, holder: Holder, relation: str, row: dict[str, Any]) -> dict[str, Any]:
        """One row of a topic as a key may see it."""
        masks = self.masks(holder, relation, row)
        return self._masks.row(row, masks) if masks else row

    def rows(self, holder: Holder, relation: str, rows: list[dict[str, Any]], how: str) -> list[dict[str, Any]]:
        """Rows of a topic, as ``table``."""
        self.audit.shown(holder, relation, {name for row in rows for name in row}, len(rows), how)
        return [self.row(holder, relation, row) for row in rows]

    def check_asked(self, holder: Holder, relation: str, columns: Collection[str]) -> None:
        """Refuse to look for rows by the value of a masked column."""
        masked = sorted(self.masks(holder, relation, columns))
        if masked:
            raise Forbidden(
                f'key "{holder.name}" cannot ask for rows of "{relation}" by {masked[0]}, which is masked for it',
                hint=_hint(self._data.of(relation).mark(masked[0])),
                column=masked[0],
            )

    def check_shown(self, holder: Holder, relation: str, what: str, *, upstream: bool = False) -> None:
        """Refuse an answer that has values of a topic or view, and cannot be masked."""
        found = self._data.upstream(relation) if upstream else None
        if holder.privacy.everything:
            marks: list[PersonalMark] = []
        elif upstream:
            marks = [] if found is None else [found]
        else:
            marks = self._data.of(relation).every
        mark = next((mark for mark in marks if mark.mask(holder.privacy) is not None), None)
        if mark is not None:
            raise Forbidden(
                f'key "{holder.name}" cannot see {what}: "{relation}" has columns that are masked for it',
                detail="This answer cannot be masked.",
                hint=_hint(mark),
            )
        if upstream:
            self.audit.behind(holder, found, what)
        else:
            self.audit.shown(holder, relation, None, None, what)

    def topic_shown(self, *suffixes: str) -> Callable[[HTTPConnection], Awaitable[None]]:
        """A route's dependency: the key sees all of the topics whose name is in the path, with these endings."""

        async def check(request: HTTPConnection) -> None:
            holder: Holder = request.scope["state"]["holder"]
            name = request.path_params["name"]
            if self.concern(holder):
                for topic in [name + suffix for suffix in suffixes]:
                    await asyncio.to_thread(self.check_shown, holder, topic, "what is kept there")

        return check

    def hidden(self, holder: Holder) -> dict[str, Any]:
        """The columns of every topic and view that a key's queries get null of, as JSON."""
        trail = {} if holder.may("admin") or self._app.log.local.find_topic(AUDIT_TOPIC) is None else ALL_OF_TRAIL
        if holder.privacy.everything:
            return trail
        found = {name: HiddenColumns.of(marks, holder.privacy) for name, marks in self._data.every().items()}
        hidden = {name.lower(): columns.to_json() for name, columns in found.items() if columns is not None}
        return {**hidden, **trail}


def _hint(mark: PersonalMark | None) -> str:
    purposes = [] if mark is None else mark.purposes
    also = f", or --purpose {purposes[0]}" if purposes else ""
    return f"Make a key with the right: headwater key add NAME --scope … --scope personal{also} --key-file FILE"


async def _reader(request: HTTPConnection) -> Holder:
    holder: Holder = request.scope["state"]["holder"]
    return holder


Reader = Annotated[Holder, Depends(_reader)]
