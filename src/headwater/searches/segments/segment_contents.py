"""The contents of a segment: queries as arrays of numbers, and back.

What it is: ``SegmentContents``, made of the queries of some searches, of a file, or of other contents. A query is its
conjunctions, each a list of numbers of each kind of literal, and the parts that its score is made of.
Invariants: queries stand in the order of their slots, and ``queries`` gives back what ``of`` was given. Ranges and
phrases that several queries have are here once.
Not here: matching (``query_segment.py``); the file (``index_file.py``).
Read next: ``query_segment.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.searches.query_evaluator import Predicate
from headwater.searches.segments.phrase_positions import NumberedPhrase

Ints = npt.NDArray[np.int64]

CONJUNCTION = ("atoms", "not_atoms", "ranges", "not_ranges", "phrases", "not_phrases")


@dataclass(frozen=True, slots=True)
class NumberedRange:
    """A range as the index has it: a column and its bounds."""

    column: str
    low: Any
    high: Any
    low_open: bool
    high_open: bool


@dataclass(frozen=True, slots=True)
class NumberedConjunction:
    """A conjunction as the index has it: atoms by their numbers."""

    atoms: tuple[int, ...]
    not_atoms: tuple[int, ...]
    ranges: tuple[NumberedRange, ...]
    not_ranges: tuple[NumberedRange, ...]
    phrases: tuple[NumberedPhrase, ...]
    not_phrases: tuple[NumberedPhrase, ...]


@dataclass(frozen=True, slots=True)
class IndexedQuery:
    """One search as segments need it. ``slot`` is its number in the index."""

    slot: int
    conjunctions: tuple[NumberedConjunction, ...]
    parts: tuple[int | NumberedPhrase, ...]  # what the score is made of: atoms and phrases
    evaluator: Predicate | None = None  # of a query that is not exact

    def atoms(self) -> Iterator[int]:
        """The atoms, each as often as the query uses it."""
        for each in self.conjunctions:
            yield from each.atoms
            yield from each.not_atoms
        yield from (part for part in self.parts if isinstance(part, int))

    def tokens(self) -> Iterator[int]:
        """The tokens of its phrases, each as often as the query uses it."""
        for each in self.conjunctions:
            for phrase in (*each.phrases, *each.not_phrases):
                yield from phrase.tokens
        for part in self.parts:
            if not isinstance(part, int):
                yield from part.tokens


@dataclass
class Lists:
    """Lists of numbers of different lengths, one behind the other."""

    items: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=lambda: [0])

    def add(self, items: Iterable[int]) -> None:
        """One list more."""
        self.items.extend(items)
        self.begins.append(len(self.items))

    def arrays(self) -> tuple[Ints, Ints]:
        """Where each list begins, and the items."""
        return np.array(self.begins, np.int64), np.array(self.items, np.int64)


class Numbering:
    """Things that are used several times, each once."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def of(self, thing: Any) -> int:
        """The number of a thing."""
        return self.numbers.setdefault(thing, len(self.numbers))


