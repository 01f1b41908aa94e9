"""Different values of a session: aggregates over DISTINCT beside session_window.

What it is: ``count(DISTINCT x)`` of a session, written as the size of the set of its values.
Invariants: the same rewriting is made in what is kept up to date and in what ``verify`` runs. It is needed because
Spark (4.3) groups by the value, too, when a SELECT has several aggregates over DISTINCT or one with FILTER, and merges
the sessions of each value by themselves: a value that comes twice in a session, further apart than the gap, counts
twice. What cannot be written so is refused rather than computed wrongly.
Not here: sessions themselves (``time_windows.py``); DISTINCT in other groups
(``views/compiler/operators/grouping.py``).
Read next: ``time_windows.py``.
"""

from __future__ import annotations

from sqlglot import exp

from headwater.views.compiler.frontend.time_windows import is_session, own_nodes
from headwater.views.compiler.sql.builtin_functions import aggregate_name, distinct_values
from headwater.views.compiler.sql.expressions import Node, conjunction
from headwater.views.compiler.sql.refusal import refuse


def write_out_sets(query: exp.Query, sql: str) -> exp.Query:
    """The query, with the different values of sessions counted in a way that is right."""
    for select in list(query.find_all(exp.Select)):
        nodes = list(own_nodes(select))
        if not any(map(is_session, nodes)):
            continue
        calls = [node for node in nodes if distinct_values(node) is not None]
        others = [call for call in calls if aggregate_name(call) != "count"]
        several = len({tuple(distinct_values(call) or ()) for call in calls}) > 1 or any(
            isinstance(call.parent, exp.Filter) for call in others
        )
        if others and several:
            refuse(
                sql,
                None,
                f"{aggregate_name(others[0])}(DISTINCT …) of a session, beside another DISTINCT or with FILTER, is "
                "computed wrongly by Spark",
                "Aggregate over DISTINCT in a view of its own.",
            )
        for call in calls:
            if call not in others:
                _count(call)
    return query


def _count(call: Node) -> None:
    values = [value.copy() for value in distinct_values(call) or ()]
    value: Node = values[0]
    if len(values) > 1:  # of which none is null
        known = conjunction(exp.Not(this=exp.Is(this=each.copy(), expression=exp.Null())) for each in values)
        struct = exp.Anonymous(this="struct", expressions=values)
        value = exp.Case(ifs=[exp.If(this=known, true=struct)])
    whole = call.parent if isinstance(call.parent, exp.Filter) else call
    of_values: Node = exp.Anonymous(this="collect_set", expressions=[value])
    if isinstance(whole, exp.Filter):
        of_values = exp.Filter(this=of_values, expression=whole.expression.copy())
    size = exp.Anonymous(this="size", expressions=[of_values])
    whole.replace(exp.cast(size, "BIGINT"))
