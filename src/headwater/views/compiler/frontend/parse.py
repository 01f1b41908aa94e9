"""Parsing: a view's SQL becomes one plain syntax tree.

What it is: text in, tree out: one query, its WITH clauses put where they are mentioned, generators of the SELECT list
written as LATERAL VIEW, ORDER BY dropped where it has no effect.
Invariants: nodes keep their place in the text, so that an error can underline them; what is refused here is no
function of the view's inputs, whatever the relations are.
Not here: which table or column a name means (``name_resolution.py``); functions
(``views/compiler/sql/builtin_functions.py``).
Read next: ``name_resolution.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from headwater.views.compiler.sql.builtin_functions import aggregate_name, is_generator
from headwater.views.compiler.sql.dialect import SparkAsWritten
from headwater.views.compiler.sql.expressions import Node
from headwater.views.compiler.sql.refusal import refuse, syntax_error

# Generators of which the number of columns is known, and the names that Spark gives them.
GENERATED = {"explode": ("col",), "posexplode": ("pos", "col"), "inline": ()}

# Constructs that the compiler does not look into: the view is computed as one piece.
OPAQUE = (exp.Pivot, exp.MatchRecognize, exp.QueryTransform, exp.Unnest)


@dataclass
class Parsed:
    """A view's query. ``opaque``: why it can only be computed as one piece."""

    tree: exp.Query  # as the parser gave it
    query: exp.Query  # rewritten
    opaque: str | None = None
    notes: list[str] = field(default_factory=list)

    def as_bag(self, sql: str) -> str:
        """The text without the ORDER BY at its end, which a view has no use for."""
        if self.query.args.get("limit") or self.query.args.get("offset"):
            return sql
        depth, cut = 0, None
        for token in SparkAsWritten().tokenize(sql):
            depth += (token.text == "(") - (token.text == ")")
            word = token.text.upper().split(" ")[0]
            if depth == 0 and word in ("ORDER", "SORT", "CLUSTER", "DISTRIBUTE") and " BY" in token.text.upper():
                cut = token.start if cut is None else cut
        return sql if cut is None else sql[:cut]


def parse(sql: str) -> Parsed:
    """The tree of a view's SQL."""
    query = statement(sql)
    parsed = Parsed(tree=query.copy(), query=query)
    parsed.opaque = _why_opaque(query) or _why_opaque_words(sql)
    if parsed.opaque is None:
        _name_fields(query)
        _inline(query, {})
        for select in list(query.find_all(exp.Select)):
            _lateral_generators(select)
    parsed.query = _plain(query)
    _orders(sql, parsed)
    return parsed


def trees(sql: str) -> list[Node]:
    """What the parser makes of a text in Spark's SQL."""
    return [found for found in SparkAsWritten().parse(sql) if found is not None]


def is_read_whole(sql: str) -> bool:
    """Whether the parser reads a text, and gives all that stands there.

    Of pipes it makes subqueries of its own, and IDENTIFIER('t'), which is a name, it takes for a call.
    """
    try:
        trees(sql)
    except Exception:  # it trips over some texts in ways of its own
        return False
    tokens = SparkAsWritten().tokenize(sql)
    if any(token.token_type == TokenType.PIPE_GT for token in tokens):
        return False
    return not any(
        before.text.upper() == "IDENTIFIER" and token.token_type == TokenType.L_PAREN
        for before, token in pairwise(tokens)
    )


def statement(sql: str) -> exp.Query:
    """The one query of a text, as the parser gives it."""
    try:
        statements = trees(sql)
    except Exception as error:
        syntax_error(sql, error)
    if not statements:
        refuse(sql, None, "the view's SQL is empty", "Write a SELECT.")
    if len(statements) > 1:
        refuse(sql, statements[1], "a view is one query, and this is a second one", "Declare a view for each.")
    for select in statements[0].find_all(exp.Select):
        select.set("hint", None)  # about how a query is run, and Spark runs another one
    for collated in statements[0].find_all(exp.Collate):
        if isinstance(collated.expression, exp.Column | exp.Dot):  # COLLATE system.builtin.UTF8_LCASE: no column
            collated.set("expression", exp.var(collated.expression.sql("spark")))
    if isinstance(statements[0], exp.Values):
        return _select_from_values(statements[0])
    if not isinstance(statements[0], exp.Query):
        refuse(
            sql,
            None,
            "a view is a query, and this is something else",
            "Write a SELECT, with WITH or VALUES if you like.",
        )
    return statements[0]


def _why_opaque(query: exp.Query) -> str | None:
    for found in query.find_all(*OPAQUE):
        return f"{found.key.upper()} is computed as one piece"
    if any(mention.args.get("joins") for mention in query.find_all(exp.Table)):
        return "a join in parentheses is computed as one piece"
    if any(
        not lateral.args.get("alias") or not lateral.args["alias"].columns for lateral in query.find_all(exp.Lateral)
    ):
        return "LATERAL without names for its columns is computed as one piece"
    if any(found.args.get("recursive") for found in query.find_all(exp.With)):
        return "a recursive query is computed as one piece"
    return _why_opaque_names(query)


