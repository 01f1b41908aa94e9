"""The scanner: a Spark SQL text as tokens that know their place.

What it is: ``scan``, which cuts a text into names, quoted names, strings, numbers and symbols; ``Piece``, a run of
tokens with its text; ``refuse``, the error that underlines a place.
Invariants: comments are left out; a string is one token, so that nothing inside it is read; a token's text is the
text between its start and stop.
Not here: what the tokens mean (``match_clause.py``, ``row_expression.py``).
Read next: ``match_clause.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from headwater.errors import InvalidPattern
from headwater.hints import underline

Span = tuple[int, int]

TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<comment>--[^\n]*)
    |(?P<block>/\*)
    |(?P<raw>[rR](?:'[^']*'|"[^"]*"))
    |(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:BD|bd|[LSYDFlsydf])?(?![\w]))
    |(?P<name>[^\W\d]\w*|\d+[^\W\d]\w*)
    |(?P<symbol><=>|<=|>=|<>|!=|==|\|\||->|=>|::|\{-|-\}|.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class SqlToken:
    """One token: its kind (name, quoted, string, number, symbol), its text, where it begins and ends.

    >>> [token.text for token in scan("a -- b\\n+ 'c -- d'")]
    ['a', '+', "'c -- d'"]
    """

    kind: str
    text: str
    start: int
    stop: int

    @property
    def word(self) -> str:
        """The token in capitals if it is a plain name, else its text: what keywords and symbols are compared with."""
        return self.text.upper() if self.kind == "name" else self.text

    @property
    def name(self) -> str:
        """The name without its backticks."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of tokens of one text, as the user wrote it.

    >>> Piece.of("SELECT a + 1", scan("SELECT a + 1")[1:]).sql
    'a + 1'
    """

    text: str
    tokens: tuple[SqlToken, ...]

    @classmethod
    def of(cls, text: str, tokens: Sequence[SqlToken]) -> Piece:
        return cls(text, tuple(tokens))

    @property
    def span(self) -> Span:
        return self.tokens[0].start, self.tokens[-1].stop

    @property
    def sql(self) -> str:
        return self.text[slice(*self.span)]


def scan(text: str) -> list[SqlToken]:
    """The tokens of a text, without comments.

    >>> [(token.kind, token.text) for token in scan("`a b` >= 1.5 /* no */ AND x")]
    [('quoted', '`a b`'), ('symbol', '>='), ('number', '1.5'), ('name', 'AND'), ('name', 'x')]
    """
    tokens, place = [], 0
    while place < len(text):
        found = TOKEN.match(text, place)
        assert found is not None  # the last alternative takes any character
        kind = found.lastgroup or ""
        stop = found.end()
        if kind == "block":
            stop = end_of_comment(text, place)
        elif kind not in ("space", "comment"):
            tokens.append(SqlToken("string" if kind == "raw" else kind, found.group(), place, stop))
        place = stop
    return tokens


def end_of_comment(text: str, start: int) -> int:
    """Where a bracketed comment ends; Spark nests them. One that is not closed goes to the end."""
    depth, place = 0, start
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark.group() == "/*" else -1
        place = start + mark.end()
        if depth == 0:
            return place
    return len(text)


def refuse(text: str, span: Span, message: str, hint: str) -> NoReturn:
    """Raise the error of a malformed pattern, its place underlined.

    >>> refuse("PATTERN (A{3,2})", (10, 15), "a quantifier's bounds are the wrong way round", "Write {2,3}.")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidPattern: a quantifier's bounds are the wrong way round, at line 1, column 11
      PATTERN (A{3,2})
                ^^^^^
      Hint: Write {2,3}.
    """
    line = text.count("\n", 0, span[0]) + 1
    column = span[0] - (text.rfind("\n", 0, span[0]) + 1) + 1
    raise InvalidPattern(
        f"{message}, at line {line}, column {column}", detail=underline(text, span), hint=hint, line=line, column=column
    )


def split_at(tokens: Sequence[SqlToken], separator: str) -> list[list[SqlToken]]:
    """The tokens between separators outside every bracket.

    >>> [[token.text for token in part] for part in split_at(scan("a, f(b, c)"), ",")]
    [['a'], ['f', '(', 'b', ',', 'c', ')']]
    """
    parts: list[list[SqlToken]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if depth == 0 and token.text == separator:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
