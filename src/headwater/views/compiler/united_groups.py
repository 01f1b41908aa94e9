"""United groups: several partial answers of one GROUP BY become one.

What it is: ``united``, the query that adds up the rows that the ``partial`` query of an accumulating stage gave over
parts of a flow.
Invariants: what it gives is what ``partial`` gives over all parts together. Only sums, counts, MIN and MAX are known to
add up so; any other query has no answer, and its flow is not cut.
Not here: the queries of a stage (``group_queries.py``); how a flow is cut (``views/stages/groups/flow_slices.py``).
Read next: ``group_queries.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import sqlglot
from sqlglot import exp

from headwater.views.compiler.sql.builtin_functions import aggregate_name
from headwater.views.compiler.sql.dialect import SparkAsWritten
from headwater.views.compiler.sql.expressions import Node

PARTS = "_parts"  # the table that the query reads


def united(partial: str, types: Mapping[str, str]) -> str | None:
    """The query over the rows of ``partial``, whose columns have these types; None when they do not add up.

    >>> united("SELECT _g0, COALESCE(SUM(_weight), 0) AS _n FROM _flow GROUP BY _g0", {"_g0": "INT", "_n": "BIGINT"})
    'SELECT `_g0`, CAST(sum(`_n`) AS BIGINT) AS `_n` FROM _parts GROUP BY `_g0`'
    >>> united("SELECT collect_list(_x0) AS _a0 FROM _flow", {"_a0": "ARRAY<INT>"}) is None
    True
    """
    found = _unions(partial)
    if found is None:
        return None
    groups = [f"`{name}`" for name, how in found if how is None]
    others = [f"CAST({how}(`{name}`) AS {types[name]}) AS `{name}`" for name, how in found if how is not None]
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    return f"SELECT {', '.join([*groups, *others])} FROM {PARTS}{by}"


@functools.lru_cache(maxsize=256)
def _unions(partial: str) -> tuple[tuple[str, str | None], ...] | None:
    """Each column of the query, and the aggregate that unites it; of a group there is none."""
    query = sqlglot.parse_one(partial, read=SparkAsWritten)
    source = query.args.get("from_")
    if not isinstance(query, exp.Select) or source is None or not isinstance(source.this, exp.Table):
        return None  # over each row as often as it is there: sketches
    groups = {found.name for found in query.args["group"].expressions} if query.args.get("group") else set()
    found: list[tuple[str, str | None]] = []
    for part in query.expressions:
        if part.alias_or_name in groups:
            found.append((part.alias_or_name, None))
            continue
        value = part.unalias()
        how = aggregate_name(value) if aggregate_name(value) in ("min", "max") else "sum" if _adds_up(value) else None
        if how is None:
            return None
        found.append((part.alias_or_name, how))
    return tuple(found)


def _adds_up(value: Node) -> bool:
    """Whether it is a sum, or made of sums in a way that they may be added up before or after."""
    if aggregate_name(value) == "sum":
        return True
    if isinstance(value, exp.Add):
        return _adds_up(value.this) and _adds_up(value.expression)
    if isinstance(value, exp.Mul):
        return _adds_up(value.this) and not any(map(aggregate_name, value.expression.walk()))
    if isinstance(value, exp.Cast):
        # Of integers and decimals: none loses a digit, or the stage's total would depend on how many ticks it took.
        return value.to.this in (exp.DataType.Type.DECIMAL, exp.DataType.Type.BIGINT) and _adds_up(value.this)
    if isinstance(value, exp.Paren):
        return _adds_up(value.this)
    if isinstance(value, exp.Anonymous) and value.name.lower() == "coalesce":
        first, *others = value.expressions
        return _adds_up(first) and all(_is_zero(other) for other in others)
    return False


def _is_zero(value: Node) -> bool:
    value = value.this if isinstance(value, exp.Cast) else value
    return isinstance(value, exp.Literal) and not value.is_string and value.this == "0"
