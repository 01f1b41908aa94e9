"""Personal data: the personal columns of every topic and view of an app, as they are declared now.

What it is: ``PersonalData``, which finds the marks of a relation; ``PersonalMark``, where the values of a column come
from; ``PrivacyRights``, which of them a reader may see.
Invariants: conservative. A column of a view is personal if it uses a personal column of what it reads
(``views/compiler/column_lineage.py``); of a view whose columns cannot be told, each is. Only the view's own declaration
takes a mark away, or sums over at least ``people_min`` people. Topics are asked at each call, so that a declaration
counts at once. Late rows and dead letters are as personal as the rows they are copies of.
Not here: applying masks (``log/schema/column_masks.py``), who asks (``server/http/keys.py``).
Read next: ``privacy_map.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.log.schema.column_masks import strictest
from headwater.log.schema.personal_columns import Mask, Personal
from headwater.views.compiler.column_lineage import EVERYTHING, ROWS, ColumnUse, column_lineage, of_everything

if TYPE_CHECKING:
    from headwater.log.contract import EventLog
    from headwater.views.view import View


@dataclass(frozen=True)
class PrivacyRights:
    """What a reader may see: every value, those of some purposes, or (by default) none that has a mask.

    And of rows that are told apart: each, or those of the reader's claims (name and value).
    """

    everything: bool = False
    purposes: frozenset[str] = frozenset()
    every_row: bool = False
    claims: frozenset[tuple[str, str]] = frozenset()

    def cover(self, personal: Personal) -> bool:
        """Whether the values of a personal column are shown as they are.

        >>> PrivacyRights(purposes=frozenset({"billing"})).cover(Personal("user_id", purpose="billing", mask="hash"))
        True
        """
        return self.everything or personal.mask is None or not self.purposes.isdisjoint(personal.purposes)

    @property
    def unlimited(self) -> bool:
        """Whether nothing is masked and no row is missing."""
        return self.everything and self.every_row


SEES_ALL = PrivacyRights(everything=True, every_row=True)


@dataclass(frozen=True)
class PersonalOrigin:
    """A personal column of a topic, or a declaration of a view."""

    relation: str
    column: str
    personal: Personal


@dataclass(frozen=True)
class PersonalMark:
    """Why a column is personal. ``counted``: it only counts rows that are of people, so nothing of it is masked."""

    origins: frozenset[PersonalOrigin]
    counted: bool = False

    @property
    def subjects(self) -> list[str]:
        """Whose values it has."""
        return sorted({origin.personal.subject for origin in self.origins})

    @property
    def purposes(self) -> list[str]:
        """What they are kept for."""
        return sorted({purpose for origin in self.origins for purpose in origin.personal.purposes})

    def mask(self, rights: PrivacyRights) -> Mask | None:
        """What a reader of these rights gets instead; None: the values."""
        if self.counted:
            return None
        hidden = [origin.personal.mask for origin in self.origins if not rights.cover(origin.personal)]
        return strictest(mask for mask in hidden if mask is not None)


@dataclass(frozen=True)
class RelationMarks:
    """The marks of a topic or view, by column; ``rest`` is that of every column that is not known by name.

    ``named``: every column is known. Spark may still give one another name, and then ``rest`` is right.
    """

    columns: Mapping[str, PersonalMark] = field(default_factory=dict)  # by the name in lower case
    rest: PersonalMark | None = None
    unmarked: frozenset[str] = frozenset()  # not personal, in lower case
    named: bool = True

    def mark(self, column: str) -> PersonalMark | None:
        """The mark of a column."""
        name = column.lower()
        return self.columns.get(name) or (None if name in self.unmarked else self.rest)

    def masks(self, columns: Iterable[str], rights: PrivacyRights) -> dict[str, Mask]:
        """What masks which of these columns."""
        marks = {column: self.mark(column) for column in columns}
        found = {column: mark.mask(rights) for column, mark in marks.items() if mark is not None}
        return {column: mask for column, mask in found.items() if mask is not None}

    @property
    def every(self) -> list[PersonalMark]:
        """The marks of all columns."""
        return [*self.columns.values(), *([self.rest] if self.rest is not None and not self.named else [])]

    @property
    def origins(self) -> frozenset[PersonalOrigin]:
        """What they have together."""
        return frozenset().union(*(mark.origins for mark in self.every))


NONE = RelationMarks()
HISTORY_COLUMNS = ("command", "rejected", "tags")
DEAD_COLUMNS = ("row", "body", "headers", "reason")  # that hold what a row or a message says


class PersonalData:
    """The marks of one app's topics and views.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> _ = app.table("users", "id BIGINT, email STRING, country STRING", key="id",
    ...               privacy={"email": hw.Personal("user_id", mask="hash")})
    >>> _ = app.view("domains", "SELECT split(email, '@')[1] AS domain, country FROM users")
    >>> found = PersonalData(lambda: app.log, lambda: app.views).of("domains")
    >>> found.masks(["domain", "country"], PrivacyRights())
    {'domain': 'hash'}
    """

    def __init__(
        self,
        log: Callable[[], EventLog],
        views: Callable[[], Iterable[View]],
        copied_to: Callable[[], Mapping[str, Iterable[str]]] = dict,
    ) -> None:
        self._log = log
        self._views = views
        self._copied_to = copied_to  # topics that sinks write, and the views that they carry
        self._uses: dict[str, dict[str, ColumnUse] | None] = {}  # of views, which are declared once

    def of(self, name: str) -> RelationMarks:
        """The marks of a topic, a table or a view."""
        return self._of(name.lower(), {view.name.lower(): view for view in self._views()}, {})

    def every(self) -> dict[str, RelationMarks]:
        """The marks of every topic and view that has any, by name."""
        views, known = {view.name.lower(): view for view in self._views()}, dict[str, RelationMarks]()
        names = [*self._log().topic_names(), *(view.name for view in views.values())]
        found = {name: self._of(name.lower(), views, known) for name in names}
        return {name: marks for name, marks in found.items() if marks.columns or marks.rest is not None}

    def upstream(self, name: str) -> PersonalMark | None:
        """Everything personal that a topic or view is computed from, topics' records included."""
        return _all(self._upstream(name.lower(), {view.name.lower(): view for view in self._views()}))

    def _upstream(self, name: str, views: Mapping[str, View]) -> frozenset[PersonalOrigin]:
        view = views.get(name)
        if view is None:
            return self._topic(name, views).origins
        found = self._of(name, views, {}).origins
        return found.union(*(self._upstream(read.lower(), views) for read in reads_of(view)))

    def _of(self, name: str, views: Mapping[str, View], known: dict[str, RelationMarks]) -> RelationMarks:
        if name not in known:
            view = views.get(name)
            known[name] = NONE  # a view that reads what its own sink writes
            known[name] = self._base(name, views, known) if view is None else self._view(view, views, known)
        return known[name]

    def _base(self, name: str, views: Mapping[str, View], known: dict[str, RelationMarks]) -> RelationMarks:
        """The marks of a topic: as declared, and those of the views that are copied into it."""
        own = self._topic(name, views)
        carried = [self._of(view.lower(), views, known) for view in self._copied_to().get(name, ())]
        origins: frozenset[PersonalOrigin] = frozenset().union(*(marks.origins for marks in carried))
        if not origins:
            return own
        columns = {column: mark for marks in carried for column, mark in marks.columns.items()} | dict(own.columns)
        shown = frozenset().union(*(marks.unmarked for marks in carried)) if len(carried) == 1 else frozenset()
        return RelationMarks(columns, PersonalMark(origins), shown, named=len(carried) == 1 and carried[0].named)

    def _topic(self, name: str, views: Mapping[str, View]) -> RelationMarks:
        log = self._log()
        topic = log.find_topic(name) or next((each for each in log.topics() if each.name.lower() == name), None)
        if topic is not None and topic.privacy:
            marks = {
                column.lower(): PersonalMark(frozenset({PersonalOrigin(topic.name, column, personal)}))
                for column, personal in topic.privacy.items()
            }
            if topic.settings.events:  # commands and tags have values of events
                whole = PersonalMark(frozenset().union(*(mark.origins for mark in marks.values())))
                marks = {**dict.fromkeys(HISTORY_COLUMNS, whole), **marks}
            return RelationMarks(marks)
        parts = name.split(".")
        if "late" in parts[1:]:
            return self._copied(name.partition(".late")[0], views)
        if parts[-1] == "dead" and len(parts) > 1:
            return self._dead(name)
        return NONE

    def _copied(self, view: str, views: Mapping[str, View]) -> RelationMarks:
        """Late rows have the columns of the topic that they came from; of a view that is gone, of any topic."""
        reads = reads_of(views[view]) if view in views else self._log().topic_names()
        found: dict[str, frozenset[PersonalOrigin]] = {}
        for each in (self._topic(read.lower(), {}) for read in reads if "." not in read):
            for column, mark in each.columns.items():
                found[column] = found.get(column, frozenset()) | mark.origins
        return RelationMarks({column: PersonalMark(origins) for column, origins in found.items()})

    def _dead(self, name: str) -> RelationMarks:
        """A dead letter has its whole row as a text; one of an inlet, whose topic its name does not tell, a message."""
        log = self._log()
        sources = [topic for topic in log.topics() if name.startswith(f"{topic.name.lower()}.")] or log.topics()
        whole = _all(
            frozenset().union(*(self._topic(each.name.lower(), {}).origins for each in sources if each.privacy))
        )
        return NONE if whole is None else RelationMarks(dict.fromkeys(DEAD_COLUMNS, whole))

    def _view(self, view: View, views: Mapping[str, View], known: dict[str, RelationMarks]) -> RelationMarks:
        declared = view.declared
        own = {column.lower(): personal for column, personal in declared.privacy.items()}
        marks: dict[str, PersonalMark] = {
            column: PersonalMark(frozenset({PersonalOrigin(view.name, column, personal)}))
            for column, personal in own.items()
            if personal is not None
        }
        unmarked = frozenset(column for column, personal in own.items() if personal is None)
        uses = self._uses_of(view)
        rest = self._used(of_everything(reads_of(view)), views, known)
        if uses is None:
            return RelationMarks(marks, rest, unmarked, named=False)
        for column, use in uses.items():
            if column in own or (declared.people_min is not None and use.summed):
                continue
            mark = self._used(use, views, known)
            if mark is not None:
                marks[column] = mark
        return RelationMarks(marks, rest, unmarked.union(uses.keys() - marks.keys()))

    def _uses_of(self, view: View) -> dict[str, ColumnUse] | None:
        if view.name not in self._uses:
            plan = view.plan
            known = plan is not None and bool(plan.columns) and not plan.opaque
            self._uses[view.name] = (
                {column.name.lower(): use for column, use in zip(plan.columns, column_lineage(plan), strict=True)}
                if known and plan is not None
                else None
            )
        return self._uses[view.name]

    def _used(self, use: ColumnUse, views: Mapping[str, View], known: dict[str, RelationMarks]) -> PersonalMark | None:
        shown: list[PersonalMark | None] = []
        counted: list[PersonalMark | None] = []
        for relation, column in use.used:
            marks = self._of(relation.lower(), views, known)
            if column == ROWS:
                counted.append(_all(marks.origins))
            else:
                shown.append(_all(marks.origins) if column == EVERYTHING else marks.mark(column))
        values = [mark for mark in shown if mark is not None and not mark.counted]
        if values:
            return PersonalMark(frozenset().union(*(mark.origins for mark in values)))
        counts = [mark for mark in (*shown, *counted) if mark is not None]
        return PersonalMark(frozenset().union(*(mark.origins for mark in counts)), counted=True) if counts else None


def reads_of(view: View) -> list[str]:
    """The topics, tables and views that a view reads."""
    from headwater.views.compiler.plan import topic_of

    plan = view.plan
    return [topic_of(name) for name in plan.reads] if plan is not None else list(view.declared.inputs)


def _all(origins: frozenset[PersonalOrigin]) -> PersonalMark | None:
    return PersonalMark(origins) if origins else None
