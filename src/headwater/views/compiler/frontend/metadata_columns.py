"""Metadata columns: a topic with the columns that every record has, for a text that names one of them.

What it is: ``write_out_metadata``. Where a text names ``_actor`` of topic ``orders``, the mention of ``orders`` becomes
one of ``orders$metadata``: a second relation over the same records, with ``COLUMNS`` behind the topic's own.
Invariants: a text that names none of them stays as it is, and its relations too. Nothing but the mention and stars
changes: a star shows the topic's own columns, never these. The metadata of a keyed row is that of its last upsert.
A table without a key has none here: a row of one writer may be deleted by another.
Not here: reading the columns (``views/tick/inputs.py``).
Read next: ``name_resolution.py``, ``views/event_time/timing.py``; ``docs/writing.md``, "Who did it".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from headwater.errors import InvalidView
from headwater.views.compiler.frontend.parse import is_read_whole, trees
from headwater.views.compiler.plan import PlanColumn, Relation
from headwater.views.compiler.sql.expressions import Node, mentions
from headwater.views.compiler.sql.refusal import Span, refuse

METADATA = "$metadata"  # no topic and no view has such a name

TEXT_COLUMNS = ("_correlation_id", "_causation_id", "_actor")  # a view may have columns of these names
# As ``views/spark/topic_scan.py`` reads them.
COLUMNS = (
    PlanColumn("_partition", "INT"),
    PlanColumn("_offset", "BIGINT"),
    PlanColumn("_appended_at", "TIMESTAMP"),
    PlanColumn("_producer", "BIGINT"),
    *(PlanColumn(name, "STRING") for name in TEXT_COLUMNS),
)
NEVER_NULL = ("_partition", "_offset", "_appended_at")
NAMES = frozenset(column.name for column in COLUMNS)
PLACE = re.compile(r" \(line \d+, column \d+\)$")


@dataclass(frozen=True)
class Replacement:
    """Some characters of a text, and what stands there instead."""

    start: int
    stop: int
    text: str


@dataclass(frozen=True)
class WrittenOut:
    """A text without the need for metadata columns: ``relations`` has what it mentions."""

    given: str
    relations: Mapping[str, Relation]
    replaced: tuple[Replacement, ...] = ()

    @property
    def sql(self) -> str:
        """The text that is compiled and run."""
        parts, position = [], 0
        for each in self.replaced:
            parts += [self.given[position : each.start], each.text]
            position = each.stop
        return "".join([*parts, self.given[position:]])

    def refuse_as_given(self, error: InvalidView) -> NoReturn:
        """Raise the error about the text as its author knows the text."""
        data = dict(error.data)
        span = (data.pop("start"), data.pop("stop")) if "start" in data else None
        message = PLACE.sub("", error.message).replace(METADATA, "")
        for name in ("line", "column"):
            data.pop(name, None)
        refuse(self.given, None if span is None else self._as_given(span), message, error.hint, **data)

    def _as_given(self, span: Span) -> Span:
        start, stop = (self._place(offset) for offset in span)
        return start, max(stop, start + 1)

    def _place(self, offset: int) -> int:
        """An offset into ``sql`` as one into the given text."""
        moved = 0
        for each in self.replaced:
            begin = each.start + moved
            if offset <= begin:
                break
            if offset <= begin + len(each.text):
                return each.start if offset < begin + len(each.text) else each.stop
            moved += len(each.text) - (each.stop - each.start)
        return offset - moved


def metadata_of(relation: Relation) -> Relation:
    """The relation of a topic's rows with their metadata.

    >>> orders = Relation("orders", (PlanColumn("id", "BIGINT"),), ("id",))
    >>> metadata_of(orders).name, [column.name for column in metadata_of(orders).columns][-2:]
    ('orders$metadata', ['_causation_id', '_actor'])
    """
    return replace(
        relation,
        name=f"{relation.name}{METADATA}",
        columns=(*relation.columns, *COLUMNS),
        not_null=(*relation.not_null, *NEVER_NULL),
        event_time=None,  # AS OF is asked of the table
    )


def with_mentioned(names: tuple[str, ...], relations: Mapping[str, Relation]) -> dict[str, Relation]:
    """The relations, and those with metadata among ``names``."""
    found = dict(relations)
    for name in names:
        if name.endswith(METADATA):
            found[name] = metadata_of(relations[name.removesuffix(METADATA)])
    return found


def may_name_metadata(sql: str) -> bool:
    """Whether a metadata column's name stands anywhere in a text; what it means there, parsing tells.

    >>> may_name_metadata("SELECT _Actor FROM orders"), may_name_metadata("SELECT * FROM orders")
    (True, False)
    """
    lowered = sql.lower()
    return any(name in lowered for name in NAMES)


def write_out_metadata(sql: str, relations: Mapping[str, Relation]) -> WrittenOut:
    """The text over relations that have the metadata columns which it names.

    >>> orders = Relation("orders", (PlanColumn("id", "BIGINT"), PlanColumn("item", "STRING")), append_only=True)
    >>> write_out_metadata("SELECT _actor, count(*) FROM orders GROUP BY 1", {"orders": orders}).sql
    'SELECT _actor, count(*) FROM `orders$metadata` AS orders GROUP BY 1'
    >>> write_out_metadata("SELECT * FROM orders o WHERE o._actor = 'anna'", {"orders": orders}).sql
    "SELECT o.`id`, o.`item` FROM `orders$metadata` o WHERE o._actor = 'anna'"
    """
    if not may_name_metadata(sql) or not is_read_whole(sql):  # what cannot be read is told by whoever compiles it
        return WrittenOut(sql, relations)
    return _MetadataSearch(sql, relations, trees(sql)).written_out()


class _MetadataSearch:
    """One text: which mentions of topics need metadata."""

    def __init__(self, sql: str, relations: Mapping[str, Relation], read: list[Node]) -> None:
        self.sql = sql
        self.relations = relations
        self.known = {name.lower(): relation for name, relation in relations.items()}
        self.read = read
        every = [mention for tree in read for mention in mentions(tree)]
        self.topics = {id(mention): relation for mention in every if (relation := self._topic(mention)) is not None}
        self.views = {id(mention): self.known.get(mention.name.lower()) for mention in every}

    def written_out(self) -> WrittenOut:
        """The text, with each mention that needs it replaced, and the stars beside them."""
        needed: dict[int, tuple[exp.Table, exp.Select]] = {}
        for tree in self.read:
            for column in tree.find_all(exp.Column):
                if isinstance(column.this, exp.Identifier) and column.name.lower() in NAMES:
                    for mention, select in self._meant(column):
                        needed[id(mention)] = mention, select
        if not needed:
            return WrittenOut(self.sql, self.relations)
        replaced = [self._mention(mention) for mention, _ in needed.values()]
        for select in {id(select): select for _, select in needed.values()}.values():
            replaced += self._stars(select, set(needed))
        names = tuple(f"{self.topics[place].name}{METADATA}" for place in needed)
        ordered = sorted(replaced, key=lambda each: each.start)
        return WrittenOut(self.sql, with_mentioned(names, self.relations), tuple(ordered))

    def _topic(self, mention: exp.Table) -> Relation | None:
        """The topic that a mention names, if it has metadata and the mention can name another relation instead."""
        relation = self.known.get(mention.name.lower())
        if mention.db or relation is None or relation.is_view or not (relation.key or relation.append_only):
            return None
        alias = mention.args.get("alias")
        other = any(mention.args.get(part) for part in ("version", "sample", "pivots"))
        return None if other or (alias is not None and alias.columns) else relation

    def _meant(self, column: exp.Column) -> Iterator[tuple[exp.Table, exp.Select]]:
        """The mention that a column belongs to: the innermost one that can have it."""
        name, source = column.name.lower(), column.table.lower()
        select = column.find_ancestor(exp.Select)
        while isinstance(select, exp.Select):
            sources = list(_sources(select))
            if source:
                named = [each for each in sources if each.alias_or_name.lower() == source]
                yield from ((each, select) for each in named if isinstance(each, exp.Table) and id(each) in self.topics)
                if named:
                    return
            elif any(self._has_output(each, name) for each in sources):
                return
            else:
                found = [each for each in sources if isinstance(each, exp.Table) and id(each) in self.topics]
                if len(found) > 1:
                    of = " or ".join(f'"{each.alias_or_name}"' for each in found)
                    refuse(
                        self.sql,
                        column,
                        f"{column.name} may be that of {of}",
                        f"Say which: {found[0].alias_or_name}.{column.name}",
                    )
                if found:
                    yield found[0], select
                    return
            select = select.find_ancestor(exp.Select)

    def _has_output(self, source: Node, name: str) -> bool:
        """Whether a source that is no topic has a column of that name."""
        if isinstance(source, exp.Table):
            view = self.views.get(id(source))
            if view is not None:
                return any(column.name.lower() == name for column in view.columns)
            definition = next(
                (each for tree in self.read for each in tree.find_all(exp.CTE) if each.alias.lower() == source.name),
                None,
            )
            return definition is not None and name in _outputs(definition.this)
        return isinstance(source, exp.Subquery) and name in _outputs(source.this)

    def _mention(self, mention: exp.Table) -> Replacement:
        start, stop = mention.this.meta["start"], mention.this.meta["end"] + 1
        alias = "" if mention.alias else f" AS {self.sql[start:stop]}"
        return Replacement(start, stop, f"`{self.topics[id(mention)].name}{METADATA}`{alias}")

    def _stars(self, select: exp.Select, needed: set[int]) -> Iterator[Replacement]:
        """The stars of a select, as the columns that they stand for."""
        joins = select.args.get("joins") or []
        natural = next((join for join in joins if str(join.args.get("method") or "").upper() == "NATURAL"), None)
        if natural is not None:
            self._refuse(natural, "NATURAL JOIN")
        for star in select.find_all(exp.Star):
            part = star.parent if isinstance(star.parent, exp.Column) else star
            if star.find_ancestor(exp.Select) is not select or _is_counted(part):
                continue
            of = part.table.lower() if isinstance(part, exp.Column) else ""
            meant = [each for each in _sources(select) if not of or each.alias_or_name.lower() == of]
            if not any(id(each) in needed for each in meant):
                continue
            merged = any(join.args.get("using") or join.kind.upper() in ("SEMI", "ANTI") for join in joins)
            plain = not select.args.get("laterals") and all(each.alias_or_name for each in meant)
            if part.arg_key != "expressions" or part.parent is not select or any(star.args.values()):
                self._refuse(star, "this star")
            if not of and (merged or not plain):
                self._refuse(star, "this star")
            start = part.args["table"].meta["start"] if of else star.meta["start"]
            listed = ", ".join(self._listed(each, needed) for each in meant)
            yield Replacement(start, star.meta["end"] + 1, listed)

    def _listed(self, source: Node, needed: set[int]) -> str:
        name = source.args["alias"].this if source.args.get("alias") else source.this
        written = self.sql[name.meta["start"] : name.meta["end"] + 1]
        if id(source) not in needed:
            return f"{written}.*"
        return ", ".join(f"{written}.`{column.name.replace('`', '``')}`" for column in self.topics[id(source)].columns)

    def _refuse(self, place: Node, what: str) -> NoReturn:
        refuse(
            self.sql,
            place,
            f"{what} beside a metadata column of a topic could mean other columns",
            "Name the columns that you want.",
        )


def _sources(select: exp.Select) -> Iterator[Node]:
    """What a select reads, without generators; of a join in parentheses, each part."""
    clause = select.args.get("from_")
    waiting = [clause.this] if clause is not None else []
    waiting += [join.this for join in select.args.get("joins") or []]
    for source in waiting:
        inner = source.this if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Table) else source
        yield inner
        yield from (join.this for join in inner.args.get("joins") or [] if isinstance(inner, exp.Table))


def _is_counted(star: Node) -> bool:
    """Whether it is that of count(*), which counts rows."""
    call = star.parent
    return isinstance(star, exp.Star) and (
        isinstance(call, exp.Count) or (isinstance(call, exp.Anonymous) and call.name.lower() == "count")
    )


def _outputs(query: Node) -> set[str]:
    return {part.alias_or_name.lower() for part in query.selects} if isinstance(query, exp.Query) else set()
