"""Match bounds: whether the rows of a pattern may leave its state, under a horizon.

What it is: ``kept_because``, which says why the rows of a clause must stay, if they must.
Invariants: rows may leave only where every later change is at or behind the view's cutoff in the order of the rows: the
clause orders them by the event time of the one topic that its input reads, and no other relation has a say in it.
Not here: which rows leave (``views/stages/match_expiry.py``), other bounds in time (``algebra/finality.py``).
Read next: ``views/stages/match_expiry.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from headwater.views.compiler.frontend.match_text import MatchMention, MatchText
from headwater.views.compiler.frontend.parse import trees
from headwater.views.compiler.sql.expressions import is_grouped

SEVERAL = "it has several MATCH_RECOGNIZE"
NOT_PLAIN = "the input of MATCH_RECOGNIZE is not one topic with an event time, or a plain SELECT over one"
NOT_BY_TIME = "MATCH_RECOGNIZE does not order its rows by the event time first, the earliest first"


def kept_because(text: MatchText, times: Mapping[str, str]) -> str:
    """Why the rows of a text's pattern stay; empty when they may leave. ``times``: the topics' columns of event time.

    >>> from headwater.views.compiler.frontend.match_text import split_matches
    >>> clause = "MATCH_RECOGNIZE (ORDER BY {} PATTERN (a) DEFINE a AS true)"
    >>> def asked(source, order):
    ...     return kept_because(split_matches("v", f"FROM {source} {clause.format(order)}"), {"clicks": "at"})
    >>> asked("clicks", "at, id"), asked("(SELECT at AS moment FROM clicks c WHERE id > 3)", "moment")
    ('', '')
    >>> asked("clicks", "at DESC") == asked("clicks", "id") == NOT_BY_TIME
    True
    >>> asked("(SELECT * FROM clicks JOIN users USING (id))", "at") == asked("users", "at") == NOT_PLAIN
    True
    """
    if len(text.mentions) != 1:
        return SEVERAL
    (mention,) = text.mentions
    lower = {topic.lower(): column.lower() for topic, column in times.items()}
    for name, _ in text.definitions:  # a WITH query hides a topic of its name
        lower.pop(name.lower(), None)
    column = _time_column(mention, lower)
    if column is None:
        return NOT_PLAIN
    order = mention.clause.order_by
    if not order or order[0].descending or _column(order[0].sql) != column:
        return NOT_BY_TIME
    return ""


def _time_column(mention: MatchMention, times: Mapping[str, str]) -> str | None:
    """What the event time is called in the input of a clause; None when the input is not known to have one."""
    given = mention.input
    if not given.startswith("("):
        return times.get(given.strip("`").lower())
    read = trees(given[1:-1])
    select = read[0] if len(read) == 1 else None
    if not isinstance(select, exp.Select) or is_grouped(select) or not _is_plain(select):
        return None
    (table,) = select.find_all(exp.Table)
    time = times.get(table.name.lower())
    for part in select.expressions if time is not None else ():
        if part.is_star:
            return time
        if part.unalias().name.lower() == time and isinstance(part.unalias(), exp.Column):
            return str(part.alias_or_name).lower()
    return None


def _is_plain(select: exp.Select) -> bool:
    """Whether each row of the query is one of its only table."""
    clause = select.args.get("from_")
    others = ("joins", "laterals", "distinct", "limit", "offset", "with_", "qualify", "pivots", "sample")
    return (
        clause is not None
        and isinstance(clause.this, exp.Table)
        and not any(select.args.get(name) or clause.this.args.get(name) for name in others)
        and clause.this.args.get("version") is None
        and len(list(select.find_all(exp.Table))) == 1
        and not any(select.find_all(exp.Window, exp.UDTF, exp.Subquery))
    )


def _column(sql: str) -> str | None:
    """The name, where a text is a column."""
    (tree,) = trees(f"SELECT {sql}")
    part = tree.expressions[0]
    return part.name.lower() if isinstance(part, exp.Column) else None
