"""Expressions of MEASURES and DEFINE: a tree over the user's text.

What it is: ``Expression``, a node that knows its place in the text, and ``parse_expression``, which reads Spark's
operators, calls, CASE, CAST, intervals, lambdas and RUNNING/FINAL.
Invariants: the tree decides structure only; what is sent to Spark is cut out of the user's text by span (``render``),
with only the named parts replaced.
Not here: which row an expression looks at (``navigation.py``), its value (``glue.py``).
Read next: ``navigation.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from headwater.patterns.clause.pattern_scanner import Piece, Span, SqlToken, refuse

COMPARISONS = {"=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">="}
LEVELS = (("|",), ("^",), ("&",), ("+", "-", "||"), ("*", "/", "%", "DIV"))
TYPED = {"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME", "X"}
# Functions whose first argument may be a word and no column: EXTRACT(YEAR FROM at), timestampdiff(MINUTE, a, b).
WORD_FIRST = {"EXTRACT", "TIMESTAMPDIFF", "TIMESTAMPADD", "DATEDIFF", "DATE_DIFF", "DATEADD", "DATE_ADD"}
UNITS = {
    "YEAR",
    "QUARTER",
    "MONTH",
    "WEEK",
    "DAY",
    "DAYOFYEAR",
    "HOUR",
    "MINUTE",
    "SECOND",
    "MILLISECOND",
    "MICROSECOND",
}
SPELLED = {"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY"}  # arguments may be separated by FROM and FOR
RESERVED = {"AND", "OR", "NOT", "THEN", "ELSE", "END", "WHEN", "AS", "BETWEEN", "IN", "IS", "LIKE", "RLIKE", "ILIKE"}
DEPTH_MAX = 150


@dataclass(frozen=True)
class Expression:
    """A node: its kind, its place, its parts; ``value`` is an operator, a name, a tuple of names or a literal.

    >>> from headwater.patterns.clause.pattern_scanner import scan
    >>> tree = parse_expression(Piece.of("A.x + 1 > 2", scan("A.x + 1 > 2")))
    >>> tree.kind, tree.value, [part.kind for part in tree.parts]
    ('binary', '>', ['binary', 'literal'])
    """

    kind: str
    span: Span
    parts: tuple[Expression, ...] = ()
    value: object = None
    mode: str = ""  # RUNNING, FINAL, DISTINCT


def walk(node: Expression) -> Iterator[Expression]:
    """The node and all below it."""
    yield node
    for part in node.parts:
        yield from walk(part)


def render(text: str, span: Span, replaced: Mapping[Span, str]) -> str:
    """The user's text of a span, with the spans in it that are named replaced.

    >>> render("A.x + B.y", (0, 9), {(0, 3): "_r0"})
    '_r0 + B.y'
    """
    pieces, place = [], span[0]
    for start, stop in sorted(each for each in replaced if span[0] <= each[0] and each[1] <= span[1]):
        if start < place:  # inside one that was replaced
            continue
        pieces += [text[place:start], replaced[(start, stop)]]
        place = stop
    # A line comment would swallow what the text is put in front of.
    written = "".join(pieces) + text[place : span[1]]
    return written + "\n" if "--" in written else written


def parse_expression(piece: Piece) -> Expression:
    """The tree of an expression's tokens; what is not an expression is refused, its place underlined."""
    reader = ExpressionReader(piece)
    tree = reader.disjunction()
    if reader.place < len(reader.tokens):
        reader.unexpected()
    return tree


