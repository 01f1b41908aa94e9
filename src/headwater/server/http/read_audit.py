"""Read audit: which key was shown which personal columns, on record before the answer leaves.

What it is: ``ReadAudit``, which every route that shows values tells what it is about to show.
Invariants: what cannot be put on record is not shown: an append that fails is the request's error. Columns that are
masked for the key, or that only count, are not told. A server without keys tells nothing, since it knows nobody. No
value is recorded: not the key of a row, not the text of a query.
Not here: the topic (``log/maintenance/audit_trail.py``), masks (``masked_answers.py``).
Read next: ``masked_answers.py``; ``docs/audit.md``.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.log.maintenance.audit_trail import AuditEntry, begin_trail, note_audit
from headwater.server.http.keys import Holder, Keys
from headwater.server.http.rights_audit import RightsAudit
from headwater.views.privacy.personal_data import PersonalMark, RelationMarks

if TYPE_CHECKING:
    from headwater.app import App

KNOWN_S = 1.0  # a new declaration of a column is recorded from so long after it on


class ReadAudit:
    """The reads of one app. Threads may share it."""

    def __init__(self, app: App, *, enabled: bool, keys: Keys | None = None) -> None:
        self._app = app
        self.enabled = enabled
        self._rights = None if keys is None else RightsAudit(app, keys)
        self._lock = threading.Lock()
        self._known: dict[str, RelationMarks] = {}
        self._until = 0.0

    def shown(
        self, holder: Holder, relation: str, columns: Iterable[str] | None, rows: int | None, how: str
    ) -> list[str]:
        """Record that columns of a topic or view are shown (None: all of them); returns the personal ones.

        ``rows``: how many; None: not known. ``how``: the route.
        """
        marks = self._marks().get(relation.lower()) if self.enabled and rows != 0 else None
        if marks is None:
            return []
        told = self._personal(marks, holder, columns)
        if told:
            self._note(AuditEntry("read", holder.name, relation, told, rows, how))
        return told

    def behind(self, holder: Holder, mark: PersonalMark | None, how: str) -> None:
        """Record that values of these columns of topics are shown, which a view is computed from."""
        if not self.enabled or mark is None:
            return
        columns: dict[str, set[str]] = {}
        for origin in mark.origins:
            if holder.privacy.cover(origin.personal):
                columns.setdefault(origin.relation, set()).add(origin.column)
        for relation, names in sorted(columns.items()):
            self._note(AuditEntry("read", holder.name, relation, sorted(names), None, how))

    def _note(self, entry: AuditEntry) -> None:
        log = self._app.log.local
        if not note_audit(log, entry):
            begin_trail(log)
            if self._rights is not None:
                self._rights.tell_all()
            note_audit(log, entry)

    def queried(self, holder: Holder, sql: str, how: str) -> None:
        """Record the relations that a query names: it may show all of their personal columns.

        A name counts wherever it stands between other words: behind ``main.``, before ``--``, in quotes of any kind.
        """
        if not self.enabled:
            return
        text = sql.lower()
        for name in sorted(self._marks()):
            if name in text and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
                self.shown(holder, name, None, None, how)

    @staticmethod
    def _personal(marks: RelationMarks, holder: Holder, columns: Iterable[str] | None) -> list[str]:
        if columns is None:
            columns = [*marks.columns, *(["*"] if marks.rest is not None and not marks.named else [])]
        found = {column: marks.mark(column) for column in columns}
        return sorted(
            column
            for column, mark in found.items()
            if mark is not None and not mark.counted and mark.mask(holder.privacy) is None
        )

    def _marks(self) -> dict[str, RelationMarks]:
        """The marks of everything, by the name in lower case, as they were a moment ago."""
        now = time.monotonic()
        with self._lock:
            if now >= self._until:
                self._known = {name.lower(): marks for name, marks in self._app.personal_data.every().items()}
                self._until = now + KNOWN_S
            return self._known
