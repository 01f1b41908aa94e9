"""Uniqueness: which outputs of a flow tell its rows apart.

What it is: from the keys of the relations and the equalities between their columns, whether no two rows of a flow can
have the same values in some outputs. Of a table's versions one is found by its key and a moment.
Invariants: errs on the side of "not known".
Not here: keys of stages, which come from GROUP BY (``views/compiler/operators/aggregation.py``).
Read next: ``views/compiler/operators/subqueries.py``, which saves a stage when a subquery's rows are unique.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from headwater.views.compiler.algebra.flow import Flow, Product, TableRef
from headwater.views.compiler.algebra.plan_nodes import CompileContext
from headwater.views.compiler.sql.expressions import columns

INTEGERS = {"tinyint", "smallint", "int", "bigint", "byte", "short", "integer", "long"}


def equal_means_same(one: str | None, other: str | None) -> bool:
    """Whether values of two types that Spark finds equal are one value: no cast stands between them, or a widening one.

    >>> equal_means_same("INT", "bigint"), equal_means_same("INT", "STRING"), equal_means_same("DOUBLE", "BIGINT")
    (True, False, False)
    """
    kinds = {(one or "").lower(), (other or "").lower()}
    return len(kinds) == 1 or kinds <= INTEGERS


def is_unique(workshop: CompileContext, flow: Flow, names: Iterable[str]) -> bool:
    """Whether these outputs tell the flow's rows apart."""
    if not isinstance(flow, Product) or flow.laterals:
        return False
    keys: dict[str, tuple[str, ...]] = {}
    beginnings: set[tuple[str, str]] = set()  # of versions
    for alias, item in flow.items.items():
        key = workshop.key_of(item.relation) if isinstance(item, TableRef) else None
        if key is None and isinstance(item, TableRef) and item.relation in workshop.drafts:
            key = workshop.drafts[item.relation].one_at
            beginnings |= {(alias, key[-1])} if key else set()
        if key is None:
            return False
        keys[alias] = key
    known = {(out.table, out.name) for out in (flow.outputs[name] for name in names) if isinstance(out, exp.Column)}
    found: set[str] = set()
    while True:
        before = len(known), len(found)
        for alias, key in keys.items():
            if all((alias, part) in known or alias in found for part in key):
                found.add(alias)  # its row is known, and so all its columns are
        for condition in flow.conditions:
            if isinstance(condition, exp.EQ):
                sides = condition.this.unnest(), condition.expression.unnest()
                if _is_exact(workshop, flow, *sides):
                    _follow(sides[0], sides[1], known, found)
                    _follow(sides[1], sides[0], known, found)
            elif isinstance(condition, exp.GTE) and isinstance(condition.expression, exp.Column):
                begins = condition.expression.table, condition.expression.name
                moment = {(part.table, part.name) for part in columns(condition.this)}
                if begins in beginnings and all(part in known or part[0] in found for part in moment):
                    known.add(begins)  # at a moment that is known one version counts
        if (len(known), len(found)) == before:
            return len(found) == len(keys)


def _is_exact(workshop: CompileContext, flow: Product, *sides: exp.Expr) -> bool:
    """Whether two sides of an equality tell each other: 1 does not tell '01' from '1', nor does 0.0 tell -0.0."""
    kinds = []
    for side in sides:
        item = flow.items.get(side.table) if isinstance(side, exp.Column) else None
        if isinstance(side, exp.Literal):
            kinds.append("string" if side.is_string else "bigint" if side.name.isdigit() else "a number")
        elif isinstance(item, TableRef):
            kinds.append((workshop.type_of(item.relation, side.name) or "").lower())
        else:
            return False
    floats = any(word in kind for kind in kinds for word in ("float", "double", "real"))
    return not floats and (equal_means_same(*kinds) or "" in kinds)


def _follow(one: exp.Expr, other: exp.Expr, known: set[tuple[str, str]], found: set[str]) -> None:
    """What equals something known is known."""
    told = isinstance(one, exp.Literal) or (
        isinstance(one, exp.Column) and ((one.table, one.name) in known or one.table in found)
    )
    if told and isinstance(other, exp.Column):
        known.add((other.table, other.name))


def unique_outputs(workshop: CompileContext, flow: Flow) -> tuple[str, ...] | None:
    """As few outputs as tell the flow's rows apart; None when nothing is known."""
    names = list(flow.names)
    if not is_unique(workshop, flow, names):
        return None
    for name in reversed(list(names)):
        fewer = [other for other in names if other != name]
        if is_unique(workshop, flow, fewer):
            names = fewer
    return tuple(names)
