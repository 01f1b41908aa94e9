"""Random clauses, as SQL text and as the brute force's Python, and random rows.

What it is: ``random_case``; ``run_case``, which takes the SQL through the matcher, with SQLite in the place of Spark
for row columns and measures.
Invariants: text and Python are made from one choice; a seed gives one case.
Not here: the comparison (``test_random_patterns.py``).
Read next: ``brute_force.py``.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.patterns import MatchResult, PatternProgram, compile_pattern, find_clauses
from headwater.patterns.search.row_matcher import match_rows
from tests.unit.patterns.brute_force import Recognition, Scene

SECOND = 1_000_000
NAMES = ("A", "B", "C")
Check = Callable[[Scene], Any]


def both(left: Any, right: Any, operation: Callable[[Any, Any], Any]) -> Any:
    return None if left is None or right is None else operation(left, right)


def less(left: Any, right: Any) -> Any:
    return both(left, right, lambda a, b: a < b)


# What looks at the row and its neighbours.
ROW: list[tuple[str, Check]] = [
    ("x > 1", lambda s: less(1, s.get("x"))),
    ("x = 2", lambda s: s.get("x") == 2),
    ("x <= 2", lambda s: s.get("x") <= 2),
    ("x % 2 = 0", lambda s: s.get("x") % 2 == 0),
    ("y IS NULL", lambda s: s.get("y") is None),
    ("y > 0", lambda s: less(0, s.get("y"))),
    ("x < PREV(x)", lambda s: less(s.get("x"), s.at("x", s.row(None, "last"), -1))),
    ("PREV(x, 2) <= x", lambda s: both(s.at("x", s.row(None, "last"), -2), s.get("x"), lambda a, b: a <= b)),
    ("NEXT(x) > x", lambda s: less(s.get("x"), s.at("x", s.row(None, "last"), 1))),
    ("x >= 0", lambda s: s.get("x") >= 0),
    ("x < 0", lambda s: s.get("x") < 0),
]
# What looks at the match.
MATCH: list[tuple[str, Check]] = [
    ("x > A.x", lambda s: less(s.get("x", "A"), s.get("x"))),
    ("B.x <> A.x", lambda s: both(s.get("x", "B"), s.get("x", "A"), lambda a, b: a != b)),
    ("A.x IS NULL OR x BETWEEN A.x - 1 AND A.x + 2", lambda s: within_a(s)),
    ("x >= FIRST(x)", lambda s: s.get("x") >= s.get("x", None, "first")),
    ("x <> LAST(B.x, 1)", lambda s: both(s.get("x"), s.get("x", "B", "last", 1), lambda a, b: a != b)),
    ("FIRST(A.x, 1) > 1", lambda s: less(1, s.get("x", "A", "first", 1))),
    ("LAST(x, 2) < x OR LAST(x, 2) IS NULL", lambda s: s.get("x", None, "last", 2) is None or lower_2(s)),
    ("count(*) < 4", lambda s: len(s.mapped(None)) < 4),
    ("count(B.*) <= 1", lambda s: len(s.mapped("B")) <= 1),
    ("count(y) < 3", lambda s: len(s.values("y")) < 3),
    ("sum(A.x) > 2", lambda s: less(2, sum(s.values("x", "A")) if s.mapped("A") else None)),
    ("max(U.x) >= x", lambda s: both(max(s.values("x", "U"), default=None), s.get("x"), lambda a, b: a >= b)),
    ("min(x) + 1 < max(x) OR count(*) < 3", lambda s: min(s.values("x")) + 1 < max(s.values("x")) or count(s) < 3),
    ("avg(x) > 1", lambda s: sum(s.values("x")) / len(s.values("x")) > 1),
    ("coalesce(B.x, 0) < x", lambda s: (s.get("x", "B") or 0) < s.get("x")),
    ("PREV(LAST(A.x), 1) <= x", lambda s: both(s.at("x", s.row("A", "last"), -1), s.get("x"), lambda a, b: a <= b)),
    ("PREV(CLASSIFIER()) = 'A'", lambda s: both(s.label(s.row(None, "last"), -1), "A", lambda a, b: a == b)),
    ("LAST(CLASSIFIER(U), 1) IS NULL", lambda s: s.label(s.row("U", "last", 1)) is None),
    ("MATCH_NUMBER() < 3", lambda s: s.number < 3),
    ("CASE WHEN A.y IS NULL THEN x > 1 ELSE x < 3 END", lambda s: s.get("x") > 1 if no_y(s) else s.get("x") < 3),
]
MEASURES: list[tuple[str, Check]] = [
    ("A.x", lambda s: s.get("x", "A")),
    ("x", lambda s: s.get("x")),
    ("LAST(B.x, 1)", lambda s: s.get("x", "B", "last", 1)),
    ("FIRST(x)", lambda s: s.get("x", None, "first")),
    ("FIRST(U.y, 1)", lambda s: s.get("y", "U", "first", 1)),
    ("FINAL LAST(x)", lambda s: s.get("x", None, "last", 0, True)),
    ("FINAL FIRST(B.x, 1)", lambda s: s.get("x", "B", "first", 1, True)),
    ("PREV(A.x)", lambda s: s.at("x", s.row("A", "last"), -1)),
    ("NEXT(FINAL LAST(x), 2)", lambda s: s.at("x", s.row(None, "last", 0, True), 2)),
    ("PREV(LAST(U.x, 1), 2)", lambda s: s.at("x", s.row("U", "last", 1), -2)),
    ("count(*)", lambda s: len(s.mapped(None))),
    ("FINAL count(B.*)", lambda s: len(s.mapped("B", True))),
    ("count(y)", lambda s: len(s.values("y"))),
    ("sum(U.x)", lambda s: sum(s.values("x", "U")) if s.mapped("U") else None),
    ("FINAL sum(x)", lambda s: sum(s.values("x", None, True)) if s.whole else None),
    ("max(y)", lambda s: max(s.values("y"), default=None)),
    ("min(A.x)", lambda s: min(s.values("x", "A"), default=None)),
    ("avg(A.x)", lambda s: sum(s.values("x", "A")) / len(s.mapped("A")) if s.mapped("A") else None),
    ("CLASSIFIER()", lambda s: s.label(s.row(None, "last"))),
    ("CLASSIFIER(U)", lambda s: s.label(s.row("U", "last"))),
    ("PREV(CLASSIFIER())", lambda s: s.label(s.row(None, "last"), -1)),
    ("max(CLASSIFIER())", lambda s: max((v for _, v, _ in s.mapping), default=None)),
    ("count(CLASSIFIER(U))", lambda s: len(s.mapped("U"))),
    ("FINAL min(CLASSIFIER())", lambda s: min((v for _, v, _ in s.whole), default=None)),
    ("MATCH_NUMBER()", lambda s: s.number or None),
    ("MATCH_STATUS()", lambda s: s.status),
    ("coalesce(A.x, 99) + count(*)", lambda s: (99 if s.get("x", "A") is None else s.get("x", "A")) + count(s)),
    ("LAST(A.x) - FIRST(B.x)", lambda s: both(s.get("x", "A"), s.get("x", "B", "first"), lambda a, b: a - b)),
]


def count(scene: Scene) -> int:
    return len(scene.mapped(None))


def no_y(scene: Scene) -> bool:
    return scene.get("y", "A") is None


def lower_2(scene: Scene) -> bool:
    found: bool = scene.get("x", None, "last", 2) < scene.get("x")
    return found


def within_a(scene: Scene) -> bool:
    base = scene.get("x", "A")
    return base is None or base - 1 <= scene.get("x") <= base + 2


def negated(check: Check) -> Check:
    return lambda scene: None if check(scene) is None else not check(scene)


def conjunction(left: Check, right: Check) -> Check:
    def joined(scene: Scene) -> Any:
        values = (left(scene), right(scene))
        return False if False in values else None if None in values else True

    return joined


def random_condition(rng: random.Random, history: bool) -> tuple[str, Check]:
    pool = MATCH if history and rng.random() < 0.6 else ROW
    text, check = rng.choice(pool)
    text = f"({text})"
    if rng.random() < 0.15:
        text, check = f"NOT {text}", negated(check)
    if rng.random() < 0.25:
        other, second = rng.choice(MATCH if history and rng.random() < 0.5 else ROW)
        text, check = f"{text} AND ({other})", conjunction(check, second)
    return text, check


def random_pattern(rng: random.Random, depth: int, options: dict[str, bool]) -> tuple[str, tuple[Any, ...]]:
    """A pattern as text, whole in itself, and as a tuple."""
    kind = rng.random()
    if depth == 0 or kind < 0.25:
        if rng.random() < 0.06:
            return rng.choice([("()", ("empty",))] + [("^", ("first",)), ("$", ("last",))] * options["anchors"])
        name = rng.choice(NAMES)
        return name, ("var", name)
    if kind < 0.5:
        parts = [random_pattern(rng, depth - 1, options) for _ in range(rng.randint(2, 3))]
        return "(" + " ".join(text for text, _ in parts) + ")", ("cat", [part for _, part in parts])
    if kind < 0.65:
        parts = [random_pattern(rng, depth - 1, options) for _ in range(rng.randint(2, 3))]
        return "(" + " | ".join(text for text, _ in parts) + ")", ("alt", [part for _, part in parts])
    if kind < 0.72:
        parts = [random_pattern(rng, depth - 1, options) for _ in range(rng.randint(2, 3))]
        return "PERMUTE(" + ", ".join(text for text, _ in parts) + ")", ("perm", [part for _, part in parts])
    text, part = random_pattern(rng, depth - 1, options)
    if kind < 0.78 and options["exclude"]:
        return "{- " + text + " -}", ("exclude", part)
    low, high, written = rng.choice(
        [(0, None, "*"), (1, None, "+"), (0, 1, "?"), (2, 2, "{2}"), (1, None, "{1,}"), (0, 2, "{,2}"), (1, 3, "{1,3}")]
    )
    greedy = rng.random() < 0.6
    return f"({text}){written}{'' if greedy else '?'}", ("rep", part, low, high, greedy)


@dataclass
class Case:
    """A clause twice, and its partitions."""

    sql: str
    clause: Recognition
    partitions: list[list[dict[str, Any]]]
    watermark: int | None


def random_case(seed: int, *, history: bool, timed: bool) -> Case:
    rng = random.Random(seed)
    mode = rng.choice(["one", "one", "show", "omit", "unmatched"])
    absent = "Z" if timed and rng.random() < 0.4 else None
    timed_out = timed and absent is None and mode != "unmatched" and rng.random() < 0.7
    options = {"exclude": mode != "unmatched", "anchors": not timed_out}
    text, pattern = random_pattern(rng, rng.randint(1, 3), options)
    conditions = {name: random_condition(rng, history) for name in NAMES if rng.random() < 0.85 and used(pattern, name)}
    if absent:
        conditions[absent] = random_condition(rng, history)
    within = rng.randint(1, 8) * SECOND if timed else None
    skips = [("past last", None), ("next", None), ("first", "B"), ("last", "C"), ("last", "U")]
    skip = rng.choice(skips[:2] if rng.random() < 0.7 else skips)
    if skip[1] in NAMES and not used(pattern, str(skip[1])):
        skip = skips[0]
    measures = rng.sample(MEASURES, rng.randint(1, 5))
    subset = tuple(name for name in ("A", "C") if used(pattern, name)) or tuple(n for n in NAMES if used(pattern, n))
    if subset == ():
        text, pattern, subset = f"({text} A?)", ("cat", [pattern, ("rep", ("var", "A"), 0, 1, True)]), ("A",)
    for name in NAMES:  # every variable that an expression names must be in the pattern
        if not used(pattern, name):
            text, pattern = f"({text} | {name} {name.lower()})", ("alt", [pattern, twice(name)])
    clause = Recognition(
        pattern,
        {name: check for name, (_, check) in conditions.items()},
        {f"m{at}": check for at, (_, check) in enumerate(measures)},
        {"U": subset},
        mode,
        skip,
        within,
        absent,
        timed_out,
    )
    return Case(
        clause_sql(text, conditions, measures, clause),
        clause,
        [random_rows(rng) for _ in range(rng.randint(1, 3))],
        rng.randint(0, 30) * SECOND if timed and rng.random() < 0.9 else None,
    )


def twice(name: str) -> tuple[Any, ...]:
    return ("cat", [("var", name), ("var", name)])


def used(pattern: Any, name: str) -> bool:
    if pattern[0] == "var":
        return bool(pattern[1] == name)
    parts = pattern[1] if pattern[0] in ("cat", "alt", "perm") else pattern[1:2]
    return any(used(part, name) for part in parts if isinstance(part, tuple))


def clause_sql(text: str, conditions: Any, measures: Any, clause: Recognition) -> str:
    modes = {
        "one": "ONE ROW PER MATCH",
        "show": "ALL ROWS PER MATCH SHOW EMPTY MATCHES",
        "omit": "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
        "unmatched": "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
    }
    kind, name = clause.skip
    skip = {"past last": "PAST LAST ROW", "next": "TO NEXT ROW"}.get(kind, f"TO {kind.upper()} {name}")
    within = "" if clause.within is None else f"WITHIN INTERVAL {clause.within // SECOND} SECONDS"
    define = ", ".join(f"{name.lower()} AS {condition}" for name, (condition, _) in conditions.items())
    return f"""t MATCH_RECOGNIZE (PARTITION BY k ORDER BY t, seq
        MEASURES {", ".join(f"{measure} AS m{at}" for at, (measure, _) in enumerate(measures))}
        {modes[clause.mode]} {"WITH TIMED OUT MATCHES" if clause.timed_out else ""} AFTER MATCH SKIP {skip}
        PATTERN ({text} {f"[^{clause.absent}]" if clause.absent else ""}) {within}
        SUBSET U = ({", ".join(clause.subsets["U"])}) {f"DEFINE {define}" if define else ""})"""


def random_rows(rng: random.Random) -> list[dict[str, Any]]:
    time, rows = 0, []
    for seq in range(rng.randint(0, 8)):
        time += rng.choice([0, 1, 1, 2, 5]) * SECOND
        rows.append({"seq": seq, "t": time, "x": rng.randint(0, 4), "y": rng.choice([None, 0, 1, 2])})
    return rows


def row_table(program: PatternProgram, partitions: list[list[dict[str, Any]]]) -> tuple[pa.Table, np.ndarray]:
    """The row columns, by SQLite, and the bounds of the partitions."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (k INTEGER, seq INTEGER, t INTEGER, x INTEGER, y INTEGER)")
    values = [(k, *row.values()) for k, rows in enumerate(partitions) for row in rows]
    database.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", values)
    columns = {}
    boolean = {condition.column for condition in program.conditions}
    for column in program.row_columns:
        sql = f"SELECT {column.sql} FROM t WINDOW __w AS (PARTITION BY k ORDER BY t, seq) ORDER BY k, t, seq"
        found = [value for (value,) in database.execute(sql)]
        logical = column.name in boolean or any(sign in column.sql for sign in (" > ", " < ", "IS NULL", "=", "<>"))
        kind = pa.bool_() if logical else pa.string() if "'" in column.sql else pa.int64()
        array = pa.array([None if value is None else bool(value) for value in found] if logical else found, kind)
        columns[column.name] = array.cast(pa.timestamp("us")) if column.name == program.time_column else array
    database.close()
    table = pa.table(columns) if columns else pa.table({"none": pa.nulls(len(values))})
    return table, np.cumsum([0, *(len(rows) for rows in partitions)])


