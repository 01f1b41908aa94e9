"""The index of queries: searches come, change and go; batches of documents find those that match.

What it is: ``QueryIndex``. New searches wait until the next batch and become a segment then; segments are merged as
they grow, as in a log-structured merge tree, so that each search is built into arrays a few times at most.
Invariants: the matches are those of the searches that were put and not removed, whatever the order of both. A search
whose query cannot be read is ``broken``: it matches nothing and disturbs no other. Memory follows the searches there
are: when half of the searches of a segment are gone, it is built anew.
Not here: arrays (``query_segment.py``); tables and ticks (``views/stages/search_run.py``).
Read next: ``query_segment.py``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.errors import InvalidQuery
from headwater.searches.index_file import UnpackedIndex, packed
from headwater.searches.normal_form import Conjunction, NormalForm, cost_of, normal_form
from headwater.searches.query_evaluator import Predicate, compiled
from headwater.searches.query_nodes import Between, Node, Phrase, text_parts
from headwater.searches.query_parser import parse
from headwater.searches.search_columns import SearchColumns, ValueKind
from headwater.searches.segments.atom_dictionary import AtomDictionary
from headwater.searches.segments.document_batch import DocumentBatch
from headwater.searches.segments.phrase_positions import NumberedPhrase, PhrasePositions
from headwater.searches.segments.query_segment import BatchAtoms, QuerySegment
from headwater.searches.segments.segment_contents import (
    IndexedQuery,
    NumberedConjunction,
    NumberedRange,
    SegmentContents,
)
from headwater.searches.text_analysis import TextAnalyser

TABLE_CELLS_MAX = 4_000_000  # documents times atoms that are looked at together: 8 MB
SEGMENT_GROWTH = 4  # a segment is merged with one that is less than so many times as large
WHOLE_MAX = 2**63 - 1
SLOTS_SPARE = 1_000


@dataclass(frozen=True)
class StoredSearch:
    """A search as it was put. Without ``look_back`` it matches documents from ``since_us`` on."""

    id: str
    query: str
    since_us: int = 0
    look_back: bool = True
    owner: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadQuery:
    """A query that was read: its tree, its conjunctions, and what it costs beyond the ordinary."""

    node: Node
    form: NormalForm
    cost: str | None


@dataclass(frozen=True)
class Matches:
    """Documents, by their places in the batch, and the searches that they match, ordered by document and slot."""

    documents: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]


class QueryReader:
    """Reads queries over documents of some columns, and remembers the last ones."""

    def __init__(self, columns: SearchColumns) -> None:
        self.columns = columns
        self.analyser = TextAnalyser(columns.tokenizer)
        self.read = lru_cache(maxsize=10_000)(self._read)

    def _read(self, query: str) -> ReadQuery:
        node = parse(query, self.columns, self.analyser)
        form = normal_form(node)
        return ReadQuery(node, form, cost_of(form))


class QueryIndex:
    """Searches by their ids.

    >>> columns = SearchColumns(pa.schema([("title", pa.string()), ("price", pa.int64())]), text=["title"])
    >>> index = QueryIndex(columns)
    >>> index.put(StoredSearch("s1", "rivers AND price:[10 TO 20]"))
    >>> index.put(StoredSearch("s2", "lakes OR price:>100"))
    >>> found = index.match(pa.table({"title": ["Rivers of Europe", "Lakes"], "price": [12, 9]}))
    >>> [(int(place), index.search(int(slot)).id) for place, slot in zip(found.documents, found.slots)]
    [(0, 's1'), (1, 's2')]
    """

    def __init__(self, columns: SearchColumns, reader: QueryReader | None = None) -> None:
        self.columns = columns
        self.reader = reader or QueryReader(columns)
        self.dictionary = AtomDictionary()
        self.broken: dict[str, InvalidQuery] = {}
        self._slots: dict[str, int] = {}  # by id
        self._searches: list[StoredSearch | None] = []  # by slot
        self._alive = np.zeros(16, np.bool_)
        self._since = np.zeros(16, np.int64)  # in µs; of one that looks back the smallest number
        self._chosen_by: dict[tuple[str, str], set[str]] = {}  # ids, by owner and by tag
        self._waiting: dict[int, IndexedQuery] = {}  # by slot: those that are in no segment yet
        self._segments: list[QuerySegment] = []

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, search: str) -> bool:
        return search in self._slots

    def search(self, slot: int) -> StoredSearch:
        """The search that has a slot."""
        found = self._searches[slot]
        assert found is not None
        return found

    def get(self, search: str) -> StoredSearch | None:
        """The search of an id."""
        slot = self._slots.get(search)
        return None if slot is None else self._searches[slot]

    def searches(self) -> Iterator[StoredSearch]:
        """All searches, broken ones too."""
        return (self.search(slot) for slot in self._slots.values())

    def chosen(self, owner: str | None, tags: Iterable[str]) -> set[str] | None:
        """The ids of an owner's searches that have one of these tags; None: all searches."""
        wanted = tuple(tags)
        found = None if owner is None else set(self._chosen_by.get(("owner", owner), ()))
        if wanted:
            tagged = set[str]().union(*(self._chosen_by.get(("tag", tag), ()) for tag in wanted))
            found = tagged if found is None else found & tagged
        return found

    # Searches come and go

    def put(self, search: StoredSearch) -> None:
        """Add a search, or put it in the place of the one that has its id."""
        slot = self._slots.get(search.id)
        if slot is not None and self.search(slot).query == search.query:
            self._unlist(slot)
        else:
            self.remove(search.id)
            slot = self._enter(search)
        self._searches[slot] = search
        for word in _words_of(search):
            self._chosen_by.setdefault(word, set()).add(search.id)
        self._since[slot] = np.iinfo(np.int64).min if search.look_back else search.since_us

    def _enter(self, search: StoredSearch) -> int:
        """Give a search a slot, and read its query."""
        slot = len(self._searches)
        try:
            query = self._indexed(slot, self.reader.read(search.query))
        except InvalidQuery as error:
            self.broken[search.id] = error
            query = IndexedQuery(slot, (), ())
        if slot >= len(self._alive):
            self._alive = np.concatenate([self._alive, np.zeros(len(self._alive), np.bool_)])
            self._since = np.concatenate([self._since, np.zeros(len(self._since), np.int64)])
        self._slots[search.id] = slot
        self._searches.append(search)
        self._waiting[slot] = query
        self._alive[slot] = True
        return slot

    def remove(self, search: str) -> None:
        """Take a search away, if it is there."""
        slot = self._slots.get(search)
        if slot is None:
            return
        query = self._query(slot)
        self._unlist(slot)
        del self._slots[search]
        self.broken.pop(search, None)
        self._waiting.pop(slot, None)
        self._alive[slot] = False
        self._searches[slot] = None
        for atom in query.atoms():
            self.dictionary.release(atom)
        for token in query.tokens():
            self.dictionary.release_token(token)

    def replace_all(self, searches: Iterable[StoredSearch]) -> int:
        """Let these be the searches; returns how many queries had to be read or taken away."""
        there, changed = set(), 0
        for each in searches:
            known = self.get(each.id)
            changed += known is None or known.query != each.query
            self.put(each)
            there.add(each.id)
        gone = [search for search in self._slots if search not in there]
        for search in gone:
            self.remove(search)
        return changed + len(gone)

    def _unlist(self, slot: int) -> None:
        search = self.search(slot)
        for word in _words_of(search):
            self._chosen_by[word].discard(search.id)
            if not self._chosen_by[word]:
                del self._chosen_by[word]

    def _query(self, slot: int) -> IndexedQuery:
        """The query of a search that is there."""
        waiting = self._waiting.get(slot)
        if waiting is not None:
            return waiting
        contents = next(segment.contents for segment in self._segments if segment.contents.holds(slot))
        return next(contents.queries(np.array([slot])))

    def _indexed(self, slot: int, read: ReadQuery) -> IndexedQuery:
        atom = self.dictionary.use

        def phrase(each: Phrase) -> NumberedPhrase:
            return NumberedPhrase(each.column, tuple(map(self.dictionary.use_token, each.tokens)))

        def conjunction(each: Conjunction) -> NumberedConjunction:
            return NumberedConjunction(
                tuple(map(atom, each.atoms)),
                tuple(map(atom, each.not_atoms)),
                tuple(map(self._range, each.ranges)),
                tuple(map(self._range, each.not_ranges)),
                tuple(map(phrase, each.phrases)),
                tuple(map(phrase, each.not_phrases)),
            )

        return IndexedQuery(
            slot,
            tuple(map(conjunction, read.form.conjunctions)),
            tuple(phrase(each) if isinstance(each, Phrase) else atom(each) for each in text_parts(read.node)),
            None if read.form.exact else compiled(read.node),
        )

    def _range(self, given: Between) -> NumberedRange:
        """The range with bounds of the column's own type."""
        low, high, low_open, high_open = given.low, given.high, given.low_open, given.high_open
        kind = self.columns.by_name[given.column].kind
        if kind in (ValueKind.WHOLE, ValueKind.DATE, ValueKind.TIMESTAMP):
            if isinstance(low, Decimal):
                low, low_open = math.ceil(low), False
            if isinstance(high, Decimal):
                high, high_open = math.floor(high), False
            # Beyond what a column can hold: no bound, or one that nothing reaches.
            if low is not None and low > WHOLE_MAX:
                low, low_open = WHOLE_MAX, True
            if high is not None and high < -WHOLE_MAX - 1:
                high, high_open = -WHOLE_MAX - 1, True
            low = None if low is not None and low < -WHOLE_MAX - 1 else low
            high = None if high is not None and high > WHOLE_MAX else high
        if kind is ValueKind.BOOLEAN:
            low, high = (None if bound is None else int(bound) for bound in (low, high))
        return NumberedRange(given.column, low, high, low_open and low is not None, high_open and high is not None)

    # Segments

    def _build(self) -> None:
        """Let the searches that wait become a segment, and merge segments."""
        if len(self._searches) > 2 * len(self._slots) + SLOTS_SPARE:
            self._number_anew()
        waiting, self._waiting = self._waiting, {}
        kept: list[QuerySegment] = []
        for segment in self._segments:
            if 2 * int(self._alive[segment.part_slots].sum()) >= len(segment):
                kept.append(segment)
            else:
                waiting |= self._living(segment)
        while kept and waiting and len(kept[-1]) < SEGMENT_GROWTH * len(waiting):
            waiting |= self._living(kept.pop())
        if waiting:
            contents = SegmentContents.of(waiting[slot] for slot in sorted(waiting))
            kept.append(QuerySegment(contents, self.dictionary))
        self._segments = kept

    def _living(self, segment: QuerySegment) -> dict[int, IndexedQuery]:
        slots = segment.part_slots[self._alive[segment.part_slots]]
        return {query.slot: query for query in segment.contents.queries(slots)}

    def _number_anew(self) -> None:
        """Give the searches that are there the first slots: the old ones of those that went are let go."""
        kept = list(self._slots.values())
        queries = self._waiting
        for segment in self._segments:
            queries |= self._living(segment)
        self._waiting = {place: replace(queries[slot], slot=place) for place, slot in enumerate(kept)}
        self._searches = [self._searches[slot] for slot in kept]
        since, size = self._since[kept], max(16, 2 * len(kept))
        self._alive, self._since = np.zeros(size, np.bool_), np.zeros(size, np.int64)
        self._alive[: len(kept)], self._since[: len(kept)] = True, since
        self._slots = {search: place for place, search in enumerate(self._slots)}
        self._segments = []

    # For another process

    def packed(self) -> bytes:
        """What was read of the queries."""
        self._build()
        searches = [None if each is None or each.id in self.broken else each for each in self._searches]
        about: dict[str, Any] = {
            "ids": [None if each is None else each.id for each in searches],
            "queries": [None if each is None else each.query for each in searches],
            "dictionary": self.dictionary.written(),
            "segments": [],
        }
        arrays: dict[str, npt.NDArray[np.int64]] = {}
        for number, segment in enumerate(self._segments):
            said, numbers = segment.contents.written()
            about["segments"].append(said)
            arrays |= {f"{number}.{name}": array for name, array in numbers.items()}
        return packed(about, arrays, self.columns)

    @staticmethod
    def read(given: UnpackedIndex | None, columns: SearchColumns, reader: QueryReader | None = None) -> QueryIndex:
        """The index that was packed; an empty one of nothing. It has ids and queries only: give it the searches that
        there are (``replace_all``).
        """
        made = QueryIndex(columns, reader)
        if given is None:
            return made
        about, arrays = given
        for id, query in zip(about["ids"], about["queries"], strict=True):
            if id is not None:
                made._slots[id] = len(made._searches)
            made._searches.append(None if id is None else StoredSearch(id, query))
        size = max(16, 2 * len(made._searches))
        made._alive, made._since = np.zeros(size, np.bool_), np.zeros(size, np.int64)
        made._alive[list(made._slots.values())] = True
        made.dictionary = AtomDictionary.read(about["dictionary"])

        def evaluator(slot: int) -> Predicate | None:
            query = about["queries"][slot]
            return None if query is None else compiled(made.reader.read(query).node)

        for number, said in enumerate(about["segments"]):
            mine = {name.partition(".")[2]: each for name, each in arrays.items() if name.startswith(f"{number}.")}
            made._segments.append(QuerySegment(SegmentContents.read(said, mine, evaluator), made.dictionary))
        return made

    # Matching

    def match(
        self, documents: pa.Table, *, at_us: npt.NDArray[np.int64] | None = None, among: Collection[str] | None = None
    ) -> Matches:
        """What matches. ``at_us``: when each document came, for searches that do not look back; without it they all do.

        ``among``: only these searches.
        """
        indexed = sum(map(len, self._segments))
        if self._waiting or indexed > 2 * len(self._slots) + SLOTS_SPARE:
            self._build()
        batch = DocumentBatch(documents, self.columns, self.reader.analyser)
        found = batch.atoms(self.dictionary)
        self.dictionary.count(found.atoms, batch.documents)
        alive = self._alive if among is None else self._only(among)
        positions = PhrasePositions(batch, self.dictionary)
        ranks = [segment.prepare(batch) for segment in self._segments]
        results: list[tuple[Any, Any, Any]] = []
        for first, stop, atoms in self._pieces(batch, found.documents, found.atoms, found.counts):
            for segment, rank in zip(self._segments, ranks, strict=True):
                places, slots = segment.match(batch, first, atoms, rank, positions, alive)
                if at_us is not None:
                    in_time = at_us[first:stop][places] >= self._since[slots]
                    places, slots = places[in_time], slots[in_time]
                if len(places):
                    scores = segment.scores(places, slots, first, atoms, positions)
                    results.append((places + first, slots, scores))
        if not results:
            nothing = np.empty(0, np.int64)
            return Matches(nothing, nothing, np.empty(0))
        documents_, slots, scores = (np.concatenate([each[n] for each in results]) for n in range(3))
        order = np.lexsort((slots, documents_))
        return Matches(documents_[order], slots[order], scores[order])

    def _only(self, among: Collection[str]) -> npt.NDArray[np.bool_]:
        alive = np.zeros(len(self._alive), np.bool_)
        alive[[self._slots[search] for search in among if search in self._slots]] = True
        return alive

    def _pieces(
        self, batch: DocumentBatch, documents: Any, atoms: Any, counts: Any
    ) -> Iterator[tuple[int, int, BatchAtoms]]:
        """The documents in pieces whose table of atoms is small enough."""
        distinct = max(int(np.count_nonzero(np.bincount(atoms))), 1)
        step = max(1, TABLE_CELLS_MAX // distinct)
        for first in range(0, batch.documents, step):
            stop = min(first + step, batch.documents)
            begin, end = np.searchsorted(documents, [first, stop])
            some = slice(int(begin), int(end))
            capacity = self.dictionary.capacity
            yield first, stop, BatchAtoms(documents[some] - first, atoms[some], counts[some], stop - first, capacity)


def _words_of(search: StoredSearch) -> set[tuple[str, str]]:
    """What a search is chosen by."""
    tags = {("tag", tag) for tag in search.tags}
    return tags if search.owner is None else tags | {("owner", search.owner)}
