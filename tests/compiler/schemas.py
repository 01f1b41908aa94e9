"""Random tables and what happens to them: the part of a case that is not SQL.

What it is: hypothesis strategies for relations (keyed, bags, append-only), for rows with nulls and duplicates, and for
ticks of inserts, updates and deletes; and the plain model that turns those into weighted changes.
Invariants: values come from small ranges, so that joins hit and groups have several rows. Doubles are multiples of a
quarter, besides NaN, the infinities and -0.0, so that sums of them are exact in any order and may be compared with.
Nothing is deleted that is not there.
Not here: queries (``queries.py``); very large, very small and rounded doubles (``test_accumulators.py``).
Read next: ``queries.py``.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random

from hypothesis import strategies as st

from headwater.views.compiler.plan import PlanColumn, Relation

Row = tuple[object, ...]

VALUES: dict[str, list[object]] = {
    "INT": [0, 1, 2, 3, -1],
    "BIGINT": [0, 1, 2, 3, 2**40],
    "DOUBLE": [0.0, -0.0, 0.25, 1.0, 2.0, -1.5, math.nan, math.inf, -math.inf],
    "DECIMAL(7, 2)": [Decimal("0.00"), Decimal("1.00"), Decimal("1.25"), Decimal("-3.10")],
    "STRING": ["", "a", "b", "ab", "B"],
    "BOOLEAN": [True, False],
    "DATE": [dt.date(2024, 1, 1), dt.date(2024, 2, 29), dt.date(2023, 12, 31)],
    # Five minutes apart or nearly so: windows and sessions of minutes meet, touch and part.
    "TIMESTAMP": [
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
        for seconds in (0, 240, 299, 300, 540, 600, 45000)
    ],
    "ARRAY<INT>": [[], [1], [2, 3], [1, 1, None]],
    "STRUCT<x: INT, y: STRING>": [{"x": 1, "y": "a"}, {"x": 2, "y": None}],
}
COLUMN_TYPES = list(VALUES)
NAMES = "abcdef"


@dataclass(frozen=True)
class Change:
    """A row put into a table or taken out of it; in a keyed table it is put in place of the row of its key."""

    table: str
    row: Row
    insert: bool


@dataclass
class Tables:
    """What the tables hold: the model that every engine is held against."""

    relations: Sequence[Relation]
    content: dict[str, list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.content = {relation.name: [] for relation in self.relations}

    def apply(self, changes: Sequence[Change]) -> dict[str, list[Row]]:
        """Makes the changes; returns them as rows with their weight as the last value, netted."""
        before = {name: list(rows) for name, rows in self.content.items()}
        for change in changes:
            rows = self.content[change.table]
            relation = next(relation for relation in self.relations if relation.name == change.table)
            if relation.key and change.insert:
                rows[:] = [row for row in rows if key_of(relation, row) != key_of(relation, change.row)]
            if change.insert:
                rows.append(change.row)
            else:
                rows.pop(next(index for index, row in enumerate(rows) if same(row, change.row)))
        return {name: difference(before[name], rows) for name, rows in self.content.items()}


def key_of(relation: Relation, row: Row) -> Row:
    places = [column.name for column in relation.columns]
    return tuple(row[places.index(name)] for name in relation.key)


def same(one: Row, other: Row) -> bool:
    return repr(one) == repr(other)  # NaN is itself, -0.0 is not 0.0


def difference(before: Sequence[Row], after: Sequence[Row]) -> list[Row]:
    rows = {repr(row): row for row in [*before, *after]}
    weights = Counter(repr(row) for row in after)
    weights.subtract(Counter(repr(row) for row in before))
    return [(*rows[text], weight) for text, weight in weights.items() if weight]


@st.composite
def relations(draw: st.DrawFn, *, nested: bool = True) -> tuple[Relation, ...]:
    """Two or three tables. Each has an INT column, so that any two can be joined."""
    found = []
    types = COLUMN_TYPES if nested else [name for name in COLUMN_TYPES if "<" not in name]
    for name in ("r", "s", "t")[: draw(st.integers(2, 3))]:
        kinds = ["INT", *draw(st.lists(st.sampled_from(types), min_size=1, max_size=3))]
        columns = tuple(PlanColumn(NAMES[place], kind) for place, kind in enumerate(kinds))
        manner = draw(st.sampled_from(["keyed", "bag", "append-only"]))
        if manner == "keyed":
            columns = (PlanColumn("id", "INT"), *columns)
        found.append(
            Relation(name, columns, key=("id",) if manner == "keyed" else (), append_only=manner == "append-only")
        )
    return tuple(found)


@st.composite
def ticks(draw: st.DrawFn, tables: tuple[Relation, ...], *, most: int = 4) -> tuple[tuple[Change, ...], ...]:
    """A few ticks of a few changes each."""
    model = Tables(tables)
    result = []
    for _ in range(draw(st.integers(1, most))):
        tick: list[Change] = []
        for _ in range(draw(st.integers(0, 7))):
            relation = draw(st.sampled_from(tables))
            there = model.content[relation.name]
            if there and not relation.append_only and draw(st.integers(0, 2)) == 0:
                change = Change(relation.name, draw(st.sampled_from(there)), insert=False)
            else:
                change = Change(relation.name, draw(rows(relation)), insert=True)
            model.apply([change])
            tick.append(change)
        result.append(tuple(tick))
    return tuple(result)


@st.composite
def rows(draw: st.DrawFn, relation: Relation) -> Row:
    return tuple(
        draw(st.integers(1, 4))
        if column.name in relation.key
        else draw(st.sampled_from([*VALUES[str(column.type)], None]))
        for column in relation.columns
    )


@st.composite
def busy_ticks(draw: st.DrawFn, tables: tuple[Relation, ...]) -> tuple[tuple[Change, ...], ...]:
    """Ticks that fill tables with dozens of rows and take most of them away again, as a seed tells."""
    random = Random(draw(st.integers(0, 10**6)))
    model = Tables(tables)
    result = []
    for number in range(7):
        tick: list[Change] = []
        for _ in range(45 if number in (0, 4) else random.randrange(1, 16)):
            relation = random.choice(tables)
            there = model.content[relation.name]
            if there and not relation.append_only and random.random() < (0.1 if number in (0, 4) else 0.8):
                change = Change(relation.name, random.choice(there), insert=False)
            else:
                change = Change(relation.name, _any_row(random, relation), insert=True)
            model.apply([change])
            tick.append(change)
        result.append(tuple(tick))
    return tuple(result)


def _any_row(random: Random, relation: Relation) -> Row:
    return tuple(
        random.randrange(30) if column.name in relation.key else random.choice([*VALUES[str(column.type)], None])
        for column in relation.columns
    )
