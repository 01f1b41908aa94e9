"""Table references: the foreign tables of a query, and the columns and rows needed of each.

What it is: ``separate`` finds the tables of attached stores in a query's tree and replaces their names; ``needs`` gives
the columns that the query uses of each and the conjuncts about it alone.
Invariants: the tree that Spark runs is the user's, with other table names and nothing else changed. When in doubt, more
columns and fewer conditions are fetched, never other rows. A conjunct goes to a table only where an earlier filter
gives the same answer: see ``_Joined``.
Not here: the form of a conjunct (``conditions.py``).
Read next: ``conditions.py``, ``views/serving/federated_tables.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema

from headwater.federation.conditions import Condition, Kept, all_of, condition_of, rejects_nulls
from headwater.federation.store import StoreColumn, StoreTable

NAME = "_foreign_{}"
PLACE = "foreign"  # in a node's meta: the number of the reference
# A table with one of these is not read row by row: no filter is pushed below them.
PECULIAR = ("pivots", "joins", "sample", "version", "laterals", "match_recognize")


@dataclass(frozen=True)
class ForeignTable:
    """One reference to a foreign table. A table may be referenced twice, with different conditions."""

    name: str  # the replacement name
    store: str
    parts: tuple[str, ...]


@dataclass
class Need:
    """The needs of one reference. ``kept``: conjuncts about it that are not pushed down, with the reason."""

    columns: tuple[StoreColumn, ...]
    condition: Condition | None = None
    limit: int | None = None
    asked: list[str] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)


def separate(tree: exp.Expr, stores: Mapping[str, bool], own: Collection[str]) -> tuple[exp.Expr, list[ForeignTable]]:
    """The tree with replaced names of foreign tables. ``stores`` says of each whether it is one table.

    >>> import sqlglot
    >>> tree, found = separate(sqlglot.parse_one("SELECT * FROM crm.public.users u, orders o"), {"crm": False}, ())
    >>> tree.sql(), found[0].store, found[0].parts
    ('SELECT * FROM "_foreign_0" AS u, orders AS o', 'crm', ('public', 'users'))
    """
    tree = tree.copy()
    defined = {each.alias_or_name.lower() for each in tree.find_all(exp.CTE)}
    hidden = defined | {name.lower() for name in own}
    known = {name.lower(): (name, single) for name, single in stores.items()}
    found: list[ForeignTable] = []
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier):  # range(10) and other functions
            continue
        parts = [part.name for part in table.parts]
        store, single = known.get(parts[0].lower(), ("", False))
        alone = len(parts) == 1
        if not store or (alone and (not single or parts[0].lower() in hidden)):
            continue
        mention = ForeignTable(NAME.format(len(found)), store, tuple(parts[1:]))
        _strip(tree, parts)
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(parts[-1], quoted=True)))
        table.set("this", exp.to_identifier(mention.name, quoted=True))
        table.set("db", None)
        table.set("catalog", None)
        table.meta[PLACE] = len(found)
        found.append(mention)
    return tree, found


def _strip(tree: exp.Expr, parts: Sequence[str]) -> None:
    """``crm.public.users.name`` is written ``users.name``: Spark would look for the store."""
    wanted = [part.lower() for part in parts]
    for column in tree.find_all(exp.Column):
        before = [part.name.lower() for part in column.parts[:-1]]
        if len(parts) > 1 and before == wanted:
            column.set("db", None)
            column.set("catalog", None)


def _in_sparks_words(node: exp.Expr) -> str:
    return node.sql("spark")


def needs(
    tree: exp.Expr,
    shapes: Sequence[StoreTable],
    own: Mapping[str, Sequence[str]],
    *,
    sql: str,
    push_down: bool = True,
    written: Callable[[exp.Expr], str] = _in_sparks_words,
) -> list[Need]:
    """The needs of each reference. ``own`` has the columns of the home's relations."""
    plain = [Need(shape.columns) for shape in shapes]
    # NATURAL joins by all common columns: all must be fetched.
    if not push_down or any(join.method.upper() == "NATURAL" for join in tree.find_all(exp.Join)):
        return plain
    try:
        query = _qualified(tree, shapes, own)
    except (SqlglotError, AttributeError, KeyError, ValueError):
        return plain
    tables = _plainly_read(query)
    found = [
        Need(_used(query, shape, tables[place]) if place in tables else shape.columns)
        for place, shape in enumerate(shapes)
    ]
    texts = "\\" not in sql
    for select in query.find_all(exp.Select):
        joined = _Joined(select)
        for alias, place in joined.mentioned():
            if place in tables:
                joined.decide(alias, shapes[place], found[place], texts=texts, written=written)
    _limit(query, found, tables)
    return found


def _qualified(tree: exp.Expr, shapes: Sequence[StoreTable], own: Mapping[str, Sequence[str]]) -> Any:
    schema = MappingSchema(dialect="spark")
    tables = {
        **own,
        **{NAME.format(place): [each.name for each in shape.columns] for place, shape in enumerate(shapes)},
    }
    for name, columns in tables.items():
        node = exp.Table(this=exp.to_identifier(name.lower(), quoted=True))
        schema.add_table(node, {column.lower(): "UNKNOWN" for column in columns}, dialect="spark")
    return qualify(tree.copy(), dialect="spark", schema=schema, validate_qualify_columns=False)


