"""Whole: a view as one stage, in the user's own words.

What it is: the plan of a view that the compiler does not cut into stages: all of its relations go in, Spark runs the
user's text over them, and what differs from the rows before is the change. Also what Spark's parser finds in a text
that ours cannot read (``Reading``), and the plan of such a text.
Invariants: the text is the user's, to the letter; the plan says why it is one stage. A text that only Spark reads is
refused for the same reasons as any other: a result that is no function of its inputs, or an unknown name.
Not here: which queries come to this (``compile.py``, ``views/compiler/frontend/parse.py``); asking Spark's parser
(``views/spark/spark_parser.py``).
Read next: ``compile.py``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headwater.errors import InvalidQuery
from headwater.views.compiler.algebra.plan_nodes import CompileContext, inferred
from headwater.views.compiler.frontend.name_resolution import check_output_names, unknown_table
from headwater.views.compiler.frontend.parse import Parsed
from headwater.views.compiler.frontend.query_tables import tables_in
from headwater.views.compiler.plan import Leaf, LeafContent, PlanColumn, Relation, StageKind, ViewPlan, WholeStage
from headwater.views.compiler.sql.builtin_functions import SPECIAL_TIMES, check_bare_calls, check_called
from headwater.views.compiler.sql.dialect import CALLED_WITHOUT_BRACKETS, text
from headwater.views.compiler.sql.refusal import Span, refuse

AS_WRITTEN = "/* as written */"  # how the text of a whole stage begins: it is never rewritten
STATES = 3  # raised when the stages of the same query keep another state: views are then filled anew
UNREAD = "computed as one piece, since Spark's parser reads it and ours does not"


@dataclass(frozen=True)
class Reading:
    """What Spark's parser finds in a text."""

    relations: tuple[str, ...] = ()  # every mention, in order; a name of several parts has dots
    defined: frozenset[str] = frozenset()  # by WITH, in lower case
    calls: tuple[tuple[str, int], ...] = ()  # each function, in lower case, and how many arguments it gets
    words: tuple[str, ...] = ()  # columns without a source, in lower case
    unordered: bool = False  # LIMIT or OFFSET of rows that no ORDER BY has put in order
    other: str = ""  # what no view may do: a sample, a program


Read = Callable[[str], Reading | None]  # None: Spark's parser does not read it either


def opaque_plan(
    name: str, sql: str, parsed: Parsed, reads: tuple[str, ...], workshop: CompileContext, *, rewritten: bool = False
) -> ViewPlan:
    """The plan of a query that was read, and is not to be looked into."""
    known = {each.name.lower() for found in reads for each in workshop.relations[found.lower()].columns}
    check_bare_calls(parsed.tree, known, sql)
    own = text(parsed.tree) if rewritten else bare_text(sql)
    # Without anybody to ask, what a star of such a query stands for is not known yet.
    told = workshop.describe is not None or not any(part.is_star for part in parsed.tree.selects)
    describe = workshop.describe or (lambda _, tables: inferred(parsed.tree, tables))
    reason = parsed.opaque or ""
    stage = _stage(name, own, reads, workshop, describe if told else None, reason)
    return _plan_of(sql, stage, text(parsed.tree), workshop, tuple(parsed.notes), reason, rewritten=rewritten)


def unread_plan(
    name: str,
    sql: str,
    reading: Reading,
    relations: Mapping[str, Relation],
    workshop: CompileContext,
    waiting: Mapping[str, str],
) -> ViewPlan:
    """The plan of a text that only Spark's parser reads."""
    reads = _known(name, sql, reading, relations, waiting)
    columns = {each.name.lower() for found in reads for each in workshop.relations[found.lower()].columns}
    _check(sql, reading, columns)
    own = bare_text(sql)
    stage = _stage(name, own, reads, workshop, workshop.describe, UNREAD)
    return _plan_of(sql, stage, own, workshop, (UNREAD,), UNREAD)


def bare_text(sql: str) -> str:
    """A text that can stand in parentheses."""
    return sql.strip().rstrip("; \t\n")


