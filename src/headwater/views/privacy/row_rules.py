"""Row rules: which rows of a topic or view a reader sees, by the reader's claims.

What it is: ``RowRules``, which finds the rule of a relation; ``RowsShown``, the rows that one reader sees of it, as a
filter of tables.
Invariants: closed in doubt. A view over rows that are told apart says itself by which of its columns (``rows_by``), or
that all of its rows are for everybody (``rows_by={}``); without either it is shown to readers of every row alone. So
are dead letters, late rows and topics that sinks write. A reader without the claim is refused; a row whose column is
null is nobody's. In a feed, a row that goes from one reader to another is a delete for the first and an insert for the
second.
Not here: who asks (``server/http/keys.py``), queries of SQL (``hidden_columns.py``), columns (``personal_data.py``).
Read next: ``hidden_columns.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Forbidden
from headwater.log.schema.ddl import spark_type
from headwater.log.schema.row_claims import is_compared
from headwater.views.privacy.personal_data import PrivacyRights, reads_of

if TYPE_CHECKING:
    from headwater.log.contract import EventLog, EventTopic
    from headwater.views.view import View

CHANGE_TYPE = "_change_type"  # of the change feed
AS_ALONE = {"update_preimage": "delete", "update_postimage": "insert"}  # where the other half is not shown
HINT = "Make a key with it: headwater key add NAME --scope … --claim {claim}=…, or --scope rows for every row."
HINT_CLOSED = (
    "Declare by which column its rows are told apart, rows_by={column: claim}, or rows_by={} if they are for all."
)


@dataclass(frozen=True)
class RowRule:
    """By which columns, and which claims, the rows are told apart; ``closed`` says why they cannot be."""

    columns: tuple[tuple[str, str], ...] = ()
    closed: str | None = None


@dataclass(frozen=True)
class RowsShown:
    """The rows that a reader sees: in each of these columns stands one of these values, as text."""

    relation: str
    values: tuple[tuple[str, tuple[str, ...]], ...]

    def check(self, schema: pa.Schema) -> None:
        """Refuse rows that cannot be told apart."""
        for column, _ in self.values:
            if column not in schema.names:
                why = f'rows_by of "{self.relation}" names "{column}", which is not a column of it'
            elif not is_compared(schema.field(column).type):
                why = f'rows_by of "{self.relation}" names "{column}", which is {spark_type(schema.field(column).type)}'
            else:
                continue
            raise Forbidden(why, hint="Name a column that is STRING or a whole number.", relation=self.relation)

    def table(self, rows: pa.Table) -> pa.Table:
        """These rows of a table; of changes, half an update becomes a delete or an insert.

        >>> shown = RowsShown("orders", (("tenant", ("acme",)),))
        >>> rows = pa.table({"id": [1, 2, 3], "tenant": ["acme", "other", None]})
        >>> shown.table(rows).to_pylist()
        [{'id': 1, 'tenant': 'acme'}]
        >>> moved = pa.table({"tenant": ["acme", "other"], "_change_type": ["update_preimage", "update_postimage"]})
        >>> shown.table(moved).to_pylist()
        [{'tenant': 'acme', '_change_type': 'delete'}]
        """
        self.check(rows.schema)
        kept = np.ones(rows.num_rows, bool)
        for column, values in self.values:
            found = pc.is_in(pc.cast(rows.column(column), pa.string()), value_set=pa.array(values, pa.string()))
            kept &= np.asarray(found.combine_chunks().to_numpy(zero_copy_only=False), bool)
        if CHANGE_TYPE in rows.schema.names:
            rows = _halves_named(rows, kept)
        return rows if kept.all() else rows.filter(pa.array(kept))

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """These rows of batches."""
        for batch in batches:
            yield from self.table(pa.Table.from_batches([batch])).to_batches()


def _halves_named(changes: pa.Table, kept: np.ndarray) -> pa.Table:
    """Changes whose updates of which one half alone is kept are deletes and inserts. The halves stand side by side."""
    types = changes.column(CHANGE_TYPE).to_pylist()
    partner = {"update_preimage": 1, "update_postimage": -1}
    named = [
        AS_ALONE[name] if name in partner and kept[place] and not kept[place + partner[name]] else name
        for place, name in enumerate(types)
    ]
    if named == types:
        return changes
    return changes.set_column(changes.schema.names.index(CHANGE_TYPE), CHANGE_TYPE, pa.array(named, pa.string()))


class RowRules:
    """The rules of one app's topics and views.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> _ = app.topic("orders", "id BIGINT, tenant STRING", rows_by={"tenant": "tenant"})
    >>> _ = app.view("open", "SELECT * FROM orders", rows_by={"tenant": "tenant"})
    >>> _ = app.view("counts", "SELECT count(*) AS n FROM orders")
    >>> rules = RowRules(lambda: app.log, lambda: app.views)
    >>> rules.shown("open", PrivacyRights(claims=frozenset({("tenant", "acme")}))).values
    (('tenant', ('acme',)),)
    >>> rules.of("counts").closed
    'its rows are computed from rows of "orders", which are told apart by the claims of readers'
    """

    def __init__(
        self,
        log: Callable[[], EventLog],
        views: Callable[[], Iterable[View]],
        copied_to: Callable[[], Mapping[str, Iterable[str]]] = dict,
    ) -> None:
        self._log = log
        self._views = views
        self._copied_to = copied_to

    def of(self, name: str) -> RowRule | None:
        """The rule of a topic, a table or a view; None: all rows are for everybody."""
        return self._of(name.lower(), self._by_name(), {})

    def every(self) -> dict[str, RowRule]:
        """The rule of every topic and view that has one, by name."""
        views, known = self._by_name(), dict[str, RowRule | None]()
        names = [*self._log().topic_names(), *(view.name for view in views.values())]
        found = {name: self._of(name.lower(), views, known) for name in names}
        return {name: rule for name, rule in found.items() if rule is not None}

    def shown(self, name: str, rights: PrivacyRights) -> RowsShown | None:
        """The rows that a reader sees, None: all; ``Forbidden`` when it may see none."""
        rule = None if rights.every_row else self.of(name)
        return None if rule is None else shown_by(name, rule, rights)

    def told_apart(self, name: str) -> str | None:
        """The first of a relation and all that it is computed from whose rows are not for everybody."""
        return self._told_apart(name.lower(), self._by_name(), set())

    def _told_apart(self, name: str, views: Mapping[str, View], seen: set[str]) -> str | None:
        if name in seen:
            return None
        seen.add(name)
        if self._of(name, views, {}) is not None:
            return name
        reads = reads_of(views[name]) if name in views else []
        return next((found for read in reads if (found := self._told_apart(read.lower(), views, seen))), None)

    def _by_name(self) -> dict[str, View]:
        return {view.name.lower(): view for view in self._views()}

    def _of(self, name: str, views: Mapping[str, View], known: dict[str, RowRule | None]) -> RowRule | None:
        if name not in known:
            known[name] = None  # a view that reads what its own sink writes
            view = views.get(name)
            known[name] = self._topic(name, views, known) if view is None else self._view(view, views, known)
        return known[name]

    def _view(self, view: View, views: Mapping[str, View], known: dict[str, RowRule | None]) -> RowRule | None:
        rows_by = view.declared.rows_by
        if rows_by is not None:
            return RowRule(tuple(sorted(rows_by.items()))) if rows_by else None
        return self._computed(reads_of(view), views, known)

    def _computed(
        self, reads: Iterable[str], views: Mapping[str, View], known: dict[str, RowRule | None]
    ) -> RowRule | None:
        source = next((read for read in reads if self._of(read.lower(), views, known) is not None), None)
        if source is None:
            return None
        return RowRule(
            closed=f'its rows are computed from rows of "{source}", which are told apart by the claims of readers'
        )

    def _topic(self, name: str, views: Mapping[str, View], known: dict[str, RowRule | None]) -> RowRule | None:
        log = self._log()
        topic: EventTopic | None = log.find_topic(name)
        topic = topic or next((each for each in log.topics() if each.name.lower() == name), None)
        if topic is not None and topic.settings.rows_by:
            return RowRule(tuple(sorted(topic.settings.rows_by.items())))
        parts = name.split(".")
        sources: list[str] = list(self._copied_to().get(name, ()))
        if "late" in parts[1:]:  # of a view that is gone, of any topic
            view = views.get(name.partition(".late")[0])
            sources += reads_of(view) if view is not None else self._declaring()
        elif parts[-1] == "dead" and len(parts) > 1:  # its name does not always tell the topic
            sources += self._declaring()
        return self._computed(sources, views, known)

    def _declaring(self) -> list[str]:
        return [topic.name for topic in self._log().topics() if topic.settings.rows_by]


def shown_by(name: str, rule: RowRule, rights: PrivacyRights) -> RowsShown:
    """The rows of a relation with this rule that a reader sees."""
    if rule.closed is not None:
        raise Forbidden(
            f'"{name}" is shown to readers of every row alone: {rule.closed}', hint=HINT_CLOSED, relation=name
        )
    values = []
    for column, claim in rule.columns:
        own = tuple(sorted(value for known, value in rights.claims if known == claim))
        if not own:
            raise Forbidden(
                f'rows of "{name}" are shown by the claim "{claim}", which this key has not',
                hint=HINT.format(claim=claim),
                relation=name,
                claim=claim,
            )
        values.append((column, own))
    return RowsShown(name, tuple(values))
