"""Timing: what a view does about rows that come late, and when it shows its own.

What it is: ``Timing``, as declared by ``app.view(…, late=…, horizon=…, emit=…, closes=…)``, and ``timed_plan``, the
plan of a view that declares any of it: its inputs judged by time before its stages, and a closing stage behind them.
Invariants: a view that declares nothing of it has the plan that it always had.
Not here: watermarks (``log/event_time/watermarks.py``), running (``timed_operators.py``).
Read next: ``views/compiler/algebra/finality.py``, ``timed_operators.py``; ``docs/time.md``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headwater.durations import Duration, to_us
from headwater.errors import InvalidDeclaration, InvalidView
from headwater.views.compiler.algebra.finality import CLOSES, Finality, with_closes
from headwater.views.compiler.frontend.as_of import VERSIONS, versions_of
from headwater.views.compiler.frontend.bloom_filters import write_out_blooms
from headwater.views.compiler.frontend.match_text import split_matches
from headwater.views.compiler.frontend.metadata_columns import write_out_metadata
from headwater.views.compiler.frontend.parse import Parsed
from headwater.views.compiler.match_bounds import NOT_BY_TIME, kept_because
from headwater.views.compiler.match_compiler import check_is_final, compile_with_matches
from headwater.views.compiler.plan import (
    AccumulateStage,
    FinalStage,
    FlowStage,
    KeyedStage,
    LeadingStage,
    Leaf,
    LeafContent,
    MatchStage,
    Relation,
    Stage,
    StageKind,
    Superseded,
    TimedStage,
    ViewPlan,
    WholeStage,
    topic_of,
)

OPEN, IN_TIME, LATE, REMEMBERED = "$open", "$in-time.", "$late.", "$remembered."


@dataclass(frozen=True)
class Timing:
    """What a view declares about time.

    >>> Timing.declared("v", late="drop").horizon_us, Timing.declared("v").plain
    (0, True)
    """

    horizon_us: int | None = None  # rows older than the watermark less this are late; None: none is
    emit: str = "now"
    closes: str | None = None
    late_alert: float = 0.01  # of a topic's rows; an alert is raised when more of them are late

    @property
    def plain(self) -> bool:
        """Whether nothing was declared."""
        return self.horizon_us is None and self.emit == "now"

    @staticmethod
    def declared(
        view: str,
        *,
        late: str | None = None,
        horizon: Duration | None = None,
        emit: str = "now",
        closes: str | None = None,
        late_alert: float = 0.01,
    ) -> Timing:
        """As a user says it, checked."""
        if late not in (None, "correct", "drop"):
            raise InvalidDeclaration(
                f'view "{view}": late cannot be {late!r}',
                hint='Use "correct" (a late row corrects what was shown) or "drop" (it is counted and set aside).',
            )
        if emit not in ("now", "final"):
            raise InvalidDeclaration(
                f'view "{view}": emit cannot be {emit!r}',
                hint='Use "now" (rows are shown, and corrected) or "final" (only when they cannot change any more).',
            )
        if not 0 < late_alert <= 1:
            raise InvalidDeclaration(f'view "{view}": late_alert cannot be {late_alert!r}', hint="A part: 0.01 is 1 %.")
        horizon_us = None if horizon is None else to_us(horizon, what="horizon")
        if late == "drop" and horizon_us:
            raise InvalidDeclaration(
                f'view "{view}": late="drop" and horizon={horizon!r} contradict each other',
                hint='With a horizon, what is later is dropped, and the rest corrects: leave late="drop" out. '
                "For rows that are merely out of order, declare the topic's lateness.",
            )
        if late == "drop" or (late is None and emit == "final" and horizon_us is None):
            horizon_us = 0
        if closes is not None and emit == "now" and horizon_us is None:
            raise InvalidDeclaration(
                f'view "{view}": closes has no effect: neither emit="final" nor a horizon is declared',
                hint='Declare emit="final" or a horizon too, or leave closes out.',
            )
        return Timing(horizon_us, emit, closes, late_alert)


def timed_plan(
    name: str, sql: str, relations: Mapping[str, Relation], timing: Timing, times: Mapping[str, str], **options: Any
) -> ViewPlan:
    """The plan of a view. ``times``: the event time's column of each topic that has one."""
    blooms = write_out_blooms(sql)
    if not blooms.replaced:
        return _with_metadata(name, sql, relations, timing, times, **options)
    try:
        plan = _with_metadata(name, blooms.sql, relations, timing, times, **options)
    except InvalidView as error:
        blooms.refuse_as_given(error)
    return replace(plan, sql=sql, written_out=plan.written_out or blooms.sql)


