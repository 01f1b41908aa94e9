"""Names: every column says which source it comes from, and every source has a name of its own.

What it is: the parsed query with stars, USING, ordinals and aliases written out, columns qualified, and the sources
renamed where two of them, anywhere in the query, have one name.
Invariants: identifiers are lower case inside the compiler, for Spark does not tell cases apart; ``typed`` keeps what
the user sees. Every column has a source, except the mention of an output in ORDER BY.
Not here: types, which are asked for when a stage needs them (``views/compiler/algebra/plan_nodes.py``).
Read next: ``views/compiler/query_compiler.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.schema import MappingSchema

from headwater.hints import closest
from headwater.views.compiler.frontend.as_of import VERSIONS, check_moments, is_as_of, written_out
from headwater.views.compiler.frontend.metadata_columns import NAMES as METADATA_NAMES
from headwater.views.compiler.frontend.metadata_columns import TEXT_COLUMNS
from headwater.views.compiler.frontend.session_distinct import write_out_sets
from headwater.views.compiler.frontend.time_windows import (
    CALLS,
    OnePiece,
    is_call,
    name_again,
    own_nodes,
    write_out_names,
    write_out_times,
)
from headwater.views.compiler.plan import Relation
from headwater.views.compiler.sql.builtin_functions import check_bare_call
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import Node, mentions, output_name
from headwater.views.compiler.sql.output_names import sparks_name
from headwater.views.compiler.sql.refusal import Span, circle, refuse

TYPED = "typed"  # the key in an alias's meta under which the user's spelling travels
GUESSED = "guessed"  # there, of a name that the user did not write: Spark is asked for it
WRITTEN = "written"  # there, of an alias that the user did write


@dataclass(frozen=True)
class Qualified:
    """A query in which every name is settled."""

    query: exp.Query  # to be compiled: every source has a name of its own
    shown: exp.Query  # to be run: the outputs are spelled as the user spells them
    names: tuple[str, ...]
    canonical: str  # the same text for the same meaning
    written_out: bool = False  # a clause of our own (AS OF) was written out: the text is not the user's any more


def check_tables(
    query: exp.Query, relations: Mapping[str, Relation], sql: str, *, view: str, waiting: Mapping[str, str]
) -> tuple[str, ...]:
    """The relations a query reads, in order of mention. Refuses unknown ones."""
    known = {name.lower(): relation.name for name, relation in relations.items()}
    found: dict[str, None] = {}
    for mention in mentions(query):
        name = mention.name.lower()
        if mention.db or name not in known:
            whole = ".".join(part.name for part in mention.parts)
            unknown_table(whole, mention.name, known.values(), sql, mention.this, view, waiting)
        found[f"{known[name]}{VERSIONS}" if is_as_of(mention) else known[name]] = None
    return tuple(found)


def unknown_table(
    whole: str,
    last: str,
    known: Iterable[str],
    sql: str,
    place: Node | Span | None,
    view: str,
    waiting: Mapping[str, str],
) -> NoReturn:
    """Refuses an unknown name."""
    found_circle = circle(view, whole, waiting)
    if found_circle is not None:
        refuse(sql, place, *found_circle, table=whole)
    near = closest(last, known)
    hint = f'Did you mean "{near}"?' if near else f'Declare "{whole}" before this view.'
    refuse(sql, place, f'no topic, table or view "{whole}"', hint, table=whole)


def settle(query: exp.Query, relations: Mapping[str, Relation], sql: str) -> Qualified:
    """Qualify a query whose WITH clauses are already inlined."""
    query = query.copy()
    _check_sources(query)
    _check_windows(query)
    _check_group_names(query)
    _check_all(query, relations)
    _write_out_ordinals(query)
    _name_outputs(query)
    schema = MappingSchema(dialect="spark")
    for name, relation in relations.items():
        types = {found.name.lower(): found.type or "UNKNOWN" for found in relation.columns}
        schema.add_table(exp.Table(this=exp.to_identifier(name.lower(), quoted=True)), types, dialect="spark")
    try:
        query = qualify(query, dialect="spark", schema=schema, validate_qualify_columns=False)
    except SqlglotError as error:
        _explain(query, relations, sql, str(error))
    _check_columns(query, relations, sql)
    _tell_apart(query)
    check_moments(query, sql)
    query = write_out_times(query, relations)
    as_read = text(query)
    query = write_out_sets(query, sql)
    own_clauses = any(map(is_as_of, query.find_all(exp.Table))) or (as_read != text(query))
    _write_out_using(query)
    names = _output_names(query, relations, sql)
    written_out(query, relations)
    shown = name_again(query.copy())
    select = _first_select(shown)
    for name, projection in zip(names, select.expressions if select else (), strict=True):
        spelled = exp.to_identifier(name, quoted=True)
        spelled.meta.update(projection.args["alias"].meta)
        projection.set("alias", spelled)
    canonical = text(shown)
    _rename_sources(query)
    return Qualified(query=query, shown=shown, names=names, canonical=canonical, written_out=own_clauses)


def _write_out_using(query: exp.Query) -> None:
    """The column of USING (k) is the left one's, of a RIGHT JOIN the right one's; of a FULL JOIN whichever there is.

    sqlglot writes coalesce(a.k, b.k) for all of them. A coalesce of the user's is a call of that name.
    """
    for select in query.find_all(exp.Select):
        sides = {join.side.upper() for join in select.args.get("joins") or []}
        for merged in [node for node in own_nodes(select) if isinstance(node, exp.Coalesce)]:
            if not sides & {"RIGHT", "FULL"}:
                merged.replace(merged.this)
            elif sides == {"RIGHT"} and len(select.args["joins"]) == 1:
                merged.replace(merged.expressions[-1])


def _check_sources(query: exp.Query) -> None:
    """Spark takes two sources of one name, as long as no column that is mentioned is in both."""
    for select in query.find_all(exp.Select):
        seen: set[str] = set()
        for source in _sources_of(select):
            name = source.alias_or_name.lower()
            if name and name in seen:
                raise OnePiece(f'two sources are named "{name}"')
            seen.add(name)


def _check_windows(query: exp.Query) -> None:
    """A window that WINDOW names may be used in a subquery too, over the columns of that one."""
    for select in query.find_all(exp.Select):
        names = {window.this.name.lower() for window in select.args.get("windows") or []}
        for used in select.find_all(exp.Window) if names else ():
            if used.alias.lower() in names and used.find_ancestor(exp.Select) is not select:
                raise OnePiece("a window that is named outside the subquery where it is used")


def _check_group_names(query: exp.Query) -> None:
    """GROUP BY may mention an output of which there are two: Spark knows which one is meant."""
    for select in query.find_all(exp.Select):
        counts = Counter(part.alias.lower() for part in select.expressions if isinstance(part, exp.Alias))
        group = select.args.get("group")
        for mention in group.find_all(exp.Column) if group is not None else ():
            if not mention.table and counts[mention.name.lower()] > 1:
                raise OnePiece("GROUP BY an output of which there are two")


def _check_all(query: exp.Query, relations: Mapping[str, Relation]) -> None:
    """GROUP BY ALL is by a column of that name where there is one."""
    if not any(group.args.get("all") for group in query.find_all(exp.Group)):
        return
    names = {found.name.lower() for found in query.find_all(exp.Identifier)}
    for mention in mentions(query):
        relation = next((found for name, found in relations.items() if name.lower() == mention.name.lower()), None)
        names |= {found.name.lower() for found in relation.columns} if relation else set()
    if "all" in names:
        raise OnePiece("GROUP BY ALL beside a column of that name")


def _write_out_ordinals(query: exp.Query) -> None:
    """``GROUP BY ROLLUP (1, 2)``; those of a plain GROUP BY are written out with the names."""
    for select in query.find_all(exp.Select):
        group = select.args.get("group")
        for sets in group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets) if group is not None else ():
            for number in [
                part
                for part in sets.find_all(exp.Literal)
                if part.find_ancestor(exp.Func, exp.Binary, exp.Group) is group
            ]:
                place = int(number.name) - 1 if number.is_int else -1
                if 0 <= place < len(select.selects) and not any(part.is_star for part in select.selects):
                    number.replace(select.selects[place].unalias().copy())


def _tell_apart(query: exp.Query) -> None:
    """The second side of a set may have two columns of one name, since the first one's names count."""
    for operation in query.find_all(exp.SetOperation):
        select = operation.expression
        if not isinstance(select, exp.Select) or select.args.get("order") is not None:
            continue
        seen: set[str] = set()
        for place, projection in enumerate(select.expressions):
            name = output_name(projection).lower()
            if name in seen:
                projection = exp.Alias(this=projection.unalias(), alias=exp.to_identifier(f"column__{place + 1}"))
                select.expressions[place].replace(projection)
            seen.add(name)


