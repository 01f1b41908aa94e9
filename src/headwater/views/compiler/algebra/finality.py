"""Closing: until when a row of a view can still change, as far as its query tells.

What it is: ``with_closes`` gives a query one more column, ``closes__``: the event time after which a row is final; and
tells how far in event time a row of the inputs can reach (``Finality``), which is what lets state go.
Invariants: a row of a timed input at t has a part only in rows that close at or before t + reach; where that cannot
be shown for a query there is no reach, and the reason is told.
Not here: what a view does with it (``views/event_time/timed_operators.py``).
Read next: ``event_time_columns.py``, ``plan.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.durations import UNITS_US, parse_us
from headwater.errors import InvalidDeclaration
from headwater.views.compiler.algebra.event_time_columns import is_event_time, window_of
from headwater.views.compiler.frontend.as_of import is_as_of
from headwater.views.compiler.frontend.match_text import MATCH
from headwater.views.compiler.frontend.parse import Parsed
from headwater.views.compiler.plan import Sessions
from headwater.views.compiler.sql.dialect import Interval
from headwater.views.compiler.sql.dialect import SparkAsWritten as Spark
from headwater.views.compiler.sql.expressions import Node, bare, conjuncts, is_grouped, named

CLOSES = "closes__"
MATCHES = "where a match begins may depend on every match before it"
NO_WINDOW = "it groups without a window(…), so that none of its rows is ever final"


@dataclass(frozen=True)
class Finality:
    """What a query tells about time."""

    closes: bool  # whether it could be given the column
    reach_us: int | None = None  # how far a row's influence reaches, once its session is over; None: not bounded
    why: str = ""  # why one of the two is not so
    sessions: Sessions | None = None  # what keeps rows that are older
    versions: bool = False  # whether tables are asked for as they were no longer ago than a row reaches
    matches: bool = False  # whether its rows are those of one MATCH_RECOGNIZE


def with_closes(parsed: Parsed, closes: str | None, times: Mapping[str, str]) -> Finality:
    """Add the column to a query, where its end can be told. ``times``: the inputs' columns of event time.

    ``closes`` is the user's own expression over the view's columns.
    """
    top = parsed.query
    if closes is not None:
        expression = _parsed(closes)
        for name in ("query", "tree"):
            setattr(parsed, name, _around(getattr(parsed, name), _just_after(expression.copy())))
        if any(MATCH in table.name for table in top.find_all(exp.Table)):
            return Finality(True, None, MATCHES)
        return _bounded(top, times, own=_interval_us(expression))
    if not isinstance(top, exp.Select) or top.args.get("limit") or top.args.get("distinct"):
        return Finality(
            False, None, "when a row is final follows only from a plain SELECT, without UNION, LIMIT or DISTINCT"
        )
    if _reads_matches(top):
        for tree in (parsed.query, parsed.tree):
            if isinstance(tree, exp.Select):
                tree.append("expressions", named(_just_after(bare(CLOSES)), CLOSES))
        return Finality(True, None, MATCHES, matches=True)
    if not is_grouped(top):
        time = _time_of_the_only_input(top, times)
        if time is None:
            return Finality(
                False, None, "when a row of a join is final does not follow from the query: declare it with closes=…"
            )
        found = _just_after(time)
    else:
        call = window_of(top)
        if call is None:
            return Finality(False, None, NO_WINDOW)
        if not is_event_time(call, top, times):
            return Finality(False, None, _not_by_event_time(call))
        found = _end(call)
    for tree in (parsed.query, parsed.tree):
        if isinstance(tree, exp.Select):
            tree.append("expressions", named(found, CLOSES))
    return _bounded(top, times, own=0)


def _reads_matches(top: exp.Select) -> bool:
    """Whether the rows of a query are those of one MATCH_RECOGNIZE."""
    clause = top.args.get("from_")
    source = clause.this if clause is not None else None
    alone = not is_grouped(top) and not top.args.get("joins") and not top.find(exp.Window)
    return alone and isinstance(source, exp.Table) and MATCH in source.name


def _end(call: exp.Anonymous) -> Node:
    """When a window closes. A row that comes exactly at the end of a session still belongs to it."""
    end = exp.Dot(this=call.copy(), expression=exp.to_identifier("end"))
    return _just_after(end) if _is_session(call) else end


def _just_after(moment: Node) -> Node:
    """Rows at the moment itself may still come when the watermark has reached it."""
    least = exp.Interval(this=exp.Literal.string("1"), unit=exp.var("MICROSECOND"))
    return exp.Add(this=exp.Paren(this=moment), expression=least)


def _is_session(call: exp.Anonymous) -> bool:
    return bool(call.name.lower() == "session_window")


def _not_by_event_time(call: exp.Anonymous) -> str:
    time = call.expressions[0].sql(Spark) if call.expressions else ""
    return f"{call.name.lower()}({time}, …) is not known to go by the event time of a topic that it reads"


def _parsed(text: str) -> Node:
    try:
        found = Spark().parser().parse(Spark().tokenize(text), text)[0]
    except SqlglotError as error:
        raise InvalidDeclaration(
            f"closes={text!r} is not an expression",
            detail=str(error).splitlines()[0],
            hint='Write an expression over the view\'s columns: closes="searched_at + INTERVAL 1 HOUR".',
        ) from error
    if found is None:
        raise InvalidDeclaration("closes is empty", hint="Write an expression over the view's columns.")
    return found


def _around(query: exp.Query, expression: Node) -> exp.Query:
    inner = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier("open__")))
    return exp.Select(expressions=[exp.Star(), named(expression, CLOSES)], from_=exp.From(this=inner))


def _time_of_the_only_input(select: exp.Select, times: Mapping[str, str]) -> Node | None:
    mentions = list(_mentions(select))
    if len(mentions) != 1 or [found for found in select.find_all(exp.Table) if not is_as_of(found)] != mentions:
        return None
    column = times.get(mentions[0].name.lower())
    if column is None:
        return None
    return exp.column(exp.to_identifier(column, quoted=True), table=mentions[0].alias_or_name)


def _mentions(select: exp.Select) -> Iterator[exp.Table]:
    clause = select.args.get("from_")
    for part in (clause, *(select.args.get("joins") or [])):
        # A table as it was is not judged by its time: an older version is what is asked for.
        if part is not None and isinstance(part.this, exp.Table) and not is_as_of(part.this):
            yield part.this


def _bounded(top: exp.Query, times: Mapping[str, str], *, own: int | None) -> Finality:
    """How far a row's influence reaches, when every way in which rows meet is bounded in time."""
    if own is None:
        return Finality(True, None, "closes has an interval whose length is not known")
    if not isinstance(top, exp.Select) or top.args.get("limit") or top.find(exp.Window):
        return Finality(True, None, "its rows are ranked or compared with others at any distance in time")
    timed = {
        mention.alias_or_name.lower(): times[mention.name.lower()].lower()
        for mention in _mentions(top)
        if mention.name.lower() in times
    }
    everywhere = [
        mention for mention in top.find_all(exp.Table) if mention.name.lower() in times and not is_as_of(mention)
    ]
    if len(everywhere) != len(timed):
        return Finality(True, None, "it reads a timed topic in a subquery, or twice under one name")
    reach, sessions = own, None
    if is_grouped(top):
        call = window_of(top)
        if call is None:
            return Finality(True, None, NO_WINDOW)
        if not is_event_time(call, top, times):
            return Finality(True, None, _not_by_event_time(call))
        size = length_us(call)
        if size is None:
            return Finality(True, None, f"the length of {call.name.lower()} is not a plain number of units")
        reach += size
        if _is_session(call):
            if len(timed) > 1:
                return Finality(True, None, "sessions of a join have no bound")
            sessions = Sessions(_keys(top, *timed), size)
    first, *others = timed or [""]
    conditions = [*conjuncts(top.args["where"].this if top.args.get("where") else None)]
    for join in top.args.get("joins") or []:
        conditions += conjuncts(join.args.get("on"))
    for other in others:
        bound = _distance(conditions, timed, first, other)
        if bound is None:
            return Finality(True, None, f"{first} and {other} may meet at any distance in time")
        reach += bound
    behind = _behind_us(top, timed)
    return Finality(True, reach + (behind or 0), sessions=sessions, versions=behind is not None)


