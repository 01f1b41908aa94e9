"""A segment of the index: the conjunctions of some searches, as arrays.

What it is: ``QuerySegment`` is built once from some searches and then compared with batches of documents. Every
conjunction has an *anchor*: the atom or range that the fewest documents are expected to have. Documents lead to the
conjunctions anchored at what they have (the candidates); the other literals of these are checked, all candidates at a
time, a literal of each.
Invariants: what comes out are the matches of the conjunctions, exactly, save for those of queries that are not
``exact``, which their evaluator decides. Anchors change the cost and never the answer.
Not here: the arrays (``segment_contents.py``); searches that come and go (``query_index.py``); phrases and scores
(``phrase_positions.py``). Read next: ``segment_contents.py``.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.searches.segments.atom_dictionary import AtomDictionary
from headwater.searches.segments.document_batch import DocumentBatch
from headwater.searches.segments.interval_index import IntervalIndex, distinct_numbers, expanded
from headwater.searches.segments.phrase_positions import PhrasePositions, PhraseTable
from headwater.searches.segments.segment_contents import NumberedRange, SegmentContents

Ints = npt.NDArray[np.int64]
Pairs = tuple[Ints, Ints]  # documents and conjunctions, or searches

CANDIDATES_MAX = 4_000_000  # at a time: some 200 MB of arrays
RANGE_PRIOR = 0.3
ATOM_WORTH = 2.0  # a range is the anchor when it is so many times as rare: finding its intervals takes longer


class BatchAtoms:
    """The atoms of some documents of a batch, as a table in which each pair of both is looked up at once."""

    def __init__(self, documents: Ints, atoms: Ints, counts: Ints, rows: int, capacity: int) -> None:
        self.rows = rows
        self.documents, self.atoms = documents, atoms
        known, columns = np.unique(atoms, return_inverse=True)
        # The last column is of all atoms that no document has.
        self.table = np.zeros((rows, len(known) + 1), np.uint16)
        self.table[documents, columns] = np.minimum(counts, 65_535)
        self.columns = np.full(capacity, len(known), np.int64)
        self.columns[known] = np.arange(len(known))

    def counts(self, documents: Ints, atoms: Ints) -> npt.NDArray[np.uint16]:
        """How often each document has its atom."""
        return self.table[documents, self.columns[atoms]]


class QuerySegment:
    """Some searches as arrays."""

    def __init__(self, contents: SegmentContents, dictionary: AtomDictionary) -> None:
        self.contents = contents
        self.dictionary = dictionary
        self.slots, self.part_slots, self.evaluators = contents.slots, contents.part_slots, contents.evaluators
        self.atoms, self.not_atoms = contents.lists["atoms"], contents.lists["not_atoms"]
        self.ranges, self.not_ranges = contents.lists["ranges"], contents.lists["not_ranges"]
        self.phrases, self.not_phrases = contents.lists["phrases"], contents.lists["not_phrases"]
        self.parts = contents.lists["parts"]
        self._rank_ranges(contents.ranges)
        self.every_phrase = PhraseTable(contents.phrases)
        self.anchored_at = -1.0  # documents that had been seen when anchors were chosen

    def __len__(self) -> int:
        return len(self.part_slots)

    # Ranges, by the ranks of their bounds

    def _rank_ranges(self, ranges: Sequence[NumberedRange]) -> None:
        """Of each column the sorted bounds; of each range the first and last rank in it.

        A value has rank 2 i + 1 when it is bound i, and 2 i when it lies before bound i and behind the one before.
        """
        self.range_columns = list(dict.fromkeys(each.column for each in ranges))
        self.bounds: list[list[Any]] = []
        self._bound_arrays: dict[int, npt.NDArray[Any]] = {}  # of columns of numbers
        self.range_column = np.array([self.range_columns.index(each.column) for each in ranges], np.int64)
        self.range_low, self.range_high = np.zeros(len(ranges), np.int64), np.zeros(len(ranges), np.int64)
        for name in self.range_columns:
            mine = [(place, each) for place, each in enumerate(ranges) if each.column == name]
            bounds = sorted({bound for _, each in mine for bound in (each.low, each.high) if bound is not None})
            at = {bound: place for place, bound in enumerate(bounds)}
            self.bounds.append(bounds)
            for place, each in mine:
                self.range_low[place] = 0 if each.low is None else 2 * at[each.low] + 1 + each.low_open
                self.range_high[place] = (
                    2 * len(bounds) if each.high is None else 2 * at[each.high] + 1 - each.high_open
                )

    def _ranks(self, batch: DocumentBatch) -> Ints:
        """The rank of each document's value in each column that ranges ask about; -1: it has none."""
        ranks = np.full((len(self.range_columns), batch.documents), -1, np.int64)
        for number, name in enumerate(self.range_columns):
            values, there = batch.ordered(name)
            bounds = self.bounds[number]
            if values.dtype == object:
                for place in np.flatnonzero(there):
                    before = bisect.bisect_left(bounds, values[place])
                    ranks[number, place] = 2 * before + (before < len(bounds) and bounds[before] == values[place])
                continue
            if number not in self._bound_arrays:
                self._bound_arrays[number] = np.array(bounds, values.dtype)
            array = self._bound_arrays[number]
            left = np.searchsorted(array, values)
            equal = array[np.minimum(left, len(array) - 1)] == values
            ranks[number] = np.where(there, 2 * left + (equal & (left < len(array))), -1)
        return ranks

    # Anchors

    def _choose_anchors(self, ranks: Ints) -> None:
        self.anchored_at = self.dictionary.documents_seen
        begins, items = self.atoms
        count, conjunctions = np.diff(begins), len(self.slots)
        expected = self.dictionary.frequencies()[items] if len(items) else np.zeros(0)
        # The rarest atom of a conjunction comes first: it is the anchor, or the first to be checked.
        order = np.lexsort((expected, np.repeat(np.arange(conjunctions), count)))
        self.atoms = begins, items[order]
        rarity = np.full(conjunctions, np.inf)
        has = count > 0
        rarity[has] = expected[order][begins[:-1][has]]
        anchor_range = self._rarest_range(ranks, rarity)
        by_range, by_atom = anchor_range >= 0, has & (anchor_range < 0)
        self.open = np.flatnonzero(~by_range & ~by_atom)
        self._first_check = by_atom.astype(np.int64)  # the anchor itself need not be checked
        self._anchor_atoms(np.flatnonzero(by_atom))
        self.trees: list[tuple[int, Ints, IntervalIndex]] = []
        for number in range(len(self.range_columns)):
            mine = np.flatnonzero(by_range & (self.range_column[anchor_range] == number))
            if len(mine):
                tree = IntervalIndex(
                    self.range_low[anchor_range[mine]],
                    np.maximum(self.range_high[anchor_range[mine]], self.range_low[anchor_range[mine]] - 1),
                    2 * len(self.bounds[number]) + 1,
                )
                self.trees.append((number, mine, tree))

    def _rarest_range(self, ranks: Ints, rarity: npt.NDArray[np.float64]) -> Ints:
        """The range that is a better anchor than the rarest atom; -1: none is."""
        chosen = np.full(len(self.slots), -1, np.int64)
        begins, items = self.ranges
        if not len(items):
            return chosen
        expected = np.full(len(self.range_column), RANGE_PRIOR)
        for number in range(len(self.range_columns)):
            seen = np.sort(ranks[number])
            mine = self.range_column == number
            below = np.searchsorted(seen, self.range_low[mine], "left")
            up_to = np.searchsorted(seen, self.range_high[mine], "right")
            # As much as a prior of ten documents.
            expected[mine] = (np.maximum(up_to - below, 0) + 10 * RANGE_PRIOR) / (len(seen) + 10)
        owner = np.repeat(np.arange(len(self.slots)), np.diff(begins))
        order = np.lexsort((expected[items], owner))
        first = np.flatnonzero(np.diff(owner[order], prepend=-1))
        best = order[first]
        better = expected[items[best]] * ATOM_WORTH < rarity[owner[best]]
        chosen[owner[best][better]] = items[best][better]
        return chosen

    def _anchor_atoms(self, anchored: Ints) -> None:
        at = self.atoms[1][self.atoms[0][anchored]]
        order = np.argsort(at, kind="stable")
        self.posted = anchored[order]
        self.posting_begins = np.searchsorted(at[order], np.arange(self.dictionary.capacity + 1))

    # Matching

    def prepare(self, batch: DocumentBatch) -> Ints:
        """The documents' ranks. Anchors are chosen when many more documents were seen than the last time."""
        ranks = self._ranks(batch)
        if self.anchored_at < 0 or self.dictionary.documents_seen > 4 * self.anchored_at + 200:
            self._choose_anchors(ranks)
        return ranks

    def match(
        self,
        batch: DocumentBatch,
        first: int,
        atoms: BatchAtoms,
        ranks: Ints,
        positions: PhrasePositions,
        alive: npt.NDArray[np.bool_],
    ) -> Pairs:
        """The matches of ``atoms.rows`` documents from ``first`` on: documents, counted from there, and slots."""
        found = [
            self._checked(batch, first, pairs, atoms, ranks, positions, alive)
            for pairs in self._candidates(atoms, ranks[:, first : first + atoms.rows])
        ]
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        documents = np.concatenate([each for each, _ in found])
        slots = self.slots[np.concatenate([each for _, each in found])]
        width = len(alive)
        keys = distinct_numbers(documents * width + slots)  # several conjunctions of one search may match
        return np.divmod(keys, width)

    def _candidates(self, atoms: BatchAtoms, ranks: Ints) -> Iterable[Pairs]:
        """Documents and the conjunctions that their atoms and values lead to, some at a time."""
        known = atoms.atoms < len(self.posting_begins) - 1
        documents, numbers = atoms.documents[known], atoms.atoms[known]
        begins = self.posting_begins[numbers]
        counts = self.posting_begins[numbers + 1] - begins
        where = np.flatnonzero(counts)
        for part in _parts(counts[where]):
            some = where[part]
            among, entry = expanded(documents[some], begins[some], counts[some])
            yield among, self.posted[entry]
        for number, mine, tree in self.trees:
            for part in _parts(tree.counts(ranks[number])):
                among, entry = tree.stabbed(ranks[number][part])
                yield np.arange(atoms.rows)[part][among], mine[entry]
        if len(self.open):
            for part in _parts(np.full(atoms.rows, len(self.open))):
                rows = np.arange(atoms.rows)[part]
                yield np.repeat(rows, len(self.open)), np.tile(self.open, len(rows))

    def _checked(
        self,
        batch: DocumentBatch,
        first: int,
        pairs: Pairs,
        atoms: BatchAtoms,
        ranks: Ints,
        positions: PhrasePositions,
        alive: npt.NDArray[np.bool_],
    ) -> Pairs:
        """The candidates that match."""
        documents, conjunctions = pairs
        living = alive[self.slots[conjunctions]]
        pairs = documents[living], conjunctions[living]

        def in_range(documents: Ints, numbers: Ints) -> npt.NDArray[np.bool_]:
            at = ranks[self.range_column[numbers], documents + first]
            return (at >= self.range_low[numbers]) & (at <= self.range_high[numbers])

        def there(documents: Ints, numbers: Ints) -> npt.NDArray[np.bool_]:
            return atoms.counts(documents, numbers) > 0

        def told(documents: Ints, numbers: Ints) -> npt.NDArray[np.bool_]:
            return positions.counts(documents + first, numbers, self.every_phrase) > 0

        pairs = _kept(pairs, self.atoms, there, self._first_check)
        pairs = _kept(pairs, self.ranges, in_range)
        pairs = _kept(pairs, self.not_atoms, there, wanted=False)
        pairs = _kept(pairs, self.not_ranges, in_range, wanted=False)
        pairs = _kept(pairs, self.phrases, told)
        pairs = _kept(pairs, self.not_phrases, told, wanted=False)
        return self._evaluated(batch, first, pairs) if self.evaluators else pairs

    def _evaluated(self, batch: DocumentBatch, first: int, pairs: Pairs) -> Pairs:
        """The candidates without those of queries that are not exact and do not match."""
        kept = np.ones(len(pairs[0]), np.bool_)
        known: dict[int, Any] = {}
        for place in np.flatnonzero(np.isin(pairs[1], list(self.evaluators))):
            document, conjunction = int(pairs[0][place]), int(pairs[1][place])
            if document not in known:
                known[document] = batch.document(first + document)
            kept[place] = self.evaluators[conjunction](known[document])
        return pairs[0][kept], pairs[1][kept]

    def scores(
        self, documents: Ints, slots: Ints, first: int, atoms: BatchAtoms, positions: PhrasePositions
    ) -> npt.NDArray[np.float64]:
        """The score of each match: for each part of the query, how often it occurs, less and less for more."""
        begins, parts = self.parts
        query = np.searchsorted(self.part_slots, slots)
        score = np.zeros(len(documents))
        begin, count = begins[query], begins[query + 1] - begins[query]
        for number in range(int(count.max(initial=0))):
            some = np.flatnonzero(count > number)
            part = parts[begin[some] + number]
            times = np.zeros(len(some))
            words = part >= 0
            times[words] = atoms.counts(documents[some[words]], part[words])
            if not words.all():
                told = some[~words]
                times[~words] = positions.counts(documents[told] + first, -1 - part[~words], self.every_phrase)
            score[some] += times / (times + SATURATION)
        return score


