"""Carried rows: a stage's query that tells, beside each row of its answer, the input rows that gave it.

What it is: ``carried`` rewrites the text of a stage, which the compiler wrote. Every leaf has a column ``_row`` that
tells its rows apart, and the rewritten query hands it up as ``_row_l0``, ``_row_l1`` and so on.
Invariants: expressions stay as they are written. Joins, conditions, explosions and projections are as before, so a row
of the answer stands beside exactly the rows that were joined for it. Groups are taken apart: a GROUP BY becomes the
rows that it groups, and what was aggregated is an output no more. A session stays whole: beside it stand the rows of
its groups whose time is in it, for how long it is is known only when it is made. Beside a window function stand the
values of its PARTITION BY, as ``_part0`` and so on. Of EXCEPT and of an anti join the right side gives nothing: it
matters by what is not there. What the rewriting does not know is refused (``NotCarried``), never guessed.
Not here: which rows of the answer are wanted, and what is done instead of a refused text (``stage_lineage.py``).
Read next: ``stage_lineage.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from headwater.views.compiler.frontend.parse import trees
from headwater.views.compiler.frontend.time_windows import is_call
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import (
    Node,
    aggregates,
    bare,
    column,
    columns,
    conjunction,
    conjuncts,
    has_subquery,
    is_grouped,
    named,
    output_name,
    unaliased,
)

ROW = "_row"  # of a leaf: a struct that tells its rows apart; null where an outer join has no row
PART = "_part"  # before a number: a value that the PARTITION BY of window functions has
SESSION = "_session"  # told like a leaf: the session that a row of the answer is of
GROUP = "_group"  # before a number: what a row's session is grouped by beside its time
UNKNOWN = ("with_", "limit", "offset", "qualify", "pivots", "connect", "sample", "match", "windows")
RANKS = {"row_number", "rank", "dense_rank"}


class NotCarried(Exception):
    """A text that the rewriting does not know."""


def row_column(leaf: str) -> str:
    """The output that has the rows of a leaf.

    >>> row_column("_l0")
    '_row_l0'
    """
    return f"{ROW}{leaf}"


@dataclass(frozen=True)
class CarriedQuery:
    """A rewritten text."""

    sql: str
    leaves: tuple[str, ...]  # whose rows it has
    outputs: frozenset[str]  # of the text's own: those that it still has
    absent: frozenset[str]  # leaves that matter by what is not there
    sessions: bool = False  # it has ``row_column(SESSION)``, too
    grouped: bool = False
    windowed: bool = False
    parts: tuple[str, ...] = ()  # the outputs that tell the partition of a window function apart
    rank: str = ""  # the output that is a rank, where it is the only window function
    joined: bool = False


@dataclass
class _Part:
    """A query on its way up."""

    query: exp.Query
    leaves: list[str]
    lost: set[str] = field(default_factory=set)  # outputs that are gone
    windowed: bool = False
    parts: list[str] = field(default_factory=list)


def carried(sql: str, *, partitions: bool = False) -> CarriedQuery:
    """The text with the rows of its leaves.

    With ``partitions`` no condition on window functions holds: the answer has every row of a partition.

    >>> found = carried("SELECT _l0.`a` AS `a`, max(_l0.`b`) AS `m` FROM _l0 WHERE _l0.`b` > 3 GROUP BY _l0.`a`")
    >>> print(found.sql)
    SELECT _l0.`a` AS `a`, `_l0`.`_row` AS `_row_l0` FROM _l0 WHERE _l0.`b` > 3
    >>> sorted(found.outputs), found.grouped
    (['a'], True)
    """
    (tree,) = trees(sql)
    if not isinstance(tree, exp.Query):
        raise NotCarried("it is no query")
    names = {output_name(part) for part in tree.selects}
    work = _Carrying(partitions)
    ranks = list(_ranks(tree))
    part = work.query(tree)
    return CarriedQuery(
        text(part.query),
        tuple(leaf for leaf in dict.fromkeys(part.leaves) if leaf != SESSION),
        frozenset(names - part.lost),
        frozenset(work.absent - set(part.leaves)),
        SESSION in part.leaves,
        work.grouped,
        part.windowed,
        tuple(part.parts),
        ranks[0] if len(ranks) == 1 and ranks[0] in names else "",
        work.joined,
    )


def _ranks(tree: Node) -> Iterator[str]:
    """The outputs that are window functions; an empty name for one that is no rank."""
    for select in tree.find_all(exp.Select):
        for part in select.selects:
            if part.find(exp.Window):
                call = unaliased(part)
                is_rank = isinstance(call, exp.Window) and text(call.this).partition("(")[0].lower() in RANKS
                yield output_name(part) if is_rank else ""


class _Carrying:
    """One text."""

    def __init__(self, partitions: bool) -> None:
        self.partitions = partitions
        self.absent: set[str] = set()
        self.grouped = self.joined = False

    def query(self, query: Node) -> _Part:
        if isinstance(query, exp.Subquery):
            return self.query(query.this)
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query)
        if isinstance(query, exp.Select):
            return self._select(query)
        raise NotCarried(f"{type(query).__name__} is not known")

    def _set_operation(self, query: exp.SetOperation) -> _Part:
        left = self.query(query.this.copy())
        if isinstance(query, exp.Except) and query.args.get("distinct"):
            self.absent |= _leaves(query.expression)
            return left
        right = self.query(query.expression.copy())
        if left.lost or right.lost or left.windowed or right.windowed:
            raise NotCarried("a part of a set operation has groups or windows")
        every = list(dict.fromkeys([*left.leaves, *right.leaves]))
        for part in (left, right):
            _reorder(part, every)
        return _Part(exp.Union(this=left.query, expression=right.query, distinct=False), every)

    def _select(self, select: exp.Select) -> _Part:
        if any(select.args.get(name) for name in UNKNOWN):
            raise NotCarried("it has a clause that is not known")
        select = select.copy()
        select.set("order", None)
        select.set("distinct", None)
        groups = group.expressions if (group := select.args.get("group")) is not None else []
        if any(_is_session(part) for part in groups):
            return self._sessions(select, groups)
        leaves: list[tuple[str, exp.Column]] = []
        lost: dict[str, set[str]] = {}  # {source: outputs}
        below: list[tuple[str, list[str]]] = []  # sources with window functions, and what tells their partitions
        clause = select.args.get("from_")
        if clause is not None:
            self._source(clause, leaves, lost, below)
        for join in select.args.get("joins") or []:
            self._join(join, leaves, lost, below)
        for lateral in select.args.get("laterals") or []:
            if _uses(lateral, lost):
                raise NotCarried("it explodes what was aggregated")
        where = select.args.get("where")
        if where is not None and below and self.partitions:
            select.set("where", None)
        elif where is not None:
            if has_subquery(where.this):
                raise NotCarried("it has a subquery")
            left = [part for part in conjuncts(where.this) if not _uses(part, lost)]
            condition = conjunction(left)
            select.set("where", exp.Where(this=condition) if condition is not None else None)
        windows = [found for part in select.selects for found in part.find_all(exp.Window)]
        if len(below) + bool(windows) > 1:
            raise NotCarried("it has window functions over window functions")
        parts = _partition(windows) if windows else [column(source, name) for source, names in below for name in names]
        gone = self._outputs(select, lost)
        for number, part in enumerate(parts):
            select.append("expressions", named(part.copy(), f"{PART}{number}"))
        for leaf, row in leaves:
            select.append("expressions", named(row, row_column(leaf)))
        named_parts = [f"{PART}{number}" for number in range(len(parts))]
        return _Part(select, [leaf for leaf, _ in leaves], gone, bool(windows or below), named_parts)

    def _sessions(self, select: exp.Select, groups: list[Node]) -> _Part:
        """The sessions as the text makes them, each beside the rows whose group and time are its own."""
        if _has_sets(select.args["group"]) or any(isinstance(part, exp.Literal) for part in groups):
            raise NotCarried("it has grouping sets, or groups by place")
        every = [named(part.copy(), SESSION if _is_session(part) else f"{GROUP}{n}") for n, part in enumerate(groups)]
        made, rows = select.copy(), select.copy()
        for part in every:
            made.append("expressions", part.copy())
        rows.set("expressions", every)  # without a group a session is that of the row alone
        rows.set("group", None)
        rows.set("having", None)
        below = self._select(rows)
        if below.lost or below.windowed or SESSION in below.leaves:
            raise NotCarried("sessions over what was aggregated")
        own, other = column("_of", SESSION), column("_by", SESSION)
        same: list[Node] = [
            exp.NullSafeEQ(this=column("_of", part.alias), expression=column("_by", part.alias))
            for part in every
            if part.alias != SESSION
        ]
        start = exp.Dot(this=own, expression=exp.to_identifier("start", quoted=True))
        same.append(exp.GTE(this=start, expression=exp.Dot(this=other.copy(), expression=start.expression.copy())))
        end = exp.Dot(this=other.copy(), expression=exp.to_identifier("end", quoted=True))
        same.append(exp.LT(this=start.copy(), expression=end))
        found = exp.Select(expressions=[named(column("_by", each), each) for each in map(output_name, select.selects)])
        for leaf in below.leaves:
            found.append("expressions", named(column("_of", row_column(leaf)), row_column(leaf)))
        found.append("expressions", named(other.copy(), row_column(SESSION)))
        found.set("from_", exp.From(this=_source_of(below.query, "_of")))
        found.append("joins", exp.Join(this=_source_of(made, "_by"), on=conjunction(same)))
        self.grouped = True
        return _Part(found, [*below.leaves, SESSION])

    # Sources

    def _join(
        self,
        join: exp.Join,
        leaves: list[tuple[str, exp.Column]],
        lost: dict[str, set[str]],
        below: list[tuple[str, list[str]]],
    ) -> None:
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if join.args.get("using") or join.method:
            raise NotCarried("it joins by names")
        on = join.args.get("on")
        if on is not None and (_uses(on, lost) or has_subquery(on)):
            raise NotCarried("it joins by what was aggregated")
        self.joined = True
        if kind == "ANTI":
            self.absent |= _leaves(join.this)
            return
        if kind == "SEMI":  # every partner counts
            join.set("kind", None)
            join.set("side", None)
        elif kind not in ("", "INNER", "OUTER", "CROSS"):
            raise NotCarried(f"a {kind} join is not known")
        before = set(lost)
        self._source(join, leaves, lost, below)
        if on is not None and any(_uses(on, {name: lost[name]}) for name in set(lost) - before):
            if side:
                raise NotCarried("it joins by what was aggregated")
            condition = conjunction(part for part in conjuncts(on) if not _uses(part, lost))
            join.set("on", condition)
            if condition is None:
                join.set("kind", "CROSS")

    def _source(
        self,
        holder: Node,
        leaves: list[tuple[str, exp.Column]],
        lost: dict[str, set[str]],
        below: list[tuple[str, list[str]]],
    ) -> None:
        source = holder.this
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
            if source.args.get("joins") or any(source.args.get(name) for name in ("sample", "pivots", "version")):
                raise NotCarried("a source has a clause that is not known")
            leaves.append((source.name, column(source.alias_or_name, ROW)))
        elif isinstance(source, exp.Subquery):
            if not isinstance(source.this, exp.Query):
                raise NotCarried("a source has a clause that is not known")
            part = self.query(source.this)
            source.set("this", part.query)
            leaves += [(leaf, column(source.alias, row_column(leaf))) for leaf in part.leaves]
            if part.lost:
                lost[source.alias] = part.lost
            if part.windowed:
                below.append((source.alias, part.parts))
        elif _leaves(source):
            raise NotCarried("a source is not known")

    # Outputs

    def _outputs(self, select: exp.Select, lost: dict[str, set[str]]) -> set[str]:
        """Take what was aggregated from the outputs; returns their names."""
        apart = is_grouped(select)
        group = select.args.get("group")
        if group is not None and _has_sets(group):
            raise NotCarried("it has grouping sets")
        kept: list[Node] = []
        gone: set[str] = set()
        for part in select.selects:
            name, value = output_name(part), unaliased(part)
            if has_subquery(value):
                raise NotCarried("it has a subquery")
            if (
                _uses(value, lost)
                or (apart and any(True for _ in aggregates(value)))
                or _is_set_mark(value)
                or (apart and value.find(exp.Window) is not None)
            ):
                gone.add(name)
            else:
                kept.append(part)
        if apart:
            self.grouped = True
            select.set("group", None)
            select.set("having", None)
        select.set("expressions", kept)
        return gone


def _reorder(part: _Part, every: list[str]) -> None:
    """Give a part of a union the rows of all leaves, nulls where it has none."""
    select = part.query
    if isinstance(select, exp.SetOperation):
        inner = exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier("_part")))
        select = exp.Select(expressions=[bare(output_name(each)) for each in part.query.selects])
        select.set("from_", exp.From(this=inner))
        part.query = select
    own = select.selects[: len(select.selects) - len(part.leaves)]
    rows = dict(zip(part.leaves, select.selects[len(own) :], strict=True))
    for leaf in every:
        own.append(rows.get(leaf) or named(exp.Null(), row_column(leaf)))
    select.set("expressions", own)


def _partition(windows: list[exp.Window]) -> list[Node]:
    """The PARTITION BY that window functions share; nothing where they have none, or not the same."""
    (first, *others) = [window.args.get("partition_by") or [] for window in windows]
    return first if all(other == first for other in others) else []


def _leaves(query: Node) -> set[str]:
    return {found.name for found in query.find_all(exp.Table) if isinstance(found.this, exp.Identifier)}


def _uses(expression: Node, lost: dict[str, set[str]]) -> bool:
    """Whether an expression mentions an output that is gone."""
    every = {name for names in lost.values() for name in names}
    return any(found.name in (lost.get(found.table, set()) if found.table else every) for found in columns(expression))


def _is_session(value: Node) -> bool:
    return is_call(value, "session_window")


def _has_sets(group: Node) -> bool:
    return bool(group.find(exp.Rollup, exp.Cube, exp.GroupingSets) or group.args.get("all"))


def _source_of(query: exp.Query, name: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(name)))


def _is_set_mark(value: Node) -> bool:
    return any(
        isinstance(node, exp.Anonymous) and node.name.lower() in ("grouping", "grouping_id") for node in value.walk()
    )