def _why_opaque_names(query: exp.Query) -> str | None:
    """Calls that give their results the names of the columns that they are given: a rewritten column has another."""
    for call in query.find_all(exp.Anonymous):
        name = call.name.lower()
        stars = [part for part in call.expressions if part.is_star]
        if stars and not (name == "count" and isinstance(stars[0], exp.Star)):
            return f"{name}(*) is computed as one piece"
        if name == "arrays_zip" and any(isinstance(part, exp.Column | exp.Dot) for part in call.expressions):
            return "arrays_zip of columns, whose names its fields take, is computed as one piece"
    if any(found.name.lower() == "grouping__id" for found in query.find_all(exp.Column)):
        return "grouping__id, a column that no source has, is computed as one piece"
    for select in query.find_all(exp.Select):
        if any(is_generator(call) and _needs_outputs(call, select) for call in map(_called, select.expressions)):
            return "a generator of what the SELECT list computes first is computed as one piece"
        for projection in select.expressions:
            if isinstance(projection, exp.Alias | exp.Aliases):
                continue
            if is_generator(projection) and not GENERATED.get(generator_name(projection) or ""):
                return f"{projection.name.lower()} without names for its columns is computed as one piece"
    return None


def _called(projection: Node) -> Node:
    return projection.this if isinstance(projection, exp.Alias | exp.Aliases) else projection


def _needs_outputs(generator: Node, select: exp.Select) -> bool:
    """Whether a generator comes behind grouping, or is given another output by its name."""
    if select.args.get("group") or select.args.get("having"):
        return True
    if any(
        aggregate_name(node) and not isinstance(node.parent, exp.Window)
        for part in select.expressions
        for node in part.find_all(exp.Func)
    ):
        return True
    named = {
        part.alias.lower()
        for part in select.expressions
        if isinstance(part, exp.Alias) and part.this.name.lower() != part.alias.lower()
    }
    return any(not found.table and found.name.lower() in named for found in generator.find_all(exp.Column))


def _why_opaque_words(sql: str) -> str | None:
    """``GROUP BY a, b GROUPING SETS (…)`` groups by the sets alone; with a comma before them, by a, b and the sets."""
    for before, token in pairwise(SparkAsWritten().tokenize(sql)):
        if token.token_type == TokenType.GROUPING_SETS and before.token_type not in (
            TokenType.COMMA,
            TokenType.GROUP_BY,
            TokenType.L_PAREN,
        ):
            return "GROUPING SETS behind a list of columns is computed as one piece"
    return None


def generator_name(call: Node) -> str | None:
    """The generator that is called, less its ``_outer``; None when none is.

    >>> import sqlglot
    >>> from headwater.views.compiler.sql.dialect import SparkAsWritten
    >>> [generator_name(sqlglot.parse_one(f"{name}(a)", read=SparkAsWritten)) for name in ("inline_outer", "upper")]
    ['inline', None]
    """
    return call.name.lower().removesuffix("_outer") if is_generator(call) else None


def _inline(node: Node, known: dict[str, exp.CTE]) -> None:
    """Put each WITH query where it is mentioned. Later ones see earlier ones, inner ones hide outer ones."""
    clause = node.args.get("with_")
    if isinstance(clause, exp.With):
        for definition in clause.expressions:
            _inline(definition.this, known)
            known = {**known, definition.alias.lower(): definition}
        node.set("with_", None)
    for child in list(node.iter_expressions()):
        definition = known.get(child.name.lower()) if isinstance(child, exp.Table) and not child.db else None
        if definition is None or not isinstance(child.this, exp.Identifier):
            _inline(child, known)
            continue
        given = child.args.get("alias")
        names = (given.columns if given else None) or definition.args["alias"].columns
        alias = exp.TableAlias(
            this=(given.this if given and given.this else child.this).copy(), columns=[name.copy() for name in names]
        )
        child.replace(exp.Subquery(this=definition.this.copy(), alias=alias))


def _name_fields(query: exp.Query) -> None:
    """``struct(a, t.b)`` has fields named as the columns are written, whatever becomes of these."""
    for call in query.find_all(exp.Anonymous):
        if call.name.lower() != "struct":
            continue
        for part in list(call.expressions):
            if isinstance(part, exp.Column | exp.Dot):
                last = part if isinstance(part, exp.Column) else part.expression
                name = exp.to_identifier(last.name, quoted=True)
                name.meta["case_sensitive"] = True
                part.replace(exp.Alias(this=part.copy(), alias=name))


