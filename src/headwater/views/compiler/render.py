"""Rendering: drafts become the stages of a plan, as SQL text.

What it is: for each kind of draft the text that ``plan.py`` asks for, with a leaf for every mention of a relation.
Invariants: leaves are numbered through a stage; a leaf's columns are spelled as its relation spells them. The same
draft gives the same text.
Not here: the queries of groups (``group_queries.py``); which drafts there are, in which order and by which names
(``compile.py``).
Read next: ``plan.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from sqlglot import exp

from headwater.views.compiler.algebra.flow import (
    Flow,
    LookupLink,
    Product,
    constant,
    factors,
    leaves,
    links,
    only,
    to_query,
    used,
)
from headwater.views.compiler.algebra.plan_nodes import (
    AccumulateNode,
    CompileContext,
    FlowNode,
    KeyedNode,
    LeadingNode,
    PlanNode,
)
from headwater.views.compiler.frontend.time_windows import is_call
from headwater.views.compiler.group_queries import GroupQueries
from headwater.views.compiler.operators.top_k import leading_columns
from headwater.views.compiler.plan import (
    AccumulateStage,
    FlowStage,
    KeyedInput,
    KeyedStage,
    LeadingStage,
    Leaf,
    LeafContent,
    Lookup,
    PlanColumn,
    Stage,
    StageKind,
    Term,
    WholeStage,
)
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import Node

SPARE_ROWS_MIN = 100  # so many leading rows may leave before a buffer of leading rows is filled again


class StageRenderer:
    """Writes drafts. ``names`` are the final names of the drafts it may mention."""

    def __init__(self, workshop: CompileContext, names: Mapping[str, str]) -> None:
        self.workshop = workshop
        self.names = names

    def stage(self, draft: PlanNode, name: str) -> Stage:
        """The stage of a draft."""
        if isinstance(draft, FlowNode):
            return self._flow(draft, name)
        if isinstance(draft, AccumulateNode):
            return self._accumulate(draft, name)
        if isinstance(draft, LeadingNode):
            return self._leading_rows(draft, name)
        return self._keyed(cast(KeyedNode, draft), name)

    def _flow(self, draft: FlowNode, name: str) -> FlowStage:
        terms = self._terms(draft.flow)
        linear = all(len(term.leaves) == 1 for term in terms)
        return FlowStage(
            name=name,
            kind=StageKind.LINEAR if linear else StageKind.BILINEAR,
            columns=draft.columns,
            hidden=(),
            what=draft.what,
            terms=terms,
            constant=_constant(draft.flow),
        )

    def _terms(self, flow: Flow) -> tuple[Term, ...]:
        mentions = list(leaves(flow))
        return tuple(self._term(flow, mentions, number) for number in range(len(mentions)))

    def _term(self, flow: Flow, mentions: list[tuple[str, str]], number: int) -> Term:
        """One summand: the leaves before the changed one as they are after the tick, those behind as they were."""
        changed = mentions[number][0]
        through = cast(Flow, only(flow, changed))
        query = to_query(through, weighted=True, first=changed)
        wanted = used(query)
        found = links(through, changed, self.workshop.comparable)
        label = {alias: f"_l{number * len(mentions) + place}" for place, (alias, _) in enumerate(mentions)}
        present = {alias for alias, _ in leaves(through)}
        leaf_list = []
        for place, (alias, relation) in enumerate(mentions):
            if alias not in present:
                continue
            content = (
                LeafContent.CHANGES if place == number else LeafContent.AFTER if place < number else LeafContent.BEFORE
            )
            leaf_list.append(
                Leaf(
                    name=label[alias],
                    relation=self._relation(relation),
                    content=content,
                    columns=self._spelled(relation, wanted.get(alias, [])),
                    lookup=self._lookup(relation, found.get(alias), dict(mentions), label),
                )
            )
        return Term(_labelled(query, label), tuple(leaf_list), label[changed], factors(through, label))

    def _lookup(
        self, relation: str, link: LookupLink | None, relations: Mapping[str, str], label: Mapping[str, str]
    ) -> Lookup | None:
        if link is None:
            return None
        return Lookup(
            columns=self._spelled(relation, link.columns),
            source=label[link.source],
            source_columns=self._spelled(relations[link.source], link.source_columns),
        )

    def _accumulate(self, draft: AccumulateNode, name: str) -> AccumulateStage:
        groups = [group.name for group in draft.groups]
        queries = GroupQueries(draft)
        partial, combine = queries.written(in_range=False)
        quick = any(each.in_range is not None or each.repeats for each in draft.accumulators)
        in_range_partial, in_range_combine = queries.written(in_range=True) if quick else ("", "")
        return AccumulateStage(
            name=name,
            kind=StageKind.ACCUMULATING,
            columns=draft.columns,
            hidden=(*draft.groups, PlanColumn("_n", "BIGINT"), *queries.hidden, PlanColumn("_shown", "BOOLEAN")),
            what=draft.what,
            terms=self._terms(draft.flow),
            constant=_constant(draft.flow),
            groups=draft.groups,
            windows=_windows(draft.flow, groups),
            partial=partial,
            combine=combine,
            in_range_partial=in_range_partial,
            in_range_combine=in_range_combine,
            one_row=draft.one_row,
        )

    def _leading_rows(self, draft: LeadingNode, name: str) -> LeadingStage:
        (term,) = self._terms(draft.flow)
        ((alias, relation),) = leaves(draft.flow)
        query = to_query(draft.flow)
        columns = self._spelled(relation, used(query).get(alias, [])) or (self.workshop.columns_of(relation)[0].name,)
        everything = Leaf("_l1", self._relation(relation), LeafContent.BAG, columns)
        spare = draft.last + SPARE_ROWS_MIN
        return LeadingStage(
            name=name,
            kind=StageKind.LEADING,
            columns=draft.columns,
            hidden=(*draft.held, PlanColumn("_shown", "BOOLEAN")),
            what=draft.what,
            term=term,
            everything=everything,
            merge=_merge(draft, spare),
            fill=_fill(draft, _labelled(query, {alias: everything.name}), spare),
            shown=tuple(draft.shown.values()),
            number=draft.number,
            first=draft.first,
            last=draft.last,
            spare=spare,
        )

    def _keyed(self, draft: KeyedNode, name: str) -> KeyedStage | WholeStage:
        query = draft.query.copy()
        wanted = used(query)
        label: dict[str, str] = {}
        inputs: list[KeyedInput] = []
        for mention in _tables(query):
            alias, relation = mention.alias_or_name, mention.name
            label[alias] = f"_l{len(label)}"
            keys = draft.inputs.get(alias, ())
            names = [*wanted.get(alias, []), *(found.name for key in keys for found in key.find_all(exp.Column))]
            columns = self._spelled(relation, dict.fromkeys(names)) or (self.workshop.columns_of(relation)[0].name,)
            leaf = Leaf(name=label[alias], relation=self._relation(relation), content=LeafContent.BAG, columns=columns)
            plain = all(isinstance(key, exp.Column) for key in keys)
            inputs.append(
                KeyedInput(
                    leaf=leaf,
                    keys=tuple(text(key) for key in keys),
                    plain=self._spelled(relation, [key.name for key in keys]) if plain else None,
                )
            )
        sql = _labelled(query, label)
        if not draft.keys:
            return WholeStage(
                name=name,
                kind=StageKind.WHOLE,
                columns=draft.columns,
                hidden=(),
                what=draft.what,
                inputs=tuple(given.leaf for given in inputs),
                sql=sql,
                reason=draft.reason,
            )
        return KeyedStage(
            name=name,
            kind=StageKind.KEYED,
            columns=draft.columns,
            hidden=draft.keys,
            what=draft.what,
            inputs=tuple(inputs),
            keys=draft.keys,
            sql=sql,
            leading=self._leading(draft, inputs),
            in_runs=draft.in_runs,
        )

    def _leading(self, draft: KeyedNode, inputs: list[KeyedInput]) -> tuple[str, ...]:
        if len(inputs) != 1 or inputs[0].plain is None:
            return ()
        (mention,) = _tables(draft.query)
        wanted = [name.lower() for name in inputs[0].leaf.columns]
        return leading_columns(draft.query, mention.alias_or_name, wanted)

    def _relation(self, relation: str) -> str:
        return self.names[relation] if relation in self.names else self.workshop.relations[relation].name

    def _spelled(self, relation: str, names: Iterable[str]) -> tuple[str, ...]:
        known = {found.name.lower(): found.name for found in self.workshop.columns_of(relation)}
        return tuple(known.get(name.lower(), name) for name in names)


def _places(draft: LeadingNode) -> str:
    """The columns that tell where a leading row stands."""
    places = f"rank() OVER (ORDER BY {_listed((*draft.order, *draft.ties))}) AS _place"
    if draft.number == "row_number":
        return places
    return f"{places}, rank() OVER (ORDER BY {_listed(draft.order)}) AS _peer"


def _listed(nodes: Iterable[Node]) -> str:
    return ", ".join(text(node) for node in nodes)


def _merge(draft: LeadingNode, spare: int) -> str:
    """The query of a tick's changes and the buffer of leading rows."""
    names = ", ".join((*(found.name for found in draft.held), "_weight"))
    both = f"SELECT {names}, FALSE AS _held FROM _flow UNION ALL SELECT {names}, TRUE AS _held FROM _before"
    placed = f"SELECT *, {_places(draft)} FROM ({both})"
    counted = (
        f"SELECT *, max(CASE WHEN _held THEN _place END) OVER () AS _last, count(*) OVER () AS _rows FROM ({placed})"
    )
    return f"SELECT * FROM ({counted}) WHERE _place <= _last OR _place <= {draft.last + spare}"


