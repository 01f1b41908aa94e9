"""Checks of a clause that need all of its sections at once.

What it is: ``check``, which refuses names that nothing defines, subsets that go round in a circle, sections that
need or exclude each other.
Invariants: every refusal underlines the name or section that is wrong; names are compared without regard to case.
Not here: the form of a single section (``match_clause.py``), expressions (``pattern_program.py``).
Read next: ``pattern_program.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.hints import suggestion
from headwater.patterns.clause.pattern_scanner import Span, refuse
from headwater.patterns.clause.pattern_tree import (
    Concatenation,
    EndAnchor,
    Exclusion,
    Quantified,
    StartAnchor,
    Variable,
    nodes_of,
)

if TYPE_CHECKING:
    from headwater.patterns.clause.match_clause import MatchClause, SubsetItem


def check(clause: MatchClause) -> None:
    """Refuse a clause whose sections do not fit together.

    >>> from headwater.patterns import find_clauses
    >>> find_clauses("t MATCH_RECOGNIZE (ORDER BY at PATTERN (A) DEFINE B AS x > 1)")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidPattern: DEFINE names B, which is not in the pattern, at line 1, column 51
      t MATCH_RECOGNIZE (ORDER BY at PATTERN (A) DEFINE B AS x > 1)
                                                        ^
      Hint: Known: A.
    """
    check_subsets(clause)
    check_definitions(clause)
    check_skip(clause)
    check_time(clause)
    check_rows(clause)
    check_measures(clause)


def check_subsets(clause: MatchClause) -> None:
    variables = {name.casefold() for name in clause.variables}
    subsets = {item.name.casefold(): item for item in clause.subsets}
    seen: set[str] = set()
    for item in clause.subsets:
        name = item.name.casefold()
        if name in variables:
            hint = "Give the subset a name that no variable of the pattern has."
            refuse(clause.text, item.span, f"the subset {item.name} has the name of a variable", hint)
        if name in seen:
            refuse(clause.text, item.span, f"the subset {item.name} is declared twice", "Leave one of them away.")
        seen.add(name)
        for member in item.members:
            if member.name.casefold() in subsets:
                circle = reaches(member.name.casefold(), name, subsets)
                message = (
                    f"the subset {item.name} contains itself"
                    if circle
                    else f"the subset {item.name} contains the subset {member.name}"
                )
                refuse(clause.text, member.span, message, "A subset lists variables of the pattern, no subsets.")
            refuse_unknown(clause, member.name, member.span, "SUBSET", variables)


def reaches(start: str, goal: str, subsets: dict[str, SubsetItem]) -> bool:
    """Whether a subset leads to another, or itself, by its members."""
    todo, seen = [start], set()
    while todo:
        name = todo.pop()
        if name == goal:
            return True
        if name in subsets and name not in seen:
            seen.add(name)
            todo += [member.name.casefold() for member in subsets[name].members]
    return False


def refuse_unknown(clause: MatchClause, name: str, span: Span, section: str, known: set[str]) -> None:
    if name.casefold() not in known:
        hint = suggestion(name, clause.variables)
        refuse(clause.text, span, f"{section} names {name}, which is not in the pattern", hint)


def check_definitions(clause: MatchClause) -> None:
    variables = {name.casefold() for name in clause.variables}
    subsets = {item.name.casefold() for item in clause.subsets}
    seen: set[str] = set()
    for item in clause.define:
        if item.name.casefold() in subsets:
            hint = "Define its variables; a row is mapped to one of them."
            refuse(clause.text, item.span, f"DEFINE names the subset {item.name}", hint)
        refuse_unknown(clause, item.name, item.span, "DEFINE", variables)
        if item.name.casefold() in seen:
            refuse(clause.text, item.span, f"{item.name} is defined twice", "Join the conditions with AND.")
        seen.add(item.name.casefold())
    absent = clause.absent_variable
    if absent is not None and absent.name.casefold() not in seen:
        refuse(
            clause.text,
            absent.span,
            f"the absent variable {absent.name} has no definition",
            f"Add DEFINE {absent.name} AS …: a variable without one is every row.",
        )


def check_skip(clause: MatchClause) -> None:
    if clause.skip.variable is None:
        return
    mapped = {node.name.casefold() for node in nodes_of(clause.pattern) if isinstance(node, Variable)}
    mapped |= {item.name.casefold() for item in clause.subsets}
    refuse_unknown(clause, clause.skip.variable, clause.skip.span, "AFTER MATCH SKIP", mapped)
    first = first_of_every_match(clause)
    target = clause.skip.variable.casefold()
    inside = {target} | {
        member.name.casefold() for item in clause.subsets if item.name.casefold() == target for member in item.members
    }
    if clause.skip.kind == "first" and first in inside:
        refuse(
            clause.text,
            clause.skip.span,
            f"AFTER MATCH SKIP TO FIRST {clause.skip.variable} goes back to the first row of the match, for ever",
            "Skip TO NEXT ROW, or to a variable that stands later in the pattern.",
        )


def first_of_every_match(clause: MatchClause) -> str | None:
    """The variable that the first row of every match has, where the pattern begins with one."""
    node = clause.pattern
    while not isinstance(node, Variable):
        if isinstance(node, Concatenation):
            node = node.children[0]
        elif isinstance(node, Exclusion) or (isinstance(node, Quantified) and node.low > 0):
            node = node.part
        else:
            return None
    return node.name.casefold()


def check_time(clause: MatchClause) -> None:
    if clause.within_us is not None:
        if not clause.order_by:
            hint = "Add ORDER BY with the column of the event's time first."
            refuse(clause.text, clause.within_span, "WITHIN needs an order by time", hint)
        if clause.order_by[0].descending:
            hint = "Order by the time ascending."
            refuse(clause.text, clause.order_by[0].piece.span, "WITHIN needs rows in the order of time", hint)
    elif clause.absent_variable is not None:
        refuse(
            clause.text,
            clause.absent_variable.span,
            f"[^{clause.absent}] does not say for how long {clause.absent} must not come",
            "Add WITHIN INTERVAL 10 MINUTES behind the pattern.",
        )
    elif clause.timed_out:
        hint = "Add WITHIN INTERVAL 10 MINUTES behind the pattern."
        refuse(clause.text, clause.rows_span, "nothing can time out without WITHIN", hint)


def check_rows(clause: MatchClause) -> None:
    nodes = list(nodes_of(clause.pattern))
    if clause.unmatched_rows:
        for node in nodes:
            if isinstance(node, Exclusion):
                hint = "Take the {- -} away, or write ALL ROWS PER MATCH without WITH UNMATCHED ROWS."
                refuse(clause.text, node.span, "rows are excluded where unmatched rows are asked for", hint)
    if clause.timed_out:
        if clause.unmatched_rows:
            hint = "Ask for one of the two: the rows of a timed-out match are unmatched."
            refuse(clause.text, clause.rows_span, "unmatched rows and timed-out matches are both asked for", hint)
        if clause.absent_variable is not None:
            hint = "A match that waits for an absence ends by its deadline; leave WITH TIMED OUT MATCHES away."
            refuse(clause.text, clause.absent_variable.span, "an absence cannot time out", hint)
        first = clause.pattern.parts[0] if isinstance(clause.pattern, Concatenation) else clause.pattern
        for node in nodes:
            if isinstance(node, StartAnchor) and node is not first:
                hint = "Put ^ in front of the whole pattern, or leave WITH TIMED OUT MATCHES away."
                refuse(clause.text, node.span, "^ inside a pattern cannot be told from a match that waits", hint)
            if isinstance(node, EndAnchor):
                hint = "Leave $ or WITH TIMED OUT MATCHES away."
                refuse(clause.text, node.span, "a match that must end with the partition cannot time out", hint)


def check_measures(clause: MatchClause) -> None:
    seen: set[str] = set()
    for item in clause.measures:
        if item.alias.casefold() in seen:
            refuse(clause.text, item.piece.span, f"two measures are named {item.alias}", "Rename one of them.")
        seen.add(item.alias.casefold())
