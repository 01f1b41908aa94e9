"""Openness: which columns of a query its SQL leaves open.

What it is: aggregates of which the same rows may give another value when they come in another order: sketches,
``approx_percentile``, ``first``, ``max_by`` with ties, ``collect_list``. A column is *open* when such a value goes into
it, and ``bag`` when it is a list whose order alone is open.
Invariants: a column that is not named here has one value for the rows of its inputs. What is open may also decide
which rows there are (WHERE, HAVING, a join); no column says so, and such a difference is reported as one.
Not here: comparing (``views/lifecycle/verification.py``).
Read next: ``views/lifecycle/verification.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sqlglot import exp

from headwater.errors import InvalidView
from headwater.views.compiler.frontend.parse import statement
from headwater.views.compiler.sql.builtin_functions import aggregate_name
from headwater.views.compiler.sql.expressions import Node, output_name, unaliased

LISTS = frozenset({"array_agg", "collect_list", "collect_set", "array_unique_agg", "group_concat"})
CHOICES = frozenset(
    {
        "any_value",
        "approx_percentile",
        "approx_quantile",
        "approx_top_k",
        "approx_top_k_accumulate",
        "approx_top_k_combine",
        "arg_max",
        "arg_min",
        "first",
        "first_value",
        "histogram_numeric",
        "last",
        "last_value",
        "listagg",
        "max_by",
        "min_by",
        "mode",
        "percentile_approx",
        "string_agg",
    }
)
SKETCHES = ("hll_", "kll_", "theta_", "tuple_")
# What these make of a list does not depend on its order.
ORDERLESS = frozenset(
    {
        "array_contains",
        "array_length",
        "array_max",
        "array_min",
        "array_size",
        "array_sort",
        "cardinality",
        "size",
        "sort_array",
    }
)


class Nondeterminism(StrEnum):
    """What is open about a column."""

    BAG = "bag"  # the order of a list
    VALUE = "value"


def open_columns(sql: str) -> dict[str, Nondeterminism]:
    """The columns of a query that are open, by their names.

    >>> open_columns("SELECT max_by(x, at) AS latest, collect_set(x) AS xs, size(collect_set(x)) AS n FROM t")
    {'latest': <Nondeterminism.VALUE: 'value'>, 'xs': <Nondeterminism.BAG: 'bag'>}
    """
    try:
        query = statement(sql)
    except InvalidView:  # only Spark's parser reads it (``views/compiler/whole_query.py``)
        return {}
    return _of_query(query, {})


def _of_query(query: Node, known: Mapping[str, dict[str, Nondeterminism]]) -> dict[str, Nondeterminism]:
    clause = query.args.get("with_")
    for definition in clause.expressions if clause is not None else ():
        known = {**known, definition.alias.lower(): _of_query(definition.this, known)}
    if isinstance(query, exp.Subquery):
        return _of_query(query.this, known)
    if isinstance(query, exp.SetOperation):
        return _of_union(query, known)
    if not isinstance(query, exp.Select):
        return {}
    sources = _sources(query, known)
    found: dict[str, Nondeterminism] = {}
    for projection in query.selects:
        if projection.is_star:
            found |= {name: kind for columns in sources.values() for name, kind in columns.items()}
            continue
        kind = _of_expression(unaliased(projection), sources)
        if kind is not None:
            found[output_name(projection)] = kind
    return found


def _of_union(query: exp.SetOperation, known: Mapping[str, dict[str, Nondeterminism]]) -> dict[str, Nondeterminism]:
    names, others = _names(query.this), _names(query.expression)
    found = _of_query(query.this, known)
    right = _of_query(query.expression, known)
    for name, other in zip(names, others, strict=False):
        if other in right and found.get(name) is not Nondeterminism.VALUE:
            found[name] = right[other]
    return found


def _names(query: Node) -> list[str]:
    return list(query.named_selects) if isinstance(query, exp.Query) else []  # VALUES has nothing that is open


def _sources(
    select: exp.Select, known: Mapping[str, dict[str, Nondeterminism]]
) -> dict[str, dict[str, Nondeterminism]]:
    clause = select.args.get("from_")
    given = ([clause.this] if clause is not None else []) + [join.this for join in select.args.get("joins") or []]
    found: dict[str, dict[str, Nondeterminism]] = {}
    for source in given:
        if isinstance(source, exp.Subquery):
            columns = _of_query(source.this, known)
            names = source.args["alias"].columns if source.args.get("alias") else []
            if names:
                own = _names(source.this)
                columns = {new.name: columns[old] for new, old in zip(names, own, strict=False) if old in columns}
            found[source.alias.lower()] = columns
        elif isinstance(source, exp.Table):
            found[source.alias_or_name.lower()] = known.get(source.name.lower(), {})
    return found


def _of_expression(expression: Node, sources: Mapping[str, dict[str, Nondeterminism]]) -> Nondeterminism | None:
    found: Nondeterminism | None = None
    for node in expression.walk():
        kind = _of_node(node, sources)
        whole = node.parent if isinstance(node.parent, exp.Filter) else node
        if kind is Nondeterminism.BAG and whole is not expression:
            kind = None if _is_orderless(whole.parent) else Nondeterminism.VALUE
        if kind is Nondeterminism.VALUE:
            return kind
        found = kind or found
    return found


def _of_node(node: Node, sources: Mapping[str, dict[str, Nondeterminism]]) -> Nondeterminism | None:
    if isinstance(node, exp.Column):
        for alias, columns in sources.items():
            if node.table.lower() in ("", alias):
                kind = next((kind for name, kind in columns.items() if name.lower() == node.name.lower()), None)
                if kind is not None:
                    return kind
        return None
    name = aggregate_name(node)
    if name is None or isinstance(node.parent, exp.Window | exp.WithinGroup):
        return None
    if name in LISTS:
        return Nondeterminism.BAG
    return Nondeterminism.VALUE if name in CHOICES or name.startswith(SKETCHES) else None


def _is_orderless(node: Node | None) -> bool:
    if not isinstance(node, exp.Func):
        return False
    name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
    arguments = [part for part in node.iter_expressions() if not isinstance(part, exp.Boolean)]
    return name.lower() in ORDERLESS and not any(isinstance(part, exp.Lambda) for part in arguments)