def fingerprint(
    canonical: str, reads: tuple[str, ...], relations: Mapping[str, Relation], states: Sequence[int | str] = (STATES,)
) -> str:
    """Equal for equal meaning and equal state: the settled text, and the columns of what it reads.

    ``states`` tells queries apart that kept another state in an older version.
    """
    known = {relation.name: relation for relation in relations.values()}
    parts = [*map(str, states), canonical, *(repr((name, known[name].columns)) for name in reads)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _stage(
    name: str,
    own: str,
    reads: tuple[str, ...],
    workshop: CompileContext,
    describe: Callable[[str, Mapping[str, tuple[PlanColumn, ...]]], tuple[PlanColumn, ...]] | None,
    reason: str,
) -> WholeStage:
    inputs = [
        Leaf(
            f"_l{place}", found, LeafContent.BAG, tuple(each.name for each in workshop.relations[found.lower()].columns)
        )
        for place, found in enumerate(reads)
    ]
    tables = {leaf.name: workshop.relations[leaf.relation.lower()].columns for leaf in inputs}
    # Named by WITH, the relations may be hidden by a WITH of the user's own, as in the text alone.
    named_leaves = ", ".join(
        f"{text(exp.to_identifier(leaf.relation, quoted=True))} AS (SELECT * FROM {leaf.name})" for leaf in inputs
    )
    # In parentheses, and not SELECT * FROM (…): Spark refuses a star over some queries that it runs alone.
    written = f"{AS_WRITTEN} WITH {named_leaves} (\n{own}\n)" if inputs else f"{AS_WRITTEN} {own}"
    columns = describe(written, tables) if describe is not None else ()
    return WholeStage(name, StageKind.WHOLE, columns, (), reason, tuple(inputs), written, reason)


def _plan_of(
    sql: str,
    stage: WholeStage,
    query: str,
    workshop: CompileContext,
    notes: tuple[str, ...],
    reason: str,
    *,
    rewritten: bool = False,
) -> ViewPlan:
    check_output_names([found.name for found in stage.columns], sql)
    reads = tuple(leaf.relation for leaf in stage.inputs)
    return ViewPlan(
        name=stage.name,
        sql=sql,
        stages=(stage,),
        columns=stage.columns,
        reads=reads,
        fingerprint=fingerprint(query, reads, workshop.relations),
        notes=notes,
        query=query,
        own_rule=rewritten,
        opaque=reason,
    )


def _known(
    view: str, sql: str, reading: Reading, relations: Mapping[str, Relation], waiting: Mapping[str, str]
) -> tuple[str, ...]:
    """The relations that the text reads. One that a WITH hides may be among them, which costs and does not matter."""
    known = {name.lower(): relation.name for name, relation in relations.items()}
    found: dict[str, None] = {}
    for mention in reading.relations:
        if mention.lower() in known:
            found[known[mention.lower()]] = None
        elif mention.lower() not in reading.defined:
            unknown_table(mention, mention.rpartition(".")[2], known.values(), sql, _place(sql, mention), view, waiting)
    return tuple(found)


def _check(sql: str, reading: Reading, columns: set[str]) -> None:
    """Refuses what is no function of the inputs."""
    for called, count in reading.calls:
        check_called(called, count, sql, _place(sql, called))
    for word in reading.words:
        if word in CALLED_WITHOUT_BRACKETS and word not in columns:
            check_called(word, 0, sql, _place(sql, word))
    special = re.search(rf"""['"]\s*({"|".join(sorted(SPECIAL_TIMES))})\b""", sql, re.IGNORECASE)
    if special is not None:
        refuse(
            sql,
            special.span(1),
            f"'{special.group(1)}' as a time depends on the time of day",
            "Give the time as a column: append it with each row, as event time.",
        )
    if reading.other:
        refuse(
            sql, None, f"{reading.other} cannot be part of a view", "A view is a function of the rows that it reads."
        )
    if reading.unordered:
        refuse(
            sql,
            _place(sql, "LIMIT") or _place(sql, "OFFSET"),
            "LIMIT without ORDER BY may take any rows",
            "Add ORDER BY, with columns enough to tell rows apart.",
        )


def _place(sql: str, word: str) -> Span | None:
    """Where a word stands first: there is no tree that would know."""
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sql, re.IGNORECASE)
    return found.span() if found is not None else None


def mentioned(sql: str, read: Read) -> set[str]:
    """The names of the relations that a text reads; of one that our parser cannot read, by Spark's parser."""
    try:
        return set(tables_in(sql))
    except InvalidQuery:
        reading = read(sql)
        return set(reading.relations) if reading is not None else set()
