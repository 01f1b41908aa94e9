"""Matches tick by tick, without Spark: after every change the state is that of all rows at once.

What it is: random clauses of the whole grammar over rows that come late, change and go; a tick reads and computes what
``MatchRun`` says, here with SQLite in the place of Spark. The rows shown are compared with an enumeration of all
matches that shares no code with the matcher, and the state with that of a computation from all rows.
Invariants: a seed decides everything.
Not here: patterns on Spark (``tests/spark/test_pattern_views.py``), the matcher (``tests/unit/patterns``).
Read next: ``src/headwater/views/stages/match_run.py``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.errors import InvalidPattern, PatternFailed
from headwater.views.compiler.match_compiler import BUCKET, HIDDEN, PLACE
from headwater.views.compiler.plan import Leaf, LeafContent, MatchStage, PlanColumn, StageKind
from headwater.views.stages.match_run import MatchRun
from headwater.views.stages.relation import BoundRows
from headwater.views.stages.stage_schemas import StageSchema, columns_of
from headwater.views.state.algebra import consolidate, expand, union, with_weight
from headwater.views.state.delta import Delta
from headwater.views.state.row_equality import matching
from tests.unit.patterns.brute_force import SkipRefused, output_rows
from tests.unit.patterns.random_patterns import SECOND, compiled, measured, random_case, row_table

CASES = 40 * int(os.environ.get("HEADWATER_THOROUGH", "1"))
TICKS = 6
BUCKET_US = 3 * SECOND
KINDS = {"row": (False, False), "match": (True, False), "row in time": (False, True), "match in time": (True, True)}
COLUMNS = ("p__0", "seq", "t", "x", "y", BUCKET)
SCHEMA = pa.schema([(name, pa.int64()) for name in COLUMNS])
Row = dict[str, Any]


class Rows:
    """The input: what a ``TickRelation`` tells a stage."""

    def __init__(self, before: pa.Table, changes: pa.Table) -> None:
        self.before = before
        self.changes = Delta.local(changes)
        self.read = 0

    def bag(self, columns: Sequence[str]) -> BoundRows:
        return BoundRows.of(expand(consolidate(union(with_weight(self.before, 1), self.changes.read())), columns))

    def bag_of(self, columns: Sequence[str], key: Sequence[str], keys: pa.Table) -> BoundRows:
        found = matching(self.bag(columns).local, key, keys)
        self.read += found.num_rows
        return BoundRows.of(found)


class State:
    """The stage's own state."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def lookup(self, columns: Sequence[str], keys: pa.Table, wanted: Sequence[str]) -> pa.Table:
        return with_weight(matching(self.rows.select(wanted), columns, keys), 1)


class RunHere(MatchRun):
    """A run whose row columns come from SQLite, and whose measures stay slots."""

    def _computed(self, rows: BoundRows, begins: pa.Table | None) -> pa.Table:
        return self.matched.of(sorted_rows(self.stage, rows.local), begins)


def sorted_rows(stage: MatchStage, rows: pa.Table) -> pa.Table:
    listed = sorted(rows.to_pylist(), key=lambda row: (row["p__0"], row["t"], row["seq"]))
    partitions = [[row for row in listed if row["p__0"] == k] for k in sorted({row["p__0"] for row in listed})]
    given = [[{name: row[name] for name in ("seq", "t", "x", "y")} for row in part] for part in partitions]
    table, _ = row_table(stage.program, given)
    places = [place for part in partitions for place in range(1, len(part) + 1)]
    own = {"p__0": pa.array([row["p__0"] for row in listed], pa.int64())}
    own[BUCKET] = pa.array([row[BUCKET] for row in listed], pa.int64())
    return pa.table({**own, **{n: table.column(n) for n in table.column_names}, PLACE: pa.array(places, pa.int64())})


