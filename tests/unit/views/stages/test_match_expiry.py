"""Rows that leave a pattern's state: what is shown after every tick is still the matches of all rows.

What it is: random clauses of the whole grammar over rows that come, change and go at or behind a rising cutoff; after
each tick the rows and the state rows that ``MatchExpiry`` names are taken away, and the view keeps what it has shown as
``FinalStage`` does. Compared with an enumeration of all matches in all rows that ever came, those that left too.
Invariants: a seed decides everything.
Not here: ticks in which nothing leaves (``test_match_run.py``), Spark (``tests/spark/test_pattern_views.py``).
Read next: ``src/headwater/views/stages/match_expiry.py``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.errors import InvalidPattern
from headwater.views.compiler.algebra.finality import CLOSES
from headwater.views.compiler.plan import MatchStage, PlanColumn
from headwater.views.stages.match_expiry import MatchExpiry, with_steady_closes
from headwater.views.stages.match_run import MatchRun
from headwater.views.stages.relation import BoundRows
from headwater.views.stages.stage_schemas import StageSchema
from headwater.views.state.algebra import consolidate, expand, union, with_weight
from headwater.views.state.delta import Delta
from headwater.views.state.row_equality import matching
from tests.unit.patterns.random_patterns import SECOND, random_case
from tests.unit.views.stages.test_match_run import (
    BUCKET_US,
    KINDS,
    SCHEMA,
    Row,
    Rows,
    shown_rows,
    sorted_rows,
    stage_of,
    table_of,
    wanted_rows,
)

CASES = 10 * int(os.environ.get("HEADWATER_THOROUGH", "1"))
TICKS = 9
TIME = "time__"


class Kept:
    """A state: what a ``StateTrace`` tells."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.schema = with_weight(table, 1).schema

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def content(self) -> pa.Table:
        return consolidate(with_weight(self.table, 1))

    def lookup(self, columns: Sequence[str], keys: pa.Table, wanted: Sequence[str]) -> pa.Table:
        return with_weight(matching(self.table.select(wanted), columns, keys), 1)

    def changed(self, *deltas: pa.Table) -> Kept:
        total = consolidate(union(self.content(), *deltas))
        assert not pc.any(pc.less(total.column("_weight"), 0)).as_py(), "what was not there has left"
        return Kept(expand(total))


class TimedRunHere(MatchRun):
    def _computed(self, rows: BoundRows, begins: pa.Table | None) -> pa.Table:
        given = sorted_rows(self.stage, rows.local)
        listed = sorted(rows.local.to_pylist(), key=lambda row: (row["p__0"], row["t"], row["seq"]))
        times = pa.array([row["t"] for row in listed], pa.int64())
        return self.matched.of(given.append_column(TIME, times), begins)


def timed_stage(sql: str) -> MatchStage:
    stage = stage_of(sql)
    slots = (*stage.slots, PlanColumn(CLOSES, "TIMESTAMP"))
    return replace(stage, slots=slots, time=TIME, bucket_us=BUCKET_US, lets_go=True)


def changed(chance: random.Random, kept: dict[int, Row], cutoff: int, first: int) -> pa.Table:
    """Some rows at or behind the cutoff come, go or change; their delta."""
    before = table_of(list(kept.values()))
    for number in range(first, first + chance.choice((0, 1, 1, 2, 3))):
        open_rows = [seq for seq, row in kept.items() if row["t"] >= cutoff]
        seq = chance.choice(open_rows) if open_rows and chance.random() < 0.3 else number
        if kept.pop(seq, None) is not None and chance.random() < 0.5:
            continue
        time = cutoff + chance.choice((0, 1, 2, 2, 5)) * SECOND
        key, y = chance.randrange(2), chance.choice((None, 0, 1, 2))
        kept[seq] = {"p__0": key, "seq": seq, "t": time, "x": chance.randint(0, 4), "y": y}
    return consolidate(union(with_weight(table_of(list(kept.values())), 1), with_weight(before, -1)))