def _plain(query: exp.Query) -> exp.Query:
    """Parentheses around a query say nothing, and VALUES alone is a SELECT from it."""
    for values in list(query.find_all(exp.Values)):
        _name_values(values)
        if not isinstance(values.parent, exp.From | exp.Join | exp.Lateral | exp.Table):
            values.replace(_select_from_values(values))
    for table in list(query.find_all(exp.Table)):
        if isinstance(table.this, exp.Anonymous) and table.this.name.lower() == "range" and not _named_columns(table):
            name = table.args["alias"].this if table.args.get("alias") else exp.to_identifier("range__")
            table.set("alias", exp.TableAlias(this=name, columns=[exp.to_identifier("id")]))
            if isinstance(table.parent, exp.Join) or _has_other_sources(table):
                inner = exp.Select(expressions=[exp.column("id")]).from_(table.copy())
                table.replace(exp.Subquery(this=inner, alias=exp.TableAlias(this=name.copy())))
    for found in list(query.find_all(exp.Subquery)):
        bare = not found.alias and not any(found.args.get(part) for part in ("order", "limit", "offset", "joins"))
        within = isinstance(found.parent, exp.SetOperation | exp.Subquery)
        if bare and within and isinstance(found.this, exp.Query):
            found.replace(found.this)
    while isinstance(query, exp.Subquery) and not any(query.args.get(part) for part in ("order", "limit", "offset")):
        query = query.this
    return query


def _has_other_sources(table: exp.Table) -> bool:
    """Beside other sources a column is looked for by name, and of a function the names are not known."""
    select = table.find_ancestor(exp.Select)
    return select is not None and bool(select.args.get("joins") or select.args.get("laterals"))


def _named_columns(table: exp.Table) -> bool:
    return bool(table.args.get("alias") and table.args["alias"].columns)


def _name_values(values: exp.Values) -> None:
    """VALUES (1, 'x') AS v has columns col1 and col2."""
    alias = values.args.get("alias")
    if alias is None or not alias.columns:
        name = alias.this if alias is not None and alias.this is not None else exp.to_identifier("values__")
        values.set("alias", exp.TableAlias(this=name, columns=_value_names(values)))


def _value_names(values: exp.Values) -> list[exp.Identifier]:
    first = values.expressions[0]
    width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
    return [exp.to_identifier(f"col{place + 1}") for place in range(width)]


def _select_from_values(values: exp.Values) -> exp.Select:
    names = _value_names(values)
    inner = values.copy()
    inner.set("alias", exp.TableAlias(this=exp.to_identifier("rows"), columns=names))
    select = exp.Select(expressions=[exp.column(name.copy()) for name in names])
    select.set("from_", exp.From(this=inner))
    return select


def _lateral_generators(select: exp.Select) -> None:
    """``SELECT explode(xs) AS x`` becomes ``SELECT g.x … LATERAL VIEW explode(xs) g AS x``."""
    for number, projection in enumerate(list(select.expressions)):
        call = _called(projection)
        kind = generator_name(call)
        if kind is None:
            continue
        if isinstance(projection, exp.Aliases):
            names = [name.name for name in projection.expressions]
        elif isinstance(projection, exp.Alias) and kind != "posexplode":
            names = [projection.alias]
        else:
            names = list(GENERATED[kind])  # of another one without names nothing is read: see ``_why_opaque_names``
        source = f"g__{number}"
        alias = exp.TableAlias(this=exp.to_identifier(source), columns=[exp.to_identifier(name) for name in names])
        inner = exp.Anonymous(this=kind, expressions=[part.copy() for part in call.expressions])
        outer = call.name.lower().endswith("_outer")
        lateral = exp.Lateral(this=inner, view=True, outer=outer, alias=alias)
        select.append("laterals", lateral)
        place = select.expressions.index(projection)
        columns = [exp.column(name, table=source) for name in names]
        select.set("expressions", [*select.expressions[:place], *columns, *select.expressions[place + 1 :]])


def _orders(sql: str, parsed: Parsed) -> None:
    """ORDER BY means something only with LIMIT, and LIMIT only with ORDER BY."""
    for query in list(parsed.query.find_all(exp.Query)):
        if _takes_all(query):
            query.set("limit", None)
        limit = query.args.get("limit") or query.args.get("offset")
        for clause in ("sort", "cluster", "distribute"):
            query.set(clause, None)
        if limit is None and query.args.get("order") is not None:
            if query is parsed.query:
                parsed.notes.append("ORDER BY has no effect on a view and was left out; order when you query the view")
            query.set("order", None)
        if isinstance(query.parent, exp.Exists):
            if not query.args.get("offset") and limit is not None and limit.expression.name != "0":
                query.set("limit", None)  # one row or many: it exists
            continue
        if limit is not None and query.args.get("order") is None:
            refuse(
                sql,
                limit,
                "LIMIT without ORDER BY may take any rows",
                "Add ORDER BY, with columns enough to tell rows apart.",
            )


def _takes_all(query: exp.Query) -> bool:
    """Whether its LIMIT leaves nothing out: LIMIT ALL, or of the one row that there is."""
    limit = query.args.get("limit")
    if not isinstance(limit, exp.Limit) or query.args.get("offset"):
        return False
    count = limit.expression
    if count.name.upper() == "ALL":
        return True
    if not isinstance(query, exp.Select) or not isinstance(count, exp.Literal) or count.name in ("", "0"):
        return False
    if query.args.get("group") or query.args.get("laterals") or any(map(is_generator, map(_called, query.selects))):
        return False
    return query.args.get("from_") is None or any(
        aggregate_name(node) and not isinstance(node.parent, exp.Window | exp.Filter)
        for part in query.selects
        for node in part.find_all(exp.Func)
        if node.find_ancestor(exp.Query) is query
    )
