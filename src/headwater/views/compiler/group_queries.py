"""Group queries: the two queries of an accumulating stage, as SQL text.

What it is: ``GroupQueries``: ``partial``, what a tick's rows change in each touched group, and ``combine``, the new
state row of each; both also in their cheaper in-range form (``plan.py``).
Invariants: ``partial`` has one row for a touched group and ``combine`` one for each row of ``partial``. What an
accumulator keeps is one hidden column; a sketch that is shown as it is, is kept in the shown column alone.
Not here: what is kept of an aggregate (``algebra/accumulators.py``, ``sketches.py``); the terms (``render.py``).
Read next: ``render.py``, ``plan.py``'s ``AccumulateStage``.

Some sketches are united by an aggregate only. Then a group's row of ``_partial`` joined with its row of ``_before`` is
given twice, once for either side, and the two are aggregated again: everything else is equal in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from sqlglot import exp

from headwater.views.compiler.algebra.accumulators import Accumulator
from headwater.views.compiler.algebra.exact_sums import HEAVY_ROWS, spelled_sql
from headwater.views.compiler.algebra.plan_nodes import AccumulateNode
from headwater.views.compiler.plan import PlanColumn
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import Node, bare, column, conjunction, named, table

OUT_OF_RANGE = "_out_of_range"
REPEATED, REPEATED_ROWS = "_repeated", "COALESCE(SUM(CASE WHEN _weight > 1 THEN 1 ELSE 0 END), 0)"
# A row that is there n times as n rows. ``explode`` makes its whole array first: two steps keep both arrays short.
CHUNK = 10_000
CHUNKS = f"explode(sequence(0L, greatest(_weight - 1, 0L) DIV {CHUNK})) AS _chunk"
COPIES = f"explode(sequence(1L, least(greatest(_weight, 1L) - _chunk * {CHUNK}, {CHUNK}L))) AS _copy"
ONE_WEIGHT = "CASE WHEN _weight > 0 THEN 1L ELSE _weight END"
PLAIN_NAME = re.compile(r"[A-Za-z]\w*")


class GroupQueries:
    """The queries of one draft.

    >>> from headwater.views.compiler.sql.expressions import bare
    >>> draft = AccumulateNode("$", "one row", (PlanColumn("n"),), outputs={"n": bare("_n")}, one_row=True)
    >>> partial, combine = GroupQueries(draft).written(in_range=False)
    >>> partial
    'SELECT COALESCE(SUM(`_weight`), 0) AS `_n` FROM _flow'
    """

    def __init__(self, draft: AccumulateNode) -> None:
        self.draft = draft
        self.groups = [group.name for group in draft.groups]
        self._shared = _shared(draft)

    @property
    def hidden(self) -> tuple[PlanColumn, ...]:
        """The columns of what is kept."""
        kinds = (kind for each in self.draft.accumulators for kind in each.types)
        kept = [PlanColumn(f"_a{number}", kind) for number, kind in enumerate(kinds)]
        return tuple(found for found in kept if found.name not in self._shared)

    def written(self, *, in_range: bool) -> tuple[str, str]:
        """``partial`` and ``combine``, or their in-range forms."""
        partials: list[Node] = []
        merges: list[Node] = []
        gathered: dict[str, Node] = {}
        out_of_range: list[Node] = []
        finals: list[tuple[Node, Node]] = []
        kept: list[str] = []
        arguments = 0
        heavy = False
        for whole in self.draft.accumulators:
            each = whole.in_range if in_range and whole.in_range is not None else whole
            xs = tuple(f"_x{arguments + number}" for number in range(len(each.arguments)))
            own = tuple(f"_a{len(kept) + number}" for number in range(len(each.types)))
            arguments += len(xs)
            partials += [named(part, a) for part, a in zip(each.partial(xs), own, strict=True)]
            before, after = tuple(f"b.{self._shared.get(a, a)}" for a in own), tuple(f"p.{a}" for a in own)
            if each.gathers:
                merges += [named(spelled_sql(b), f"_b{a}") for b, a in zip(before, own, strict=True)]
                merges += [named(spelled_sql(p), f"_p{a}") for p, a in zip(after, own, strict=True)]
                gathered |= dict(zip(own, _gathered(each, own), strict=True))
            else:
                merges += [named(part, a) for part, a in zip(each.merge(before, after), own, strict=True)]
            kept += own
            if each is not whole:
                finals.append((whole.final(own, "_n"), each.final(own, "_n")))
                out_of_range += [whole.is_out_of_range(before, after)] if whole.out_of_range else []
                heavy = True

        def lightened(node: Node) -> Node:
            for full, light in finals:
                node = node.transform(lambda part, full=full, light=light: light.copy() if part == full else part)
            return node

        if heavy and not out_of_range:  # what counts out-of-range values counts heavy rows too
            partials.append(named(spelled_sql(HEAVY_ROWS), "_heavy"))
            out_of_range.append(exp.GT(this=column("p", "_heavy"), expression=exp.Literal.number(0)))
        repeats = any(each.repeats for each in self.draft.accumulators)
        if repeats and in_range:
            partials.append(named(spelled_sql(REPEATED_ROWS), REPEATED))
            out_of_range.append(exp.GT(this=column("p", REPEATED), expression=exp.Literal.number(0)))
        if out_of_range:
            merges.append(named(exp.or_(*out_of_range), OUT_OF_RANGE))
            kept.append(OUT_OF_RANGE)
        merged = self._joined(merges, sides=bool(gathered))
        if gathered:
            merged = self._aggregated(merged, [name for name in kept if name not in gathered], gathered)
        partial = self._partial(partials, arguments if repeats and not in_range else None)
        return partial, self._combined(merged, [name for name in kept if name not in self._shared], lightened)

    def _partial(self, partials: list[Node], repeated: int | None) -> str:
        """The query of the touched groups; with ``repeated`` arguments, over each row as often as it is there."""
        select = exp.Select(expressions=[bare(group) for group in self.groups])
        count = exp.Coalesce(this=exp.Sum(this=bare("_weight")), expressions=[exp.Literal.number(0)])
        select.append("expressions", named(count, "_n"))
        for part in partials:
            select.append("expressions", part)
        source: Node = exp.Table(this=exp.to_identifier("_flow"))
        if repeated is not None:
            source = _repeated([*self.groups, *(f"_x{number}" for number in range(repeated))])
        select.set("from_", exp.From(this=source))
        if self.groups:
            select.set("group", exp.Group(expressions=[bare(group) for group in self.groups]))
        return text(select)

    def _joined(self, merges: list[Node], *, sides: bool) -> exp.Select:
        """What is kept after the tick, of ``_partial`` and ``_before``; with ``sides`` a row for each of the two."""
        before = exp.Coalesce(this=column("b", "_n"), expressions=[exp.Literal.number(0)])
        merged = exp.Select(expressions=[named(column("p", group), group) for group in self.groups])
        merged.append("expressions", named(exp.Add(this=before, expression=column("p", "_n")), "_n"))
        for part in merges:
            merged.append("expressions", part)
        if sides:
            old = exp.Not(this=exp.Is(this=column("b", "_n"), expression=exp.Null()))
            merged.append("expressions", named(old, "_old"))
            merged.append("expressions", named(spelled_sql("explode(ARRAY(TRUE, FALSE))"), "_side"))
        merged.set("from_", exp.From(this=table("_partial", "p")))
        same: list[Node] = [
            exp.NullSafeEQ(this=column("p", group), expression=column("b", group)) for group in self.groups
        ]
        if not same:  # an equality all the same, of 1 and 1: Spark joins in place on equalities only
            ones = [
                exp.Sign(this=exp.Add(this=exp.Abs(this=column(side, "_n")), expression=exp.Literal.number(1)))
                for side in ("p", "b")
            ]
            same = [exp.EQ(this=ones[0], expression=ones[1])]
        merged.append("joins", exp.Join(this=table("_before", "b"), side="LEFT", on=conjunction(same)))
        return merged

    def _aggregated(self, merged: exp.Select, plain: list[str], gathered: dict[str, Node]) -> exp.Select:
        """The sketches of both sides united; the rest is the same on both."""
        select = exp.Select(expressions=[bare(group) for group in self.groups])
        for name in ("_n", *plain):
            select.append("expressions", named(spelled_sql(f"any_value({name})"), name))
        for name, union in gathered.items():
            select.append("expressions", named(union, name))
        select.set("from_", exp.From(this=_inner(merged, "_sides")))
        if self.groups:
            select.set("group", exp.Group(expressions=[bare(group) for group in self.groups]))
        return select

    def _combined(self, merged: exp.Select, kept: list[str], lightened: Callable[[Node], Node]) -> str:
        draft = self.draft
        # A group that has no rows left is told too, so that its old row can be taken away; it has no values any more.
        alive = exp.GT(this=bare("_n"), expression=exp.Literal.number(0))
        select = exp.Select(
            expressions=[
                named(_guarded(lightened(output), alive, draft.one_row), name) for name, output in draft.outputs.items()
            ]
        )
        for name in (*self.groups, "_n", *kept):
            select.append("expressions", bare(name))
        shown = conjunction(draft.shown)
        if shown is not None:
            shown = _guarded(lightened(shown), alive, draft.one_row)
        shown = exp.Coalesce(this=shown, expressions=[exp.false()]) if shown is not None else exp.true()
        select.append("expressions", named(shown, "_shown"))
        select.set("from_", exp.From(this=_inner(merged, "_merged")))
        return text(select)


def _inner(select: exp.Select, alias: str) -> exp.Subquery:
    return exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(alias)))


def _gathered(each: Accumulator, own: Iterable[str]) -> list[Node]:
    """The aggregates that unite both sides."""
    both = tuple(f"CASE WHEN _side THEN _b{a} ELSE _p{a} END" for a in own)
    return [
        exp.Filter(this=part, expression=exp.Where(this=spelled_sql("_old OR NOT _side")))
        for part in each.gathered(both)
    ]


def _repeated(names: list[str]) -> exp.Subquery:
    chunks = exp.Select(expressions=[*map(bare, names), bare("_weight"), spelled_sql(CHUNKS)])
    chunks.set("from_", exp.From(this=exp.Table(this=exp.to_identifier("_flow"))))
    copies = exp.Select(expressions=[*map(bare, names), named(spelled_sql(ONE_WEIGHT), "_weight"), spelled_sql(COPIES)])
    copies.set("from_", exp.From(this=_inner(chunks, "_chunks")))
    return _inner(copies, "_copies")


def _shared(draft: AccumulateNode) -> dict[str, str]:
    """The kept sketches that are shown as they are, each with the column that shows it."""
    sketches: set[str] = set()
    count = 0
    for each in draft.accumulators:
        if each.is_sketch:
            sketches.add(f"_a{count}")
        count += len(each.types)
    found: dict[str, str] = {}
    for name, output in draft.outputs.items():
        if isinstance(output, exp.Column) and output.name in sketches and PLAIN_NAME.fullmatch(name):
            found.setdefault(output.name, f"`{name}`")
    return found


def _guarded(output: Node, alive: Node, one_row: bool) -> Node:
    """The value of a group that has rows; one of a single-row stage always has a value."""
    return output if one_row else exp.Case(ifs=[exp.If(this=alive.copy(), true=output)])
