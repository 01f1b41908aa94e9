"""Drafts: stages while a view is being compiled, and the workshop that keeps them.

What it is: one class per kind of stage, holding syntax trees instead of text, and ``CompileContext``, which knows the
relations, names new sources, and asks for types.
Invariants: a draft is read by exactly one consumer until the plan is assembled, so a projection or filter above it may
be taken into it (``absorb``), and saves a stage. A draft's name begins with ``$`` and never reaches a plan.
Not here: text (``render.py``); the choice of the kind (``views/compiler/operators/aggregation.py``,
``views/compiler/operators/joins.py``, ``views/compiler/operators/window_functions.py`` …).
Read next: ``views/compiler/query_compiler.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.schema import MappingSchema

from headwater.views.compiler.algebra.accumulators import Accumulator
from headwater.views.compiler.algebra.flow import ConstantRows, Flow, Product, Source, TableRef, leaves, to_query
from headwater.views.compiler.plan import PlanColumn, Relation
from headwater.views.compiler.sql.dialect import SparkTyped, text
from headwater.views.compiler.sql.expressions import (
    Node,
    column,
    conjunction,
    named,
    output_name,
    substitute,
    unaliased,
)

Describe = Callable[[str, Mapping[str, tuple[PlanColumn, ...]]], tuple[PlanColumn, ...]]


class Unsupported(Exception):
    """This part of the query has no cheaper kind: its SELECT becomes a whole stage."""


@dataclass(eq=False)
class PlanNode:
    """What every draft has."""

    name: str
    what: str
    columns: tuple[PlanColumn, ...]
    key: tuple[str, ...] | None = None  # unique columns; () for at most one row; None when nothing is known
    append_only: bool = False
    # Of a table's versions: the key and the beginning. Of one key at most one counts at a moment that is not before it.
    one_at: tuple[str, ...] | None = None
    spans: tuple[str, ...] = ()  # those of the key that are windows of time: the start, or the end, tells them apart

    def absorbs(self, outputs: Mapping[str, Node], conditions: tuple[Node, ...]) -> bool:
        """Whether a projection and a filter over this stage, row by row, can be taken into it."""
        del outputs, conditions
        return True

    def absorb(self, alias: str, outputs: Mapping[str, Node], conditions: tuple[Node, ...]) -> None:
        """Take a projection and a filter over this stage into the stage itself."""
        raise NotImplementedError

    def rename_key(self, outputs: Mapping[str, Node]) -> None:
        """Take the key through a projection; it is not known any more when a part of it is projected away."""
        new: dict[str, str] = {}
        for name, value in outputs.items():
            if isinstance(value, exp.Column):
                new.setdefault(value.name, name)
        for name, value in outputs.items():
            if isinstance(value, exp.Dot) and isinstance(value.this, exp.Column) and value.this.name in self.spans:
                new.setdefault(value.this.name, name)
        whole = {value.name for value in outputs.values() if isinstance(value, exp.Column)}
        self.spans = tuple(new[part] for part in self.spans if part in whole)
        if self.key is not None:
            self.key = tuple(new[part] for part in self.key) if all(part in new for part in self.key) else None


@dataclass(eq=False)
class FlowNode(PlanNode):
    """Linear or bilinear."""

    flow: Flow = field(default_factory=lambda: Product({}, {}))

    def absorbs(self, outputs: Mapping[str, Node], conditions: tuple[Node, ...]) -> bool:
        del outputs, conditions
        return False


@dataclass(eq=False)
class AccumulateNode(PlanNode):
    """GROUP BY with accumulators, or DISTINCT."""

    flow: Flow = field(default_factory=lambda: Product({}, {}))  # yields _g0…, _x0…
    groups: tuple[PlanColumn, ...] = ()
    accumulators: tuple[Accumulator, ...] = ()
    outputs: dict[str, Node] = field(default_factory=dict)  # over _g0…, _n, _a0…
    shown: tuple[Node, ...] = ()
    one_row: bool = False

    def absorb(self, alias: str, outputs: Mapping[str, Node], conditions: tuple[Node, ...]) -> None:
        self.rename_key(outputs)

        def final(mention: exp.Column) -> Node | None:
            return self.outputs[mention.name] if mention.table == alias else None

        self.shown += tuple(substitute(condition, final) for condition in conditions)
        self.outputs = {name: substitute(output, final) for name, output in outputs.items()}


@dataclass(eq=False)
class LeadingNode(PlanNode):
    """The first rows of a flow in an order."""

    flow: Flow = field(default_factory=lambda: Product({}, {}))  # yields _c0…; of one mention
    held: tuple[PlanColumn, ...] = ()  # _c0…
    order: tuple[Node, ...] = ()  # over bare _c0…: the user's
    ties: tuple[Node, ...] = ()  # what tells apart rows that the user's order does not
    shown: dict[str, str] = field(default_factory=dict)  # column → _c… or the number
    number: str = "row_number"
    first: int = 1
    last: int = 1

    def absorbs(self, outputs: Mapping[str, Node], conditions: tuple[Node, ...]) -> bool:
        return not conditions and _are_columns(outputs)

    def absorb(self, alias: str, outputs: Mapping[str, Node], conditions: tuple[Node, ...]) -> None:
        del alias, conditions
        self.rename_key(outputs)
        self.shown = {name: self.shown[output.name] for name, output in outputs.items()}


@dataclass(eq=False)
class KeyedNode(PlanNode):
    """Computed key by key; without keys, from everything (a whole stage)."""

    query: exp.Query = field(default_factory=exp.Select)  # yields the columns, then _k0…
    keys: tuple[PlanColumn, ...] = ()
    inputs: dict[str, tuple[Node, ...]] = field(default_factory=dict)  # mention → key over bare columns
    depth: int = 0
    reason: str = ""  # without keys: why it is computed from everything
    numbered: LeadingNode | None = None  # what it becomes when a filter above bounds the number of the rows
    in_runs: bool = False  # the key is a number, and a change touches all numbers of its run

    def absorbs(self, outputs: Mapping[str, Node], conditions: tuple[Node, ...]) -> bool:
        # Expressions over numbered rows wait: a filter above them may still tell the bound.
        return self.numbered is None or bool(conditions) or _are_columns(outputs)

    def absorb(self, alias: str, outputs: Mapping[str, Node], conditions: tuple[Node, ...]) -> None:
        self.rename_key(outputs)
        if any(outputs.get(name) != column(alias, name) for name in self.one_at or ()):
            self.one_at = None
        plain = not conditions and _are_columns(outputs)
        if self.numbered is not None and plain:
            self.numbered.absorb(alias, outputs, conditions)
        elif self.numbered is not None:
            self.numbered = None
        if plain and isinstance(self.query, exp.Select) and _can_be_renamed(self.query):
            self._rename(self.query, outputs)
            return
        # A stage may absorb several times, and each time its query is one deeper: the name must differ.
        self.depth += 1
        own = f"{alias}_{self.depth}"

        def change(mention: exp.Column) -> Node | None:
            return column(own, mention.name) if mention.table == alias else None

        select = exp.Select()
        for name, output in outputs.items():
            select.append("expressions", named(substitute(output, change), name))
        for key in self.keys:
            select.append("expressions", named(column(own, key.name), key.name))
        inner = exp.Subquery(this=self.query, alias=exp.TableAlias(this=exp.to_identifier(own, quoted=True)))
        select.set("from_", exp.From(this=inner))
        where = conjunction(substitute(condition, change) for condition in conditions)
        if where is not None:
            select.set("where", exp.Where(this=where))
        self.query = select

    def _rename(self, query: exp.Select, outputs: Mapping[str, Node]) -> None:
        """Only other names, or fewer columns: no query around the query."""
        given = {output_name(projection): unaliased(projection) for projection in query.expressions}
        projections = [named(given[output.name], name) for name, output in outputs.items()]
        projections += [named(given[key.name], key.name) for key in self.keys]
        query.set("expressions", projections)


def _are_columns(outputs: Mapping[str, Node]) -> bool:
    return all(isinstance(output, exp.Column) for output in outputs.values())


def _can_be_renamed(query: exp.Select) -> bool:
    """Whether nothing in a query mentions its outputs by name."""
    if query.args.get("distinct"):
        return False
    clauses = [query.args[part] for part in ("order", "having", "group", "qualify") if query.args.get(part)]
    return all(found.table for clause in clauses for found in clause.find_all(exp.Column))


def describe_flow(flow: Flow, workshop: CompileContext) -> str:
    """A flow in a few words, for people: "orders ⋈ users"."""
    names = [workshop.shown_name(relation) for _, relation in leaves(flow)]
    return " ⋈ ".join(names) if isinstance(flow, Product) else " ∪ ".join(names)


class CompileContext:
    """Where a view's drafts are made."""

    def __init__(self, relations: Mapping[str, Relation], describe: Describe | None, sql: str) -> None:
        self.relations = {name.lower(): relation for name, relation in relations.items()}
        self.describe = describe
        self.sql = sql  # as the user wrote it, for errors
        self.drafts: dict[str, PlanNode] = {}
        self.notes: list[str] = []  # for people, of the plan
        self.kept_otherwise: set[str] = set()  # what the stages keep that those of older versions did not
        self.compile: Callable[[exp.Query], Flow]
        self._counts: dict[str, int] = {}
        self._described: dict[tuple[object, ...], tuple[PlanColumn, ...]] = {}

    def fresh(self, what: str) -> str:
        """A name for a source that no user's query has."""
        count = self._counts[what] = self._counts.get(what, 0) + 1
        return f"{what}__{count}"

    def new_name(self) -> str:
        """A name for a draft."""
        return self.fresh("$")

    def keep(self, draft: PlanNode) -> Product:
        """Remember a draft. Gives the flow that reads it."""
        self.drafts[draft.name] = draft
        alias = self.fresh("s")
        outputs: dict[str, Node] = {found.name: column(alias, found.name) for found in draft.columns}
        return Product(items={alias: TableRef(draft.name)}, outputs=outputs)

    def keep_whole(self, query: exp.Query, what: str, reason: str) -> Product:
        """A query to be computed from everything, and why."""
        columns = self.types(query)
        return self.keep(KeyedNode(name=self.new_name(), what=what, columns=columns, query=query, reason=reason))

    def materialized(self, flow: Flow) -> Product:
        """A flow as a stage of its own, read whole."""
        draft = FlowNode(
            name=self.new_name(),
            what=describe_flow(flow, self),
            columns=self.types_of(flow),
            append_only=self.is_append_only(flow),
            flow=flow,
        )
        return self.keep(draft)

    def shown_name(self, relation: str) -> str:
        """A relation's name for people; a draft is told by what it does."""
        return f"({self.drafts[relation].what})" if relation in self.drafts else self.relations[relation].name

    def shown_source(self, source: Source) -> str:
        """A source for people."""
        if isinstance(source, TableRef):
            return self.shown_name(source.relation)
        return "values" if isinstance(source, ConstantRows) else f"({describe_flow(source, self)})"

    def columns_of(self, relation: str) -> tuple[PlanColumn, ...]:
        """The columns of a relation or a draft."""
        return self.drafts[relation].columns if relation in self.drafts else self.relations[relation].columns

    def type_of(self, relation: str, name: str) -> str | None:
        """The type of one column."""
        return next((found.type for found in self.columns_of(relation) if found.name.lower() == name.lower()), None)

    def key_of(self, relation: str) -> tuple[str, ...] | None:
        """Columns that are unique together; None when nothing is known."""
        if relation in self.drafts:
            return self.drafts[relation].key
        return tuple(part.lower() for part in self.relations[relation].key) or None

    def is_append_only(self, flow: Flow) -> bool:
        """Whether rows of a flow never leave."""
        return all(
            self.drafts[name].append_only if name in self.drafts else self.relations[name].append_only
            for _, name in leaves(flow)
        )

    def comparable(self, relation: str, name: str, other: str, other_name: str) -> bool:
        """Whether two columns are of one type, so that looking one up by the other means what ``=`` means."""
        first, second = self.type_of(relation, name), self.type_of(other, other_name)
        return (first or "").lower() == (second or "").lower()

    def types_of(self, flow: Flow) -> tuple[PlanColumn, ...]:
        """The columns of a flow."""
        return self._plain(flow) or self.types(to_query(flow))

    def _plain(self, flow: Flow) -> tuple[PlanColumn, ...] | None:
        """The columns of a flow that only picks columns: no need to ask anybody."""
        if not isinstance(flow, Product):
            return None
        found: list[PlanColumn] = []
        for name, output in flow.outputs.items():
            item = flow.items.get(output.table) if isinstance(output, exp.Column) else None
            if not isinstance(item, TableRef):
                return None
            found.append(PlanColumn(name, self.type_of(item.relation, output.name)))
        return tuple(found)

    def types(self, query: exp.Query) -> tuple[PlanColumn, ...]:
        """The columns that a query over relations and drafts yields, with their types."""
        query = query.copy()
        tables: dict[str, tuple[PlanColumn, ...]] = {}
        for place, mention in enumerate(list(query.find_all(exp.Table))):
            if isinstance(mention.this, exp.Identifier):
                name = f"_l{place}"
                tables[name] = self.columns_of(mention.name)
                mention.set("this", exp.to_identifier(name, quoted=True))
        if self.describe is None:
            return inferred(query, tables)
        written = text(query)
        known = self._described.get((written, tuple(tables.items())))
        if known is not None:
            return known
        try:
            described = self.describe(written, tables)
            self._described[written, tuple(tables.items())] = described
            return described
        except Exception as error:  # what cannot be analysed piece by piece is left to be computed whole
            raise Unsupported(f"its parts cannot be analysed: {str(error).splitlines()[0]}") from error


def inferred(query: exp.Query, tables: Mapping[str, tuple[PlanColumn, ...]]) -> tuple[PlanColumn, ...]:
    """The columns of a query with the types that sqlglot can tell; None for those it cannot."""
    schema = MappingSchema(dialect="spark")
    for name, found in tables.items():
        schema.add_table(name, {each.name.lower(): each.type or "UNKNOWN" for each in found}, dialect="spark")
    try:  # sqlglot's own reading of the text knows what functions give
        read = sqlglot.parse_one(text(query), read=SparkTyped)
        assert isinstance(read, exp.Query)
        annotated = annotate_types(read, schema=schema, dialect="spark")
    except SqlglotError:
        return tuple(PlanColumn(output_name(projection)) for projection in query.selects)
    described = []
    for projection in annotated.selects:
        kind = projection.type
        known = kind is not None and kind.this not in (exp.DataType.Type.UNKNOWN, exp.DataType.Type.NULL)
        described.append(PlanColumn(output_name(projection), kind.sql("spark") if kind is not None and known else None))
    return tuple(described)
