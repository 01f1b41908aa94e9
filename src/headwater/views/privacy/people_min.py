"""People at least: a view over groups that does not show a group of too few people.

What it is: ``with_people_min``, which writes the condition into a view's text: ``count(DISTINCT …)`` of the people's
ids, in HAVING.
Invariants: the condition is a part of the view's query: what computes, verifies, copies or serves the view suppresses
the same groups. Every relation with personal columns that the query reads is counted, each by the ids of its subjects;
where there is none to count, the view is refused.
Not here: which columns lose their mark (``personal_data.py``).
Read next: ``personal_data.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from headwater.errors import InvalidDeclaration
from headwater.views.compiler.frontend.parse import is_read_whole, statement
from headwater.views.compiler.sql.builtin_functions import aggregate_name
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.expressions import column
from headwater.views.privacy.personal_data import RelationMarks

PEOPLE_MAX = 1_000_000


def with_people_min(title: str, sql: str, people: int, marks: Callable[[str], RelationMarks]) -> str:
    """The text of a view that shows a group only if it is of so many people.

    >>> from headwater.log.schema.personal_columns import Personal
    >>> from headwater.views.privacy.personal_data import PersonalMark, PersonalOrigin
    >>> id = PersonalMark(frozenset({PersonalOrigin("users", "id", Personal("user_id", by="id"))}))
    >>> sql = "SELECT country, count(*) AS n FROM users u GROUP BY country"
    >>> with_people_min('view "v"', sql, 5, lambda name: RelationMarks({"id": id}))
    'SELECT country, count(*) AS n FROM users AS u GROUP BY country HAVING count(DISTINCT `u`.`id`) >= 5'
    """
    if not isinstance(people, int) or isinstance(people, bool) or not 2 <= people <= PEOPLE_MAX:
        raise _refused(title, f"people_min cannot be {people!r}", f"Use a number from 2 to {PEOPLE_MAX:,}.")
    select = statement(sql) if is_read_whole(sql) else None
    if not isinstance(select, exp.Select) or not _is_grouped(select) or select.args.get("with_"):
        raise _refused(
            title,
            "people_min needs one SELECT with GROUP BY or aggregates, without WITH and UNION",
            "Make what comes before or behind the grouping a view of its own.",
        )
    clause = select.args.get("from_")
    sources = [clause.this] if clause is not None else []
    sources += [join.this for join in select.args.get("joins") or []]
    conditions = [condition for source in sources for condition in _conditions(title, source, people, marks)]
    if not conditions:
        raise _refused(
            title, "people_min is said, and what the view reads has no personal column", "Leave people_min out."
        )
    before = select.args.get("having")
    kept = [] if before is None else [exp.Paren(this=before.this)]
    select.set("having", exp.Having(this=exp.and_(*kept, *conditions, copy=False, wrap=False)))
    return text(select)


def _conditions(title: str, source: exp.Expr, people: int, marks: Callable[[str], RelationMarks]) -> list[exp.Expr]:
    """Of one source: a condition for each column that holds ids of its people."""
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
        raise _refused(
            title, "people_min needs topics, tables and views in FROM", "Make the subquery a view of its own."
        )
    found = marks(source.name)
    if not found.origins:
        return []
    if not found.named:
        raise _refused(
            title,
            f'which columns of "{source.name}" are personal is not known, so its people cannot be counted',
            "Declare its columns: privacy={column: hw.Personal(…), other: None}.",
        )
    ids: dict[str, set[str]] = {}
    for name, mark in found.columns.items():
        if all(origin.personal.by == origin.column for origin in mark.origins) and not mark.counted:
            for subject in mark.subjects:
                ids.setdefault(subject, set()).add(name)
    missing = sorted({origin.personal.subject for origin in found.origins} - ids.keys())
    if missing:
        raise _refused(
            title,
            f'"{source.name}" has personal columns and no {missing[0]}, so its people cannot be counted',
            "Let it have the column of the id too.",
        )
    alias = source.alias_or_name
    return [
        exp.GTE(this=_count(alias, name), expression=exp.Literal.number(people))
        for name in sorted(set().union(*ids.values()))
    ]


def _count(alias: str, name: str) -> exp.Expr:
    return exp.Anonymous(this="count", expressions=[exp.Distinct(expressions=[column(alias, name)])])


def _is_grouped(select: exp.Select) -> bool:
    if select.args.get("group") is not None:
        return True
    return any(aggregate_name(node) for part in select.expressions for node in part.find_all(exp.Func))


def _refused(title: str, problem: str, hint: str) -> InvalidDeclaration:
    return InvalidDeclaration(f"{title}: {problem}", hint=hint)