def _fill(draft: LeadingNode, flow: str, spare: int) -> str:
    """The query of the first rows of everything."""
    names = ", ".join(found.name for found in draft.held)
    total = _listed((*draft.order, *draft.ties))
    if draft.number == "row_number":
        first = f"SELECT {names} FROM ({flow}) ORDER BY {total} LIMIT {draft.last + spare}"
        return f"SELECT {names}, {_places(draft)} FROM ({first})"
    numbered = (
        f"SELECT *, row_number() OVER (ORDER BY {total}) AS _row, "
        f"{draft.number}() OVER (ORDER BY {_listed(draft.order)}) AS _number, {_places(draft)} FROM ({flow})"
    )
    counted = f"SELECT *, count(CASE WHEN _number <= {draft.last} THEN 1 END) OVER () AS _wanted FROM ({numbered})"
    return f"SELECT {names}, _place, _peer FROM ({counted}) WHERE _row <= _wanted + {spare}"


def _tables(query: exp.Query) -> list[exp.Table]:
    return [found for found in query.find_all(exp.Table, bfs=False) if isinstance(found.this, exp.Identifier)]


def _labelled(query: exp.Query, label: Mapping[str, str]) -> str:
    """The text, with each mention called by its leaf's name and the other sources numbered: two drafts that say the
    same give the same text."""
    query = query.copy()
    names = dict(label)
    for mention in _tables(query):
        mention.set("this", exp.to_identifier(label[mention.alias_or_name]))
        mention.set("alias", None)
    for source in query.find_all(exp.Subquery, exp.Lateral, exp.Values, exp.Table, bfs=False):
        if source.alias:
            names[source.alias] = f"t{len(names)}"
            source.args["alias"].set("this", exp.to_identifier(names[source.alias]))
    for found in query.find_all(exp.Column):
        if found.table in names:
            found.set("table", exp.to_identifier(names[found.table]))
    return text(query)


def _constant(flow: Flow) -> str | None:
    found = constant(flow)
    return text(to_query(cast(Flow, found), weighted=True)) if found is not None else None


def _windows(flow: Flow, groups: list[str]) -> tuple[tuple[str, str], ...]:
    """Those of the groups that are calls of window, with their sizes."""
    if not isinstance(flow, Product):
        return ()
    return tuple((group, _size(flow.outputs[group])) for group in groups if is_call(flow.outputs[group], "window"))


def _size(window: Node) -> str:
    """The size of a window as its call has it; empty when it is no text."""
    size = window.expressions[1] if len(window.expressions) > 1 else None
    written = "" if size is None else text(size)
    return written if len(written) > 1 and written[0] == written[-1] and written[0] in "'\"" else ""