def _keys(top: exp.Select, topic: str) -> tuple[str, ...]:
    """The columns of the topic that a query groups by. Fewer than there are only make sessions longer."""
    group = top.args["group"].expressions
    alone = not top.args.get("joins")
    found = (part for part in group if isinstance(part, exp.Column))
    return tuple(part.name.lower() for part in found if part.table.lower() == topic or (alone and not part.table))


def _behind_us(top: exp.Select, timed: Mapping[str, str]) -> int | None:
    """How far behind the event time of a row a table is asked for as it was; None when that is not known."""
    asked = [mention for mention in top.find_all(exp.Table) if is_as_of(mention)]
    moments = [_place(mention.args["version"].expression, timed) for mention in asked]
    if any(moment is None for moment in moments):
        return None
    return max((max(0, -moment[1]) for moment in moments if moment is not None), default=0)


def _distance(conditions: list[Node], timed: Mapping[str, str], one: str, other: str) -> int | None:
    """How far apart in time rows of two inputs can be that meet; None when it is not bounded on both sides."""
    highest: list[int] = []  # of other's time less one's
    lowest: list[int] = []
    for condition in conditions:
        for low, high in _orders(condition):
            left, right = _place(low, timed), _place(high, timed)  # low <= high
            if left is None or right is None:
                continue
            if (left[0], right[0]) == (one, other):  # one + a <= other + b
                lowest.append(left[1] - right[1])
            elif (left[0], right[0]) == (other, one):
                highest.append(right[1] - left[1])
    return max(abs(max(lowest)), abs(min(highest))) if lowest and highest else None


