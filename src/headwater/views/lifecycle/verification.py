"""Verifying: a view computed from the log alone, beside what is kept of it.

What it is: runs each view's query over its inputs as the log has them at the manifest's frontier, and compares the
answer with the view's state, as multisets.
Invariants: none of a view's state is used for the answer, and of its inputs' only where retention has taken rows from
the log, or compaction versions, or where SQL leaves the input's values open; doubles are compared to rounding,
everything else exactly.
A value that SQL leaves open (a sketch, ``first``, ``max_by`` with ties) may be another one when rows come in another
order. Where nothing else tells two rows apart they are counted as open, not as different; lists are compared as bags.
Not here: mending (``headwater view rebuild``).
Read next: ``views/serving/snapshot.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.log.schema.row_conversion import to_rows
from headwater.views.compiler.algebra.finality import CLOSES
from headwater.views.compiler.algebra.nondeterminism import Nondeterminism, open_columns
from headwater.views.compiler.plan import MatchStage, TimedStage, ViewPlan
from headwater.views.event_time.progress import EventTimeProgress
from headwater.views.serving.snapshot import RelationSnapshot
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.match_rows import match_frame
from headwater.views.state.algebra import SHOWN, consolidate, expand, negate, select, union, with_weight

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.views.tick.prepare import Prepared, PreparedView

SHOWN_MAX = 10
COMPARED_MAX = 100_000
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Difference:
    """What verifying one view found. Without differences both lists are empty."""

    view: str
    tick: int
    rows: int
    missing: list[dict[str, Any]] = field(default_factory=list)  # in the answer, not in the view
    surplus: list[dict[str, Any]] = field(default_factory=list)  # in the view, not in the answer
    missing_count: int = 0
    surplus_count: int = 0
    open_columns: list[str] = field(default_factory=list)  # whose values SQL leaves open
    open_count: int = 0  # rows that differ in those alone

    @property
    def equal(self) -> bool:
        """Whether the view is what its query gives."""
        return not self.missing_count and not self.surplus_count


def verify(prepared: Prepared, contents: RelationSnapshot, names: Sequence[str]) -> list[Difference]:
    """Compare these views with what the log gives."""
    answers: dict[str, DataFrame] = {}
    found = []
    for name, view in prepared.views.items():
        for given in view.plan.reads:
            if given not in answers:
                answers[given] = _input(given, contents)
        answers[name] = unmarked(computed(view, contents, answers))
        if name not in contents.manifest.views:
            continue
        left_open = open_columns(view.plan.batch) if view.declared.function is None else {}
        if name in names:
            found.append(_compared(name, answers[name], contents, left_open, _since(view, contents)))
        if view.plan.inner:
            answers[name] = answers[name].drop(CLOSES)
        if left_open:  # who reads it is held against the values that were chosen
            answers[name] = contents.frame(name)
    return found


def _since(view: PreparedView, contents: RelationSnapshot) -> int | None:
    """From which closing on a view's rows can be computed again; None: all of them."""
    lost = any(
        any(contents.inputs[topic].topic.start_offsets().values())
        for topic in view.plan.reads
        if topic in contents.inputs and topic not in contents.manifest.relations
    )
    # A version that came later than the horizon has changed nothing that was final.
    remembers = any(isinstance(stage, TimedStage) and stage.leaving for stage in view.plan.stages)
    times = EventTimeProgress.from_json(contents.manifest.times)
    return view.time(times, times).let_go_us if (lost or remembers) and view.plan.inner else None


def _input(name: str, contents: RelationSnapshot) -> DataFrame:
    """An input as the log has it; when rows were taken from there, as the views remember it."""
    base = contents.inputs[name]
    return contents.frame(name) if base.lost_rows else contents.from_log(name)


def computed(view: PreparedView, contents: RelationSnapshot, answers: dict[str, DataFrame]) -> DataFrame:
    """A view's query over answers for what it reads."""
    plan: ViewPlan = view.plan
    if view.declared.function is not None:
        result: DataFrame = view.declared.function(*(answers[name] for name in plan.reads))
        return result
    for name in plan.reads:
        _in_time(name, view, contents, answers[name]).createOrReplaceTempView(quoted(name))
    for stage in plan.stages:
        if isinstance(stage, MatchStage):
            matches = match_frame(stage, contents.spark.sql(stage.input)).where(SHOWN)
            matches.select(*(quoted(column.name) for column in stage.columns)).createOrReplaceTempView(
                quoted(stage.name)
            )
    answer = contents.spark.sql(plan.inner or plan.batch)
    if "session_window" in plan.sql.lower():
        # Spark 4.3 looks at conditions on a session before it has joined rows to sessions: it must not see them here.
        answer = answer.mapInArrow(lambda batches: batches, answer.schema)
    if plan.inner and view.declared.timing.emit == "final":
        reached = contents.manifest.times.get("views", {}).get(view.name)
        answer = answer.where(f"{CLOSES} <= timestamp_micros({reached})" if reached is not None else "false")
    return answer


