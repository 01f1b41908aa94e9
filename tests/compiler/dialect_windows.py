"""Time windows for DuckDB, which has none: window(…) and session_window(…) written with what it has.

What it is: the part of the dialect for groups by time. ``window`` becomes a lateral join with the windows of a time;
``session_window`` becomes a column that window functions make below the aggregation.
Invariants: written from what Spark's functions mean, not from how the compiler treats them: windows are aligned to
1970-01-01 UTC, the end of a window is not in it, a row without a time has none, and a row that comes exactly when a
session ends still belongs to it. That Spark means the same is for ``tests/spark/test_windows_equal_batch.py`` to show.
Not here: sessions over a join, which the tests put into a subquery.
Read next: ``views/compiler/sql/dialect.py``.
"""

from __future__ import annotations

import re

import sqlglot
from sqlglot import exp

WINDOW_CALL = re.compile(r"(?<![\w.])window\s*\(", re.IGNORECASE)
TIME_WINDOW = "time_window"  # sqlglot reads WINDOW( in GROUP BY as the clause

MACROS = (
    """CREATE MACRO window_list(moment, size, hop) AS list_filter(list_transform(
        range(0, CAST(ceil(epoch(CAST(size AS INTERVAL)) / epoch(CAST(hop AS INTERVAL))) AS BIGINT)),
        lambda n: {
            'start': time_bucket(CAST(hop AS INTERVAL), moment, TIMESTAMPTZ '1970-01-01 00:00:00+00')
                - n * CAST(hop AS INTERVAL),
            'end': time_bucket(CAST(hop AS INTERVAL), moment, TIMESTAMPTZ '1970-01-01 00:00:00+00')
                - n * CAST(hop AS INTERVAL) + CAST(size AS INTERVAL)}), lambda w: moment < w['end'])""",
    "CREATE MACRO window_time(w) AS w['end'] - INTERVAL 1 MICROSECOND",
)


def time_windows(select: exp.Select) -> exp.Select:
    """A SELECT without the calls of its own."""
    nodes = list(select.walk(prune=lambda node: isinstance(node, exp.Query) and node is not select))
    calls = [node for node in nodes if isinstance(node, exp.Anonymous)]
    windows = [call for call in calls if call.name.lower() == TIME_WINDOW]
    sessions = [call for call in calls if call.name.lower() == "session_window"]
    if windows:
        _lateral(select, windows)
    if sessions:
        _sessions(select, sessions)
    return select


def _lateral(select: exp.Select, calls: list[exp.Anonymous]) -> None:
    assert len({call.sql() for call in calls}) == 1, "Spark has one window in a SELECT"
    moment, size, *hop = calls[0].expressions
    text = f"LATERAL (SELECT unnest(window_list({{}}, {size.sql('duckdb')}, {(hop or [size])[0].sql('duckdb')})) AS w)"
    lateral = sqlglot.parse_one(f"SELECT 1 FROM x CROSS JOIN {text.format('moment')} AS time_windows", read="duckdb")
    for node in list(lateral.find_all(exp.Column)):
        if node.name == "moment":
            node.replace(moment.copy())
    select.append("joins", lateral.args["joins"][0])
    for call in calls:
        call.replace(exp.column("w", table="time_windows"))


def _sessions(select: exp.Select, calls: list[exp.Anonymous]) -> None:
    """Numbers the sessions of each key by a running count of their first rows."""
    assert not select.args.get("joins"), "sessions over one source"
    time, gap = calls[0].expressions
    wanted = calls[0].sql()
    others = [part for part in select.args["group"].expressions if part.sql() != wanted]
    source = select.args["from_"].this
    alias = source.alias_or_name
    if not source.alias:
        source = exp.alias_(source.copy(), alias, table=True)
    rows = exp.Select(expressions=[exp.Star()]).from_(source)
    end = exp.Add(this=time.copy(), expression=exp.cast(gap.copy(), "INTERVAL"))
    parts = {"_time": time.copy(), "_end": end, **{f"_p{place}": part.copy() for place, part in enumerate(others)}}
    for name, part in parts.items():
        rows = rows.select(exp.alias_(part, name))
    if select.args.get("where"):
        rows = rows.where(select.args["where"].this.copy())
        select.set("where", None)
    by = ", ".join(["1", *(f"_p{place}" for place in range(len(others)))])
    text = f"""
        SELECT *, {{'start': min(_time) OVER (PARTITION BY {by}, _number),
                    'end': max(_end) OVER (PARTITION BY {by}, _number)}} AS _session FROM (
        SELECT *, sum(CASE WHEN _time <= _before THEN 0 ELSE 1 END) OVER (PARTITION BY {by} ORDER BY _place) AS _number
        FROM (SELECT *, max(_end) OVER (PARTITION BY {by} ORDER BY _place
                        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS _before
        FROM (SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY _time, _end) AS _place
        FROM rows_with_times WHERE _time < _end)))"""
    numbered = sqlglot.parse_one(text, read="duckdb")
    for table in list(numbered.find_all(exp.Table)):
        if table.name == "rows_with_times":
            table.replace(exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier("given"))))
    name = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    select.set("from_", exp.From(this=exp.Subquery(this=numbered, alias=name)))
    for call in calls:
        call.replace(exp.column("_session", table=exp.to_identifier(alias, quoted=True)))
