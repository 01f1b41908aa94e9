"""Time windows: window(at, size), session_window(at, gap) and window_time(window), as groups of a SELECT.

What it is: the names that Spark gives such a group (``window.start`` beside ``GROUP BY window(…)``) written out as the
call itself, and windows of windows written as windows of a time.
Invariants: Spark tells a window from any other struct by a mark on the column, which is lost when the column is stored.
So nothing that is compiled needs the mark: ``window_time(w)`` is ``w.end`` less a microsecond, whatever ``w`` is.
A session is told by all rows of its key, so ``session_window`` is a group, or the view is computed as one piece.
Not here: functions over a partition (``views/compiler/operators/window_functions.py``); the stage that holds sessions
(``views/compiler/operators/aggregation.py``).
Read next: ``name_resolution.py``, which calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from headwater.views.compiler.plan import Relation
from headwater.views.compiler.sql.expressions import Node, output_name, position, unaliased

SESSION = "session_window"
CALLS = ("window", SESSION)


class OnePiece(Exception):
    """The view has a part that means something only beside its other parts: it is computed as one piece."""


def is_call(node: Node, *names: str) -> bool:
    """Whether a node calls one of these functions.

    >>> import sqlglot
    >>> from headwater.views.compiler.sql.dialect import SparkAsWritten
    >>> is_call(sqlglot.parse_one("session_window(at, '5 minutes')", read=SparkAsWritten), SESSION)
    True
    """
    return isinstance(node, exp.Anonymous) and node.name.lower() in names


def is_session(node: Node) -> bool:
    """Whether a node is a call of session_window."""
    return is_call(node, SESSION)


def own_nodes(select: exp.Select) -> Iterator[Node]:
    """The nodes of a SELECT that are not those of a query inside it."""
    for node in select.walk(prune=lambda node: isinstance(node, exp.Query) and node is not select):
        if not isinstance(node, exp.Query):
            yield node


def write_out_names(select: exp.Select, sources: set[str]) -> None:
    """``window.start`` and ``window`` beside GROUP BY window(…) become the call, and so does ``w.start`` of an output
    ``window(…) AS w``. ``sources``: what stands in FROM; their names go first."""
    group = select.args.get("group")
    for name in CALLS:
        calls: list[Node] = []
        for node in group.walk() if group is not None else ():
            if is_call(node, name) and position(node, calls) is None:
                calls.append(node)
        if len(calls) == 1:
            _put(select, name, calls[0], whole=True)
    for projection in select.expressions:
        call, name = unaliased(projection), output_name(projection).lower()
        if is_call(call, *CALLS) and name not in sources:
            _put(select, name, call, whole=False)


def _put(select: exp.Select, name: str, call: Node, *, whole: bool) -> None:
    for mention in [node for node in own_nodes(select) if isinstance(node, exp.Column)]:
        if any(is_call(around, *CALLS) for around in _around(mention)):
            continue  # window(window, '1 hour') is over a column of that name
        if mention.table.lower() == name:
            mention.replace(exp.Dot(this=call.copy(), expression=mention.this.copy()))
        elif whole and mention.name.lower() == name and not mention.table:
            mention.replace(call.copy())


def _around(node: Node) -> Iterator[Node]:
    parent = node.parent
    while parent is not None and not isinstance(parent, exp.Query):
        yield parent
        parent = parent.parent


def write_out_times(query: exp.Query, relations: Mapping[str, Relation]) -> exp.Query:
    """``window_time(w)``, and ``window(w, …)`` over a window ``w``, by the last moment of ``w``. The names of the query
    are settled."""
    structs: list[Node] = []
    for scope in traverse_scope(query):
        expression = scope.expression
        for call in own_nodes(expression) if isinstance(expression, exp.Select) else ():
            if is_call(call, *CALLS) and call.expressions and _is_window(call.expressions[0], scope, relations):
                structs.append(call.expressions[0])
    for window in structs:
        window.replace(_last_moment(window))
    # From the leaves up: window_time may stand inside window(…) and around it.
    for call in reversed(
        [node for node in query.walk() if is_call(node, "window_time") and len(node.expressions) == 1]
    ):
        call.replace(_last_moment(call.expressions[0]))
    return query


def name_again(query: exp.Query) -> exp.Query:
    """The same query with the groups of HAVING by Spark's names for them: a call there would be another window, over
    what is already grouped."""
    for having in list(query.find_all(exp.Having)):
        for call in [node for node in having.walk() if is_call(node, *CALLS)]:
            call.replace(exp.column(exp.to_identifier(call.name.lower())))
    return query


def _last_moment(window: Node) -> Node:
    end = exp.Dot(this=window.copy(), expression=exp.to_identifier("end", quoted=True))
    microsecond = exp.Interval(this=exp.Literal.string("1"), unit=exp.var("MICROSECOND"))
    return exp.Paren(this=exp.Sub(this=end, expression=microsecond))


def _is_window(node: Node, scope: Scope, relations: Mapping[str, Relation]) -> bool:
    """Whether a node is a window itself, and no time."""
    node = node.unnest()
    if is_call(node, *CALLS):
        return True
    if not isinstance(node, exp.Column):
        return False
    source = scope.sources.get(node.table)
    if isinstance(source, Scope):
        return _yields_window(source, node.name, relations)
    if not isinstance(source, exp.Table):
        return False
    relation = next((found for name, found in relations.items() if name.lower() == source.name.lower()), None)
    types = {found.name.lower(): found.type or "" for found in relation.columns} if relation else {}
    return types.get(node.name.lower(), "").lower().startswith("struct")


def _yields_window(scope: Scope, name: str, relations: Mapping[str, Relation]) -> bool:
    expression = scope.expression
    if isinstance(expression, exp.SetOperation):  # its first part names the columns, and has their types
        return _yields_window(scope.set_operation_scopes[0], name, relations)
    if not isinstance(expression, exp.Select):
        return False
    found = next((part for part in expression.selects if output_name(part).lower() == name.lower()), None)
    return found is not None and _is_window(unaliased(found), scope, relations)


def check_sessions(select: exp.Select, groups: list[Node]) -> None:
    """Sessions are groups, and nothing else: Spark merges them only where it groups by them."""
    for node in own_nodes(select):
        if is_session(node) and position(node, groups) is None:
            raise OnePiece("session_window outside GROUP BY")
    if any(is_session(part) for group in groups if not is_session(group) for part in group.walk()):
        raise OnePiece("a part of session_window in GROUP BY")


def check_regrouping(query: exp.Query) -> None:
    """Spark merges sessions once more, across keys, where a query groups by a session that a query inside it made; not
    where the session was stored in between. That takes the mark, so it takes one piece."""
    for scope in traverse_scope(query):
        expression = scope.expression
        compared: list[Node] = []
        if isinstance(expression, exp.SetOperation) and (
            expression.args.get("distinct") or not isinstance(expression, exp.Union)
        ):
            places = range(len(expression.named_selects))
            if any(_is_session_at(part, place) for part in scope.set_operation_scopes for place in places):
                raise OnePiece("a set of session_windows")
        elif isinstance(expression, exp.Select):
            if expression.args.get("distinct"):
                compared += map(unaliased, expression.selects)
            group = expression.args.get("group")
            if group is not None:
                compared += expression.selects if group.args.get("all") else group.find_all(exp.Column)
            for node in own_nodes(expression):
                if isinstance(node, exp.Distinct):
                    compared += node.expressions
        if any(_is_made_session(part, scope) for part in compared):
            raise OnePiece("GROUP BY a session_window of a subquery; its start and end, each for itself, are cheap")


def _is_made_session(node: Node, scope: Scope) -> bool:
    node = unaliased(node).unnest()
    if not isinstance(node, exp.Column) or isinstance(node.parent, exp.Dot):
        return False
    source = scope.sources.get(node.table)
    return isinstance(source, Scope) and _made_by_session(source, node.name)


def _made_by_session(scope: Scope, name: str) -> bool:
    query = scope.expression
    names = [part.lower() for part in query.named_selects] if isinstance(query, exp.Query) else []
    return name.lower() in names and _is_session_at(scope, names.index(name.lower()))


def _is_session_at(scope: Scope, place: int) -> bool:
    """Whether a query's output at a place is a session. The sides of a set have names of their own."""
    query = scope.expression
    if isinstance(query, exp.SetOperation):
        return any(_is_session_at(part, place) for part in scope.set_operation_scopes)
    if not isinstance(query, exp.Select) or place >= len(query.selects):
        return False
    value = unaliased(query.selects[place])
    return is_session(value) or _is_made_session(value, scope)
