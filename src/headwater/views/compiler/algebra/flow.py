"""A flow: what is linear or bilinear, and its changes.

What it is: ``Product`` (sources joined, filtered, exploded, projected) and ``Sum`` (UNION ALL), nested as they come,
over mentions of relations; and the terms of their changes with the lookups that keep a term from reading everything.
Invariants: every mention has a name of its own in the whole query. A product's conditions are conjuncts, all of them
of an inner join, so their order and the order of the sources do not matter.
Not here: what is not linear (``plan_nodes.py``); how terms become a plan's stages (``render.py``).
Read next: ``plan_nodes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from headwater.views.compiler.plan import WEIGHT, Factors
from headwater.views.compiler.sql.expressions import Node, column, columns, conjunction, named, sources, table


@dataclass(frozen=True)
class TableRef:
    """A relation, another view or an earlier stage."""

    relation: str


@dataclass(frozen=True)
class ConstantRows:
    """Rows that depend on no relation: VALUES, a table function."""

    source: Node


@dataclass(frozen=True)
class Product:
    """SELECT outputs FROM items, laterals WHERE conditions."""

    items: dict[str, Source]
    outputs: dict[str, Node]
    conditions: tuple[Node, ...] = ()
    laterals: tuple[exp.Lateral, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.outputs)


@dataclass(frozen=True)
class Sum:
    """UNION ALL. The parts have as many outputs as the first one, which names them."""

    parts: tuple[Flow, ...] = field(default=())

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts[0].names


Flow = Product | Sum
Source = TableRef | ConstantRows | Product | Sum


def leaves(source: Source, alias: str = "") -> Iterator[tuple[str, str]]:
    """Every mention as (alias, relation), in the order of the tree."""
    if isinstance(source, TableRef):
        yield alias, source.relation
    elif isinstance(source, Product):
        for name, item in source.items.items():
            yield from leaves(item, name)
    elif isinstance(source, Sum):
        for part in source.parts:
            yield from leaves(part)


def single(flow: Source) -> tuple[str, str] | None:
    """The one mention of a flow that has just one, and is no union with constants."""
    found = list(leaves(flow))
    return found[0] if len(found) == 1 and not isinstance(flow, Sum) else None


def only(source: Source, leaf: str) -> Source:
    """What a change of one mention flows through: of each union the branch that holds it."""
    if isinstance(source, Sum):
        return only(next(part for part in source.parts if holds(part, leaf)), leaf)
    if isinstance(source, Product):
        items = {name: only(item, leaf) if holds(item, leaf) else item for name, item in source.items.items()}
        return replace(source, items=items)
    return source


def holds(source: Source, leaf: str) -> bool:
    """Whether a mention stands somewhere inside. Mentions are found by the alias above them."""
    return any(alias == leaf for alias, _ in leaves(source)) if not isinstance(source, TableRef) else False


def factors(source: Source, label: Mapping[str, str], alias: str = "") -> Factors:
    """What is multiplied in a flow, its mentions called by their labels."""
    if isinstance(source, TableRef):
        return (label[alias],)
    if isinstance(source, Product):
        return tuple(found for name, item in source.items.items() for found in factors(item, label, name))
    if isinstance(source, Sum):
        branches = tuple(factors(part, label) for part in source.parts)
        return branches[0] if len(branches) == 1 else (branches,)
    return ()


def constant(source: Source) -> Source | None:
    """The part of a flow that depends on no relation; None when it has none."""
    if isinstance(source, TableRef):
        return None
    if isinstance(source, ConstantRows):
        return source
    if isinstance(source, Sum):
        parts = [part for part in map(constant, source.parts) if part is not None]
        return Sum(tuple(parts)) if parts else None  # type: ignore[arg-type]
    items = {name: constant(item) for name, item in source.items.items()}
    if any(item is None for item in items.values()):
        return None
    return replace(source, items=items)  # type: ignore[arg-type]


def to_query(flow: Flow, *, weighted: bool = False, first: str = "") -> exp.Query:
    """The flow as SQL over tables named as the relations, beginning with the mention ``first``."""
    if isinstance(flow, Sum):
        branches = [to_query(part, weighted=weighted, first=first) for part in flow.parts]
        union: exp.Query = branches[0]
        for branch in branches[1:]:
            union = exp.Union(this=union, expression=branch, distinct=False)
        return union
    return _select(flow, weighted=weighted, first=first)


def _select(product: Product, *, weighted: bool, first: str) -> exp.Select:
    select = exp.Select()
    for name, output in product.outputs.items():
        select.append("expressions", named(output, name))
    if weighted:
        select.append("expressions", named(_weight(product), WEIGHT))
    waiting = list(product.conditions)
    placed: set[str] = set()
    for alias in _order(product, first):
        placed.add(alias)
        source = _from(product.items[alias], alias, weighted=weighted, first=first)
        if len(placed) == 1:
            select.set("from_", exp.From(this=source))
            continue
        ready = [condition for condition in waiting if alias in sources(condition) and sources(condition) <= placed]
        waiting = [condition for condition in waiting if not any(condition is other for other in ready)]
        on = conjunction(ready)
        select.append("joins", exp.Join(this=source, on=on) if on else exp.Join(this=source, kind="CROSS"))
    for lateral in product.laterals:
        select.append("laterals", lateral.copy())
    where = conjunction(waiting)
    if where is not None:
        select.set("where", exp.Where(this=where))
    return select


def _from(source: Source, alias: str, *, weighted: bool, first: str) -> Node:
    name = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    if isinstance(source, TableRef):
        return table(source.relation, alias)
    if isinstance(source, ConstantRows):
        rows = source.source.copy()
        rows.args["alias"].set("this", name.this)
        return rows
    inner = weighted and any(True for _ in leaves(source))
    return exp.Subquery(this=to_query(source, weighted=inner, first=first), alias=name)


def _weight(product: Product) -> Node:
    factors = [
        column(alias, WEIGHT)
        for alias, item in product.items.items()
        if isinstance(item, TableRef) or any(True for _ in leaves(item))
    ]
    if not factors:
        return exp.cast(exp.Literal.number(1), "BIGINT")
    weight: Node = factors[0]
    for factor in factors[1:]:
        weight = exp.Mul(this=weight, expression=factor)
    return weight


def _order(product: Product, first: str) -> list[str]:
    """The sources, beginning with the one that holds ``first``, then along the equalities, so that no join is a cross
    join that need not be one."""
    waiting = list(product.items)
    links = [sources(condition) for condition in product.conditions if isinstance(condition, exp.EQ)]
    beginning = next((alias for alias in waiting if alias == first or holds(product.items[alias], first)), None)
    order: list[str] = []
    while waiting:
        following = beginning if not order else None
        if following is None:
            following = next(
                (alias for alias in waiting if any(alias in link and link & set(order) for link in links)), waiting[0]
            )
        waiting.remove(following)
        order.append(following)
    return order


@dataclass(frozen=True)
class LookupLink:
    """Where a mention's rows can be looked up: its columns equal these columns of another mention."""

    columns: tuple[str, ...]
    source: str
    source_columns: tuple[str, ...]