def _first_select(query: exp.Query) -> exp.Select | None:
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    return query if isinstance(query, exp.Select) else None


def _name_outputs(query: exp.Query) -> None:
    """Every output gets an alias, remembering the user's spelling; Spark's where there is none."""
    top = _first_select(query)
    for select in query.find_all(exp.Select):
        projections: list[Node] = []
        for place, projection in enumerate(select.expressions):
            if isinstance(projection, exp.Alias):
                projection.args["alias"].meta.update({TYPED: projection.alias, WRITTEN: True})
            elif not _is_star(projection) and isinstance(projection, exp.Column | exp.Dot):
                name = projection.name if isinstance(projection, exp.Column) else projection.expression.name
                projection = exp.Alias(this=projection, alias=exp.to_identifier(name))
                projection.args["alias"].meta[TYPED] = name
            elif is_call(projection, *CALLS):  # as Spark names them
                projection = exp.Alias(this=projection, alias=exp.to_identifier(projection.name.lower()))
                projection.args["alias"].meta[TYPED] = projection.alias
            elif not _is_star(projection):
                name = sparks_name(projection)
                taken = {output_name(other).lower() for other in (*projections, *select.expressions[place + 1 :])}
                unique = name if name.lower() not in taken else f"column__{place + 1}"
                projection = exp.Alias(this=projection, alias=exp.to_identifier(unique, quoted=True))
                if select is top:
                    projection.args["alias"].meta[TYPED] = unique
                    projection.args["alias"].meta[GUESSED] = True
            projections.append(projection)
        select.set("expressions", projections)
        write_out_names(select, {source.alias_or_name.lower() for source in _sources_of(select)})


