"""Match text: a view's SQL in which each MATCH_RECOGNIZE is a relation of its own.

What it is: ``split_matches``. ``FROM payments MATCH_RECOGNIZE (…) AS m`` becomes ``FROM `v$match1` AS m``; what stood
before the clause, a table's name or a query in parentheses, is the text of its input.
Invariants: nothing else of the text changes, so that an error about the new text can be told about the old one. An
input may have clauses of its own: they come first. WITH queries of the text are known to the inputs too.
Not here: the clause (``headwater/patterns``), the plan (``views/compiler/match_compiler.py``).
Read next: ``views/compiler/match_compiler.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import exp

from headwater.patterns import MatchClause, find_clauses
from headwater.views.compiler.frontend.metadata_columns import Replacement
from headwater.views.compiler.frontend.parse import trees
from headwater.views.compiler.sql.dialect import text
from headwater.views.compiler.sql.refusal import Span, refuse

MATCH = "$match"  # no topic and no view has such a name
TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|r?'(?:[^'\\]|\\.)*'|r?\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`|\w+|\s+|.", re.DOTALL | re.IGNORECASE
)
BEFORE_A_SOURCE = ("FROM", "JOIN", ",", "(")


@dataclass(frozen=True)
class MatchMention:
    """One MATCH_RECOGNIZE of a text."""

    relation: str  # the name that stands for it in the new text
    clause: MatchClause
    input: str  # what stands before it: a name, or a query in parentheses

    @property
    def canonical(self) -> str:
        """Equal for clauses that differ in white space and comments alone."""
        start, stop = self.clause.span
        return " ".join(word for _, _, word in _words(self.clause.text[start:stop]))


@dataclass(frozen=True)
class MatchText:
    """A text without MATCH_RECOGNIZE, and what was taken out of it, in the order in which it is computed."""

    given: str
    mentions: tuple[MatchMention, ...]
    replaced: tuple[Replacement, ...]
    sql: str
    definitions: tuple[tuple[str, str], ...]  # WITH queries by name


def has_match(sql: str) -> bool:
    """Whether a text may have the clause.

    >>> has_match("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (a) DEFINE a AS true)"), has_match("SELECT 1")
    (True, False)
    """
    return "match_recognize" in sql.lower()


def split_matches(view: str, sql: str) -> MatchText | None:
    """The text with its clauses taken out; None when it has none."""
    clauses = find_clauses(sql) if has_match(sql) else []
    if not clauses:
        return None
    mentions: list[MatchMention] = []
    replaced: list[Replacement] = []
    for number, clause in enumerate(clauses, start=1):
        start, stop = _input_span(sql, clause)
        inside = [each for each in replaced if each.start >= start]
        name = f"{view}{MATCH}{number}"
        mentions.append(MatchMention(name, clause, _with(sql[start:stop], inside, start)))
        replaced = [each for each in replaced if each.start < start]
        replaced.append(Replacement(start, clause.span[1], f"`{name}`"))
    outer = _with(sql, replaced, 0)
    return MatchText(sql, tuple(mentions), tuple(replaced), outer, _definitions(outer))


def _with(sql: str, replaced: list[Replacement], moved: int) -> str:
    parts, position = [], 0
    for each in replaced:
        parts += [sql[position : each.start - moved], each.text]
        position = each.stop - moved
    return "".join([*parts, sql[position:]])


def _input_span(sql: str, clause: MatchClause) -> Span:
    """Where the input of a clause stands: right before it."""
    tokens = _words(sql[: clause.span[0]])
    here = (clause.span[0], clause.span[0] + len("MATCH_RECOGNIZE"))
    if not tokens:
        refuse(sql, here, "MATCH_RECOGNIZE has no input", "Write it behind a table: FROM payments MATCH_RECOGNIZE (…).")
    stop = tokens[-1][1]
    if tokens[-1][2] == ")":
        depth = 0
        for start, _, word in reversed(tokens):
            depth += (word == ")") - (word == "(")
            if depth == 0:
                return start, stop
        refuse(sql, here, "a parenthesis before MATCH_RECOGNIZE is never opened")
    start, _, _ = tokens[-1]
    for before, (_, _, word) in pairwise(reversed([(-1, -1, "FROM"), *tokens])):
        if word == "." or before[2] == ".":
            start = before[0] if word == "." else start
            continue
        if word.upper() not in BEFORE_A_SOURCE:
            refuse(
                sql,
                (start, stop),
                "MATCH_RECOGNIZE stands behind an alias",
                "Put the alias behind it: FROM payments MATCH_RECOGNIZE (…) AS p.",
            )
        break
    return start, stop


def _words(sql: str) -> list[tuple[int, int, str]]:
    """Where each word begins and ends, and the word; without white space and comments."""
    return [
        (found.start(), found.end(), found.group())
        for found in TOKEN.finditer(sql)
        if not found.group().isspace() and not found.group().startswith(("--", "/*"))
    ]


def _definitions(outer: str) -> tuple[tuple[str, str], ...]:
    """The WITH queries of a text; a text that cannot be read is told when it is compiled."""
    try:
        read = trees(outer)
    except Exception:
        return ()
    clause = read[0].args.get("with_") if read else None
    if not isinstance(clause, exp.With):
        return ()
    return tuple((each.alias, text(each)) for each in clause.expressions)
