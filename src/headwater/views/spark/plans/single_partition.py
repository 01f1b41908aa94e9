"""One task: a query rewritten so that Spark runs it without exchanging rows.

What it is: Spark joins two inputs of one partition each in place, but moves the result of an inner join before it joins
it again, and what was moved is not computed again by running the plan again. A hint between the joins prevents that,
and another one gathers the parts of a union.
Invariants: the rewritten query gives the same rows. What is not understood stays as it was.
Not here: whether the plan came out as wished, which its reader checks (``plan_cache.py``).
Read next: ``plan_cache.py``.
"""

from __future__ import annotations

import functools

import sqlglot
from sqlglot import exp

from headwater.views.compiler.sql.dialect import SparkAsWritten, text
from headwater.views.compiler.sql.expressions import column, named
from headwater.views.compiler.whole_query import AS_WRITTEN

JOINED = "_joined"
NONE: frozenset[str] = frozenset()


@functools.lru_cache(maxsize=1024)
def in_one_task(sql: str, *, few: bool = False, built: frozenset[str] = NONE, grouped: bool = False) -> str:
    """The query with every join that is read by another operator held in one partition.

    With ``few`` rows, joins go by hash instead of by sorting both sides, which is quicker and takes memory; a join of
    one of the tables ``built`` always does. The hash table is made of such a one, else of the table on the right.
    ``grouped``: what reads the query is a GROUP BY, which takes the rows of its join as they come.

    >>> in_one_task("SELECT a.x FROM a JOIN b ON a.x = b.x")
    'SELECT /*+ COALESCE(1) */ a.x FROM a JOIN b ON a.x = b.x'
    >>> in_one_task("SELECT count(*) AS n FROM (SELECT x FROM a UNION ALL SELECT x FROM b) t")
    'SELECT count(*) AS n FROM (SELECT /*+ COALESCE(1) */ * FROM (SELECT x FROM a UNION ALL SELECT x FROM b)) AS t'
    >>> in_one_task("SELECT a.x FROM a JOIN b ON a.x = b.x", few=True)
    'SELECT /*+ COALESCE(1), SHUFFLE_HASH(`b`) */ a.x FROM a JOIN b ON a.x = b.x'
    >>> in_one_task("SELECT a.x FROM a JOIN b ON a.x = b.x", built=frozenset(["a"]))
    'SELECT /*+ COALESCE(1), SHUFFLE_HASH(`a`) */ a.x FROM a JOIN b ON a.x = b.x'
    >>> in_one_task("(SELECT a.x FROM a JOIN b ON a.x = b.x)", built=frozenset(["b"]), grouped=True)
    '(SELECT /*+ SHUFFLE_HASH(`b`) */ a.x FROM a JOIN b ON a.x = b.x)'
    >>> print(in_one_task("SELECT c.z FROM a JOIN b ON a.x = b.x JOIN c ON b.y = c.y"))
    SELECT /*+ COALESCE(1) */ c.z FROM (SELECT /*+ COALESCE(1) */ b.y AS `b.y` FROM a JOIN b ON a.x = b.x) \
AS `_joined0_0` JOIN c ON `_joined0_0`.`b.y` = c.y
    """
    if sql.startswith(AS_WRITTEN):  # a user's own text, which our parser may not even read
        return sql
    query = sqlglot.parse_one(sql, read=SparkAsWritten)
    for union in list(query.find_all(exp.SetOperation)):
        if isinstance(union.parent, exp.Subquery):
            _gather(union)
    for number, select in enumerate(list(query.find_all(exp.Select, bfs=False))):
        if select.args.get("joins"):
            _nest(select, f"{JOINED}{number}", few, built)
            _hold(select, few, built, gathered=not (grouped and select is query.unnest()))
    return text(query)


def _gather(union: exp.SetOperation) -> None:
    """A union has the partitions of all its parts: bring them together, so that what reads it need not."""
    every = exp.Select(expressions=[exp.Star()])
    every.set("hint", exp.Hint(expressions=[exp.Anonymous(this="COALESCE", expressions=[exp.Literal.number(1)])]))
    union.replace(every)
    every.set("from_", exp.From(this=exp.Subquery(this=union)))


def _hold(select: exp.Select, few: bool, built: frozenset[str], *, gathered: bool = True) -> None:
    if select.args.get("hint") is not None:
        return
    hints = [exp.Anonymous(this="COALESCE", expressions=[exp.Literal.number(1)])] if gathered else []
    joins: list[exp.Join] = select.args["joins"]
    names = [join.this.alias_or_name for join in joins]
    small = _smaller_side(select, joins, built)
    if small is not None:
        hints.append(exp.Anonymous(this="SHUFFLE_HASH", expressions=[exp.column(small, quoted=True)]))
    elif few and all(names):
        hints.append(exp.Anonymous(this="SHUFFLE_HASH", expressions=[exp.column(name, quoted=True) for name in names]))
    if hints:
        select.set("hint", exp.Hint(expressions=hints))


def _smaller_side(select: exp.Select, joins: list[exp.Join], built: frozenset[str]) -> str | None:
    """The table of an inner join of two that is to be the hash table; None when neither is known to be small."""
    join, source = joins[0], select.args["from_"].this
    if len(joins) > 1 or join.side or join.method or join.kind not in ("", "INNER") or not join.args.get("on"):
        return None
    for side in (join.this, source):
        if isinstance(side, exp.Table) and side.name in built and side.alias_or_name:
            return str(side.alias_or_name)
    return None


def _nest(select: exp.Select, prefix: str, few: bool, built: frozenset[str]) -> None:
    """``a JOIN b JOIN c`` becomes ``(SELECT … FROM a JOIN b) JOIN c``, for as many joins as there are."""
    joins: list[exp.Join] = select.args["joins"]
    if len(joins) > 1 and _plain(select, joins):
        for place in range(len(joins) - 1):
            _wrap(select, f"{prefix}_{place}", few, built)


def _wrap(select: exp.Select, alias: str, few: bool, built: frozenset[str]) -> None:
    """Put the first join into a select of its own."""
    joins: list[exp.Join] = select.args["joins"]
    first, join = select.args["from_"].this, joins[0]
    inside = {first.alias_or_name.lower(), join.this.alias_or_name.lower()}
    select.set("joins", joins[1:])
    select.set("from_", None)
    outputs: dict[str, exp.Expression] = {}
    for found in list(select.find_all(exp.Column)):
        if found.table.lower() in inside:
            name = found.name if found.table.startswith(JOINED) else f"{found.table}.{found.name}".lower()
            outputs[name] = named(found.copy(), name)
            output = found.parent is select and found.arg_key == "expressions"
            found.replace(named(column(alias, name), found.name) if output else column(alias, name))
    inner = exp.Select(expressions=list(outputs.values()) or [named(exp.Literal.number(1), "nothing")])
    inner.set("from_", exp.From(this=first))
    inner.set("joins", [join])
    _hold(inner, few, built)
    held = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    select.set("from_", exp.From(this=held))


def _plain(select: exp.Select, joins: list[exp.Join]) -> bool:
    """Whether every column says which source it is of, and no inner query means another one by the same name."""
    if any(join.args.get("using") or join.method or isinstance(join.this, exp.Lateral) for join in joins):
        return False
    names = [source.this.alias_or_name.lower() for source in (select.args["from_"], *joins)]
    if len(set(names)) < len(names) or not all(names) or any(select.find_all(exp.Star)):
        return False
    for found in select.find_all(exp.Column):
        own = found.find_ancestor(exp.Select) is select
        if own != (found.table.lower() in names):
            return False
    return True