def without_added_names(query: exp.Query) -> exp.Query:
    """A copy without ``AS x`` behind a column x, where the user wrote none.

    In the first SELECT of a UNION ALL such an alias is a step of Spark's plan that the user's text does not have.
    """
    query = query.copy()
    for select in query.find_all(exp.Select):
        for projection in select.expressions:
            value, name = projection.unalias(), projection.args.get("alias")
            if not isinstance(value, exp.Column) or name is None or name.meta.get(WRITTEN):
                continue
            if value.name.lower() == name.name.lower():
                value.set("this", exp.to_identifier(name.name, quoted=True))
                projection.replace(value)
    return query


def _is_star(projection: Node) -> bool:
    """``*`` or ``t.*``; not (SELECT * FROM t), which is one value."""
    return bool(projection.is_star) and not isinstance(projection, exp.Subquery)


def _check_columns(query: exp.Query, relations: Mapping[str, Relation], sql: str) -> None:
    for scope in traverse_scope(query):
        outer = _all_sources(scope)
        for mention in scope.columns:
            if not mention.table:
                if mention.find_ancestor(exp.Order, exp.Select) is not None and _orders_output(mention, scope):
                    continue
                _refuse_column(mention, scope, relations, sql)
            source = outer.get(mention.table)
            if source is None:
                near = closest(mention.table, outer)
                hint = f'Did you mean "{near}"?' if near else f"The sources here are {', '.join(sorted(outer))}."
                refuse(sql, mention, f'no source "{mention.table}" in this SELECT', hint)
            names = _columns_of(source, relations)
            if names is not None and mention.name.lower() not in names:
                _refuse_column(mention, scope, relations, sql)


