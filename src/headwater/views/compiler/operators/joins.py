"""Joining: the joins of a FROM clause, one after the other.

What it is: inner and cross joins add a source to the block; semi and anti joins become EXISTS conditions; outer joins
become stages keyed by their equality columns, for which rows find a partner depends on rows of the same key only.
Invariants: an outer join takes as little of the left side as its condition mentions: ``a JOIN b LEFT JOIN c ON c.x =
a.x`` is ``(a LEFT JOIN c) JOIN b``.
Not here: EXISTS (``subqueries.py``); outer joins without an equality (``unequal_joins.py``).
Read next: ``subqueries.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headwater.views.compiler.algebra.flow import Product, Source
from headwater.views.compiler.algebra.plan_nodes import CompileContext, Unsupported
from headwater.views.compiler.algebra.select_block import SelectBlock, output_names
from headwater.views.compiler.algebra.uniqueness import equal_means_same
from headwater.views.compiler.operators.keyed_stages import KeyedSource, keyed, keyed_input
from headwater.views.compiler.operators.unequal_joins import unequal_outer_join
from headwater.views.compiler.sql.expressions import (
    Node,
    column,
    columns,
    conjunction,
    conjuncts,
    has_subquery,
    is_row_wise,
    named,
    sources,
    substitute,
)

CompileSource = Callable[[CompileContext, Node], Source]


def join(block: SelectBlock, clause: exp.Join, compile_source: CompileSource) -> None:
    """Add one joined source to a block."""
    source, side, kind = clause.this, clause.side.upper(), clause.kind.upper()
    on = conjuncts(clause.args.get("on"))
    if clause.args.get("using"):
        raise Unsupported("USING")
    if isinstance(source, exp.Lateral):
        _lateral(block, source, side, on)
    elif kind in ("SEMI", "ANTI"):
        _check_no_later_outer_join(block)
        select = exp.Select(expressions=[named(exp.Literal.number(1), "one")])
        select.set("from_", exp.From(this=source))
        condition = conjunction(on)
        if condition is not None:
            select.set("where", exp.Where(this=condition))
        exists = exp.Exists(this=select)
        block.where.append(exists if kind == "SEMI" else exp.Not(this=exists))
    elif side in ("LEFT", "RIGHT", "FULL"):
        outer_join(block, source.alias_or_name, compile_source(block.workshop, source), on, side)
    elif kind in ("", "INNER", "CROSS"):
        block.conditions += on  # before the source: what is taken apart is rewritten in its condition too
        block.add(source.alias_or_name, compile_source(block.workshop, source))
    else:
        raise Unsupported(f"{side} {kind} JOIN")


def _lateral(block: SelectBlock, lateral: exp.Lateral, side: str, on: list[Node]) -> None:
    if isinstance(lateral.this, exp.Subquery):
        raise Unsupported("LATERAL (SELECT …)")
    if side not in ("", "LEFT") or (side and on):
        raise Unsupported(f"{side} JOIN LATERAL with a condition")
    lateral.set("view", True)
    lateral.set("outer", bool(side))
    lateral.set("ordinality", None)
    block.laterals.append(lateral)
    block.conditions += on


def _check_no_later_outer_join(block: SelectBlock) -> None:
    """A condition may not be put off until after a join that fills this side with nulls."""
    if block.will_be_filled:
        raise Unsupported("a RIGHT or FULL JOIN after it")


def outer_join(block: SelectBlock, alias: str, source: Source, on: list[Node], side: str) -> None:
    """Replace the left source and the joined one by a stage that holds their outer join."""
    if any(map(has_subquery, on)):
        raise Unsupported("a subquery in the condition of an outer join")
    mentioned = {name for part in on for name in sources(part) if block.owns(name)}
    alone = len(block.items) == 1 and not block.laterals and not block.conditions
    if side == "LEFT" and len(mentioned) == 1 and mentioned <= set(block.items):
        (left,) = mentioned
    elif alone:
        (left,) = block.items
    else:
        left, on = block.merge(*on)
    # Conditions on the side of which every row stays hold before the join as well as behind it.
    passing = {
        left: block.taken(left, where=not block.will_be_filled) if side == "LEFT" else [],
        alias: block.taken(alias, where=not block.will_be_filled) if side == "RIGHT" else [],
    }
    where = [part for part in block.where if not block.will_be_filled and _concerns(part, {left, alias})]
    block.where = [part for part in block.where if not any(part is other for other in where)]

    pairs = block.used(left, alias)
    for part in (*on, *where, *passing[left], *passing[alias]):
        pairs += [(found.table, found.name) for found in columns(part) if found.table in (left, alias)]
    pairs = list(dict.fromkeys(pairs))
    visible = output_names(block.used(left, alias) or pairs[:1])
    join_keys = equalities(on, left, alias)
    sides = [
        side_of(block.workshop, name, given, [pair[1] for pair in pairs if pair[0] == name], keys, passing[name])
        for name, given, keys in (
            (left, block.items[left], [pair.left for pair in join_keys]),
            (alias, source, [pair.right for pair in join_keys]),
        )
    ]
    kept = comparable_keys(block.workshop, sides, len(join_keys))
    shown = {name: block.workshop.shown_source(given) for name, given in ((left, block.items[left]), (alias, source))}
    if not kept:
        block.where += where
        visible = output_names(block.used(left, alias) or pairs[:1])
        flows = {each.alias: each.flow for each in sides}
        block.replace_source((left,), unequal_outer_join(block.workshop, flows, on, side, visible, shown), visible)
        return
    inputs = [each.to_input(block.workshop, kept) for each in sides]
    select = exp.Select(expressions=[named(column(*pair), name) for pair, name in visible.items()])
    select.set("from_", exp.From(this=inputs[0].source))
    select.append("joins", exp.Join(this=inputs[1].source, side=side, on=conjunction(on) or exp.true()))
    condition = conjunction(where)
    if condition is not None:
        select.set("where", exp.Where(this=condition))
    keys = [_result_key(side, column(left, f"k__{place}"), column(alias, f"k__{place}")) for place in kept]
    what = f"{shown[left]} {side.lower()} join {shown[alias]}"
    flow = keyed(block.workshop, select, keys, inputs, what=what, key=None)
    block.replace_source((left,), flow, visible)


def _concerns(condition: Node, aliases: set[str]) -> bool:
    return bool(sources(condition)) and sources(condition) <= aliases and not has_subquery(condition)


def _result_key(side: str, left: Node, right: Node) -> Node:
    if side == "LEFT":
        return left
    return right if side == "RIGHT" else exp.Coalesce(this=left, expressions=[right])


@dataclass(frozen=True)
class JoinEquality:
    """Two expressions that a join makes equal, one over each side."""

    left: Node
    right: Node


def equalities(on: list[Node], left: str, right: str) -> list[JoinEquality]:
    """Those of a join's conditions that make an expression of one side equal to one of the other."""
    found = []
    for part in on:
        if not isinstance(part, exp.EQ | exp.NullSafeEQ):
            continue
        one, other = part.this, part.expression
        if sources(one) == {right} and sources(other) == {left}:
            one, other = other, one
        if sources(one) == {left} and sources(other) == {right} and is_row_wise(one) and is_row_wise(other):
            found.append(JoinEquality(one, other))
    return found