SATURATION = 1.2  # as in BM25


def _kept(
    pairs: Pairs,
    lists: tuple[Ints, Ints],
    check: Callable[[Ints, Ints], npt.NDArray[np.bool_]],
    first: Ints | None = None,
    *,
    wanted: bool = True,
) -> Pairs:
    """The pairs for which every item of the conjunction's list is as wanted."""
    documents, conjunctions = pairs
    begins, items = lists
    if not len(items) or not len(documents):
        return pairs
    at = begins[conjunctions] + (0 if first is None else first[conjunctions])
    end = begins[conjunctions + 1]
    done: list[Pairs] = []
    while len(documents):
        more = at < end
        if not more.all():
            done.append((documents[~more], conjunctions[~more]))
            documents, conjunctions, at, end = documents[more], conjunctions[more], at[more], end[more]
        if len(documents):
            passed = check(documents, items[at]) == wanted
            documents, conjunctions, at, end = documents[passed], conjunctions[passed], at[passed] + 1, end[passed]
    if len(done) == 1:
        return done[0]
    empty = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    return np.concatenate([d for d, _ in done or empty]), np.concatenate([c for _, c in done or empty])


def _parts(counts: Ints) -> Iterable[slice]:
    """Slices of which each has about as many candidates as may be looked at together, and one element at least."""
    ends = np.cumsum(counts)
    start, before = 0, 0
    while start < len(counts):
        stop = max(int(np.searchsorted(ends, before + CANDIDATES_MAX, "right")), start + 1)
        yield slice(start, stop)
        start, before = stop, int(ends[stop - 1])
