"""Predicates in SQL, as stored searches: ``sql: country = 'DE' AND price BETWEEN 10 AND 20``.

What it is: ``parse_predicate``: comparisons of a column with literals (=, <>, <, <=, >, >=, <=>, BETWEEN, IN, LIKE with
a beginning, IS NULL), ``array_contains``, AND, OR, NOT, parentheses.
Invariants: a document matches when Spark says TRUE of the predicate. SQL's UNKNOWN (a comparison with a null) never
matches, under NOT neither: so NOT is pushed down to the comparisons here. All other SQL is refused with a sentence:
then the expression belongs in a view, whose column is searched.
Not here: words and phrases (``query_parser.py``).
Read next: ``query_nodes.py``; ``docs/searches.md``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from headwater.hints import suggestion
from headwater.searches.query_nodes import All, Between, Equals, IsNull, Node, Not, Some, StartsWith, all_of, any_of
from headwater.searches.query_parser import DEPTH_MAX, refuse
from headwater.searches.search_columns import (
    NotAValue,
    SearchColumn,
    SearchColumns,
    ValueKind,
    bound_of,
    has_zone,
    is_day,
    value_of,
)

TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\[\s\S]|'')*'|"(?:[^"\\]|\\[\s\S]|"")*")
    |(?P<name>[A-Za-z_]\w*|`(?:[^`]|``)+`)
    |(?P<sign><=>|<>|!=|<=|>=|==|=|<|>|\(|\)|,|-|\+|\*|/|%|\.|\|\||\[|\]))""",
    re.VERBOSE,
)
# As Spark reads a text between quotes: \n and its like, a code point in octal or hexadecimal digits, a quote twice.
ESCAPE = re.compile(r"""\\([01][0-7]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[\s\S])|''|\"\"""")
CONTROLS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
LONELY = re.compile("[\ud800-\udfff]")  # half of a character, which Spark shows as a question mark
DIGITS_MAX = 38  # of a number without an exponent, which is a DECIMAL
KEYWORDS = {"AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "LIKE", "TRUE", "FALSE", "DATE", "TIMESTAMP"}
FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
NEVER: Node = Some()
ELSEWHERE = "Compute it as a column of a view, and declare the searches over that view."


@dataclass(frozen=True)
class PredicateToken:
    """A token of the predicate and its place."""

    kind: str  # number, text, name, keyword, sign, end
    text: str
    start: int
    stop: int


@dataclass(frozen=True)
class Literal:
    """A literal: its text, without quotes, or None for NULL."""

    text: str | None
    kind: str  # number, text, boolean, null
    token: PredicateToken
    typed: str | None = None  # DATE or TIMESTAMP, where it is written before the text


def parse_predicate(query: str, start: int, columns: SearchColumns) -> Node:
    """The tree of the predicate that begins at ``start`` of a query.

    >>> import pyarrow as pa
    >>> columns = SearchColumns(pa.schema([("country", pa.string()), ("price", pa.int64())]), text=[])
    >>> parse_predicate("sql: NOT (price > 20)", 4, columns)
    Between(column='price', low=None, high=20, low_open=False, high_open=False)
    """
    return _Predicate(query, start, columns).whole()


class _Predicate:
    def __init__(self, query: str, start: int, columns: SearchColumns) -> None:
        self.query = query
        self.columns = columns
        self.tokens = self._tokens(start)
        self.at = 0
        self.depth = 0

    def _tokens(self, start: int) -> list[PredicateToken]:
        found, at = [], start
        end = len(self.query.rstrip())
        while at < end:
            match = TOKEN.match(self.query, at)
            if match is None:
                place = at + len(self.query[at:]) - len(self.query[at:].lstrip())
                is_open = self.query[place] in "'\""
                what = "the quotation mark is not closed" if is_open else "this is not SQL"
                refuse(self.query, (place, end if is_open else place + 1), what)
            kind = str(match.lastgroup)
            word = match[kind]
            if kind == "name" and word.upper() in KEYWORDS:
                kind, word = "keyword", word.upper()
            found.append(PredicateToken(kind, word, match.start(match.lastgroup or 0), match.end()))
            at = match.end()
        return [*found, PredicateToken("end", "", end, end + 1)]

    @property
    def next(self) -> PredicateToken:
        return self.tokens[self.at]

    def take(self) -> PredicateToken:
        token = self.next
        if token.kind == "end":
            self.fail(token, "the predicate is not complete", f"Write it to its end. {EXAMPLE}")
        self.at += 1
        return token

    def accept(self, *words: str) -> PredicateToken | None:
        if self.next.kind in ("keyword", "sign") and self.next.text in words:
            return self.take()
        return None

    def expect(self, word: str) -> None:
        if self.accept(word) is None:
            self.fail(self.next, f"{word} was expected here")

    def fail(self, token: PredicateToken, message: str, hint: str | None = None) -> NoReturn:
        refuse(self.query, (token.start, max(token.stop, token.start + 1)), message, hint)

    # The grammar; ``negated``: an odd number of NOTs stands before

    def whole(self) -> Node:
        node = self.disjunction(negated=False)
        if self.next.kind != "end":
            self.fail(self.next, "this is not expected here", ELSEWHERE if self.next.text in "+-*/%|.[" else EXAMPLE)
        return node

    def disjunction(self, *, negated: bool) -> Node:
        parts = [self.conjunction(negated=negated)]
        while self.accept("OR"):
            parts.append(self.conjunction(negated=negated))
        return (all_of if negated else any_of)(parts)

    def conjunction(self, *, negated: bool) -> Node:
        parts = [self.negation(negated=negated)]
        while self.accept("AND"):
            parts.append(self.negation(negated=negated))
        return (any_of if negated else all_of)(parts)

    def negation(self, *, negated: bool) -> Node:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            self.fail(self.next, f"more than {DEPTH_MAX} parts stand inside each other")
        if self.accept("NOT"):
            node = self.negation(negated=not negated)
        elif self.next.text == "(" and self.next.kind == "sign":
            opening = self.take()
            node = self.disjunction(negated=negated)
            if self.accept(")") is None:
                self.fail(opening, "a parenthesis is not closed", "Write ) behind the part that belongs together.")
        else:
            node = self.comparison(negated=negated)
        self.depth -= 1
        return node

    def comparison(self, *, negated: bool) -> Node:
        if self.next.kind == "name":
            return self.of_column(negated=negated)
        if self.next.text in ("TRUE", "FALSE") and self.tokens[self.at + 1].text not in FLIPPED | {"=": "", "==": ""}:
            return All() if (self.take().text == "TRUE") != negated else NEVER
        literal = self.literal()
        sign = self.sign()
        column = self.column()
        return self.compared(column, FLIPPED.get(sign.text, sign.text), literal, negated=negated)

    def sign(self) -> PredicateToken:
        token = self.take()
        if token.kind != "sign" or token.text not in ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"):
            self.fail(token, "a comparison was expected here", ELSEWHERE if token.text in "+-*/%|.[" else EXAMPLE)
        return token

    def column(self) -> SearchColumn:
        token = self.take()
        if token.kind != "name":
            self.fail(token, "the name of a column was expected here", ELSEWHERE)
        if self.next.text == "(" and self.next.kind == "sign":
            self.fail(token, f"the function {token.text} is not computed for searches", ELSEWHERE)
        name = token.text[1:-1].replace("``", "`") if token.text.startswith("`") else token.text
        found = self.columns.find(name)
        if found is None:
            self.fail(token, f'the documents have no column "{name}"', suggestion(name, self.columns.by_name))
        if found.kind is None:
            self.fail(token, f"{found.name} is {found.type}, which searches cannot ask about")
        return found

    def of_column(self, *, negated: bool) -> Node:
        if self.next.text.lower() == "array_contains" and self.tokens[self.at + 1].text == "(":
            return self.array_contains(negated=negated)
        place = self.next
        column = self.column()
        if self.accept("IS"):
            wanted = self.accept("NOT") is None
            self.expect("NULL")
            return IsNull(column.name) if wanted != negated else Not(IsNull(column.name))
        if column.array:
            self.fail(place, f"{column.name} is {column.type}", f"Write array_contains({column.name}, …).")
        opposite = self.accept("NOT") is not None
        if self.accept("IN"):
            return self.one_of(column, negated=negated != opposite)
        if self.accept("BETWEEN"):
            low = self.compared(column, ">=", self.literal(), negated=negated != opposite)
            self.expect("AND")
            high = self.compared(column, "<=", self.literal(), negated=negated != opposite)
            return any_of([low, high]) if negated != opposite else all_of([low, high])
        if self.accept("LIKE"):
            return self.like(column, place, negated=negated != opposite)
        if opposite:
            self.fail(self.next, "IN, BETWEEN or LIKE was expected behind NOT")
        if self.next.kind == "end" or self.next.text in ("AND", "OR", ")"):
            if column.kind is not ValueKind.BOOLEAN:
                self.fail(place, f"{column.name} is {column.type}, not a condition", EXAMPLE)
            return Equals(column.name, not negated)
        sign = self.sign()
        return self.compared(column, sign.text, self.literal(), negated=negated)

    def array_contains(self, *, negated: bool) -> Node:
        self.take()
        self.take()
        place = self.next
        column = self.column()
        if not column.array:
            self.fail(place, f"{column.name} is {column.type}, not an ARRAY")
        self.expect(",")
        value = self.value(column, self.literal())
        self.expect(")")
        if value is None:
            return NEVER
        found = Equals(column.name, value)
        # An array with a null in it may have the value, as far as SQL knows.
        return _other(column.name, [value, None]) if negated else found

    # Comparisons

    def literal(self) -> Literal:
        token = self.take()
        minus = token.text == "-" and token.kind == "sign"
        if minus:
            token = self.take()
        if token.kind == "number":
            return Literal(f"-{token.text}" if minus else token.text, "number", token)
        if minus:
            self.fail(token, "a number was expected behind -", ELSEWHERE)
        if token.kind == "text":
            try:
                return Literal(text_of(token.text), "text", token)
            except ValueError:
                self.fail(token, "there is no character of this number", "The last one is \\U0010FFFF.")
        if token.text in ("DATE", "TIMESTAMP") and self.next.kind == "text":
            return replace(self.literal(), typed=token.text)
        if token.text in ("TRUE", "FALSE"):
            return Literal(token.text, "boolean", token)
        if token.text == "NULL":
            return Literal(None, "null", token)
        hint = "Columns are compared with literals. " + ELSEWHERE
        self.fail(token, "a literal was expected here", hint if token.kind == "name" else EXAMPLE)

    def value(self, column: SearchColumn, literal: Literal, *, bound: bool = False) -> Any:
        """The literal as a value of the column's type; None for NULL."""
        if literal.text is None:
            return None
        kind = column.kind
        as_text = kind in (ValueKind.STRING, ValueKind.DATE, ValueKind.TIMESTAMP)
        fits = (
            literal.kind == "text"
            if as_text
            else literal.kind == ("boolean" if kind is ValueKind.BOOLEAN else "number")
        )
        if not fits:
            wanted = "a text in quotes" if as_text else "TRUE or FALSE" if kind is ValueKind.BOOLEAN else "a number"
            self.fail(literal.token, f"{column.name} is {column.type}: {wanted} was expected")
        self._check_form(column, literal)
        try:
            return bound_of(column, literal.text) if bound else value_of(column, literal.text)
        except NotAValue as error:
            self.fail(literal.token, str(error))

    def _check_form(self, column: SearchColumn, literal: Literal) -> None:
        """Refuse what Spark would compare as another type than the column's."""
        assert literal.text is not None
        if literal.typed is not None and column.kind is ValueKind.STRING:
            self.fail(literal.token, f"{column.name} is {column.type}: a text was expected, not a {literal.typed}")
        if literal.typed == "DATE" and not is_day(literal.text):
            self.fail(literal.token, "a DATE is a day, written 2026-01-31")
        if column.type == "TIMESTAMP_NTZ" and literal.typed is None and has_zone(literal.text):
            self.fail(literal.token, f"{column.name} is {column.type}: it has no zone", "Leave the zone out.")
        if column.kind in (ValueKind.WHOLE, ValueKind.DECIMAL) and "e" in literal.text.lower():
            hint = "Write it without: with an exponent it is a DOUBLE, and the column would be rounded."
            self.fail(literal.token, f"{column.name} is {column.type}: a number without an exponent was expected", hint)
        if literal.kind == "number" and "e" not in literal.text.lower():
            digits = literal.text.lstrip("-0").replace(".", "")
            if len(digits) > DIGITS_MAX:
                self.fail(literal.token, f"a number has at most {DIGITS_MAX} digits")

    def compared(self, column: SearchColumn, sign: str, literal: Literal, *, negated: bool) -> Node:
        name = column.name
        if sign == "<=>" and literal.text is None:
            return Not(IsNull(name)) if negated else IsNull(name)
        if column.array:
            self.fail(literal.token, f"{name} is {column.type}", f"Write array_contains({name}, …).")
        value = self.value(column, literal, bound=True)
        if value is None:  # UNKNOWN, whatever the column has
            return NEVER
        if sign in ("=", "==", "<=>"):
            other = Not(Equals(name, value)) if sign == "<=>" else _other(name, [value])
            return other if negated else Equals(name, value)
        if sign in ("<>", "!="):
            return Equals(name, value) if negated else _other(name, [value])
        if negated:
            sign = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[sign]
        if sign[0] == ">":
            return Between(name, low=value, low_open=sign == ">")
        return Between(name, high=value, high_open=sign == "<")

    def one_of(self, column: SearchColumn, *, negated: bool) -> Node:
        self.expect("(")
        literals = [self.literal()]
        while self.accept(","):
            literals.append(self.literal())
        self.expect(")")
        values = [self.value(column, literal, bound=True) for literal in literals]
        known = [value for value in values if value is not None]
        if negated:  # a NULL in the list: never TRUE
            return _other(column.name, known) if len(known) == len(values) else NEVER
        return any_of([Equals(column.name, value) for value in known]) if known else NEVER

    def like(self, column: SearchColumn, place: PredicateToken, *, negated: bool) -> Node:
        if column.kind is not ValueKind.STRING:
            self.fail(place, f"{column.name} is {column.type}: LIKE compares texts")
        literal = self.literal()
        if literal.text is None:
            return NEVER
        if literal.kind != "text":
            self.fail(literal.token, "a text in quotes was expected behind LIKE")
        start, many = self.beginning(literal)
        found: Node = StartsWith(column.name, start) if many else Equals(column.name, start)
        return all_of([Not(IsNull(column.name)), Not(found)]) if negated else found

    def beginning(self, literal: Literal) -> tuple[str, bool]:
        """What a text that is LIKE this begins with, and whether more may follow."""
        rest, start = str(literal.text), ""
        while rest and rest[0] not in "%_":
            escaped = rest[0] == "\\"
            if escaped and rest[1:2] not in ("%", "_", "\\"):
                self.fail(
                    literal.token, "behind \\ LIKE takes %, _ or another \\", "Write \\\\\\\\ for one that is compared."
                )
            start, rest = start + rest[escaped], rest[1 + escaped :]
        if rest.strip("%"):
            hint = "LIKE 'abc%' is looked for. " + ELSEWHERE
            self.fail(literal.token, "only the beginning of a text is compared by LIKE", hint)
        return start, bool(rest)


EXAMPLE = "For example: sql: country = 'DE' AND price BETWEEN 10 AND 20."


def text_of(quoted: str) -> str:
    r"""What a text between quotes says, as Spark reads it. ``ValueError`` where it names no character.

    >>> text_of("'it''s'"), text_of(r"'it\'s'"), text_of(r"'\u00e9\n'"), text_of(r"r'\n'")
    ("it's", "it's", 'é\n', '\\n')
    """
    if quoted[0] in "rR":
        return quoted[2:-1]
    quote, body = quoted[0], quoted[1:-1]

    def read(match: re.Match[str]) -> str:
        said = match[1]
        if said is None:
            return quote if match[0][0] == quote else match[0]
        if said[0] in "uU" and len(said) > 1:
            return chr(int(said[1:], 16))
        return chr(int(said, 8)) if len(said) == 3 else CONTROLS.get(said, said)

    pairs = ESCAPE.sub(read, body).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return LONELY.sub("?", pairs)


def _other(name: str, values: list[Any]) -> Node:
    """The column has a value, and none of these."""
    return all_of([Not(IsNull(name)), *(Not(Equals(name, value)) for value in values)])
