"""As of: a table joined as it was at a moment of each row on the left.

What it is: ``users FOR SYSTEM_TIME AS OF o.at AS u`` is looked at (``check_as_of``) and written out (``written_out``)
as a join with the table's *versions*: every record of its topic, each valid from its event time until that of the next
version of its key. What is left is an ordinary window function and an ordinary join with a range.
Invariants: of the versions of a key with an event time up to the moment the latest counts, of equal ones the one that
was appended last; when that is a tombstone there is no row. A tombstone without an event time counts from its append.
Names that are added here cannot be seen by the query: they come after stars were written out.
Not here: where versions come from (``views/tick/inputs.py``).
Read next: ``name_resolution.py``, ``views/compiler/operators/window_functions.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sqlglot import exp

from headwater.views.compiler.plan import PlanColumn, Relation
from headwater.views.compiler.sql.expressions import Node, column, columns, conjunction, is_row_wise, named, table
from headwater.views.compiler.sql.refusal import refuse

VERSIONS = "$versions"  # no topic and no view has such a name
APPENDED = "_appended_at"
DELETED = "_deleted"
OFFSET = "_offset"
ONE_AT = "one_at"  # in a source's meta: the names by which a version is found, the last of them by a moment

# What a version has beside the table's columns.
MARKS = (PlanColumn(DELETED, "BOOLEAN"), PlanColumn(OFFSET, "BIGINT"), PlanColumn(APPENDED, "TIMESTAMP"))


def versions_of(relation: Relation) -> Relation:
    """The relation of a table's versions: every record of its topic, tombstones too.

    >>> columns = (PlanColumn("id", "BIGINT"), PlanColumn("since", "TIMESTAMP"))
    >>> users = Relation("users", columns, ("id",), event_time="since")
    >>> versions = versions_of(users)
    >>> versions.name, [found.name for found in versions.columns]
    ('users$versions', ['id', 'since', '_deleted', '_offset', '_appended_at'])
    """
    return Relation(
        f"{relation.name}{VERSIONS}",
        (*relation.columns, *MARKS),
        append_only=True,
        not_null=(*relation.key, DELETED, OFFSET, APPENDED),
    )


def with_versions(relations: Mapping[str, Relation]) -> dict[str, Relation]:
    """The relations, and the versions of each table that has some."""
    found = dict(relations)
    for relation in relations.values():
        if relation.event_time is not None and relation.key:
            versions = versions_of(relation)
            found[versions.name] = versions
    return found


def is_as_of(mention: Node) -> bool:
    """Whether a source of FROM is asked for as it was."""
    return isinstance(mention, exp.Table) and mention.args.get("version") is not None


# Looking at it


def check_as_of(tree: exp.Query, relations: Mapping[str, Relation], sql: str, opaque: str | None) -> None:
    """Refuses tables whose past versions are not kept, and places where the time is not known."""
    known = {name.lower(): relation for name, relation in relations.items()}
    own = {definition.alias.lower() for definition in tree.find_all(exp.CTE)}
    for mention in tree.find_all(exp.Table, bfs=False):
        if not is_as_of(mention):
            continue
        version = mention.args["version"]
        if str(version.args["kind"]).upper() != "AS OF" or version.name.upper() != "TIMESTAMP":
            refuse(
                sql,
                mention,
                "only AS OF a moment can be asked for",
                "Write FOR SYSTEM_TIME AS OF and the time of the row on the left: … AS OF o.at.",
            )
        if opaque is not None:
            refuse(
                sql,
                mention,
                f"AS OF cannot be part of this query: {opaque}",
                "Put the join into a view of its own, and read that here.",
            )
        _check_table(mention, None if mention.name.lower() in own else known.get(mention.name.lower()), sql)
        _check_place(mention, sql)
        if not is_row_wise(version.expression):
            refuse(
                sql,
                mention,
                "the moment behind AS OF must follow from a row alone",
                "Compute aggregates, window functions and subqueries in a view before, and use their column.",
            )


def _check_table(mention: exp.Table, relation: Relation | None, sql: str) -> None:
    name = mention.name
    if relation is None or relation.is_view:
        what = "a view" if relation is not None else "a query"
        refuse(
            sql,
            mention,
            f'"{name}" is {what}, and AS OF looks into the records of a table',
            "Join the table itself as of the moment, and compute over that.",
            table=name,
        )
    if not relation.key:
        refuse(
            sql,
            mention,
            f'"{name}" has no key, so none of its rows takes the place of another',
            'AS OF needs a table with a key: key="…".',
            table=name,
        )
    if relation.event_time is None:
        refuse(
            sql,
            mention,
            f'"{name}" has no event time, so it is not known since when a row counts',
            'Declare it with event_time="…": a column with the moment from which a row counts.',
            table=name,
        )


def _check_place(mention: exp.Table, sql: str) -> None:
    clause = mention.parent
    if not isinstance(clause, exp.Join):
        refuse(
            sql,
            mention,
            "AS OF needs rows on its left whose time counts, and this table comes first",
            "Write FROM orders o JOIN users FOR SYSTEM_TIME AS OF o.at AS u ON …",
        )
    if clause.side.upper() in ("RIGHT", "FULL"):
        refuse(
            sql,
            mention,
            f"{clause.side.upper()} JOIN cannot be AS OF: a row without a partner has no moment",
            "Use JOIN or LEFT JOIN.",
        )


def check_moments(query: exp.Query, sql: str) -> None:
    """Refuses moments that are not told by the sources to the left, once every column has its source."""
    for select in query.find_all(exp.Select):
        clause = select.args.get("from_")
        left = {clause.this.alias_or_name} if clause is not None else set()
        for join in select.args.get("joins") or []:
            if is_as_of(join.this):
                for mention in columns(join.this.args["version"].expression):
                    if mention.table not in left:
                        refuse(
                            sql,
                            mention,
                            f'the time of AS OF must come from a table to its left, and "{mention.table}" is not one',
                            f"To the left are: {', '.join(sorted(left))}.",
                        )
            left.add(join.this.alias_or_name)


# Writing it out


def written_out(query: exp.Query, relations: Mapping[str, Relation]) -> None:
    """Replace each table AS OF a moment by its versions, with the moment in the join's condition. In place."""
    known = {name.lower(): relation for name, relation in relations.items()}
    for join in list(_joins_as_of(query)):
        mention = join.this
        relation, moment = known[mention.name], mention.args["version"].expression
        alias, given = mention.alias, [name.name for name in mention.args["alias"].columns]
        names = [found.name.lower() for found in relation.columns]
        outputs = dict(zip(given or names, names, strict=True))
        used = {found.name for found in query.find_all(exp.Column) if found.table == alias}
        since, until = _new_name("valid__from", outputs), _new_name("valid__until", outputs)
        inner = _versions(relation, {new: old for new, old in outputs.items() if new in used}, since, until)
        source = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        new_names = {old: new for new, old in outputs.items()}
        source.meta[ONE_AT] = (*(new_names[name.lower()] for name in relation.key), since)
        mention.replace(source)
        not_over = exp.or_(
            exp.Is(this=column(alias, until), expression=exp.null()),
            exp.LT(this=_in(moment), expression=column(alias, until)),
        )
        conditions: list[Node] = [exp.GTE(this=_in(moment), expression=column(alias, since)), not_over]
        on = join.args.get("on")
        join.set("on", conjunction([on, *conditions] if on is not None else conditions))
        if join.kind.upper() == "CROSS":
            join.set("kind", None)