def compiled(sql: str) -> PatternProgram:
    return compile_pattern(find_clauses(sql)[0])


def run_program(
    program: PatternProgram, partitions: list[list[dict[str, Any]]], *, in_lockstep: bool | None = None, **options: Any
) -> tuple[MatchResult, pa.Table]:
    table, bounds = row_table(program, partitions)
    settings = {"watermark_us": None, "matches_before": {}, "first_of_partition": None, "budget": 200_000, "keys": None}
    result = match_rows(program, table, bounds, **(settings | options), in_lockstep=in_lockstep)
    return result, table


def measured(program: PatternProgram, result: MatchResult, table: pa.Table) -> list[dict[str, Any]]:
    """The output rows as dicts: the row and the first row within their partition, and the measures by SQLite."""
    slots = result.slot_table(table)
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE slots ({', '.join(slots.column_names)})")
    marks = ", ".join("?" for _ in slots.column_names)
    rows = [tuple(row.values()) for row in slots.to_pylist()]
    database.executemany(f"INSERT INTO slots VALUES ({marks})", rows)
    columns = ", ".join(f"{measure.sql} AS {measure.alias}" for measure in program.measures)
    found = list(database.execute(f"SELECT {columns} FROM slots ORDER BY _row"))
    database.close()
    aliases = [measure.alias for measure in program.measures]
    return [dict(zip(aliases, values, strict=True)) for values in found]
