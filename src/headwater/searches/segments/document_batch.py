"""A batch of documents, as numbers that queries are compared with.

What it is: ``DocumentBatch`` takes an Arrow table of documents apart once: the tokens of its text columns, the values
of the others, and from these the atoms that each document has and how often.
Invariants: an atom is found here in a document if and only if the leaf it stands for is true of the document. Columns
that no query asks about are not looked at.
Not here: conjunctions of atoms (``query_segment.py``); analysis (``text_analysis.py``).
Read next: ``query_segment.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.searches.query_evaluator import AnalysedDocument
from headwater.searches.query_nodes import EVERY_TEXT
from headwater.searches.search_columns import SearchColumn, SearchColumns, ValueKind
from headwater.searches.segments.atom_dictionary import AtomDictionary
from headwater.searches.segments.interval_index import distinct_numbers, expanded
from headwater.searches.text_analysis import GAP, TextAnalyser

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TokenStream:
    """The tokens of a text column of all documents, one behind the other, by their numbers in the batch."""

    tokens: Ints
    documents: Ints  # of each token
    pieces: Ints  # of each token: a number of its own for each text of each document, which no phrase leaves


@dataclass(frozen=True)
class DocumentAtoms:
    """The atoms of the documents: for each pair of a document and an atom how often it is there."""

    documents: Ints
    atoms: Ints
    counts: Ints


class DocumentBatch:
    """Some documents, taken apart.

    >>> columns = SearchColumns(pa.schema([("title", pa.string())]), text=["title"])
    >>> batch = DocumentBatch(pa.table({"title": ["a river", None]}), columns, TextAnalyser("default"))
    >>> batch.stream("title").tokens.tolist(), batch.vocabulary
    ([0, 1], ['a', 'river'])
    """

    def __init__(self, table: pa.Table, columns: SearchColumns, analyser: TextAnalyser) -> None:
        self.table = table.combine_chunks()
        self.columns = columns
        self.analyser = analyser
        self.documents = table.num_rows
        self._values: dict[str, list[Any]] = {}

    # Text

    @cached_property
    def _texts(self) -> dict[str, list[list[str]]]:
        """The tokens of each document, by text column."""
        tokens = self.analyser.tokens
        found: dict[str, list[list[str]]] = {}
        for name in self.columns.text:
            rows = self.table.column(name).to_pylist()
            if self.columns.by_name[name].array:
                # A phrase does not reach over the elements of an array.
                found[name] = [
                    list(chain.from_iterable((*tokens(each), GAP) for each in row or () if each is not None))
                    for row in rows
                ]
            else:
                found[name] = [tokens(row) if row else [] for row in rows]
        return found

    @cached_property
    def vocabulary(self) -> list[str]:
        """The distinct tokens of the batch; their places are their numbers."""
        rows = chain.from_iterable(self._texts.values())
        return list(dict.fromkeys(chain.from_iterable(rows)))

    @cached_property
    def _streams(self) -> dict[str, TokenStream]:
        numbers = dict(zip(self.vocabulary, range(len(self.vocabulary)), strict=True))
        found = {}
        for name, rows in self._texts.items():
            lengths = np.fromiter(map(len, rows), np.int64, len(rows))
            every = map(numbers.__getitem__, chain.from_iterable(rows))
            tokens = np.fromiter(every, np.int64, int(lengths.sum()))
            documents = np.repeat(np.arange(self.documents), lengths)
            found[name] = TokenStream(tokens, documents, documents)
        return found

    def stream(self, column: str) -> TokenStream:
        """The tokens of a text column; of all of them, a document's columns one behind the other."""
        if column == EVERY_TEXT and column not in self._streams:
            parts = [self._streams[name] for name in self.columns.text]
            documents = np.concatenate([part.documents for part in parts])
            pieces = np.concatenate([part.documents * len(parts) + place for place, part in enumerate(parts)])
            order = np.argsort(documents, kind="stable")
            tokens = np.concatenate([part.tokens for part in parts])[order]
            self._streams[EVERY_TEXT] = TokenStream(tokens, documents[order], pieces[order])
        return self._streams[column]

    # Values

    def values(self, column: str) -> list[Any]:
        """The values of a column, as ``search_columns.py`` has them."""
        if column not in self._values:
            self._values[column] = _listed(self.table.column(column), self.columns.by_name[column])
        return self._values[column]

    def ordered(self, column: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """The values of a column that has one for each document, as an array, and which of them are there."""
        kind = self.columns.by_name[column].kind
        if kind in (ValueKind.STRING, ValueKind.DECIMAL):
            values = self.values(column)
            there = np.fromiter((value is not None for value in values), np.bool_, len(values))
            array = np.empty(len(values), object)
            array[:] = values
            return array, there
        data = self.table.column(column)
        there = np.asarray(pc.is_valid(data).to_numpy(zero_copy_only=False), np.bool_)
        wide = pa.float64() if kind is ValueKind.DOUBLE else pa.int64()
        numbers = _as_numbers(data).cast(wide)
        return np.asarray(numbers.fill_null(0).to_numpy()), there

    # Documents one by one

    def document(self, place: int) -> AnalysedDocument:
        """One document for a query's evaluator."""
        tokens = {name: rows[place] for name, rows in self._texts.items()}
        return AnalysedDocument(tokens, _Row(self, place))

    # Atoms

    def atoms(self, dictionary: AtomDictionary) -> DocumentAtoms:
        """The atoms of the dictionary that the documents have, ordered by document and atom; groups too."""
        parts: list[tuple[Ints, Ints]] = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for column, entries in dictionary.words.items():
            if entries:
                numbers = np.fromiter(map(entries.get, self.vocabulary, repeat(-1)), np.int64, len(self.vocabulary))
                parts.append(self._told(column, numbers))
        for column, entries in dictionary.prefixes.items():
            if entries:
                parts.append(self._begun(column, entries, dictionary.lengths(entries)))
        for column, entries in dictionary.values.items():
            if entries:
                parts.append(self._valued(column, entries))
        for column, entries in dictionary.starts.items():
            if entries:
                parts.append(self._started(column, entries, dictionary.lengths(entries)))
        for column, entries in dictionary.nulls.items():
            if entries:
                where = np.flatnonzero(pc.is_null(self.table.column(column)).to_numpy(zero_copy_only=False))
                parts.append((where, np.full(len(where), entries[None])))
        width = max(dictionary.capacity, 1)
        keys = np.concatenate([documents * width + atoms for documents, atoms in parts])
        keys, counts = np.unique(keys, return_counts=True)
        documents, atoms = np.divmod(keys, width)
        if dictionary.groups:
            begins, groups = dictionary.groups_of()
            sizes = begins[atoms + 1] - begins[atoms]
            where = np.flatnonzero(sizes)
            among, entry = expanded(documents[where], begins[atoms[where]], sizes[where])
            found = distinct_numbers(among * width + groups[entry])
            keys = np.concatenate([keys, found])
            counts = np.concatenate([counts, np.ones(len(found), np.int64)])
            order = np.argsort(keys, kind="stable")
            keys, counts = keys[order], counts[order]
            documents, atoms = np.divmod(keys, width)
        return DocumentAtoms(documents, atoms, counts)

    def _told(self, column: str, numbers: Ints) -> tuple[Ints, Ints]:
        """Documents and the atoms of their words, each as often as the word is there."""
        stream = self.stream(column)
        atoms = numbers[stream.tokens]
        known = atoms >= 0
        return stream.documents[known], atoms[known]

    def _begun(self, column: str, entries: dict[str, int], lengths: list[int]) -> tuple[Ints, Ints]:
        """Documents and the prefixes that their words begin with."""
        tokens, atoms = _beginnings(self.vocabulary, entries, lengths)
        begins = np.searchsorted(tokens, np.arange(len(self.vocabulary) + 1))
        stream = self.stream(column)
        counts = begins[stream.tokens + 1] - begins[stream.tokens]
        where = np.flatnonzero(counts)
        documents, entry = expanded(stream.documents[where], begins[stream.tokens[where]], counts[where])
        return documents, atoms[entry]

    def _valued(self, column: str, entries: dict[Any, int]) -> tuple[Ints, Ints]:
        documents, atoms = [], []
        several = self.columns.by_name[column].array
        for place, value in enumerate(self.values(column)):
            if value is None:
                continue
            for each in dict.fromkeys(value) if several else (value,):
                atom = entries.get(each)
                if atom is not None:
                    documents.append(place)
                    atoms.append(atom)
        return np.array(documents, np.int64), np.array(atoms, np.int64)

    def _started(self, column: str, entries: dict[str, int], lengths: list[int]) -> tuple[Ints, Ints]:
        rows = self.values(column)
        several = [row if isinstance(row, list) else [row] for row in rows]
        found = {
            (place, entries[value[:length]])
            for place, row in enumerate(several)
            for value in row
            if value is not None
            for length in lengths
            if length <= len(value) and value[:length] in entries
        }
        both = np.array(sorted(found), np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]


class _Row(dict[str, Any]):
    """The values of one document, looked at when they are asked for."""

    def __init__(self, batch: DocumentBatch, place: int) -> None:
        super().__init__()
        self.batch = batch
        self.place = place

    def __missing__(self, column: str) -> Any:
        return self.batch.values(column)[self.place]


def _beginnings(vocabulary: list[str], entries: dict[str, int], lengths: list[int]) -> tuple[Ints, Ints]:
    """The tokens and the prefixes that they begin with, pair by pair, ordered by token."""
    tokens, atoms = [], []
    for number, token in enumerate(vocabulary):
        size = len(token)
        for length in lengths:
            if length > size:
                break
            atom = entries.get(token[:length])
            if atom is not None:
                tokens.append(number)
                atoms.append(atom)
    return np.array(tokens, np.int64), np.array(atoms, np.int64)


def _listed(data: pa.ChunkedArray, column: SearchColumn) -> list[Any]:
    if column.kind in (ValueKind.DATE, ValueKind.TIMESTAMP):
        if not column.array:
            return _as_numbers(data).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
        flat = [pa.array(row, data.type.value_type) if row is not None else None for row in data.to_pylist()]
        return [None if row is None else _as_numbers(row).cast(pa.int64()).to_pylist() for row in flat]
    rows: list[Any] = data.to_pylist()
    return rows


def _as_numbers(data: Any) -> Any:
    """Dates as days and timestamps as microseconds; numbers as they are."""
    kind = data.type
    if pa.types.is_date(kind):
        return data.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return data.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    return data
