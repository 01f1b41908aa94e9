"""Grouping: what GROUP BY means beyond a list of expressions.

What it is: GROUP BY ALL, GROUPING SETS, ROLLUP and CUBE, and aggregates over DISTINCT values, written as plain groups
and aggregates over more rows: each row is repeated with a tag for each set of groups or each DISTINCT.
Invariants: one aggregation stays one stage, two with DISTINCT aggregates, however many sets there are.
Not here: the stages (``aggregation.py``).
Read next: ``aggregation.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, combinations

from sqlglot import exp

from headwater.views.compiler.algebra.flow import ConstantRows
from headwater.views.compiler.algebra.plan_nodes import Unsupported
from headwater.views.compiler.algebra.select_block import SelectBlock
from headwater.views.compiler.algebra.sketches import is_sketch
from headwater.views.compiler.sql.builtin_functions import aggregate_name, distinct_values
from headwater.views.compiler.sql.expressions import (
    Node,
    canonical,
    column,
    columns,
    conjunction,
    named,
    output_name,
    position,
    unaliased,
)

Aggregates = Callable[[Node], Iterator[Node]]

COUNTED = {"count": exp.Count, "sum": exp.Sum, "avg": exp.Avg}

FAMILIES = (exp.Rollup, exp.Cube, exp.GroupingSets)


def group_expressions(select: exp.Select, aggregates: Aggregates) -> tuple[list[Node], list[list[int]] | None]:
    """The groups of a SELECT and, when it has several sets of them, the sets, as places in the list of groups."""
    group = select.args.get("group")
    if group is None:
        return [], None
    if group.args.get("all"):
        shown = [unaliased(projection) for projection in select.expressions]
        return [
            part.copy()
            for part in shown
            if any(True for _ in columns(part)) and not any(True for _ in aggregates(part))
        ], None
    groups: list[Node] = []

    def place(part: Node) -> int:
        part = part.unnest()
        found = position(part, groups)
        if found is None:
            groups.append(part.copy())
            return len(groups) - 1
        return found

    clauses = [part for part in group.expressions if isinstance(part, FAMILIES)]
    plain = [place(part) for part in group.expressions if not isinstance(part, FAMILIES)]
    # Behind the list, without a comma: GROUP BY a, b WITH ROLLUP, GROUP BY a, b GROUPING SETS ((a), (b)). The list
    # then only names the groups.
    behind = [clause for kind in ("rollup", "cube", "grouping_sets") for clause in group.args.get(kind) or []]
    if group.args.get("totals"):
        raise Unsupported("WITH TOTALS")
    if not clauses and not behind:
        return groups, None
    sets: list[list[int]] = [[]]
    for clause in (*clauses, *behind):
        family = _family(clause, place) if clause.expressions else _powers(clause, [[each] for each in plain])
        sets = [[*left, *right] for left in sets for right in family]
    found = [sorted({*(plain if not behind else ()), *each}) for each in sets]
    if not any(found):  # GROUPING SETS (()): one group, which is there without rows too
        if len(found) > 1 or any(aggregate_name(part) in ("grouping", "grouping_id") for part in select.walk()):
            raise Unsupported("several empty sets of groups")
        return [], None
    return groups, found


def _powers(clause: Node, parts: list[list[int]]) -> list[list[int]]:
    return _prefixes(parts) if isinstance(clause, exp.Rollup) else _subsets(parts)


def _prefixes(parts: list[list[int]]) -> list[list[int]]:
    return [list(chain(*parts[:length])) for length in range(len(parts), -1, -1)]


def _subsets(parts: list[list[int]]) -> list[list[int]]:
    return [list(chain(*chosen)) for length in range(len(parts), -1, -1) for chosen in combinations(parts, length)]


def _family(clause: Node, place: Callable[[Node], int]) -> list[list[int]]:
    """The sets that one ROLLUP, CUBE or GROUPING SETS stands for."""
    parts = [_members(part, place) for part in clause.expressions]
    if isinstance(clause, exp.Rollup):
        return _prefixes(parts)
    if isinstance(clause, exp.Cube):
        return _subsets(parts)
    sets: list[list[int]] = []
    for part, members in zip(clause.expressions, parts, strict=True):
        sets += _family(part, place) if isinstance(part, FAMILIES) else [members]
    return sets


def _members(part: Node, place: Callable[[Node], int]) -> list[int]:
    if isinstance(part, exp.Tuple):
        return [place(each) for each in part.expressions]
    if isinstance(part, FAMILIES):
        return []
    return [place(part)]


def expand_sets(block: SelectBlock, groups: list[Node], sets: list[list[int]]) -> list[Node]:
    """Repeat each row for each set, with the groups that the set leaves out as nulls. Gives the new groups.

    As in Spark, there is no row for the empty set when there are no rows at all.
    """
    tag = tags(block, len(sets))
    nulled = [
        _when(tag, [number for number, each in enumerate(sets) if place in each], group)
        for place, group in enumerate(groups)
    ]

    def bits(places: list[int]) -> Node:
        """grouping_id: a bit for each group, set when the group is left out."""
        case = exp.Case(this=tag.copy())
        for number, each in enumerate(sets):
            value = sum(1 << (len(places) - 1 - bit) for bit, place in enumerate(places) if place not in each)
            case.append("ifs", exp.If(this=exp.Literal.number(number), true=exp.Literal.number(value)))
        return case

    def change(node: Node) -> Node:
        if isinstance(node, exp.Grouping) or _called(node, "grouping"):
            places = [_place(part, groups) for part in node.expressions or [node.this]]
            return exp.cast(bits(places), "TINYINT")
        if isinstance(node, exp.GroupingId) or _called(node, "grouping_id"):
            places = [_place(part, groups) for part in node.expressions] or list(range(len(groups)))
            return exp.cast(bits(places), "BIGINT")
        if aggregate_name(node) is not None or isinstance(node, exp.Identifier):
            return node
        found = position(node, groups)
        return nulled[found].copy() if found is not None else node

    _rewrite(block.rest, change)
    groups_and_tag: list[Node] = [*nulled, tag]
    block.rest.set("group", exp.Group(expressions=[group.copy() for group in groups_and_tag]))
    return groups_and_tag


def _called(node: Node, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == name


def _place(part: Node, groups: list[Node]) -> int:
    found = position(part, groups)
    if found is None:
        raise Unsupported("grouping() of something that is not grouped")
    return found


def _rewrite(select: exp.Select, change: Callable[[Node], Node]) -> None:
    """Rewrite the outputs, HAVING, QUALIFY and ORDER BY, but not what stands inside an aggregate."""

    def outside_aggregates(node: Node) -> Node:
        parent = node.parent
        while parent is not None:
            # FILTER (WHERE …) and WITHIN GROUP (ORDER BY …) stand around the aggregate, and are part of it.
            inside = isinstance(parent, exp.Filter | exp.WithinGroup) or aggregate_name(parent) is not None
            if inside and not isinstance(parent, exp.Grouping | exp.GroupingId):
                return node
            parent = parent.parent
        return change(node)

    for clause in ("expressions", "having", "qualify", "order"):
        given = select.args.get(clause)
        if isinstance(given, list):
            select.set(clause, [_projected(part, outside_aggregates) for part in given])
        elif given is not None:
            select.set(clause, given.transform(outside_aggregates))


def _projected(projection: Node, change: Callable[[Node], Node]) -> Node:
    return named(unaliased(projection).transform(change), output_name(projection))


def tags(block: SelectBlock, count: int) -> exp.Column:
    """Join the numbers 0 … count - 1: every row is repeated for each."""
    alias = block.workshop.fresh("tags")
    rows = [exp.Tuple(expressions=[exp.Literal.number(number)]) for number in range(count)]
    name = exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=[exp.to_identifier("tag", quoted=True)])
    block.items[alias] = ConstantRows(exp.Values(expressions=rows, alias=name))
    return column(alias, "tag")


def _when(tag: Node, numbers: list[int], value: Node) -> Node:
    listed = [exp.Literal.number(number) for number in numbers] or [exp.Literal.number(-1)]
    test = exp.In(this=tag.copy(), expressions=listed)
    return exp.Case(ifs=[exp.If(this=test, true=value.copy())])


def expand_distinct(
    block: SelectBlock,
    groups: list[Node],
    calls: list[Node],
    *,
    aggregate: Callable[[SelectBlock], None],
    accumulates: Callable[[SelectBlock, list[Node]], bool],
) -> bool:
    """Turn aggregates over DISTINCT values into plain ones over an aggregation by group and value.

    Each row is repeated once for the plain aggregates (tag 0) and once for each DISTINCT; the inner aggregation is by
    group, tag and value; the outer one counts or sums the values of each tag. False: nothing was done.
    """
    over_distinct = [call for call in calls if _distinct_values(call) is not None]
    plain = [call for call in calls if _distinct_values(call) is None]
    if not over_distinct or any(_name(call) not in COUNTED for call in over_distinct):
        return False
    if any(_name(call) in ("min", "max") or is_sketch(_name(call)) for call in plain) or not accumulates(block, plain):
        return False
    inner = SelectBlock(
        block.workshop, exp.Select(), dict(block.items), [*block.conditions], [*block.laterals], [*block.where]
    )
    tag = tags(inner, len(over_distinct) + 1) if plain or len(over_distinct) > 1 else None
    columns_of: dict[str, Node] = {f"g__{place}": group for place, group in enumerate(groups)}
    columns_of |= {"tag": tag} if tag is not None else {}
    values: list[list[str]] = []
    for number, call in enumerate(over_distinct, start=1):
        names = [f"v__{number}_{place}" for place in range(len(_distinct_values(call) or ()))]
        columns_of |= dict(zip(names, _tagged(call, tag, number), strict=True))
        values.append(names)
    inner.rest = exp.Select(expressions=[named(part, name) for name, part in columns_of.items()])
    group_by(inner, columns_of, plain)
    aggregate(inner)
    flow = inner.product({output_name(part): unaliased(part) for part in inner.rest.expressions})
    types = {found.name: found.type for found in block.workshop.types_of(flow)}

    alias = block.start_over(flow)
    new_calls: dict[Node, Node] = {}
    for call, names in zip(over_distinct, values, strict=True):
        new_calls[canonical(call)] = _over_values(call, [column(alias, name) for name in names])
    answer_from_groups(block, alias, groups, plain, new_calls, types)
    return True


def group_by(inner: SelectBlock, columns_of: dict[str, Node], plain: Sequence[Node]) -> None:
    """Group the flow of an inner query by these columns; the plain aggregates follow what it selects."""
    for place, call in enumerate(plain):
        inner.rest.append("expressions", named(call, f"p__{place}"))
    inner.rest.set("group", exp.Group(expressions=[part.copy() for part in columns_of.values()]))


def answer_from_groups(
    block: SelectBlock,
    alias: str,
    groups: Sequence[Node],
    plain: Sequence[Node],
    new_calls: dict[Node, Node],
    types: Mapping[str, str | None],
) -> None:
    """Let the block read what an inner query grouped: ``g__N`` for its groups, ``p__N`` for plain aggregates."""
    known = {canonical(group): column(alias, f"g__{place}") for place, group in enumerate(groups)}
    for place, call in enumerate(plain):
        name = f"p__{place}"
        new_calls[canonical(call)] = _over_one(call, column(alias, "tag"), column(alias, name), types[name])

    def change(node: Node) -> Node:
        if isinstance(node, exp.Alias | exp.Identifier):
            return node
        found = new_calls.get(canonical(node)) or known.get(canonical(node))
        return found.copy() if found is not None else node

    block.rest.set("group", exp.Group(expressions=list(known.values())) if groups else None)
    rest = block.rest.transform(lambda node: node if isinstance(node, exp.Group) else change(node))
    assert isinstance(rest, exp.Select)
    block.rest = rest
    block.settle(alias)


def _call(call: Node) -> Node:
    return call.this if isinstance(call, exp.Filter) else call


def _name(call: Node) -> str | None:
    return aggregate_name(_call(call))


def _distinct_values(call: Node) -> list[Node] | None:
    return distinct_values(_call(call))


def _tagged(call: Node, tag: Node | None, number: int) -> list[Node]:
    """The values of a DISTINCT, null on rows that are not repeated for it or that its FILTER leaves out."""
    tests: list[Node] = [exp.EQ(this=tag.copy(), expression=exp.Literal.number(number))] if tag is not None else []
    tests += [call.expression.this.copy()] if isinstance(call, exp.Filter) else []
    values = _distinct_values(call) or []
    condition = conjunction(tests)
    if condition is None:
        return [value.copy() for value in values]
    return [exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())]) for value in values]


def _over_values(call: Node, values: list[Node]) -> Node:
    kind = COUNTED[_name(call) or ""]
    if kind is exp.Count and len(values) > 1:
        known = [exp.Not(this=exp.Is(this=value, expression=exp.Null())) for value in values]
        return exp.CountIf(this=conjunction(known))
    return kind(this=values[0])


def _over_one(call: Node, tag: Node, value: Node, kind: str | None) -> Node:
    """A plain aggregate read from the one row of its group that has tag 0."""
    test = exp.EQ(this=tag, expression=exp.Literal.number(0))
    only = exp.Case(ifs=[exp.If(this=test, true=value)])
    name = _name(call)
    if name in ("bool_or", "bool_and"):
        return exp.LogicalOr(this=only)
    total: Node = exp.Sum(this=only)
    if name in ("count", "count_if"):
        return exp.Coalesce(this=total, expressions=[exp.Literal.number(0)])
    return exp.cast(total, kind, dialect="spark") if kind is not None else total
