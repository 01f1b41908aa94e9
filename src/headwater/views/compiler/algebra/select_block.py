"""A block: one SELECT while it is being compiled.

What it is: the sources joined so far, the conditions, and the rest of the SELECT. Step by step outer joins, subqueries,
aggregates and windows are replaced by stages, until what is left is a flow.
Invariants: ``conditions`` belong to the inner joins so far; ``where`` is applied when all joins are done. Whoever
replaces a source rewrites its columns everywhere (``substitute``), in what is still to come too.
Not here: the steps themselves (``views/compiler/query_compiler.py`` calls them in order).
Read next: ``views/compiler/query_compiler.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

from sqlglot import exp

from headwater.views.compiler.algebra.flow import Flow, Product, Source
from headwater.views.compiler.algebra.plan_nodes import CompileContext, Unsupported
from headwater.views.compiler.sql.expressions import (
    Node,
    column,
    columns,
    has_subquery,
    has_time_window,
    is_row_wise,
    sources,
    substitute,
)

# The clauses of a SELECT that a block keeps as they are until their step comes.
REST = ("expressions", "group", "having", "qualify", "windows", "distinct", "order", "limit", "offset")


@dataclass
class SelectBlock:
    """A SELECT being compiled."""

    workshop: CompileContext
    rest: exp.Select
    items: dict[str, Source] = field(default_factory=dict)
    conditions: list[Node] = field(default_factory=list)
    laterals: list[exp.Lateral] = field(default_factory=list)
    where: list[Node] = field(default_factory=list)
    joins: list[exp.Join] = field(default_factory=list)  # those still to come
    watched: list[list[Node]] = field(default_factory=list)  # what somebody holds in hand meanwhile

    def add(self, alias: str, source: Source) -> None:
        """Join a source. What a plain product is made of becomes the block's own, so that joins can be reordered."""
        if not isinstance(source, Product) or source.laterals or not self._can_take_apart(source):
            self.items[alias] = source
            return
        self.items.update(source.items)
        self.conditions += source.conditions
        self.substitute(lambda found: source.outputs[found.name] if found.table == alias else None)

    def _can_take_apart(self, source: Product) -> bool:
        """Whether its outputs may be computed wherever they are mentioned.

        Not above a join that fills this side with nulls: ``1 AS n`` is null there.
        """
        if self.will_be_filled and not all(isinstance(output, exp.Column) for output in source.outputs.values()):
            return False
        return not any(map(has_time_window, source.outputs.values()))

    @property
    def will_be_filled(self) -> bool:
        """Whether a join is still to come that fills all sources so far with nulls."""
        return any(later.side.upper() in ("RIGHT", "FULL") for later in self.joins)

    def parts(self) -> Iterator[Node]:
        """Everything that mentions columns."""
        yield self.rest
        yield from self.conditions
        yield from self.laterals
        yield from self.where
        yield from self.joins
        for held in self.watched:
            yield from held

    def substitute(self, replacement: Callable[[exp.Column], Node | None]) -> None:
        """Exchange columns everywhere."""
        self.rest = cast(exp.Select, substitute(self.rest, replacement))
        self.conditions = [substitute(part, replacement) for part in self.conditions]
        self.laterals = [cast(exp.Lateral, substitute(part, replacement)) for part in self.laterals]
        self.where = [substitute(part, replacement) for part in self.where]
        self.joins = [cast(exp.Join, substitute(part, replacement)) for part in self.joins]
        self.watched = [[substitute(part, replacement) for part in held] for held in self.watched]

    def watch(self, *expressions: Node) -> None:
        """Keep expressions in step with the block until ``unwatch`` gives them back."""
        self.watched.append([expression.copy() for expression in expressions])

    def unwatch(self) -> list[Node]:
        """What was given to the last ``watch``, with every column as it is called now."""
        return self.watched.pop()

    def used(self, *aliases: str) -> list[tuple[str, str]]:
        """The columns of some sources that something mentions."""
        found: dict[tuple[str, str], None] = {}
        for part in self.parts():
            for mention in columns(part):
                if mention.table in aliases:
                    found[mention.table, mention.name] = None
        return list(found)

    def product(self, outputs: dict[str, Node]) -> Product:
        """The block as a flow with these outputs, when only inner joins are left in it."""
        if any(map(has_subquery, (*outputs.values(), *self.conditions, *self.where, *self.laterals))):
            raise Unsupported("a subquery in an unusual place")  # its tables would be no leaves
        return Product(
            items=dict(self.items),
            outputs=dict(outputs),
            conditions=(*self.conditions, *self.where),
            laterals=tuple(self.laterals),
        )

    def taken(self, alias: str, *, where: bool = True) -> list[Node]:
        """The conditions on one source alone, which leave the block: what replaces the source applies them first.

        A query may guard an expression by them: ``v <> 0 AND NOT EXISTS (… = 10 / v)``. ``where``: those of WHERE too.
        """
        every = [*self.conditions, *(self.where if where else ())]
        own = [part for part in every if sources(part) == {alias} and is_row_wise(part)]
        self.conditions = [part for part in self.conditions if not any(part is other for other in own)]
        self.where = [part for part in self.where if not any(part is other for other in own)]
        return own

    def merge(self, *also: Node) -> tuple[str, list[Node]]:
        """Make all sources so far into one. Gives its name, and ``also`` rewritten to it."""
        wanted = dict.fromkeys(self.used(*self.items, *(lateral.alias for lateral in self.laterals)))
        for part in also:
            wanted.update(dict.fromkeys((found.table, found.name) for found in columns(part) if self.owns(found.table)))
        alias = self.workshop.fresh("joined")
        names = output_names(list(wanted))
        outputs: dict[str, Node] = {names[pair]: column(*pair) for pair in wanted}
        inner = Product(
            items=dict(self.items), outputs=outputs, conditions=tuple(self.conditions), laterals=tuple(self.laterals)
        )
        self.items, self.conditions, self.laterals = {alias: inner}, [], []
        change = renaming(alias, names)
        self.substitute(change)
        return alias, [substitute(part, change) for part in also]

    def owns(self, alias: str) -> bool:
        """Whether a name is one of the block's sources."""
        return alias in self.items or any(lateral.alias == alias for lateral in self.laterals)

    def replace_source(self, aliases: tuple[str, ...], flow: Flow, names: dict[tuple[str, str], str]) -> None:
        """Put a flow in the place of some sources; ``names`` tells which output a column has become."""
        for alias in aliases:
            self.items.pop(alias, None)
        new = self.workshop.fresh("part")
        self.substitute(renaming(new, names))
        self.add(new, flow)

    def start_over(self, flow: Flow) -> str:
        """Read from a flow and nothing else, from here on. Gives its name."""
        alias = self.workshop.fresh("part")
        self.items, self.conditions, self.laterals, self.where = {}, [], [], []
        self.items[alias] = flow
        return alias

    def settle(self, alias: str) -> None:
        """Take the product that is the source ``alias`` apart, once all columns are rewritten to it."""
        source = self.items.pop(alias)
        self.add(alias, source)


def output_names(pairs: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """``alias__column`` for each, all different."""
    names: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for alias, name in pairs:
        new = f"{alias.lstrip('_')}__{name.lstrip('_')}"
        while new in taken:
            new += "_"
        taken.add(new)
        names[alias, name] = new
    return names


def renaming(alias: str, names: dict[tuple[str, str], str]) -> Callable[[exp.Column], Node | None]:
    """The replacement of columns by the outputs of one source."""

    def change(found: exp.Column) -> Node | None:
        name = names.get((found.table, found.name))
        return column(alias, name) if name else None

    return change