@pytest.mark.parametrize("kind", KINDS)
def test_matches_are_those_of_all_rows_though_most_of_them_have_left(kind: str) -> None:
    history, timed = KINDS[kind]
    compared = left = came = 0
    for seed in range(CASES):
        chance = random.Random(seed)
        case = random_case(seed * 13 + len(kind), history=history, timed=timed)
        try:
            stage = timed_stage(case.sql)
        except InvalidPattern:
            continue
        shape = StageSchema(pa.schema([]), TimedRunHere(stage, None, None, None, None).matched.schema)  # type: ignore[arg-type]
        kept: dict[int, Row] = {}
        rows, state, view = Kept(SCHEMA.empty_table()), Kept(shape.state.empty_table()), Kept(shape.state.empty_table())
        cutoff = 0
        for tick in range(TICKS):
            delta = changed(chance, kept, cutoff, first=tick * 10)
            wanted = wanted_rows(case.clause, kept)
            if wanted is None:  # AFTER MATCH SKIP to where it cannot
                break
            source = Rows(rows.table, delta)
            run = TimedRunHere(stage, shape, source, state if state.rows else None, None)  # type: ignore[arg-type]
            ran = (run.run() if state.rows else run.fill()) if delta.num_rows else Delta.nothing(shape.state)
            found = with_steady_closes(ran.read(), cutoff) if ran.rows else ran.read()
            gone_rows, gone_state = rows.content()[:0], state.content()[:0]
            if state.rows and chance.random() < 0.7:
                expiry = MatchExpiry(stage, state, cutoff, delta)
                gone_rows, gone_state = expiry.rows(rows, None).read(), expiry.state(None).read()  # type: ignore[arg-type]
                left += gone_rows.num_rows
            came += delta.num_rows
            rows, state = rows.changed(delta, gone_rows), state.changed(found, gone_state)
            view = view.changed(shown_later(union(found, gone_state), cutoff))
            told = (seed, tick, case.sql)
            assert sorted(map(repr, shown_rows(stage, view.table))) == sorted(map(repr, wanted)), told
            compared += 1
            cutoff += chance.choice((0, 2, 4, 7)) * SECOND
    assert compared > CASES * 3
    assert left > came // 8


def shown_later(delta: pa.Table, cutoff: int) -> pa.Table:
    """What a view takes of the changes: rows that were not final."""
    closes = delta.column(CLOSES).cast(pa.int64())
    taken = pc.or_(pc.is_null(closes), pc.greater_equal(closes, cutoff).fill_null(False))
    return delta.filter(pc.and_(delta.column("_shown"), taken))


def test_a_partition_that_is_silent_leaves_nothing_behind() -> None:
    stage = timed_stage(
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY t, seq MEASURES A.x AS ax "
        "PATTERN (A B) WITHIN INTERVAL '2' SECOND DEFINE B AS x > A.x)"
    )
    shape = StageSchema(pa.schema([]), TimedRunHere(stage, None, None, None, None).matched.schema)  # type: ignore[arg-type]
    rows = table_of([{"p__0": k, "seq": k, "t": k * SECOND, "x": k, "y": None} for k in range(40)])
    delta = with_weight(rows, 1)
    state = TimedRunHere(stage, shape, Rows(rows[:0], delta), None, None).fill().read()  # type: ignore[arg-type]
    own = Kept(expand(state))

    expiry = MatchExpiry(stage, own, 30 * SECOND, delta[:0])  # type: ignore[arg-type]

    here = Kept(rows).changed(expiry.rows(Kept(rows), None).read())  # type: ignore[arg-type]
    assert sorted(here.table.column("p__0").to_pylist()) == list(
        range(27, 40)
    )  # of the bucket of 28, which begins at 27
    left = own.changed(expiry.state(None).read())  # type: ignore[arg-type]
    assert set(left.table.column("_k0").to_pylist()) == set(range(27, 40))