def links(flow: Flow, changed: str, comparable: Callable[[str, str, str, str], bool]) -> dict[str, LookupLink]:
    """A lookup for each mention that can be reached from the changed one along plain equalities."""
    pairs = list(_pairs(flow, comparable))
    waiting = [alias for alias, _ in leaves(flow) if alias != changed]
    reached = [changed]
    found: dict[str, LookupLink] = {}
    while True:
        following = next((link for link in (_link(alias, reached, pairs) for alias in waiting) if link), None)
        if following is None:
            return found
        alias, link = following
        found[alias] = link
        waiting.remove(alias)
        reached.append(alias)


Pair = tuple[str, str, str, str]  # column of a mention = column of a mention that may be the source


def _link(alias: str, reached: list[str], pairs: list[Pair]) -> tuple[str, LookupLink] | None:
    best: LookupLink | None = None
    for source in reached:  # the changed mention comes first: fewest rows
        equal = [(left, right) for target, left, other, right in pairs if target == alias and other == source]
        one_each = dict(equal)
        if one_each and (best is None or len(one_each) > len(best.columns)):
            best = LookupLink(columns=tuple(one_each), source=source, source_columns=tuple(one_each.values()))
    return (alias, best) if best else None


def _pairs(source: Source, comparable: Callable[[str, str, str, str], bool]) -> Iterator[Pair]:
    if isinstance(source, Sum):
        for part in source.parts:
            yield from _pairs(part, comparable)
    if not isinstance(source, Product):
        return
    for item in source.items.values():
        yield from _pairs(item, comparable)
    for condition in source.conditions:
        if not isinstance(condition, exp.EQ):
            continue
        left, right = condition.this.unnest(), condition.expression.unnest()
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            yield from _pairs_of(source, left, right, comparable)
            yield from _pairs_of(source, right, left, comparable)


def _pairs_of(
    product: Product, target: exp.Column, origin: exp.Column, comparable: Callable[[str, str, str, str], bool]
) -> Iterator[Pair]:
    origins = list(_origins(product, origin))
    if len(origins) != 1 or origins[0] is None:
        return  # of a union: no single mention has all the values
    relations = dict(leaves(product))
    source, source_column = origins[0]
    for found in _origins(product, target):
        if found is None or found[0] == source:
            continue
        if comparable(relations[found[0]], found[1], relations[source], source_column):
            yield (*found, source, source_column)


def _origins(product: Product, wanted: exp.Column) -> Iterator[tuple[str, str] | None]:
    """The mentions and columns that a column comes from unchanged; None for each branch where it does not."""
    item = product.items.get(wanted.table)
    if isinstance(item, TableRef):
        yield wanted.table, wanted.name
    elif isinstance(item, Product | Sum):
        yield from _origins_of_output(item, item.names.index(wanted.name))
    else:
        yield None


def _origins_of_output(flow: Flow, place: int) -> Iterator[tuple[str, str] | None]:
    if isinstance(flow, Sum):
        for part in flow.parts:
            yield from _origins_of_output(part, place)
        return
    output = flow.outputs[flow.names[place]].unnest()
    if isinstance(output, exp.Column):
        yield from _origins(flow, output)
    else:
        yield None


def used(query: Node) -> dict[str, list[str]]:
    """The columns that a query uses of each source, in order of mention."""
    found: dict[str, list[str]] = {}
    for mention in columns(query):
        names = found.setdefault(mention.table, [])
        if mention.name not in names and mention.name != WEIGHT:
            names.append(mention.name)
    return found