def _with_metadata(
    name: str, sql: str, relations: Mapping[str, Relation], timing: Timing, times: Mapping[str, str], **options: Any
) -> ViewPlan:
    written = write_out_metadata(sql, relations)
    if not written.replaced:
        return _timed_plan(name, sql, relations, timing, times, **options)
    known = {relation: times[topic_of(relation)] for relation in written.relations if topic_of(relation) in times}
    try:
        plan = _timed_plan(name, written.sql, written.relations, timing, {**times, **known}, **options)
    except InvalidView as error:
        written.refuse_as_given(error)
    return replace(plan, sql=sql, written_out=written.sql)


def _timed_plan(
    name: str, sql: str, relations: Mapping[str, Relation], timing: Timing, times: Mapping[str, str], **options: Any
) -> ViewPlan:
    plain = compile_with_matches(
        name, sql, relations, **options
    )  # also for its errors, which speak of the user's own text
    if timing.emit != "final":
        check_is_final(plain)
    if timing.plain:
        return plain
    lower = {topic.lower(): column for topic, column in times.items()}
    judged = [topic for topic in plain.reads if topic in times]
    if not judged:
        raise InvalidDeclaration(
            "it declares what to do about time, and reads no topic that has an event time",
            hint='Declare the topic with event_time="…". A view over views takes their rows as they are.',
            view=name,
        )
    found: list[Finality] = []
    inner = compile_with_matches(
        name + OPEN,
        sql,
        relations,
        rewrite=lambda parsed: _rewritten(parsed, timing, lower, found),
        like=plain,
        **options,
    )
    closing = _with_match_bounds(found[0], name, sql, inner, times)
    if timing.emit == "final" and not closing.closes:
        raise InvalidDeclaration(f'emit="final" cannot be: {closing.why}', hint=_HINT, view=name)
    judging = [
        _judging(name, topic, relations[topic], times[topic], late) for topic in judged for late in (True, False)
    ]
    bounded = timing.horizon_us is not None and closing.reach_us is not None
    if bounded and closing.versions:
        judging += [_remembering(name, relation, relations) for relation in _versions(plain)]
    renamed = {stage.source.relation: stage.name for stage in judging if not stage.late}
    notes = plain.notes
    if timing.horizon_us is not None and not bounded:
        notes = (*notes, f"its state is kept for ever: {closing.why}")
    closed = bounded or timing.emit == "final"
    stages = [_reading(stage, renamed) for stage in (inner if closed else plain).stages]
    if bounded and closing.matches:  # the stage of the matches knows which rows leave, and no other keeps any
        stages = [replace(stage, lets_go=True) if isinstance(stage, MatchStage) else stage for stage in stages]
    if closed:
        stages.append(_closing(name, inner, plain, timing))
    looked_at = {leaf.relation for stage in stages for leaf in stage.leaves if leaf.content is not LeafContent.CHANGES}
    holding = [stage for stage in stages if not isinstance(stage, FlowStage) or stage.name in looked_at]
    # Groups that tell when they close are let go themselves. Everything else follows the rows that it was made of:
    # these are kept then, and let go.
    alone = [type(stage) for stage in holding] == [AccumulateStage, FinalStage]
    lets_go_groups = bounded and alone and not any(stage.name in looked_at for stage in judging)
    if bounded and not lets_go_groups and holding and not closing.matches:
        judging = [stage if stage.late else _with_expiry(stage, closing) for stage in judging]
    return replace(
        plain,
        stages=(*judging, *stages),
        notes=notes,
        reach_us=closing.reach_us if bounded else None,
        lets_go_groups=lets_go_groups,
        inner=inner.query if closed else "",
        fingerprint=_fingerprint(plain, timing),
    )