def _all_sources(scope: Scope) -> dict[str, object]:
    found: dict[str, object] = {}
    current: Scope | None = scope
    while current is not None:
        for name, source in current.sources.items():
            found.setdefault(name, source)
        for lateral in current.expression.args.get("laterals") or []:
            found.setdefault(lateral.alias, lateral)
        current = current.parent
    return found


def _columns_of(source: object, relations: Mapping[str, Relation]) -> set[str] | None:
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        relation = next((found for name, found in relations.items() if name.lower() == source.name), None)
        given = source.args.get("alias")
        if given is not None and given.columns:
            return {name.name.lower() for name in given.columns}
        return {found.name.lower() for found in relation.columns} if relation else None
    lateral = source.expression if isinstance(source, Scope) else source
    if isinstance(lateral, exp.Lateral):
        given = lateral.args.get("alias")
        return {name.name.lower() for name in given.columns} if given is not None and given.columns else None
    if isinstance(source, Scope) and isinstance(source.expression, exp.Query):
        return {name.lower() for name in source.expression.named_selects}
    return None


def _orders_output(mention: exp.Column, scope: Scope) -> bool:
    return mention.find_ancestor(exp.Order) is not None and mention.name in getattr(
        scope.expression, "named_selects", ()
    )


def _refuse_column(mention: exp.Column, scope: Scope, relations: Mapping[str, Relation], sql: str) -> NoReturn:
    name = mention.name
    owners = []
    every: list[str] = []
    for alias, source in _all_sources(scope).items():
        if mention.table and alias != mention.table:
            continue
        names = _columns_of(source, relations) or set()
        every += names
        owners += [alias] if name.lower() in names else []
    if len(owners) > 1 and not mention.table:
        shown = " or ".join(f"{alias}.{name}" for alias in owners)
        refuse(sql, mention, f'column "{name}" is ambiguous', f"Say which one: {shown}.", name=name)
    if not mention.table:
        check_bare_call(mention, sql)
        if len(owners) == 1:
            raise OnePiece(f"which source the column {name} is of")
    near = closest(name, [*every, *(METADATA_NAMES if name.startswith("_") else ())])
    where = f' in "{mention.table}"' if mention.table else ""
    hint = f'Did you mean "{near}"?' if near else f"The columns here are {', '.join(sorted(every))}."
    refuse(sql, mention, f'no column "{name}"{where}', hint, name=name)


def _explain(query: exp.Query, relations: Mapping[str, Relation], sql: str, error: str) -> NoReturn:
    """sqlglot gave up in the middle: find the column it may have meant."""
    columns = {name.lower(): {found.name.lower() for found in given.columns} for name, given in relations.items()}
    every = set().union(*columns.values())
    for select in query.find_all(exp.Select):
        for projection in select.selects:
            name = output_name(projection).lower()
            # A column that is only passed on does not make its own name a known one.
            if not isinstance(projection.unalias(), exp.Column) or projection.unalias().name.lower() != name:
                every.add(name)
    tables = {found.alias_or_name.lower(): found.name.lower() for found in query.find_all(exp.Table)}
    for mention in query.find_all(exp.Column):
        here = columns.get(tables.get(mention.table.lower(), ""), every)
        if not mention.is_star and mention.name.lower() not in here:
            if not mention.table:
                check_bare_call(mention, sql)
            near = closest(mention.name, here)
            hint = f'Did you mean "{near}"?' if near else "Check its spelling."
            where = f' in "{mention.table}"' if mention.table else ""
            refuse(sql, mention, f'no column "{mention.name}"{where}', hint, name=mention.name)
    sentence = error.split("\n")[0].split(". Line")[0].rstrip(".")
    refuse(sql, None, f"the names cannot be resolved: {sentence}", "Qualify columns with the name of their source.")