def _in_time(name: str, view: PreparedView, contents: RelationSnapshot, rows: DataFrame) -> DataFrame:
    """The rows of an input without those that came too late for a view."""
    late = next(
        (
            stage
            for stage in view.plan.stages
            if isinstance(stage, TimedStage) and stage.late and stage.source.relation == name
        ),
        None,
    )
    if late is None or late.name not in contents.manifest.relations:
        return rows
    left_out = select(contents.weighted(late.name), rows.columns)
    return expand(consolidate(union(with_weight(rows, 1), negate(left_out))))


def unmarked(answer: DataFrame) -> DataFrame:
    """A session's column has a mark by which Spark would merge it again; what is stored has none."""
    from pyspark.sql import functions as f

    return answer.select(*(f.col(quoted(name)).alias(name, metadata={}) for name in answer.columns))


def _compared(
    name: str, answer: DataFrame, contents: RelationSnapshot, left_open: dict[str, Nondeterminism], since_us: int | None
) -> Difference:
    state = contents.frame(name)
    if since_us is not None:  # older rows are final, and what they were computed from is there no more
        newer = f"{CLOSES} IS NULL OR {CLOSES} > timestamp_micros({since_us})"
        state = contents.frame(name, [*state.columns, CLOSES]).where(newer).drop(CLOSES)
        answer = answer.where(newer)
    answer = answer.select(*map(quoted, state.columns)).to(state.schema)
    kept = sum(run["rows"] for run in contents.manifest.relations[name]["runs"])
    if kept <= COMPARED_MAX:
        rows = contents.rows(name) if since_us is None else state.toArrow()
        gone, extra = without_rounding(answer.toArrow(), rows)
        count = rows.num_rows
    else:
        # Spark leaves out what is equal; what is left is looked at here.
        missing = answer.exceptAll(state).limit(COMPARED_MAX).toArrow()
        surplus = state.exceptAll(answer).limit(COMPARED_MAX).toArrow()
        gone, extra = without_rounding(missing, surplus)
        count = state.count()
    gone, extra, chosen = without_open(gone, extra, left_open) if left_open else (gone, extra, 0)
    return Difference(
        name,
        contents.manifest.tick,
        count,
        gone[:SHOWN_MAX],
        extra[:SHOWN_MAX],
        len(gone),
        len(extra),
        sorted(left_open),
        chosen,
    )


def without_rounding(one: pa.Table, other: pa.Table) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of each that have no counterpart in the other that is equal to rounding.

    >>> without_rounding(pa.table({"a": [1], "b": [0.1 + 0.2]}), pa.table({"a": [1], "b": [0.3]}))
    ([], [])
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in _listed(other):
        groups.setdefault(_exact(row), []).append(row)
    missing = []
    for row in _listed(one):
        candidates = groups.get(_exact(row), [])
        match = next((place for place, found in enumerate(candidates) if _near(row, found)), None)
        if match is None:
            missing.append(row)
        else:
            del candidates[match]
    return missing, [row for rows in groups.values() for row in rows]


def _listed(table: pa.Table) -> list[dict[str, Any]]:
    return [row for batch in table.to_batches() for row in to_rows(batch)]


def without_open(
    missing: list[dict[str, Any]], surplus: list[dict[str, Any]], left_open: dict[str, Nondeterminism]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """The rows of each that differ in more than what is open, and how many pairs differ in a value that is open.

    >>> without_open([{"k": 1, "s": b"a"}], [{"k": 1, "s": b"b"}, {"k": 2, "s": b"c"}], {"s": Nondeterminism.VALUE})
    ([], [{'k': 2, 's': b'c'}], 1)
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in surplus:
        groups.setdefault(_exact(_determined(row, left_open)), []).append(row)
    gone, chosen = [], 0
    for row in missing:
        candidates = groups.get(_exact(_determined(row, left_open)), [])
        match = next((place for place, found in enumerate(candidates) if _alike(row, found, left_open)), None)
        if match is None:
            gone.append(row)
            continue
        found = candidates.pop(match)
        chosen += any(
            kind is Nondeterminism.VALUE and not _near(row[name], found[name]) for name, kind in left_open.items()
        )
    return gone, [row for rows in groups.values() for row in rows], chosen


def _determined(row: dict[str, Any], left_open: dict[str, Nondeterminism]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in left_open}


def _alike(one: dict[str, Any], other: dict[str, Any], left_open: dict[str, Nondeterminism]) -> bool:
    for name, value in one.items():
        kind, another = left_open.get(name), other[name]
        if kind is None and not _near(value, another):
            return False
        if kind is not None and (value is None) != (another is None):
            return False
        if (
            kind is Nondeterminism.BAG
            and value is not None
            and not _near(sorted(value, key=repr), sorted(another, key=repr))
        ):
            return False
    return True


def _exact(value: object) -> str:
    """Everything of a row but its doubles."""
    if isinstance(value, float):
        return "~"
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{name}:{_exact(part)}" for name, part in value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_exact, value)) + "]"
    return repr(value)


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-12)
    if isinstance(one, dict):
        return all(_near(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_near, one, other))
    return bool(one == other)