@dataclass(frozen=True)
class JoinSide:
    """One side of a join in a keyed stage: its source, and its keys as columns ``k__0…``."""

    alias: str
    flow: Product

    def to_input(self, workshop: CompileContext, kept: list[int]) -> KeyedSource:
        return keyed_input(workshop, self.flow, self.alias, tuple(f"k__{place}" for place in kept))


def side_of(
    workshop: CompileContext,
    alias: str,
    source: Source,
    names: list[str],
    keys: list[Node],
    passing: Sequence[Node] = (),
) -> JoinSide:
    """Those rows of a source that pass some conditions, with the columns that are wanted of it, and its keys."""
    inner = workshop.fresh("t")
    given = source.outputs if isinstance(source, Product) else {}

    def change(found: exp.Column) -> Node | None:
        if found.table != alias:
            return None
        return given[found.name] if isinstance(source, Product) else column(inner, found.name)

    outputs = {name: substitute(column(alias, name), change) for name in names}
    outputs |= {f"k__{place}": substitute(key, change) for place, key in enumerate(keys)}
    if not outputs:  # of SELECT 1 AS x nothing is mentioned but its row
        outputs["one__"] = exp.Literal.number(1)
    own = tuple(substitute(part, change) for part in passing)
    if isinstance(source, Product):
        return JoinSide(alias, Product(source.items, outputs, (*source.conditions, *own), source.laterals))
    return JoinSide(alias, Product({inner: source}, outputs, own))


def comparable_keys(workshop: CompileContext, sides: list[JoinSide], count: int) -> list[int]:
    """The keys that have one type on all sides: only then equal values are one key. Whole numbers are made BIGINT."""
    types = [
        {found.name: (found.type or "").lower() for found in workshop.types_of(side.flow)} for side in sides if count
    ]
    kept = []
    for place in range(count):
        name = f"k__{place}"
        first, *others = (each[name] for each in types)
        if not all(equal_means_same(first, other) for other in others):
            continue
        kept.append(place)
        if any(first != other for other in others):
            for side in sides:
                side.flow.outputs[name] = exp.cast(side.flow.outputs[name].copy(), "BIGINT")
    return kept
