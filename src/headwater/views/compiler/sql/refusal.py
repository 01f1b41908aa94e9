"""Refusals: what a person reads when a view's SQL cannot be a view.

What it is: the one way the compiler says no. An error with a sentence, the line of SQL with the clause underlined,
and what to do instead; and the search for the place in the text that a node of the syntax tree came from.
Invariants: only ``InvalidView`` is raised; ``line`` and ``column`` in its data count from one; no text of sqlglot,
with its colour codes and class names, reaches a user.
Not here: what is refused and why (``builtin_functions.py``, ``compile.py``).
Read next: ``builtin_functions.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.errors import SqlglotError
from sqlglot.errors import TokenError as SqlglotTokenError
from sqlglot.tokenizer_core import Token

from headwater.errors import InvalidView
from headwater.hints import underline
from headwater.views.compiler.sql.dialect import text

Span = tuple[int, int]  # offsets into the SQL text: the first character, and the one behind the last


# Clauses whose node begins behind the keyword that people look for.
KEYWORDS: dict[type[exp.Expr], str] = {
    exp.Where: "WHERE",
    exp.Group: "GROUP",
    exp.Having: "HAVING",
    exp.Order: "ORDER",
    exp.Limit: "LIMIT",
    exp.Offset: "OFFSET",
    exp.Fetch: "FETCH",
    exp.Qualify: "QUALIFY",
    exp.TableSample: "TABLESAMPLE",
}

# What sqlglot says, by what a person would say. The rest is cut down to its first sentence.
SAYINGS = (
    (re.compile(r"Required keyword: '\w+' missing for <class '[\w.]*\.(\w+)'>"), r"\1 is not complete"),
    (re.compile(r"Invalid expression / Unexpected token"), "this is not expected here"),
    (re.compile(r"Expected table name but got"), "the name of a table is missing after this"),
    (re.compile(r"Expecting (\S+)"), r"\1 is missing after this"),
    (re.compile(r"Expected TYPE after CAST"), "this is not a type that Spark knows"),
)


def refuse(sql: str, where: exp.Expr | Span | None, message: str, hint: str | None = None, **data: Any) -> NoReturn:
    """Raises ``InvalidView``, with the place in ``sql`` underlined.

    >>> refuse("SELECT id, rand() AS r FROM users", (11, 17), "rand() gives another value each time")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidView: rand() gives another value each time (line 1, column 12)
      SELECT id, rand() AS r FROM users
                 ^^^^^^
    """
    span = where if isinstance(where, tuple) else find_span(sql, where) if where is not None else None
    if span is None:
        raise InvalidView(message, hint=hint, **data)
    line, column = line_and_column(sql, span[0])
    raise InvalidView(
        f"{message} (line {line}, column {column})",
        detail=underline(sql, span),
        hint=hint,
        line=line,
        column=column,
        start=span[0],
        stop=span[1],
        **data,
    )


def syntax_error(sql: str, error: Exception) -> NoReturn:
    """Raises ``InvalidView`` for what sqlglot could not read.

    >>> import sqlglot
    >>> try:
    ...     sqlglot.parse_one("SELECT a b c FROM t", read="spark")
    ... except sqlglot.ParseError as error:
    ...     syntax_error("SELECT a b c FROM t", error)
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidView: the SQL cannot be read: this is not expected here (line 1, column 12)
      SELECT a b c FROM t
                 ^
      Hint: Check the commas, brackets and keywords around the underlined place.
    """
    hint = "Check the commas, brackets and keywords around the underlined place."
    if isinstance(error, SqlglotTokenError):
        refuse(
            sql,
            _open_quote(sql),
            "the SQL cannot be read: a quoted text or comment is not closed",
            "Close the quote, or double it inside the text: 'it''s'.",
        )
    for report in getattr(error, "errors", []):
        description = _plain(str(report.get("description") or ""))
        start = _offset(sql, report)
        refuse(
            sql,
            (start, start + max(1, len(report.get("highlight") or ""))),
            f"the SQL cannot be read: {description}",
            hint,
        )
    said = _plain(str(error)) if isinstance(error, SqlglotError) else "some of it is not expected here"
    refuse(sql, None, f"the SQL cannot be read: {said}", hint)


def circle(view: str, missing: str, waiting: Mapping[str, str]) -> tuple[str, str] | None:
    """The sentence and the hint for a view that reads itself, at once or by way of others; None for one that does not.

    ``waiting`` has the views that were refused before, and what each of them did not find.

    >>> circle("daily", "daily", {})[0]
    'a view cannot read itself'
    >>> circle("daily", "weekly", {"weekly": "monthly", "monthly": "daily"})[0]
    'these views read each other: "daily" reads "weekly", "weekly" reads "monthly", "monthly" reads "daily"'
    """
    if missing.casefold() == view.casefold():
        return "a view cannot read itself", "Read what it is made from: a topic, a table, or a view declared before it."
    lacked = {name.casefold(): name_of_other for name, name_of_other in waiting.items()}
    steps = [(view, missing)]
    while (name := steps[-1][1]).casefold() != view.casefold():
        if name.casefold() not in lacked or len(steps) > len(lacked):
            return None
        steps.append((name, lacked[name.casefold()]))
    shown = ", ".join(f'"{reader}" reads "{read}"' for reader, read in steps)
    return f"these views read each other: {shown}", "Put what both need into a view that reads neither of them."


def find_span(sql: str, node: exp.Expr) -> Span | None:
    """Where in ``sql`` a node stands: what sqlglot noted on it and below it, else the first mention of its name.

    >>> import sqlglot
    >>> text = "SELECT sum(a + 1) FROM t WHERE b > 2 LIMIT 3"
    >>> tree = sqlglot.parse_one(text, read="spark")
    >>> [text[slice(*find_span(text, node))] for node in (tree.selects[0], tree.args["where"], tree.args["limit"])]
    ['sum(a + 1)', 'WHERE b > 2', 'LIMIT 3']
    """
    tokens = _tokens(sql)
    marks = [part.meta for part in node.walk() if "start" in part.meta]
    if marks:
        start, stop = min(mark["start"] for mark in marks), max(mark["end"] for mark in marks) + 1
    else:
        name = node.name or (node.sql_name() if isinstance(node, exp.Func) else text(node))
        found = [token for token in tokens if token.text.casefold() == name.casefold()]
        if not found:  # the parser wrote it, for something around it: unix_timestamp() is of current_timestamp()
            return find_span(sql, node.parent) if node.parent is not None and node.depth > 1 else None
        start, stop = found[0].start, found[0].end + 1
    keyword = KEYWORDS.get(type(node))
    if keyword is not None:
        before = [token for token in tokens if token.start < start and token.text.upper().split(" ")[0] == keyword]
        start = before[-1].start if before else start
    return start, _with_closing_brackets(tokens, start, stop)


def line_and_column(sql: str, offset: int) -> tuple[int, int]:
    """Both count from one.

    >>> line_and_column("SELECT a\\nFROM t", 9)
    (2, 1)
    """
    return sql.count("\n", 0, offset) + 1, offset - (sql.rfind("\n", 0, offset) + 1) + 1


def _tokens(sql: str) -> list[Token]:
    try:
        return list(Spark().tokenize(sql))
    except SqlglotError:
        return []


def _with_closing_brackets(tokens: list[Token], start: int, stop: int) -> int:
    """The end of the span, moved behind the bracket that closes what was opened inside it or right behind it."""
    depth, end = 0, stop
    for token in tokens:
        if token.start < start:
            continue
        if token.start >= stop and depth == 0 and not (token.text == "(" and _follows_a_call(tokens, token, stop)):
            break
        if token.text == "(":
            depth += 1
        elif token.text == ")":
            depth -= 1
            if depth < 0:
                break
        end = max(end, token.end + 1) if depth == 0 or token.start < stop else end
    return end


def _follows_a_call(tokens: list[Token], bracket: Token, stop: int) -> bool:
    """Whether the bracket opens the arguments of the name that the span ends with: ``rand`` then ``()``."""
    return any(token.end + 1 == stop == bracket.start for token in tokens)


def _offset(sql: str, report: dict[str, object]) -> int:
    """The place of a parse error: sqlglot gives the line and the column of the token's last character."""
    line, column = int(str(report.get("line") or 1)), int(str(report.get("col") or 1))
    lines = sql.splitlines(keepends=True) or [""]
    start = sum(len(text) for text in lines[: line - 1])
    return max(0, min(len(sql) - 1, start + column - len(str(report.get("highlight") or " "))))


def _open_quote(sql: str) -> Span | None:
    """The quote that nothing closes: the last one before which the text can still be cut into words."""
    for match in reversed(list(re.finditer(r"['\"`]|/\*", sql))):
        try:
            Spark().tokenize(sql[: match.start()])
        except SqlglotError:
            continue
        return match.span()
    return None


def _plain(text: str) -> str:
    text = re.sub(r"\x1b\[\d*m", "", text).split("\n")[0]
    for pattern, saying in SAYINGS:
        match = pattern.search(text)
        if match:
            return match.expand(saying)
    return re.sub(r"<class '[\w.]*\.(\w+)'>", r"\1", text.split(". ")[0]).rstrip(".") or "it is empty"