@dataclass(frozen=True)
class SegmentContents:
    """Some queries as arrays.

    >>> query = IndexedQuery(7, (NumberedConjunction((1, 2), (3,), (), (), (), ()),), (1, 2))
    >>> contents = SegmentContents.of([query])
    >>> contents.lists["atoms"][1].tolist(), list(contents.queries(np.array([7]))) == [query]
    ([1, 2], True)
    """

    slots: Ints  # of each conjunction
    part_slots: Ints  # of each query
    lists: Mapping[str, tuple[Ints, Ints]]  # of each conjunction its literals, by kind; "parts" of each query
    ranges: tuple[NumberedRange, ...]
    phrases: tuple[NumberedPhrase, ...]
    evaluators: Mapping[int, Predicate]  # by conjunction

    @staticmethod
    def of(queries: Iterable[IndexedQuery]) -> SegmentContents:
        """Queries, in the order of their slots, as arrays."""
        slots: list[int] = []
        part_slots: list[int] = []
        lists = {name: Lists() for name in (*CONJUNCTION, "parts")}
        ranges, phrases = Numbering(), Numbering()
        evaluators: dict[int, Predicate] = {}
        for query in queries:
            for each in query.conjunctions:
                if query.evaluator is not None:
                    evaluators[len(slots)] = query.evaluator
                slots.append(query.slot)
                lists["atoms"].add(each.atoms)
                lists["not_atoms"].add(each.not_atoms)
                lists["ranges"].add(map(ranges.of, each.ranges))
                lists["not_ranges"].add(map(ranges.of, each.not_ranges))
                lists["phrases"].add(map(phrases.of, each.phrases))
                lists["not_phrases"].add(map(phrases.of, each.not_phrases))
            part_slots.append(query.slot)
            # A phrase is a negative number.
            lists["parts"].add(part if isinstance(part, int) else -1 - phrases.of(part) for part in query.parts)
        return SegmentContents(
            np.array(slots, np.int64),
            np.array(part_slots, np.int64),
            {name: each.arrays() for name, each in lists.items()},
            tuple(ranges.numbers),
            tuple(phrases.numbers),
            evaluators,
        )

    def holds(self, slot: int) -> bool:
        """Whether the query of a slot is here."""
        place = int(np.searchsorted(self.part_slots, slot))
        return place < len(self.part_slots) and self.part_slots[place] == slot

    def queries(self, slots: Ints) -> Iterator[IndexedQuery]:
        """The queries of some slots that are here."""
        places = np.searchsorted(self.part_slots, slots)
        begins, ends = np.searchsorted(self.slots, slots), np.searchsorted(self.slots, slots, "right")
        for slot, place, begin, end in zip(
            slots.tolist(), places.tolist(), begins.tolist(), ends.tolist(), strict=True
        ):
            yield IndexedQuery(
                slot,
                tuple(self._conjunction(number) for number in range(begin, end)),
                tuple(number if number >= 0 else self.phrases[-1 - number] for number in self._listed("parts", place)),
                self.evaluators.get(begin) if begin < end else None,
            )

    def _conjunction(self, number: int) -> NumberedConjunction:
        atoms, not_atoms, ranges, not_ranges, phrases, not_phrases = (
            self._listed(name, number) for name in CONJUNCTION
        )
        return NumberedConjunction(
            tuple(atoms),
            tuple(not_atoms),
            tuple(self.ranges[each] for each in ranges),
            tuple(self.ranges[each] for each in not_ranges),
            tuple(self.phrases[each] for each in phrases),
            tuple(self.phrases[each] for each in not_phrases),
        )

    def _listed(self, name: str, place: int) -> list[int]:
        begins, items = self.lists[name]
        found: list[int] = items[begins[place] : begins[place + 1]].tolist()
        return found

    # As a file has them

    def written(self) -> tuple[dict[str, Any], dict[str, Ints]]:
        """What is kept of it: what JSON can hold, and arrays by name."""
        arrays = {"slots": self.slots, "part_slots": self.part_slots}
        for name, (begins, items) in self.lists.items():
            arrays |= {f"{name}.begins": begins, f"{name}.items": items}
        ranges = [[each.column, each.low, each.high, each.low_open, each.high_open] for each in self.ranges]
        phrases = [[each.column, *each.tokens] for each in self.phrases]
        return {"ranges": ranges, "phrases": phrases, "evaluated": sorted(self.evaluators)}, arrays

    @staticmethod
    def read(
        about: Mapping[str, Any], arrays: Mapping[str, Ints], evaluator: Callable[[int], Predicate | None]
    ) -> SegmentContents:
        """What ``written`` gave. ``evaluator`` makes that of a slot's query; None: the search is gone."""
        slots = arrays["slots"]
        return SegmentContents(
            slots,
            arrays["part_slots"],
            {name: (arrays[f"{name}.begins"], arrays[f"{name}.items"]) for name in (*CONJUNCTION, "parts")},
            tuple(NumberedRange(*each) for each in about["ranges"]),
            tuple(NumberedPhrase(column, tuple(tokens)) for column, *tokens in about["phrases"]),
            {n: made for n in about["evaluated"] if (made := evaluator(int(slots[n]))) is not None},
        )