def _output_names(query: exp.Query, relations: Mapping[str, Relation], sql: str) -> tuple[str, ...]:
    select = _first_select(query)
    if select is None:
        return ()
    spelled: dict[tuple[str, str], str] = {}
    for mention in select.find_all(exp.Table):
        relation = next((found for name, found in relations.items() if name.lower() == mention.name), None)
        for found in relation.columns if relation else ():
            spelled[mention.alias_or_name, found.name.lower()] = found.name
    names: list[str] = []
    for projection in select.expressions:
        value = projection.this if isinstance(projection, exp.Alias) else projection
        typed = projection.args["alias"].meta.get(TYPED) if isinstance(projection, exp.Alias) else None
        if typed is None and isinstance(value, exp.Column):  # came from a star
            typed = spelled.get((value.table, value.name))
        names.append(typed or output_name(projection))
    sure = [place for place, part in enumerate(select.expressions) if not _is_guessed(part)]
    check_output_names([names[place] for place in sure], sql, [select.expressions[place] for place in sure])
    for union in query.find_all(exp.SetOperation):
        left, right = len(union.this.selects), len(union.expression.selects)
        if left != right:
            kind = type(union).__name__.upper()
            refuse(
                sql,
                union.expression,
                f"{kind} of {left} columns and {right} columns",
                "Both sides need as many columns.",
            )
    return tuple(names)


def _is_guessed(projection: Node) -> bool:
    return isinstance(projection, exp.Alias) and bool(projection.args["alias"].meta.get(GUESSED))


def check_output_names(names: Sequence[str], sql: str, projections: Sequence[Node] = ()) -> None:
    """Refuses names that cannot be the columns of a view."""
    places = [*projections, *([None] * len(names))]
    seen: set[str] = set()
    for name, place in zip(names, places, strict=False):
        if name.lower() in seen:
            refuse(sql, place, f'two columns are named "{name}"', "Give one of them another name with AS.", name=name)
        seen.add(name.lower())
        if name.lower() in ("true ", "false "):  # how SQLite's views, which serve it, name columns true and false
            refuse(sql, place, f'a column cannot be named "{name}"', "Give it another name with AS.", name=name)
        if name.startswith("_") and name.lower() not in TEXT_COLUMNS:
            hint = "Such names are reserved; rename it with AS."
            refuse(sql, place, f'the column name "{name}" begins with an underscore', hint, name=name)


def _rename_sources(query: exp.Query) -> None:
    """Give each source a name of its own. Inner queries first, so that a name that hides another is gone by then."""
    kinds = (exp.Table, exp.Subquery, exp.Lateral, exp.Values)
    counts = Counter(found.alias for found in query.find_all(*kinds) if found.alias)
    taken = set(counts)
    for scope in traverse_scope(query):
        own = [source for source in _own_sources(scope) if counts[source.alias] > 1]
        renamed: dict[str, str] = {}
        for source in own:
            number = 2
            while (name := f"{source.alias}_{number}") in taken:
                number += 1
            taken.add(name)
            renamed[source.alias] = name
            source.args["alias"].set("this", exp.to_identifier(name, quoted=True))
        for mention in scope.columns:
            if mention.table in renamed:
                mention.set("table", exp.to_identifier(renamed[mention.table], quoted=True))


def _own_sources(scope: Scope) -> list[Node]:
    select = scope.expression
    return [source for source in _sources_of(select) if source.alias] if isinstance(select, exp.Select) else []


def _sources_of(select: exp.Select) -> list[Node]:
    clause = select.args.get("from_")
    found = [clause.this] if clause else []
    found += [join.this for join in select.args.get("joins") or []]
    found += list(select.args.get("laterals") or [])
    return found
