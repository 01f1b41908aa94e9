"""The automaton: a pattern tree as positions and the ordered list of what may follow each.

What it is: ``build_automaton``. A position is one place of a variable in the unrolled pattern. ``follow[p]`` lists, in
the order of preference, the positions that may take the next row after ``p``, and where the match may end.
Invariants: the first way through the lists that the rows allow is the match that SQL's rules prefer; an iteration
beyond a quantifier's minimum takes at least one row, so that no loop is empty; positions and edges are bounded.
Not here: conditions (``pattern_program.py``), the search (``row_search.py``).
Read next: ``match_oracle.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from math import factorial

from headwater.patterns.clause.pattern_scanner import Span
from headwater.patterns.clause.pattern_tree import (
    Alternation,
    Concatenation,
    EmptyPattern,
    EndAnchor,
    Exclusion,
    PatternNode,
    Permutation,
    Quantified,
    StartAnchor,
    Variable,
    nodes_of,
)

ACCEPT = -1
ACCEPT_AT_END = -2  # only behind the last row of the partition
POSITIONS_MAX = 4_096
EDGES_MAX = 200_000

Refuse = Callable[[Span, str, str], None]


@dataclass(frozen=True)
class Automaton:
    """Positions by number; two more lists are the beginnings: at the partition's first row, and anywhere else.

    >>> from headwater.patterns import find_clauses
    >>> clause = find_clauses("t MATCH_RECOGNIZE (ORDER BY at PATTERN (A B*? C))")[0]
    >>> automaton = build_automaton(clause.pattern, {"a": 0, "b": 1, "c": 2}, waits=False)
    >>> automaton.variable, automaton.follow
    ((2, 1, 0), ((-1,), (0, 1), (0, 1), (2,), (2,)))
    """

    variable: tuple[int, ...]  # of each position
    excluded: tuple[bool, ...]
    follow: tuple[tuple[int, ...], ...]  # of each position, then the two beginnings

    @property
    def positions(self) -> int:
        return len(self.variable)

    @property
    def edges(self) -> int:
        return sum(len(each) for each in self.follow)

    def beginning(self, *, first_of_partition: bool) -> int:
        """The list to begin with."""
        return self.positions if first_of_partition else self.positions + 1

    @property
    def asks_for_the_end(self) -> bool:
        return any(ACCEPT_AT_END in each for each in self.follow)

    @property
    def has_empty_match(self) -> bool:
        return any(ACCEPT in each for each in self.follow[self.positions :])


def size_of(node: PatternNode) -> int:
    """How many positions a tree has once it is unrolled."""
    if isinstance(node, Variable):
        return 1
    if isinstance(node, Quantified):
        times = node.low + 1 if node.high is None else node.high
        return size_of(node.part) * max(times, 1)
    if isinstance(node, Permutation):
        count, size = len(node.children), sum(size_of(part) for part in node.children)
        # Each part once for every set of parts that may stand before it, or once in every order.
        return size << (count - 1) if all(map(has_one_way, node.children)) else size * factorial(count)
    return sum(size_of(part) for part in node.parts)


def has_one_way(node: PatternNode) -> bool:
    """Whether a part takes its rows in one way only, so that orders of PERMUTE may share what stands before it.

    PERMUTE(X, Y) means X Y | Y X: every way of X Y comes before any of Y X. Where X itself has several ways, sharing
    would try its first way with Y X before its second way with X Y.
    """
    if isinstance(node, Alternation | Permutation) or (isinstance(node, Quantified) and node.low != node.high):
        return False
    return all(has_one_way(part) for part in node.parts)


class Instructions:
    """A program of small steps, from which the lists are read off: take a row, branch, check, end."""

    def __init__(self, variables: dict[str, int]) -> None:
        self.codes = variables
        self.steps: list[tuple[str, tuple[int, ...]]] = []
        self.variable: list[int] = []
        self.excluded: list[bool] = []
        self.loops = 0

    def add(self, kind: str, *targets: int) -> int:
        self.steps.append((kind, targets))
        return len(self.steps) - 1

    def compile(self, node: PatternNode, after: int, excluded: bool) -> int:
        """The step at which the node begins, when ``after`` is what follows it."""
        if isinstance(node, Variable):
            self.variable.append(self.codes[node.name.casefold()])
            self.excluded.append(excluded)
            return self.add("take", len(self.variable) - 1, after)
        if isinstance(node, EmptyPattern):
            return after
        if isinstance(node, StartAnchor):
            return self.add("first", after)
        if isinstance(node, EndAnchor):
            return self.add("last", after)
        if isinstance(node, Exclusion):
            return self.compile(node.part, after, True)
        if isinstance(node, Alternation):
            return self.add("branch", *(self.compile(part, after, excluded) for part in node.children))
        if isinstance(node, Concatenation):
            for part in reversed(node.children):
                after = self.compile(part, after, excluded)
            return after
        if isinstance(node, Permutation):
            if all(map(has_one_way, node.children)):
                return self.permutation(node.children, frozenset(), after, excluded, {})
            orders = [Concatenation(node.span, each) for each in permutations(node.children)]
            return self.compile(Alternation(node.span, tuple(orders)), after, excluded)
        assert isinstance(node, Quantified)
        return self.quantified(node, after, excluded)

    def quantified(self, node: Quantified, after: int, excluded: bool) -> int:
        if node.high is None:
            branch = self.add("branch")  # its targets are known only when the body is there
            body = self.optional(node.part, branch, excluded)
            self.steps[branch] = ("branch", (body, after) if node.greedy else (after, body))
            start = branch
        else:
            start = after
            for _ in range(node.high - node.low):
                body = self.optional(node.part, start, excluded)
                start = self.add("branch", *((body, after) if node.greedy else (after, body)))
        for _ in range(node.low):
            start = self.compile(node.part, start, excluded)
        return start

    def optional(self, part: PatternNode, after: int, excluded: bool) -> int:
        """An iteration beyond the minimum: it dies if it has taken no row."""
        loop = self.loops
        self.loops += 1
        return self.add("enter", loop, self.compile(part, self.add("check", loop, after), excluded))

    def permutation(
        self,
        parts: tuple[PatternNode, ...],
        used: frozenset[int],
        after: int,
        excluded: bool,
        known: dict[frozenset[int], int],
    ) -> int:
        """A step for each set of parts that were used: 2^n of them, where the orders are n!."""
        if len(used) == len(parts):
            return after
        if used not in known:
            known[used] = self.add(
                "branch",
                *(
                    self.compile(part, self.permutation(parts, used | {at}, after, excluded, known), excluded)
                    for at, part in enumerate(parts)
                    if at not in used
                ),
            )
        return known[used]

    def closure(self, start: int, *, at_beginning: bool, first_of_partition: bool, waits: bool) -> tuple[int, ...]:
        """What can be reached without taking a row, in the order of preference."""
        found: dict[int, None] = {}
        seen: set[tuple[int, frozenset[int], bool]] = set()
        stack: list[tuple[int, frozenset[int], bool]] = [(start, frozenset(), False)]
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            step, fresh, at_end = state
            kind, targets = self.steps[step]
            if kind == "accept":
                found.setdefault(ACCEPT_AT_END if at_end else ACCEPT)
                # An end that always holds hides what is less preferred; an absence may yet refuse it.
                if not at_end and not waits:
                    break
            elif kind == "take":
                if not at_end:
                    found.setdefault(targets[0])
            elif kind == "branch":
                stack += [(target, fresh, at_end) for target in reversed(targets)]
            elif kind == "enter":
                stack.append((targets[1], fresh | {targets[0]}, at_end))
            elif kind == "check":
                if targets[0] not in fresh:
                    stack.append((targets[1], fresh, at_end))
            elif kind == "last":
                stack.append((targets[0], fresh, True))
            elif at_beginning and first_of_partition:  # kind is "first"
                stack.append((targets[0], fresh, at_end))
        return tuple(found)


def build_automaton(
    tree: PatternNode, variables: dict[str, int], *, waits: bool, refuse: Refuse | None = None
) -> Automaton:
    """The automaton of a tree; ``variables`` gives each name (case folded) its code; ``waits``: an absence follows."""

    def too_large(node: PatternNode, message: str, hint: str) -> None:
        if refuse is None:
            raise ValueError(message)
        refuse(node.span, message, hint)

    for node in permutations_of(tree):
        if size_of(node) > POSITIONS_MAX:
            too_large(
                node,
                f"PERMUTE of {len(node.children)} elements needs {size_of(node):,} states, "
                f"and {POSITIONS_MAX:,} is the most",
                "Match them in any order with (A | B | C){n} and compare counts in a condition, or permute fewer.",
            )
    if size_of(tree) > POSITIONS_MAX:
        too_large(
            tree,
            f"the pattern has {size_of(tree):,} rows once it is written out, and {POSITIONS_MAX:,} is the most",
            "Make the bounds of its quantifiers smaller, or leave the upper one away.",
        )
    program = Instructions(variables)
    start = program.compile(tree, program.add("accept"), False)
    follow: list[tuple[int, ...]] = [()] * len(program.variable)
    edges = 0
    for kind, targets in list(program.steps):
        if kind == "take":
            follow[targets[0]] = program.closure(targets[1], at_beginning=False, first_of_partition=False, waits=waits)
            edges += len(follow[targets[0]])
            if edges > EDGES_MAX:
                too_large(
                    tree,
                    f"the pattern allows more than {EDGES_MAX:,} steps from row to row",
                    "Make the bounds of its quantifiers smaller, or leave the upper one away.",
                )
    follow += [
        program.closure(start, at_beginning=True, first_of_partition=first, waits=waits) for first in (True, False)
    ]
    return Automaton(tuple(program.variable), tuple(program.excluded), tuple(follow))


def permutations_of(tree: PatternNode) -> list[Permutation]:
    return [node for node in nodes_of(tree) if isinstance(node, Permutation)]
