"""Leading rows: stages that keep the first rows of each key.

What it is: recognises a keyed stage that is ``row_number() OVER (PARTITION BY key ORDER BY …) <= n`` (or rank, or
dense_rank), and tells which of its state's columns hold the columns of its input.
Invariants: for such a stage, with A the rows of a key, f(A + new) = f(f(A) + new), and f(A - old) = f(A) unless a row
of ``old`` is in f(A). So a key that only gets rows, or loses rows that it does not show, needs its own state alone.
Nothing else may be filtered behind the number, and the state must hold every column that the stage reads.
Not here: making use of it (``views/stages/top_k_rows.py``).
Read next: ``window_functions.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headwater.views.compiler.sql.expressions import Node, conjuncts, output_name, unaliased

PLAIN = {"expressions", "from_", "where"}
NUMBERS = {"row_number", "rank", "dense_rank"}


def leading_columns(query: exp.Query, leaf: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """For each wanted column of the leaf the output that holds it; nothing unless the first rows of keys are kept."""
    inner = _below(query)
    if inner is None or not _is_plain(inner) or inner.args.get("where") or not isinstance(query, exp.Select):
        return ()
    numbers = {output_name(part): unaliased(part) for part in inner.expressions if part.find(exp.Window)}
    if len(numbers) != 1 or not is_number(next(iter(numbers.values()))):
        return ()
    tests = conjuncts(query.args["where"].this) if query.args.get("where") else []
    if len(tests) != 1 or not _is_limit(tests[0], next(iter(numbers))):
        return ()
    held = _passed_on(query, _passed_on(inner, _of_leaf(inner, leaf)))
    found = {origin: name for name, origin in reversed(list(held.items()))}
    return tuple(found[name] for name in wanted) if all(name in found for name in wanted) else ()


def _is_plain(query: Node | None) -> bool:
    return isinstance(query, exp.Select) and {part for part, given in query.args.items() if given} <= PLAIN


def _below(query: Node) -> exp.Select | None:
    """The query that a plain query reads, when it reads one."""
    clause = query.args.get("from_") if _is_plain(query) else None
    source = clause.this if clause is not None else None
    return source.this if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select) else None


def is_number(call: Node) -> bool:
    """Whether a window function numbers rows in an order."""
    function = call.this if isinstance(call, exp.Window) else None
    if not isinstance(function, exp.Func):
        return False
    name = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
    return name.lower() in NUMBERS


def _is_limit(test: Node, number: str) -> bool:
    column, bound = test.args.get("this"), test.args.get("expression")
    if not isinstance(column, exp.Column) or column.name != number:
        return False
    if not isinstance(bound, exp.Literal) or bound.is_string or not bound.name.isdigit():
        return False
    return isinstance(test, exp.LT | exp.LTE) or (isinstance(test, exp.EQ) and bound.name == "1")


def _of_leaf(query: exp.Select, leaf: str) -> dict[str, str]:
    """What a query reads, by the leaf's columns that are passed on unchanged: all of them when it reads the leaf."""
    source = query.args["from_"].this if query.args.get("from_") else None
    if isinstance(source, exp.Table) and source.alias_or_name == leaf:
        return {found.name: found.name for found in query.find_all(exp.Column) if found.table == leaf}
    lowest = _below(query)
    if lowest is None or not _is_plain(lowest) or lowest.find(exp.Window):
        return {}
    return _passed_on(lowest, _of_leaf(lowest, leaf))


def _passed_on(query: exp.Select, below: dict[str, str]) -> dict[str, str]:
    values = {output_name(part): unaliased(part) for part in query.expressions}
    return {
        name: below[value.name]
        for name, value in values.items()
        if isinstance(value, exp.Column) and value.name in below
    }
