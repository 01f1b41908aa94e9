"""The pattern tree: what stands between the brackets of PATTERN.

What it is: the nodes of a row pattern (variable, concatenation, alternation, quantifier, PERMUTE, exclusion, anchors,
the empty pattern) and ``parse_pattern``, which reads them from tokens.
Invariants: a quantifier has 0 <= low <= high and high >= 1; every node knows its place in the text; absence (``[^B]``)
is never inside the tree but beside it.
Not here: which variables exist (``clause_checks.py``), how a tree is run (``automaton.py``).
Read next: ``automaton.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headwater.patterns.clause.pattern_scanner import Span, SqlToken, refuse

QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
DEPTH_MAX = 100


@dataclass(frozen=True)
class PatternNode:
    """A node of the tree; the base of the others."""

    span: Span = field(compare=False)

    @property
    def parts(self) -> tuple[PatternNode, ...]:
        return ()


@dataclass(frozen=True)
class Variable(PatternNode):
    """A row that is mapped to a pattern variable."""

    name: str


@dataclass(frozen=True)
class EmptyPattern(PatternNode):
    """``()``: no row."""


@dataclass(frozen=True)
class StartAnchor(PatternNode):
    """``^``: before the first row of the partition."""


@dataclass(frozen=True)
class EndAnchor(PatternNode):
    """``$``: after the last row of the partition."""


@dataclass(frozen=True)
class Several(PatternNode):
    """A node with several parts."""

    children: tuple[PatternNode, ...]

    @property
    def parts(self) -> tuple[PatternNode, ...]:
        return self.children


@dataclass(frozen=True)
class Concatenation(Several):
    """One part after the other."""


@dataclass(frozen=True)
class Alternation(Several):
    """The first part that leads to a match."""


@dataclass(frozen=True)
class Permutation(Several):
    """All parts, in any order; orders that begin with an earlier part are preferred."""


@dataclass(frozen=True)
class Quantified(PatternNode):
    """A part, ``low`` to ``high`` times; as often as possible if greedy, else as seldom."""

    part: PatternNode
    low: int
    high: int | None
    greedy: bool

    @property
    def parts(self) -> tuple[PatternNode, ...]:
        return (self.part,)


@dataclass(frozen=True)
class Exclusion(PatternNode):
    """``{- … -}``: matched, and left out of ALL ROWS PER MATCH."""

    part: PatternNode

    @property
    def parts(self) -> tuple[PatternNode, ...]:
        return (self.part,)


def nodes_of(node: PatternNode) -> Iterator[PatternNode]:
    """The node and all below it, in the order of the text."""
    yield node
    for part in node.parts:
        yield from nodes_of(part)


def parse_pattern(text: str, tokens: Sequence[SqlToken], *, span: Span) -> tuple[PatternNode, Variable | None]:
    """The tree of the tokens between the brackets of PATTERN, and the absent variable of a ``[^B]`` at its end.

    >>> from headwater.patterns.clause.pattern_scanner import scan
    >>> tree, absent = parse_pattern("A+? [^B]", scan("A+? [^B]"), span=(0, 8))
    >>> tree, absent
    (Quantified(span=(0, 3), part=Variable(span=(0, 1), name='A'), low=1, high=None, greedy=False),
     Variable(span=(6, 7), name='B'))
    """
    reader = PatternReader(text, list(tokens), span)
    tree = reader.alternation(depth=0)
    if reader.place < len(reader.tokens):
        reader.unexpected()
    return tree, reader.absent


class PatternReader:
    """A cursor over the tokens of one pattern."""

    def __init__(self, text: str, tokens: list[SqlToken], span: Span) -> None:
        self.text, self.tokens, self.span = text, tokens, span
        self.place = 0
        self.absent: Variable | None = None

    def peek(self, offset: int = 0) -> str:
        at = self.place + offset
        return self.tokens[at].text if at < len(self.tokens) else ""

    def unexpected(self) -> None:
        if self.place < len(self.tokens):
            token = self.tokens[self.place]
            where = (token.start, token.stop)
            message = f"a pattern cannot have {token.text} here"
        else:
            where, message = (self.span[1] - 1, self.span[1]), "a pattern ends too early"
        hint = "Patterns are made of variables, ( ), |, * + ? {n,m}, PERMUTE(…), {- … -}, ^ and $."
        refuse(self.text, where, message, hint)

    def take(self, expected: str) -> SqlToken:
        if self.peek() != expected:
            self.unexpected()
        self.place += 1
        return self.tokens[self.place - 1]

    def alternation(self, depth: int) -> PatternNode:
        if depth > DEPTH_MAX:
            refuse(self.text, self.span, f"a pattern is nested more than {DEPTH_MAX} deep", "Take brackets away.")
        branches = [self.concatenation(depth)]
        while self.peek() == "|":
            self.place += 1
            branches.append(self.concatenation(depth))
        if len(branches) == 1:
            return branches[0]
        return Alternation((branches[0].span[0], branches[-1].span[1]), tuple(branches))

    def concatenation(self, depth: int) -> PatternNode:
        factors: list[PatternNode] = []
        while self.place < len(self.tokens) and self.peek() not in ("|", ")", "-}", ","):
            if self.peek() == "[":
                self.absence(depth, factors)
                break
            factors.append(self.quantified(depth))
        if not factors:
            self.unexpected()
        if len(factors) == 1:
            return factors[0]
        return Concatenation((factors[0].span[0], factors[-1].span[1]), tuple(factors))

    def absence(self, depth: int, before: list[PatternNode]) -> None:
        start = self.take("[").start
        self.take("^")
        if self.place >= len(self.tokens) or self.tokens[self.place].kind not in ("name", "quoted"):
            self.unexpected()
        token = self.tokens[self.place]
        self.place += 1
        stop = self.take("]").stop
        if depth or self.place < len(self.tokens) or not before:
            refuse(
                self.text,
                (start, stop),
                "an absent variable does not stand at the end of the pattern",
                f"Write PATTERN (A … [^{token.name}]): after the pattern's rows no {token.name} comes.",
            )
        if "|" in [each.text for each in self.tokens]:
            top = self.tokens[: self.place]
            depths = [sum((t.text == "(") - (t.text == ")") for t in top[:at]) for at in range(len(top))]
            if any(each.text == "|" and level == 0 for each, level in zip(top, depths, strict=True)):
                refuse(
                    self.text,
                    (start, stop),
                    "an absent variable stands behind one alternative only",
                    f"Put the alternatives in brackets: PATTERN ((A | B) [^{token.name}]).",
                )
        self.absent = Variable((token.start, token.stop), token.name)

    def quantified(self, depth: int) -> PatternNode:
        part = self.primary(depth)
        found = self.bounds()
        if found is None:
            return part
        low, high, stop = found
        greedy = self.peek() != "?"
        if not greedy:
            stop = self.take("?").stop
        if self.bounds() is not None:
            refuse(
                self.text,
                (part.span[0], self.tokens[self.place - 1].stop),
                "a part of the pattern has two quantifiers",
                "Put the inner one in brackets: (A+)*.",
            )
        return Quantified((part.span[0], stop), part, low, high, greedy)

    def bounds(self) -> tuple[int, int | None, int] | None:
        """A quantifier's low and high bound and where it ends, if one stands here."""
        if self.peek() in QUANTIFIERS:
            low, high = QUANTIFIERS[self.peek()]
            self.place += 1
            return low, high, self.tokens[self.place - 1].stop
        if self.peek() != "{":
            return None
        start = self.take("{").start
        inside = []
        while self.place < len(self.tokens) and self.peek() != "}":
            inside.append(self.peek())
            self.place += 1
        stop = self.take("}").stop
        span, written = (start, stop), "".join(inside)
        first, comma, second = written.partition(",")
        if not written or not all(each.isdecimal() or not each for each in (first, second)):
            refuse(
                self.text,
                span,
                "a quantifier is empty" if not written else f"a quantifier cannot be {{{written}}}",
                "Write {3}, {2,}, {,4} or {2,4}.",
            )
        low = int(first or 0)
        high = low if not comma else int(second) if second else None
        if high is not None and high < low:
            refuse(
                self.text,
                span,
                f"a quantifier's bounds are the wrong way round: {low} is more than {high}",
                f"Write {{{high},{low}}}.",
            )
        if high == 0:
            refuse(self.text, span, "a quantifier allows no row at all", "Write at least {,1}, or take the part away.")
        return low, high, stop

    def primary(self, depth: int) -> PatternNode:
        token = self.tokens[self.place]
        span = (token.start, token.stop)
        if token.word == "PERMUTE" and self.peek(1) == "(":
            return self.permutation(depth)
        if token.kind in ("name", "quoted"):
            self.place += 1
            return Variable(span, token.name)
        if token.text in ("^", "$"):
            self.place += 1
            return StartAnchor(span) if token.text == "^" else EndAnchor(span)
        if token.text == "(":
            self.place += 1
            if self.peek() == ")":
                return EmptyPattern((token.start, self.take(")").stop))
            inner = self.alternation(depth + 1)
            self.take(")")
            return inner
        if token.text == "{-":
            self.place += 1
            inner = self.alternation(depth + 1)
            return Exclusion((token.start, self.take("-}").stop), inner)
        self.unexpected()
        raise AssertionError  # unexpected() always raises

    def permutation(self, depth: int) -> PatternNode:
        start = self.tokens[self.place].start
        self.place += 2
        parts = [self.alternation(depth + 1)]
        while self.peek() == ",":
            self.place += 1
            parts.append(self.alternation(depth + 1))
        stop = self.take(")").stop
        if len(parts) == 1:
            refuse(self.text, (start, stop), "PERMUTE has one element", "Give it two or more, or leave PERMUTE away.")
        return Permutation((start, stop), tuple(parts))