def _orders(condition: Node) -> Iterator[tuple[Node, Node]]:
    """The pairs of which a condition says that the first is not after the second."""
    if isinstance(condition, exp.Between):
        yield condition.args["low"], condition.this
        yield condition.this, condition.args["high"]
    elif isinstance(condition, exp.LTE | exp.LT):
        yield condition.this, condition.expression
    elif isinstance(condition, exp.GTE | exp.GT):
        yield condition.expression, condition.this
    elif isinstance(condition, exp.EQ):
        yield condition.this, condition.expression
        yield condition.expression, condition.this


def _place(expression: Node, timed: Mapping[str, str]) -> tuple[str, int] | None:
    """``alias.time``, with an interval added or taken away: the alias and the interval."""
    expression = expression.unnest()
    if isinstance(expression, exp.Add | exp.Sub):
        inner, by = _place(expression.this, timed), _interval_us(expression.expression)
        if inner is None or by is None or not isinstance(expression.expression.unnest(), exp.Interval | Interval):
            return None
        return inner[0], inner[1] + (by if isinstance(expression, exp.Add) else -by)
    if isinstance(expression, exp.Column) and timed.get(expression.table.lower()) == expression.name.lower():
        return expression.table.lower(), 0
    return None


def _interval_us(expression: Node) -> int | None:
    """The sum of the intervals that an expression mentions; None when one of them is not a plain number of units."""
    total = 0
    if any(not found.expressions for found in expression.find_all(Interval)):
        return None
    for interval in expression.find_all(exp.Interval):
        number = interval.this
        unit = str(interval.args.get("unit") or "").lower().removesuffix("s")
        if not isinstance(number, exp.Literal) or unit not in UNITS_US:
            return None
        try:
            total += round(float(number.this) * UNITS_US[unit])
        except ValueError:
            return None
    return total


def length_us(call: exp.Anonymous) -> int | None:
    """The length of window(at, '1 minute', …), or the gap of session_window(at, '1 minute')."""
    if len(call.expressions) < 2:
        return None
    size = call.expressions[1]
    if isinstance(size, exp.Interval | Interval):
        return _interval_us(size)
    text = size.this.lower().removeprefix("interval ") if isinstance(size, exp.Literal) else ""
    return parse_us(text) or None
