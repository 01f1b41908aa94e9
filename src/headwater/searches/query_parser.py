"""The query language of stored searches.

What it is: ``parse``: words, ``"phrases"``, ``prefixes*``, AND, OR, NOT (or ``-``), parentheses, ``column:value``,
ranges ``column:[10 TO 20}``, comparisons ``column:>10``; and, behind ``sql:``, a predicate in SQL.
Invariants: a text is read whole or refused with ``InvalidQuery``, the place underlined; so nothing of a query is ever
left out silently. Words that stand side by side must all occur. NOT binds before AND, AND before OR.
Not here: predicates in SQL (``sql_predicate.py``), what a value is (``search_columns.py``).
Read next: ``query_nodes.py``, ``sql_predicate.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from headwater.errors import InvalidQuery
from headwater.hints import suggestion, underline
from headwater.searches.query_nodes import (
    All,
    Between,
    Equals,
    IsNull,
    Node,
    Not,
    Phrase,
    StartsWith,
    Word,
    WordPrefix,
    all_of,
    any_of,
)
from headwater.searches.search_columns import (
    DAY_US,
    NotAValue,
    SearchColumn,
    SearchColumns,
    ValueKind,
    bound_of,
    is_day,
    value_of,
)
from headwater.searches.text_analysis import GAP, TextAnalyser

SQL = re.compile(r"\s*sql:", re.IGNORECASE)
DEPTH_MAX = 50
LENGTH_MAX = 20_000

_SPACE = re.compile(r"\s*")
_FIELD = re.compile(r"(?:([A-Za-z_]\w*)|`((?:[^`]|``)+)`):")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_WORD = re.compile(r"(?:\\.|[^\s()\"\[\]{}\\])+")
_KEYWORD = re.compile(r"(AND|OR|NOT|&&|\|\|)(?=[\s()\"]|$)")
_COMPARISON = re.compile(r">=|<=|>|<")
_RANGE = re.compile(
    r"([\[{])\s*(\"(?:[^\"\\]|\\.)*\"|[^\s\]}]+)\s+TO\s+(\"(?:[^\"\\]|\\.)*\"|[^\s\]}]+)\s*([\]}])", re.IGNORECASE
)
_ESCAPE = re.compile(r"\\(.)")


def parse(query: str, columns: SearchColumns, analyser: TextAnalyser) -> Node:
    """The tree of a query over documents of these columns.

    >>> import pyarrow as pa
    >>> columns = SearchColumns(pa.schema([("title", pa.string()), ("price", pa.int64())]), text=["title"])
    >>> parse("rivers AND price:[10 TO 20}", columns, TextAnalyser("default")).parts[1]
    Between(column='price', low=10, high=20, low_open=False, high_open=True)
    >>> parse("rivers AND (price:10", columns, TextAnalyser("default"))
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidQuery: a parenthesis is not closed
      rivers AND (price:10
                 ^
      Hint: Write ) behind the part that belongs together.
    """
    if len(query) > LENGTH_MAX:
        refuse(query, (0, 1), f"the query has {len(query)} characters, and may have {LENGTH_MAX}")
    behind = SQL.match(query)
    if behind is not None:
        from headwater.searches.sql_predicate import parse_predicate

        return parse_predicate(query, behind.end(), columns)
    return _Parser(query, columns, analyser).whole()


def refuse(query: str, span: tuple[int, int], message: str, hint: str | None = None) -> NoReturn:
    """Raise ``InvalidQuery`` with a place of the query underlined."""
    raise InvalidQuery(
        message, detail=underline(query, span), hint=hint, query=query, position=span[0], length=span[1] - span[0]
    )


class _Parser:
    def __init__(self, query: str, columns: SearchColumns, analyser: TextAnalyser) -> None:
        self.query = query
        self.columns = columns
        self.analyser = analyser
        self.at = 0
        self.depth = 0

    # The text

    def skip(self) -> None:
        match = _SPACE.match(self.query, self.at)
        assert match is not None
        self.at = match.end()

    def peek(self) -> str:
        self.skip()
        return self.query[self.at : self.at + 1]

    def keyword(self) -> str | None:
        """The keyword that comes next, which stays there."""
        self.skip()
        match = _KEYWORD.match(self.query, self.at)
        return None if match is None else {"&&": "AND", "||": "OR"}.get(match[1], match[1])

    def take_keyword(self) -> tuple[int, int]:
        match = _KEYWORD.match(self.query, self.at)
        assert match is not None
        self.at = match.end()
        return match.span()

    def fail(self, start: int, stop: int, message: str, hint: str | None = None) -> NoReturn:
        refuse(self.query, (start, max(stop, start + 1)), message, hint)

    # The grammar

    def whole(self) -> Node:
        if not self.query.strip():
            self.fail(0, 1, "the query is empty", "To find every document, write *.")
        node = self.disjunction(None)
        if self.peek():
            self.fail(self.at, self.at + 1, "this closes nothing" if self.peek() == ")" else "this is not expected")
        return node

    def disjunction(self, field: SearchColumn | None) -> Node:
        parts = [self.conjunction(field)]
        while self.keyword() == "OR":
            start, stop = self.take_keyword()
            self.operand_follows(start, stop)
            parts.append(self.conjunction(field))
        return any_of(parts)

    def conjunction(self, field: SearchColumn | None) -> Node:
        parts = [self.negation(field)]
        while True:
            word = self.keyword()
            if word == "AND":
                start, stop = self.take_keyword()
                self.operand_follows(start, stop)
            elif word == "OR" or self.peek() in ("", ")"):
                return all_of(parts)
            parts.append(self.negation(field))

    def operand_follows(self, start: int, stop: int) -> None:
        if self.peek() in ("", ")") or self.keyword() in ("AND", "OR"):
            self.fail(start, stop, f"nothing stands behind {self.query[start:stop]}", "Write what is to be combined.")

    def negation(self, field: SearchColumn | None) -> Node:
        word = self.keyword()
        if word in ("AND", "OR"):
            start, stop = self.take_keyword()
            hint = f'To look for the word itself, quote it: "{self.query[start:stop]}".'
            self.fail(start, stop, f"nothing stands before {self.query[start:stop]}", hint)
        if word == "NOT":
            start, stop = self.take_keyword()
            self.operand_follows(start, stop)
            return self.deeper(lambda: Not(self.negation(field)), start)
        mark = self.peek()
        if mark in ("-", "!", "+") and re.match(r"\S", self.query[self.at + 1 : self.at + 2]):
            start = self.at
            self.at += 1
            operand = self.deeper(lambda: self.operand(field), start)
            return operand if mark == "+" else Not(operand)
        return self.operand(field)

    def deeper(self, parse_part: Callable[[], Node], start: int) -> Node:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            self.fail(start, start + 1, f"more than {DEPTH_MAX} parts stand inside each other")
        part = parse_part()
        self.depth -= 1
        return part

    def operand(self, field: SearchColumn | None) -> Node:
        mark, start = self.peek(), self.at
        if mark == "(":
            self.at += 1
            if self.peek() == ")":
                self.fail(start, self.at + 1, "nothing stands in the parentheses")
            inner = self.deeper(lambda: self.disjunction(field), start) if self.peek() else All()
            if self.peek() != ")":
                hint = "Write ) behind the part that belongs together."
                self.fail(start, start + 1, "a parenthesis is not closed", hint)
            self.at += 1
            return inner
        named = _FIELD.match(self.query, self.at)
        if named is not None and not self.query.startswith("//", named.end()):
            self.at = named.end()
            return self.of_field(self.field(named), named)
        if mark in ("[", "{"):
            self.fail(start, start + 1, "a range needs a column before it", "Write column:[10 TO 20].")
        if mark in ("]", "}", ")"):
            self.fail(start, start + 1, "this closes nothing")
        if field is not None:
            return self.value(field)
        if not self.columns.text:
            self.fail(start, self.end(), "there is no text column to look for words in", "Name a column: column:value.")
        return self.text(self.columns.every_text)

    def field(self, named: re.Match[str]) -> SearchColumn:
        name = named[1] or named[2].replace("``", "`")
        found = self.columns.find(name)
        if found is None:
            near = suggestion(name, self.columns.by_name)
            self.fail(
                named.start(),
                named.end(),
                f'the documents have no column "{name}"',
                f'{near} Quote text with a colon: "a:b".',
            )
        if found.kind is None:
            self.fail(named.start(), named.end(), f"{found.name} is {found.type}, which searches cannot ask about")
        return found

    def of_field(self, column: SearchColumn, named: re.Match[str]) -> Node:
        mark = self.query[self.at : self.at + 1]
        if not mark or mark.isspace() or mark == ")":
            self.fail(named.start(), named.end(), f"a value of {column.name} is missing", "Write it behind the colon.")
        if mark == "(":
            return self.operand(column)
        return self.value(column)

    # Values

    def value(self, column: SearchColumn) -> Node:
        """What stands behind ``column:``."""
        start = self.at
        if self.query[start : start + 1] in ("[", "{"):
            return self.range(column)
        compared = _COMPARISON.match(self.query, start)
        if compared is not None:
            return self.comparison(column, compared)
        if self.query.startswith("*", start) and self.end() == start + 1:
            self.at += 1
            return Not(IsNull(column.name))
        if column.text:
            return self.text(column.name)
        word, quoted, stop = self.word()
        if not quoted and column.kind is ValueKind.STRING and word.endswith("*") and not word.endswith("\\*"):
            self.no_wildcards(word[:-1], start, stop)
            return StartsWith(column.name, _unescaped(word[:-1]))
        if not quoted:
            self.no_wildcards(word, start, stop)
        plain = word if quoted else _unescaped(word)
        if column.kind is ValueKind.TIMESTAMP and is_day(plain):  # the whole day
            low = self.typed(column, plain, start, stop)
            return Between(column.name, low, low + DAY_US, False, True)
        return Equals(column.name, self.typed(column, plain, start, stop))

    def typed(self, column: SearchColumn, word: str, start: int, stop: int, *, bound: bool = False) -> Any:
        try:
            return bound_of(column, word) if bound else value_of(column, word)
        except NotAValue as error:
            self.fail(start, stop, str(error))

    def ordered(self, column: SearchColumn, start: int, stop: int) -> None:
        if column.text:
            hint = f'Name a column that is not in text=, or write sql: {column.name} > "…".'.replace('"…"', "'…'")
            self.fail(start, stop, f"{column.name} is searched by words, and words have no order", hint)
        if column.array:
            self.fail(start, stop, f"{column.name} is {column.type}: a range is asked of one value, not of several")

    def range(self, column: SearchColumn) -> Node:
        start = self.at
        match = _RANGE.match(self.query, start)
        if match is None:
            self.fail(
                start, self.end(), "the range is not complete", "Write [10 TO 20], or {10 TO 20} without its ends."
            )
        self.at = match.end()
        self.ordered(column, start, self.at)
        low, high = (
            None if match[n] == "*" else self.typed(column, _bare(match[n]), *match.span(n), bound=True) for n in (2, 3)
        )
        if low is None and high is None:
            return Not(IsNull(column.name))
        return Between(
            column.name, low, high, match[1] == "{" and low is not None, match[4] == "}" and high is not None
        )

    def comparison(self, column: SearchColumn, compared: re.Match[str]) -> Node:
        start = self.at
        self.at = compared.end()
        self.ordered(column, start, self.at)
        word, quoted, stop = self.word()
        bound = self.typed(column, word if quoted else _unescaped(word), compared.end(), stop, bound=True)
        sign = compared[0]
        if sign[0] == ">":
            return Between(column.name, low=bound, low_open=sign == ">")
        return Between(column.name, high=bound, high_open=sign == "<")

    # Words

    def word(self) -> tuple[str, bool, int]:
        """The next word or quoted text, whether it was quoted, and where it ends."""
        start = self.at
        if self.query.startswith('"', start):
            quoted = _QUOTED.match(self.query, start)
            if quoted is None:
                self.fail(start, len(self.query), "the quotation mark is not closed", 'Write " at the end.')
            self.at = quoted.end()
            if self.query.startswith("~", self.at):
                self.fail(self.at, self.end(), "words at a distance are not looked for", "Write a AND b.")
            return _unescaped(quoted[1]), True, self.at
        match = _WORD.match(self.query, start)
        if match is None:
            self.fail(start, start + 1, "a word is missing here")
        self.at = match.end()
        return match[0], False, self.at

    def text(self, column: str) -> Node:
        """A word, a prefix or a phrase of a text column."""
        start = self.at
        word, quoted, stop = self.word()
        if word == "*" and not quoted:
            return All()
        if quoted:
            return self.tokens(column, self.analyser.tokens(word), start, stop)
        if word.endswith("*") and not word.endswith("\\*"):
            self.no_wildcards(word[:-1], start, stop)
            plain = _unescaped(word[:-1])
            # A stem is no beginning of a word: the beginning is compared as it was written, in small letters.
            parts = (TextAnalyser("default") if self.analyser.tokenizer == "en_stem" else self.analyser).tokens(plain)
            if len(parts) != 1 or parts[0] == GAP:
                self.fail(start, stop, "the beginning of one word was expected before *", "Write run*, or a phrase.")
            return WordPrefix(column, parts[0])
        self.no_wildcards(word, start, stop)
        return self.tokens(column, self.analyser.tokens(_unescaped(word)), start, stop)

    def tokens(self, column: str, tokens: list[str], start: int, stop: int) -> Node:
        if not tokens or GAP in tokens:
            problem = "a word is too long to be in any text" if tokens else "there is no word in this"
            self.fail(start, stop, problem, "A word has a letter or a digit, and less than 40 bytes.")
        return Word(column, tokens[0]) if len(tokens) == 1 else Phrase(column, tuple(tokens))

    def no_wildcards(self, word: str, start: int, stop: int) -> None:
        plain = re.sub(r"\\.", "", word)
        if "*" in plain or "?" in plain:
            hint = "A * may stand at the end of a word: run*. To look for the sign itself, quote it."
            self.fail(start, stop, "a wildcard inside a word is not looked for", hint)
        if re.search(r"[~^]\d*\.?\d*$", plain):
            hint = "A search matches or does not; write the spellings that count: (a OR b)."
            self.fail(start, stop, "words that are merely alike, and weights, are not looked for", hint)
        if plain.startswith("/") and plain.endswith("/") and len(plain) > 1:
            self.fail(start, stop, "regular expressions are not looked for", "Write words, prefixes and phrases.")

    def end(self) -> int:
        """Where the word that begins here ends."""
        match = re.compile(r"[^\s()]+").match(self.query, self.at)
        return self.at + 1 if match is None else match.end()


def _unescaped(word: str) -> str:
    return _ESCAPE.sub(r"\1", word) if "\\" in word else word


def _bare(word: str) -> str:
    return _unescaped(word[1:-1]) if word.startswith('"') else _unescaped(word)
