"""A row pattern matcher by enumeration, from the standard's definitions.

What it is: ``output_rows``, which tries all ways of mapping rows to variables in the order of preference, by recursion
over the pattern, and evaluates conditions and measures as plain Python functions over the mapping.
Invariants: shares no code with ``headwater.patterns``; exponential, so for a dozen rows.
Not here: random patterns (``random_patterns.py``).
Read next: ``test_random_patterns.py``.

A pattern is a tuple: ("var", name), ("cat", [..]), ("alt", [..]), ("rep", part, low, high, greedy), ("perm", [..]),
("exclude", part), ("empty",), ("first",), ("last",).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Taken = tuple[int, str, bool]  # row, variable, excluded


@dataclass
class Scene:
    """What a condition or a measure may look at: the rows of the partition and the mapping up to a row."""

    rows: list[dict[str, Any]]
    mapping: tuple[Taken, ...]
    number: int
    subsets: dict[str, tuple[str, ...]]
    whole: tuple[Taken, ...] = ()  # of the finished match
    status: str = "matched"

    def mapped(self, name: str | None, final: bool = False) -> list[int]:
        names = None if name is None else self.subsets.get(name, (name,))
        taken = self.whole if final else self.mapping
        return [row for row, variable, _ in taken if names is None or variable in names]

    def row(self, name: str | None, end: str, offset: int = 0, final: bool = False) -> int | None:
        rows = self.mapped(name, final)
        if offset >= len(rows):
            return None
        return rows[offset] if end == "first" else rows[-1 - offset]

    def at(self, column: str, row: int | None, physical: int = 0) -> Any:
        if row is None or not 0 <= row + physical < len(self.rows):
            return None
        return self.rows[row + physical][column]

    def get(self, column: str, name: str | None = None, end: str = "last", offset: int = 0, final: bool = False) -> Any:
        return self.at(column, self.row(name, end, offset, final))

    def label(self, row: int | None, physical: int = 0) -> str | None:
        found = [variable for each, variable, _ in self.mapping if row is not None and each == row + physical]
        return found[0] if found else None

    def values(self, column: str, name: str | None = None, final: bool = False) -> list[Any]:
        found = [self.rows[row][column] for row in self.mapped(name, final)]
        return [each for each in found if each is not None]


@dataclass
class Recognition:
    """A clause, as Python."""

    pattern: tuple[Any, ...]
    conditions: dict[str, Callable[[Scene], Any]]
    measures: dict[str, Callable[[Scene], Any]] = field(default_factory=dict)
    subsets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    mode: str = "one"  # one, show, omit, unmatched
    skip: tuple[str, str | None] = ("past last", None)
    within: int | None = None
    absent: str | None = None
    timed_out: bool = False


class SkipRefused(Exception):
    """AFTER MATCH SKIP goes to the first row of the match, or nowhere."""


class Enumeration:
    """The matches of one partition."""

    def __init__(self, clause: Recognition, rows: list[dict[str, Any]], watermark: int | None) -> None:
        self.clause, self.rows, self.watermark = clause, rows, watermark
        self.number = 1
        self.start = 0
        self.partial: tuple[Taken, ...] | None = None

    def in_time(self, row: int) -> bool:
        within = self.clause.within
        return within is None or self.rows[row]["t"] <= self.rows[self.start]["t"] + within

    def holds(self, mapping: tuple[Taken, ...]) -> bool:
        condition = self.clause.conditions.get(mapping[-1][1])
        return condition is None or condition(Scene(self.rows, mapping, self.number, self.clause.subsets)) is True

    def ways(self, node: Any, row: int, mapping: tuple[Taken, ...], excluded: bool) -> Iterator[tuple[int, Any]]:
        kind = node[0]
        if kind == "var":
            if row < len(self.rows) and self.in_time(row):
                taken = (*mapping, (row, node[1], excluded))
                if self.holds(taken):
                    yield row + 1, taken
            elif self.partial is None and mapping:
                self.partial = mapping  # every row up to the deadline is taken, and one more is wanted
        elif kind == "empty":
            yield row, mapping
        elif kind == "first":
            if row == 0:
                yield row, mapping
        elif kind == "last":
            if row == len(self.rows):
                yield row, mapping
        elif kind == "exclude":
            yield from self.ways(node[1], row, mapping, True)
        elif kind == "alt":
            for part in node[1]:
                yield from self.ways(part, row, mapping, excluded)
        elif kind == "cat":
            yield from self.sequence(node[1], row, mapping, excluded)
        elif kind == "perm":
            for order in itertools.permutations(node[1]):
                yield from self.sequence(list(order), row, mapping, excluded)
        else:
            yield from self.repeated(node, 0, row, mapping, excluded)

    def sequence(self, parts: list[Any], row: int, mapping: Any, excluded: bool) -> Iterator[tuple[int, Any]]:
        if not parts:
            yield row, mapping
            return
        for after, taken in self.ways(parts[0], row, mapping, excluded):
            yield from self.sequence(parts[1:], after, taken, excluded)

    def repeated(self, node: Any, count: int, row: int, mapping: Any, excluded: bool) -> Iterator[tuple[int, Any]]:
        _, part, low, high, greedy = node
        if not greedy and count >= low:
            yield row, mapping
        if high is None or count < high:
            for after, taken in self.ways(part, row, mapping, excluded):
                if count < low or after > row:  # an iteration beyond the minimum takes a row
                    yield from self.repeated(node, count + 1, after, taken, excluded)
        if greedy and count >= low:
            yield row, mapping

    def absent_until_deadline(self, row: int, mapping: tuple[Taken, ...]) -> bool:
        if self.clause.absent is None:
            return True
        for after in range(row, len(self.rows)):
            if self.in_time(after) and self.holds((*mapping, (after, self.clause.absent, False))):
                return False
        return True

    def decided(self) -> bool:
        assert self.clause.within is not None
        return self.watermark is not None and self.rows[self.start]["t"] + self.clause.within < self.watermark

    def attempt(self, start: int) -> tuple[Taken, ...] | None:
        self.start, self.partial = start, None
        if self.clause.absent is not None and not self.decided():
            return None
        for row, mapping in self.ways(self.clause.pattern, start, (), False):
            if self.absent_until_deadline(row, mapping):
                return mapping
        return None

    def scene(self, mapping: tuple[Taken, ...], upto: int | None, number: int, status: str = "matched") -> Scene:
        seen = mapping if upto is None else tuple(each for each in mapping if each[0] <= upto)
        return Scene(self.rows, seen, number, self.clause.subsets, mapping, status)

    def emit(self, start: int, mapping: tuple[Taken, ...], number: int, status: str) -> Iterator[dict[str, Any]]:
        clause = self.clause
        if clause.mode == "one":
            last = mapping[-1][0] if mapping else start
            yield {"row": last, "first": start, "scene": self.scene(mapping, None, number, status)}
        elif not mapping:
            if clause.mode != "omit":
                yield {"row": start, "first": start, "scene": self.scene((), None, number, status)}
        else:
            for row, _, excluded in mapping:
                if not excluded:
                    yield {"row": row, "first": start, "scene": self.scene(mapping, row, number, status)}

    def skip_to(self, start: int, mapping: tuple[Taken, ...]) -> int:
        kind, name = self.clause.skip
        if not mapping or kind == "next":
            return start + 1
        if kind == "past last":
            return mapping[-1][0] + 1
        found = Scene(self.rows, mapping, 0, self.clause.subsets).row(name, kind)
        if found is None or found == start:
            raise SkipRefused
        return found

    def run(self, number: int = 1) -> Iterator[dict[str, Any]]:
        self.number = number
        start, covered = 0, 0
        while start < len(self.rows):
            mapping = self.attempt(start)
            if mapping is None:
                if self.clause.timed_out and self.partial is not None and self.decided():
                    yield from self.emit(start, self.partial, 0, "timed out")
                if self.clause.mode == "unmatched" and start >= covered:
                    yield {"row": start, "first": start, "scene": None}
                start += 1
                continue
            yield from self.emit(start, mapping, self.number, "matched")
            self.number += 1
            covered = max(covered, mapping[-1][0] + 1 if mapping else start + 1)
            start = self.skip_to(start, mapping)


def output_rows(
    clause: Recognition, rows: list[dict[str, Any]], watermark: int | None = None, number: int = 1
) -> list[dict[str, Any]]:
    """The output rows of one partition: the row, the first row of the match, the measures."""
    answers = []
    for each in Enumeration(clause, rows, watermark).run(number):
        scene = each["scene"]
        values = {alias: None if scene is None else measure(scene) for alias, measure in clause.measures.items()}
        answers.append({"row": each["row"], "first": each["first"], **values})
    return sorted(answers, key=lambda answer: (answer["first"], answer["row"]))