def stage_of(sql: str) -> MatchStage:
    program = compiled(sql)
    nothing, _ = row_table(program, [])
    slots = program.match(nothing, np.zeros(1, np.int64)).slot_table(nothing)
    keys = (PlanColumn("_k0", "BIGINT"),)
    given = columns_of(pa.schema([field for field in slots.schema if field.name != "_row"]))
    leaf = Leaf("_l0", "rows", LeafContent.BAG, COLUMNS)
    return MatchStage(
        "matches", StageKind.KEYED, given, (*keys, *HIDDEN), "", leaf, ("p__0",), BUCKET, slots=given, program=program
    )


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([{**row, BUCKET: row["t"] // BUCKET_US} for row in rows], SCHEMA)


def changed(chance: random.Random, kept: dict[tuple[int, int], Row]) -> pa.Table:
    """Some rows come, go or change; their delta."""
    before = table_of(list(kept.values()))
    for _ in range(chance.choice((1, 1, 2, 5))):
        key = (chance.randrange(2), chance.randrange(14))
        if kept.pop(key, None) is not None and chance.random() < 0.6:
            continue
        time = (key[1] + chance.choice((0, 0, 0, 1, -3))) * SECOND
        y = chance.choice((None, 0, 1, 2))
        kept[key] = {"p__0": key[0], "seq": key[1], "t": time, "x": chance.randint(0, 4), "y": y}
    return consolidate(union(with_weight(table_of(list(kept.values())), 1), with_weight(before, -1)))


def wanted_rows(clause: Any, kept: dict[tuple[int, int], Row]) -> list[Row] | None:
    found = []
    try:
        for k in (0, 1):
            rows = sorted((row for row in kept.values() if row["p__0"] == k), key=lambda row: (row["t"], row["seq"]))
            plain = [{name: row[name] for name in ("seq", "t", "x", "y")} for row in rows]
            found += [{"k": k, **row} for row in output_rows(clause, plain, 2**62)]
    except SkipRefused:
        return None
    return [{name: value for name, value in row.items() if name not in ("row", "first")} for row in found]


def shown_rows(stage: MatchStage, state: pa.Table) -> list[Row]:
    outputs = state.filter(state.column("_shown"))
    slots = outputs.append_column("_row", pa.array(np.arange(outputs.num_rows)))

    class Answer:
        def slot_table(self, _: pa.Table) -> pa.Table:
            return slots.select(["_row", *(column.name for column in stage.columns)])

    rows = measured(stage.program, Answer(), slots)  # type: ignore[arg-type]
    return [{"k": k, **row} for k, row in zip(outputs.column("_k0").to_pylist(), rows, strict=True)]


def settled(state: pa.Table) -> list[str]:
    """State rows but for where a bucket is resumed: how far an attempt looked is told more or less closely."""
    entries = state.filter(state.column("_entry")).drop_columns(["_from", "_skip", "_matches"])
    outputs = state.filter(pc.invert(state.column("_entry")))
    return sorted(repr(row) for table in (entries, outputs) for row in table.to_pylist())


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_after_every_tick_is_that_of_all_rows(kind: str) -> None:
    history, timed = KINDS[kind]
    compared = partial = 0
    for seed in range(CASES):
        chance = random.Random(seed)
        case = random_case(seed * 11 + len(kind), history=history, timed=timed)
        try:
            stage = stage_of(case.sql)
        except InvalidPattern:
            continue
        shape = StageSchema(pa.schema([]), RunHere(stage, None, None, None, None).matched.schema)  # type: ignore[arg-type]
        kept: dict[tuple[int, int], Row] = {}
        state: pa.Table | None = None
        for tick in range(TICKS):
            before = table_of(list(kept.values()))
            source = Rows(before, changed(chance, kept))
            wanted = wanted_rows(case.clause, kept)
            own = None if state is None else State(state)
            run = RunHere(stage, shape, source, own, None)  # type: ignore[arg-type]
            if wanted is None:
                state = None
                with suppress(PatternFailed):
                    run.fill()
                break
            if not source.changes.rows:
                continue
            delta = run.fill() if state is None else run.run()
            assert delta is not None
            old = shape.state.empty_table() if state is None else state
            state = expand(consolidate(union(with_weight(old, 1), delta.read())))
            partial += 0 < source.read < len(kept)
            told = (seed, tick, case.sql)
            fresh = RunHere(stage, shape, source, None, None)._computed(source.bag(COLUMNS), None)  # type: ignore[arg-type]
            assert settled(state) == settled(fresh), told
            assert sorted(map(repr, shown_rows(stage, state))) == sorted(map(repr, wanted)), told
            compared += 1
    assert compared > CASES * 2
    assert partial > CASES // 4