def _plainly_read(query: Any) -> dict[int, exp.Table]:
    """The references to one table each, read row by row, with columns under their own names."""
    found: dict[int, list[exp.Table]] = {}
    for table in query.find_all(exp.Table):
        if PLACE in table.meta:
            found.setdefault(table.meta[PLACE], []).append(table)
    return {
        place: tables[0]
        for place, tables in found.items()
        if len(tables) == 1
        and not any(tables[0].args.get(part) for part in PECULIAR)
        and not tables[0].alias_column_names
    }


def _used(query: Any, shape: StoreTable, table: exp.Table) -> tuple[StoreColumn, ...]:
    """The columns that the query uses of one table, by its alias, or unqualified."""
    if any(map(_is_open, query.find_all(exp.Star))):
        return shape.columns
    alias = table.alias_or_name.lower()
    names: set[str] = set()
    for column in query.find_all(exp.Column):
        parts = [part.name.lower() for part in column.parts]
        if len(parts) != 2 or parts[0] == alias:
            names.update(parts)
    return tuple(each for each in shape.columns if each.name.lower() in names)


def _is_open(star: exp.Star) -> bool:
    """Whether there is a star other than that of ``count(*)``."""
    called = star.parent
    counted = isinstance(called, exp.Count) or (isinstance(called, exp.Anonymous) and called.name.lower() == "count")
    return not counted


class _Joined:
    """The sources of one SELECT, and which conjuncts may filter them before they are joined.

    A conjunct of WHERE is true for every output row, so other rows may be removed before the joins. The exception is a
    source that an outer join fills up with nulls: removing a row there turns a match into a row of nulls. Where the
    conjunct rejects nulls, that row is removed as well, and the answer is the same; otherwise the conjunct is kept. ON
    of an inner join is equal to WHERE. ON of LEFT, SEMI and ANTI joins filters their right side only.
    """

    def __init__(self, select: exp.Select) -> None:
        self.select = select
        self.joins: list[exp.Join] = list(select.args.get("joins") or ())
        first = select.args.get("from_")
        self.sources = [first.this if first is not None else None, *(join.this for join in self.joins)]
        self.aliases = [source.alias_or_name.lower() if source is not None else "" for source in self.sources]

    def mentioned(self) -> Iterator[tuple[str, int]]:
        """Foreign tables among the sources: the alias and the number of the reference."""
        for source, alias in zip(self.sources, self.aliases, strict=True):
            if isinstance(source, exp.Table) and PLACE in source.meta and self.aliases.count(alias) == 1:
                yield alias, source.meta[PLACE]

    def decide(
        self, alias: str, shape: StoreTable, need: Need, *, texts: bool, written: Callable[[exp.Expr], str]
    ) -> None:
        """Decide which conjuncts are pushed down to each table."""
        conditions = []
        for conjunct, padded in self._conjuncts(alias):
            if not _is_about(conjunct, alias):
                continue
            text = written(conjunct)
            try:
                condition = condition_of(conjunct, shape, texts=texts)
            except Kept as kept:
                need.kept.append((text, kept.reason))
                continue
            if padded and not rejects_nulls(condition):
                need.kept.append((text, "an outer join adds nulls before it"))
                continue
            conditions.append(condition)
            need.asked.append(text)
        need.condition = all_of(conditions)

    def _conjuncts(self, alias: str) -> Iterator[tuple[exp.Expr, bool]]:
        """Conjuncts that may filter this source, and whether an outer join may fill it with nulls before them."""
        place = self.aliases.index(alias)
        sides = [join.side.upper() for join in self.joins]
        own = sides[place - 1] if place else ""
        padded = own in ("LEFT", "FULL") or any(side in ("RIGHT", "FULL") for side in sides[place:])
        where = self.select.args.get("where")
        for conjunct in _split(where.this if where is not None else None):
            yield conjunct, padded
        for number, join in enumerate(self.joins, start=1):
            side, kind = join.side.upper(), join.kind.upper()
            inner = not side and kind in ("", "INNER", "CROSS")
            right = number == place and (kind in ("SEMI", "ANTI") or side == "LEFT")
            if inner or right:
                for conjunct in _split(join.args.get("on")):
                    yield conjunct, padded and not right


def _split(condition: Any) -> Iterator[Any]:
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.And):
        yield from _split(condition.this)
        yield from _split(condition.expression)
    elif condition is not None:
        yield condition


def _is_about(conjunct: exp.Expr, alias: str) -> bool:
    if conjunct.find(exp.Query):
        return False
    columns = list(conjunct.find_all(exp.Column))
    return bool(columns) and all(len(column.parts) == 2 and column.parts[0].name.lower() == alias for column in columns)


def _limit(query: Any, found: Sequence[Need], tables: Mapping[int, exp.Table]) -> None:
    """The limit of ``SELECT columns FROM t LIMIT n``. With any other clause, every row may be needed."""
    if not isinstance(query, exp.Select) or set(_present(query)) - {"expressions", "from_", "limit", "offset", "kind"}:
        return
    source = query.args["from_"].this if query.args.get("from_") else None
    plain = all(isinstance(each.unalias(), exp.Column) for each in query.expressions)
    if not (plain and isinstance(source, exp.Table) and source.meta.get(PLACE) in tables and query.args.get("limit")):
        return
    numbers = [query.args[part].expression for part in ("limit", "offset") if query.args.get(part)]
    if all(isinstance(each, exp.Literal) and each.this.isdigit() for each in numbers):
        found[source.meta[PLACE]].limit = sum(int(each.this) for each in numbers)


def _present(query: exp.Expr) -> list[str]:
    return [name for name, value in query.args.items() if value]
