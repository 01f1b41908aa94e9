"""Event times: whether a window goes by the time that watermarks speak of.

What it is: ``is_event_time`` follows an expression through subqueries, CTEs and windows of windows to the column of a
topic.
Invariants: what is not certain is not so: a column of a view, a computed time, a UNION.
Not here: what follows from it (``finality.py``).
Read next: ``finality.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from headwater.views.compiler.frontend.as_of import is_as_of
from headwater.views.compiler.sql.expressions import Node

WINDOWS = ("window", "session_window")


def window_of(select: exp.Select) -> exp.Anonymous | None:
    """The one call of window or session_window that a SELECT groups by."""
    shown = {part.alias.lower(): part.this for part in select.expressions if isinstance(part, exp.Alias)}
    found = []
    group = select.args.get("group")
    for part in group.expressions if group is not None else ():
        if isinstance(part, exp.Column) and not part.table:
            part = shown.get(part.name.lower(), part)
        if isinstance(part, exp.Anonymous) and part.name.lower() in WINDOWS:
            found.append(part)
    return found[0] if len(found) == 1 else None


def is_event_time(expression: Node, select: exp.Select, times: Mapping[str, str]) -> bool:
    """Whether an expression of a SELECT is the event time of a topic. ``times``: the topics' columns of it.

    >>> from headwater.views.compiler.frontend.parse import parse
    >>> select = parse("SELECT count(*) AS n FROM (SELECT at AS t FROM clicks) GROUP BY window(t, '1 hour')").query
    >>> is_event_time(window_of(select), select, {"clicks": "at"})
    True
    >>> is_event_time(window_of(select), select, {"clicks": "sent_at"})
    False
    """
    expression = expression.unnest()
    if isinstance(expression, exp.Anonymous) and expression.name.lower() in (*WINDOWS, "window_time"):
        return bool(expression.expressions) and is_event_time(expression.expressions[0], select, times)
    if isinstance(expression, exp.Cast | exp.Dot):
        return is_event_time(expression.this, select, times)
    if not isinstance(expression, exp.Column):
        return False
    name, table = expression.name.lower(), expression.table.lower()
    sources = dict(_sources(select))
    if (table or name) in WINDOWS and not (table and table in sources):
        call = window_of(select)
        if call is not None:
            return is_event_time(call, select, times)
    meant = [sources[table]] if table in sources else list(sources.values()) if not table else []
    return any(_is_event_time_of(source, name, times) for source in meant)


def _sources(select: exp.Select) -> Iterator[tuple[str, Node]]:
    clause = select.args.get("from_")
    for part in (clause, *(select.args.get("joins") or [])):
        if part is not None:
            yield part.this.alias_or_name.lower(), part.this


def _is_event_time_of(source: Node, name: str, times: Mapping[str, str]) -> bool:
    if isinstance(source, exp.Table):
        if is_as_of(source):
            return False
        top = source.root()
        for definition in top.find_all(exp.CTE):
            if definition.alias.lower() == source.name.lower():
                return _shows(definition.this, name, times)
        return times.get(source.name.lower(), "").lower() == name
    return isinstance(source, exp.Subquery) and _shows(source.this, name, times)


def _shows(query: Node, name: str, times: Mapping[str, str]) -> bool:
    """Whether a column of a query is an event time."""
    if not isinstance(query, exp.Select):
        return False
    for part in query.expressions:
        if part.is_star:
            return is_event_time(exp.column(name), query, times)
        if part.alias_or_name.lower() == name:
            return is_event_time(part.this if isinstance(part, exp.Alias) else part, query, times)
    return False