def _joins_as_of(query: exp.Query) -> Iterator[exp.Join]:
    return (join for join in query.find_all(exp.Join) if is_as_of(join.this))


def _in(moment: Node) -> Node:
    return exp.Paren(this=moment.copy()) if isinstance(moment, exp.Binary | exp.Unary | exp.Between) else moment.copy()


def _new_name(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _versions(relation: Relation, outputs: Mapping[str, str], since: str, until: str) -> exp.Select:
    """The versions that are rows: since when each counts, and until when."""
    assert relation.event_time is not None
    record, version = "record", "version"
    moment = exp.Coalesce(this=column(record, relation.event_time.lower()), expressions=[column(record, APPENDED)])
    order = [exp.Ordered(this=part, desc=False, nulls_first=True) for part in (moment.copy(), column(record, OFFSET))]
    following = exp.Window(
        this=exp.Lead(this=moment.copy()),
        partition_by=[column(record, name.lower()) for name in relation.key],
        order=exp.Order(expressions=order),
    )
    gone = _new_name("deleted__", outputs)
    every = exp.Select(
        expressions=[
            *(named(column(record, old), new) for new, old in outputs.items()),
            named(moment, since),
            named(following, until),
            named(column(record, DELETED), gone),
        ]
    )
    every.set("from_", exp.From(this=table(f"{relation.name.lower()}{VERSIONS}", record)))
    rows = exp.Select(expressions=[named(column(version, name), name) for name in (*outputs, since, until)])
    alias = exp.TableAlias(this=exp.to_identifier(version, quoted=True))
    rows.set("from_", exp.From(this=exp.Subquery(this=every, alias=alias)))
    # Of versions with one event time only the last has a time in which it counts.
    counts = exp.or_(
        exp.Is(this=column(version, until), expression=exp.null()),
        exp.GT(this=column(version, until), expression=column(version, since)),
    )
    rows.set("where", exp.Where(this=conjunction([exp.Not(this=column(version, gone)), counts])))
    return rows
