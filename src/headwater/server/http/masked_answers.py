"""Masked answers: what a key without the right sees of personal columns, and of rows that are told apart by claims.

What it is: ``MaskedAnswers``, which every route that shows values goes through: it leaves rows out of tables, masks the
others, tells queries which columns and rows are hidden, and refuses what cannot be masked.
Invariants: a key sees the values of a masked column only with the scope ``personal`` or with the column's purpose, and
rows that are told apart only with the scope ``rows`` or by its own claims. What is declared counts from the next
request on. What is shown of personal columns is on record first (``read_audit.py``). A masked column is no way to ask
for a row: whether a value is there would be told. On a server without keys all of it costs nothing.
Not here: which columns are personal (``views/privacy/personal_data.py``), which rows are whose
(``views/privacy/row_rules.py``), masks (``log/schema/column_masks.py``).
Read next: ``keys.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from fastapi import Depends
from starlette.requests import HTTPConnection

from headwater.errors import Forbidden
from headwater.log.maintenance.audit_trail import AUDIT_TOPIC, is_of_trail
from headwater.log.schema.column_masks import ColumnMasks
from headwater.log.schema.personal_columns import Mask
from headwater.server.http.keys import Holder, Keys
from headwater.server.http.read_audit import ReadAudit
from headwater.views.privacy.hidden_columns import HiddenColumns
from headwater.views.privacy.personal_data import PersonalData, PersonalMark, PrivacyRights
from headwater.views.privacy.row_rules import RowRules, RowsShown, shown_by
from headwater.views.serving.serving_queries import Bounds

if TYPE_CHECKING:
    from headwater.app import App


NO: frozenset[str] = frozenset()
EVERY_COLUMN = HiddenColumns(NO, others=True)


class MaskedAnswers:
    """What the holders of keys see of one app. Threads may share it."""

    def __init__(self, app: App, *, audited: bool = False, keys: Keys | None = None) -> None:
        """``audited``: what is shown of personal columns is put on record, and what the ``keys`` are good for."""
        self._app = app
        self.audit = ReadAudit(app, enabled=audited, keys=keys)
        self._data: PersonalData = app.personal_data
        self._rules: RowRules = app.row_rules
        self._lock = threading.Lock()
        self._made: ColumnMasks | None = None

    @property
    def _masks(self) -> ColumnMasks:
        with self._lock:
            if self._made is None:
                self._made = ColumnMasks(self._app.log.local.catalog.mask_secret())
            return self._made

    def concern(self, holder: Holder) -> bool:
        """Whether anything may have to be masked for a key, left out, or put on record."""
        return self.audit.enabled or not holder.privacy.unlimited

    def masks(self, holder: Holder, relation: str, columns: Iterable[str]) -> dict[str, Mask]:
        """What masks which of these columns of a topic or view for a key."""
        return self.masks_of(holder.privacy, relation, columns)

    def masks_of(self, rights: PrivacyRights, relation: str, columns: Iterable[str]) -> dict[str, Mask]:
        """The same by the rights."""
        return {} if rights.everything else self._data.of(relation).masks(columns, rights)

    def rows_of(self, rights: PrivacyRights, relation: str) -> RowsShown | None:
        """The rows of a topic or view that these rights show, None: all; ``Forbidden`` when they show none."""
        return self._rules.shown(relation, rights)

    def rights_about(self, holder: Holder, view: str) -> PrivacyRights:
        """What a subscriber may see of a view, with no claims but those that count: subscribers of equal rights share
        their messages."""
        rights = holder.privacy
        rule = None if rights.every_row else self._rules.of(view)
        if rule is not None:
            shown_by(view, rule, rights)
        named = {claim for _, claim in rule.columns} if rule is not None else set()
        return replace(rights, claims=frozenset(each for each in rights.claims if each[0] in named))

    def table(self, holder: Holder, relation: str, table: pa.Table, how: str) -> pa.Table:
        """Rows of a topic or view as a key may see them. ``how``: the route, for the record."""
        shown = self.rows_of(holder.privacy, relation)
        table = table if shown is None else shown.table(table)
        self.audit.shown(holder, relation, table.schema.names, table.num_rows, how)
        return self.masked(table, self.masks(holder, relation, table.schema.names))

    def bounded(self, holder: Holder, view: str, bounds: Bounds) -> Bounds:
        """The bounds of an answer, with the rows that the key sees."""
        shown = self.rows_of(holder.privacy, view)
        return bounds if shown is None else replace(bounds, hidden={view.lower(): HiddenColumns(NO, rows=shown)})

    def check_every_row(self, holder: Holder, relation: str, what: str, *, upstream: bool = False) -> None:
        """Refuse an answer of rows that are told apart, where none can be left out."""
        if holder.privacy.every_row:
            return
        found = self._rules.told_apart(relation) if upstream else relation if self._rules.of(relation) else None
        if found is not None:
            raise Forbidden(
                f'key "{holder.name}" cannot see {what}: the rows of "{found}" are told apart by the claims of readers',
                detail="No row can be left out of this answer.",
                hint="Make a key for every row: headwater key add NAME --scope … --scope rows --key-file FILE",
            )

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

    def check_searched(self, holder: Holder, table: str) -> None:
        """Refuse to write searches over masked columns: what they match would tell which rows have a value."""
        for searches in self._app.stored_searches.values():
            if searches.table.name == table:
                self.check_asked(holder, searches.over, searches.columns.schema.names)

    def sees_all_of(self, holder: Holder, relation: str) -> bool:
        """Whether nothing of a topic or view is masked for a key, and no row is missing."""
        rights = holder.privacy
        if rights.unlimited:
            return True
        every_row = rights.every_row or self._rules.of(relation) is None
        return every_row and all(mark.mask(rights) is None for mark in self._data.of(relation).every)

    def check_shown(self, holder: Holder, relation: str, what: str, *, upstream: bool = False) -> None:
        """Refuse an answer that has values of a topic or view, and cannot be masked."""
        self.check_every_row(holder, relation, what, upstream=upstream)
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
        """The columns of every topic and view that a key's queries get null of, and the rows that they read, as
        JSON."""
        rights, found = holder.privacy, dict[str, HiddenColumns]()
        if not rights.everything:
            columns = {name: HiddenColumns.of(marks, rights) for name, marks in self._data.every().items()}
            found = {name: each for name, each in columns.items() if each is not None}
        if not rights.every_row:
            for name, rule in self._rules.every().items():
                try:
                    rows, closed = shown_by(name, rule, rights), None
                except Forbidden as error:
                    rows, closed = None, error.message
                found[name] = replace(found.get(name, HiddenColumns(NO)), rows=rows, closed=closed)
        if not holder.may("admin"):  # of the audit trail a query sees nothing else
            topics = (topic.name for topic in self._app.log.topics())
            found |= dict.fromkeys((AUDIT_TOPIC, *filter(is_of_trail, topics)), EVERY_COLUMN)
        return {name.lower(): each.to_json() for name, each in found.items()}


def _hint(mark: PersonalMark | None) -> str:
    purposes = [] if mark is None else mark.purposes
    also = f", or --purpose {purposes[0]}" if purposes else ""
    return f"Make a key with the right: headwater key add NAME --scope … --scope personal{also} --key-file FILE"


async def _reader(request: HTTPConnection) -> Holder:
    holder: Holder = request.scope["state"]["holder"]
    return holder


Reader = Annotated[Holder, Depends(_reader)]