class ExpressionReader:
    """A cursor over the tokens of one expression."""

    def __init__(self, piece: Piece) -> None:
        self.text, self.tokens = piece.text, piece.tokens
        self.place = self.depth = 0
        self.bound: list[str] = []  # names of lambdas' arguments

    def word(self, offset: int = 0) -> str:
        at = self.place + offset
        return self.tokens[at].word if at < len(self.tokens) else ""

    def unexpected(self) -> None:
        at = min(self.place, len(self.tokens) - 1)
        token = self.tokens[at]
        early = self.place >= len(self.tokens)
        message = "an expression ends too early" if early else f"an expression cannot have {token.text} here"
        refuse(self.text, (token.start, token.stop), message, "Correct the underlined part.")

    def take(self, expected: str) -> SqlToken:
        if self.word() != expected:
            self.unexpected()
        self.place += 1
        return self.tokens[self.place - 1]

    def took(self, *words: str) -> bool:
        if self.word() in words and self.word():
            self.place += 1
            return True
        return False

    def last_stop(self) -> int:
        return self.tokens[self.place - 1].stop

    def disjunction(self) -> Expression:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            start = self.tokens[0].start
            refuse(self.text, (start, start + 1), f"an expression is nested more than {DEPTH_MAX} deep", "Simplify it.")
        node = self.conjunction()
        while self.took("OR"):
            right = self.conjunction()
            node = Expression("or", (node.span[0], right.span[1]), (node, right))
        self.depth -= 1
        return node

    def conjunction(self) -> Expression:
        node = self.negation()
        while self.took("AND"):
            right = self.negation()
            node = Expression("and", (node.span[0], right.span[1]), (node, right))
        return node

    def negation(self) -> Expression:
        if self.word() in ("NOT", "!"):
            start = self.tokens[self.place].start
            self.place += 1
            part = self.negation()
            return Expression("not", (start, part.span[1]), (part,))
        return self.predicate()

    def predicate(self) -> Expression:
        node = self.operators(0)
        while True:
            negated = self.word() == "NOT" and self.word(1) in ("BETWEEN", "IN", "LIKE", "RLIKE", "ILIKE", "REGEXP")
            at = self.word(1) if negated else self.word()
            if at in COMPARISONS:
                self.place += 1
                right = self.operators(0)
                node = Expression("binary", (node.span[0], right.span[1]), (node, right), at)
                continue
            if at not in ("BETWEEN", "IN", "LIKE", "RLIKE", "ILIKE", "REGEXP", "IS"):
                return node
            self.place += 1 + negated
            found = self.predicate_tail(node, at)
            span = (node.span[0], self.last_stop())
            node = Expression("not", span, (found,)) if negated else found

    def predicate_tail(self, node: Expression, word: str) -> Expression:
        if word == "BETWEEN":
            low = self.operators(0)
            self.take("AND")
            high = self.operators(0)
            return Expression("between", (node.span[0], high.span[1]), (node, low, high))
        if word == "IN":
            self.take("(")
            items = self.arguments()
            return Expression("in", (node.span[0], self.last_stop()), (node, *items))
        if word == "IS":
            negated = self.took("NOT")
            if self.took("DISTINCT"):
                self.take("FROM")
                right = self.operators(0)
                same = Expression("binary", (node.span[0], right.span[1]), (node, right), "<=>")
                return same if negated else Expression("not", same.span, (same,))
            what = self.word()
            if what not in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
                self.unexpected()
            self.place += 1
            span = (node.span[0], self.last_stop())
            found = Expression("is", span, (node,), what)
            return Expression("not", span, (found,)) if negated else found
        self.took("ANY", "SOME", "ALL")
        parts = [node, self.operators(0)]
        if self.took("ESCAPE"):
            parts.append(self.operators(0))
        return Expression("like", (node.span[0], self.last_stop()), tuple(parts), word)

    def operators(self, level: int) -> Expression:
        if level == len(LEVELS):
            return self.unary()
        node = self.operators(level + 1)
        while self.word() in LEVELS[level]:
            operator = self.word()
            self.place += 1
            right = self.operators(level + 1)
            node = Expression("binary", (node.span[0], right.span[1]), (node, right), operator)
        return node

    def unary(self) -> Expression:
        if self.word() in ("-", "+", "~"):
            token = self.tokens[self.place]
            self.place += 1
            part = self.unary()
            return Expression("unary", (token.start, part.span[1]), (part,), token.text)
        node = self.primary()
        while self.word() in ("::", "[", "."):
            if self.took("::"):
                self.type_name()
                node = Expression("cast", (node.span[0], self.last_stop()), (node,))
            elif self.took("["):
                index = self.disjunction()
                self.take("]")
                node = Expression("index", (node.span[0], self.last_stop()), (node, index))
            else:
                self.place += 1
                self.place += 1
                node = Expression("field", (node.span[0], self.last_stop()), (node,))
        return node

    def type_name(self) -> None:
        """A type's tokens: a name, and brackets of either kind behind it."""
        self.place += 1
        depth = 0
        while self.word() in ("(", "<") or depth:
            depth += (self.word() in ("(", "<")) - (self.word() in (")", ">"))
            if not self.word():
                self.unexpected()
            self.place += 1

    def primary(self) -> Expression:
        if self.place >= len(self.tokens):
            self.unexpected()
        token = self.tokens[self.place]
        span, word, after = (token.start, token.stop), token.word, self.word(1)
        if token.kind == "number":
            self.place += 1
            return number(token)
        if token.kind == "string":
            while self.place < len(self.tokens) and self.tokens[self.place].kind == "string":
                self.place += 1  # adjacent strings are one
            return Expression("constant", (token.start, self.last_stop()))
        if word in ("TRUE", "FALSE", "NULL") and token.kind == "name":
            self.place += 1
            return Expression("literal", span, (), {"TRUE": True, "FALSE": False, "NULL": None}[word])
        if word == "(":
            return self.bracket()
        if word == "*":
            self.place += 1
            return Expression("star", span, (), ())
        if word == "CASE" and token.kind == "name":
            return self.case()
        if word in ("CAST", "TRY_CAST") and after == "(":
            return self.cast()
        if word == "INTERVAL" and (after in ("-", "+") or self.kind(1) in ("number", "string")):
            return self.interval()
        if word in TYPED and self.kind(1) == "string":
            self.place += 2
            return Expression("constant", (token.start, self.last_stop()))
        if word in ("RUNNING", "FINAL") and self.kind(1) == "name" and self.word(2) == "(":
            self.place += 1
            return self.call(token.start, word)
        if token.kind == "name" and after == "(":
            return self.call(token.start, "")
        if token.kind in ("name", "quoted") and word not in RESERVED:
            return self.column()
        self.unexpected()
        raise AssertionError  # unexpected() always raises

    def kind(self, offset: int) -> str:
        at = self.place + offset
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def bracket(self) -> Expression:
        start = self.take("(").start
        if self.word() in ("SELECT", "WITH"):
            token = self.tokens[self.place]
            hint = "Join what the subquery gives to the input rows before MATCH_RECOGNIZE."
            refuse(self.text, (token.start, token.stop), "a subquery cannot stand in a pattern's expression", hint)
        items = self.arguments()
        return Expression("bracket" if len(items) == 1 else "tuple", (start, self.last_stop()), tuple(items))

    def arguments(self, separators: tuple[str, ...] = (",",)) -> list[Expression]:
        """Expressions between commas, up to the closing bracket."""
        items: list[Expression] = []
        if self.took(")"):
            return items
        while True:
            items.append(self.argument())
            if not self.took(*separators):
                break
        self.take(")")
        return items

    def argument(self) -> Expression:
        """An argument: an expression, a lambda, or ``name => expression``."""
        if self.kind(0) in ("name", "quoted") and self.word(1) == "=>":
            self.place += 2
        names = self.lambda_names()
        if not names:
            return self.disjunction()
        start = self.tokens[self.place].start
        while not self.took("->"):
            self.place += 1
        self.bound += names
        body = self.disjunction()
        del self.bound[len(self.bound) - len(names) :]
        return Expression("lambda", (start, body.span[1]), (body,))

    def lambda_names(self) -> list[str]:
        if self.kind(0) in ("name", "quoted") and self.word(1) == "->":
            return [self.tokens[self.place].name.casefold()]
        names, at = [], 1
        while self.word() == "(" and self.kind(at) in ("name", "quoted"):
            names.append(self.tokens[self.place + at].name.casefold())
            if self.word(at + 1) == ")":
                return names if self.word(at + 2) == "->" else []
            if self.word(at + 1) != ",":
                return []
            at += 2
        return []

    def case(self) -> Expression:
        start = self.take("CASE").start
        parts = []
        value = "searched"
        if self.word() != "WHEN":
            parts.append(self.disjunction())
            value = "simple"
        while self.took("WHEN"):
            parts.append(self.disjunction())
            self.take("THEN")
            parts.append(self.disjunction())
        if self.took("ELSE"):
            parts.append(self.disjunction())
            value += " else"
        self.take("END")
        return Expression("case", (start, self.last_stop()), tuple(parts), value)

    def cast(self) -> Expression:
        start = self.tokens[self.place].start
        self.place += 2
        part = self.disjunction()
        self.take("AS")
        self.type_name()
        while self.word() and self.word() != ")":
            self.place += 1  # INTERVAL DAY TO SECOND
        self.take(")")
        return Expression("cast", (start, self.last_stop()), (part,))

    def interval(self) -> Expression:
        start = self.take("INTERVAL").start
        self.took("-", "+")
        while self.kind(0) in ("number", "string"):
            self.place += 1
            while self.kind(0) == "name" and self.word() not in RESERVED:
                self.place += 1
        return Expression("constant", (start, self.last_stop()))

    def call(self, start: int, mode: str) -> Expression:
        name = self.tokens[self.place].word
        self.place += 2
        if self.took("DISTINCT"):
            mode = (mode + " DISTINCT").strip()
        if (name in WORD_FIRST and self.word() in UNITS and self.word(1) in (",", "FROM")) or (
            name == "TRIM" and self.word() in ("BOTH", "LEADING", "TRAILING")
        ):
            self.place += 1
            self.took(",", "FROM")
        args = self.arguments((",", "FROM", "FOR", "PLACING") if name in SPELLED else (",",))
        if self.word() == "WITHIN" and self.word(1) == "GROUP":
            self.place += 2
            self.take("(")
            self.take("ORDER")
            self.take("BY")
            while True:
                args.append(self.disjunction())
                while self.word() in ("ASC", "DESC", "NULLS", "FIRST", "LAST"):
                    self.place += 1
                if not self.took(","):
                    break
            self.take(")")
        if self.word() in ("OVER", "FILTER") and self.word():
            token = self.tokens[self.place]
            hint = (
                "Compute it in a subquery before MATCH_RECOGNIZE."
                if token.word == "OVER"
                else "Put the condition into the argument: sum(CASE WHEN … THEN x END)."
            )
            message = f"{token.word} cannot follow a function in a pattern's expression"
            refuse(self.text, (token.start, token.stop), message, hint)
        return Expression("call", (start, self.last_stop()), tuple(args), name, mode)

    def column(self) -> Expression:
        start = self.tokens[self.place].start
        names = [self.tokens[self.place].name]
        self.place += 1
        while self.word() == "." and (self.kind(1) in ("name", "quoted") or self.word(1) == "*"):
            self.place += 1
            if self.took("*"):
                return Expression("star", (start, self.last_stop()), (), tuple(names))
            names.append(self.tokens[self.place].name)
            self.place += 1
        span = (start, self.last_stop())
        if names[0].casefold() in self.bound:
            return Expression("constant", span)
        return Expression("column", span, (), tuple(names))


def number(token: SqlToken) -> Expression:
    """A numeric literal as Spark types it: whole numbers are integers, a point makes a decimal."""
    written = token.text.upper()
    bare = written.rstrip("LSYDFB")
    value: object
    if written.endswith(("L", "S", "Y")) or (bare.isdecimal() and written == bare):
        value = int(bare)
    elif written.endswith("BD"):
        value = Decimal(bare)
    elif written.endswith(("D", "F")) or "E" in bare:
        value = float(bare)
    else:
        value = Decimal(bare)
    return Expression("literal", (token.start, token.stop), (), value)