def _with_match_bounds(closing: Finality, name: str, sql: str, inner: ViewPlan, times: Mapping[str, str]) -> Finality:
    """What a query of matches tells about time: whether the rows of its pattern leave, and how often to look."""
    text = split_matches(name, sql) if closing.matches else None
    if text is None:
        return closing
    why = kept_because(text, times)
    bucket_us = max(stage.bucket_us for stage in inner.stages if isinstance(stage, MatchStage))
    if why or not bucket_us:
        return replace(closing, why=why or NOT_BY_TIME)
    return replace(closing, reach_us=bucket_us, why="")


_HINT = "Group by window(at, '1 minute'), or say it: closes=\"searched_at + INTERVAL 1 HOUR\"."


def _rewritten(parsed: Parsed, timing: Timing, times: Mapping[str, str], found: list[Finality]) -> None:
    found.append(with_closes(parsed, timing.closes, times))


def _judging(view: str, topic: str, relation: Relation, time: str, late: bool) -> TimedStage:
    leaf = Leaf("_l0", topic, LeafContent.CHANGES, tuple(column.name for column in relation.columns))
    what = f"{topic} that {'come too late' if late else 'come in time'}, by {time}"
    name = view + (LATE if late else IN_TIME) + topic
    return TimedStage(name, StageKind.LINEAR, relation.columns, (), what, leaf, time, late)


def _versions(plan: ViewPlan) -> list[str]:
    """The tables that a plan reads as they were."""
    return sorted({name for stage in plan.stages for name in stage.reads if name.endswith(VERSIONS)})


def _remembering(view: str, versions: str, relations: Mapping[str, Relation]) -> TimedStage:
    table = relations[versions.removesuffix(VERSIONS)]
    relation = versions_of(table)
    leaf = Leaf("_l0", versions, LeafContent.CHANGES, tuple(column.name for column in relation.columns))
    return TimedStage(
        view + REMEMBERED + versions,
        StageKind.LINEAR,
        relation.columns,
        (),
        f"versions of {table.name} that a later row may still look up",
        leaf,
        table.event_time or "",
        leaving=Superseded(table.key),
    )


def _with_expiry(stage: TimedStage, closing: Finality) -> TimedStage:
    sessions = closing.sessions
    if sessions is None or stage.leaving is not None:
        return replace(stage, lets_go=True)
    keys = tuple(name for name in stage.source.columns if name.lower() in sessions.keys)
    return replace(stage, lets_go=True, leaving=replace(sessions, keys=keys))


def _closing(view: str, inner: ViewPlan, plain: ViewPlan, timing: Timing) -> FinalStage:
    final = timing.emit == "final"
    columns = tuple(column.name for column in inner.columns)
    leaf = Leaf("_l0", inner.name, LeafContent.BEFORE if final else LeafContent.CHANGES, columns)
    hidden = tuple(column for column in inner.columns if column.name == CLOSES)
    what = "rows that are final" if final else "rows as they are, and as they were when they closed"
    return FinalStage(view, StageKind.LINEAR, plain.columns, hidden, what, leaf, final)


def _reading(stage: Stage, renamed: Mapping[str, str]) -> Stage:
    """The stage, reading the judged rows instead of the topics."""

    def leaf(one: Leaf) -> Leaf:
        return replace(one, relation=renamed.get(one.relation, one.relation))

    if isinstance(stage, FlowStage | AccumulateStage):
        terms = tuple(replace(term, leaves=tuple(map(leaf, term.leaves))) for term in stage.terms)
        return replace(stage, terms=terms)
    if isinstance(stage, KeyedStage):
        return replace(stage, inputs=tuple(replace(given, leaf=leaf(given.leaf)) for given in stage.inputs))
    if isinstance(stage, LeadingStage):
        term = replace(stage.term, leaves=tuple(map(leaf, stage.term.leaves)))
        return replace(stage, term=term, everything=leaf(stage.everything))
    if isinstance(stage, MatchStage):  # it reads a stage of the view, never a topic
        return stage
    assert isinstance(stage, WholeStage)
    return replace(stage, inputs=tuple(map(leaf, stage.inputs)))


def _fingerprint(plain: ViewPlan, timing: Timing) -> str:
    said = repr((timing.horizon_us, timing.emit, timing.closes))
    return hashlib.sha256(f"{plain.fingerprint} {said}".encode()).hexdigest()[:32]
