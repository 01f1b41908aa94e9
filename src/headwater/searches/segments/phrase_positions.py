"""Where tokens stand in the texts of a batch, for phrases.

What it is: ``PhrasePositions`` tells how often a phrase occurs in a document, for many pairs of both at a time.
Invariants: a phrase occurs where its tokens stand one behind the other in one text; a token that was left out by the
analysis stands between its neighbours.
Not here: which pairs are asked about (``query_segment.py``).
Read next: ``query_segment.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater.searches.segments.atom_dictionary import AtomDictionary
from headwater.searches.segments.document_batch import DocumentBatch
from headwater.searches.segments.interval_index import expanded

Ints = npt.NDArray[np.int64]

TOKENS_MAX = 1 << 32


@dataclass(frozen=True, slots=True)
class NumberedPhrase:
    """A phrase as the index has it: a text column and the numbers of the tokens."""

    column: str
    tokens: tuple[int, ...]


class PhraseTable:
    """Phrases as arrays.

    >>> table = PhraseTable([NumberedPhrase("title", (4, 7)), NumberedPhrase("body", (7, 4, 9))])
    >>> table.columns, table.begins.tolist(), table.tokens.tolist()
    (['title', 'body'], [0, 2, 5], [4, 7, 7, 4, 9])
    """

    def __init__(self, phrases: Sequence[NumberedPhrase]) -> None:
        self.columns = list(dict.fromkeys(phrase.column for phrase in phrases))
        self.column = np.array([self.columns.index(phrase.column) for phrase in phrases], np.int64)
        self.begins: Ints = np.cumsum([0, *(len(phrase.tokens) for phrase in phrases)])
        self.tokens = np.array([token for phrase in phrases for token in phrase.tokens], np.int64)


@dataclass(frozen=True)
class _Stream:
    """The tokens of a text column by the dictionary's numbers, and where each token of each document stands."""

    tokens: Ints
    pieces: Ints
    keys: Ints  # of document and token, sorted
    places: Ints  # in ``tokens``, in the order of ``keys``


class PhrasePositions:
    """The places of phrases' tokens in one batch."""

    def __init__(self, batch: DocumentBatch, dictionary: AtomDictionary) -> None:
        self.batch = batch
        self.dictionary = dictionary
        self._streams: dict[str, _Stream] = {}

    def _stream(self, column: str) -> _Stream:
        if column not in self._streams:
            given, known = self.batch.stream(column), self.dictionary.tokens
            vocabulary = self.batch.vocabulary
            numbers = np.fromiter((known.get(token, -1) for token in vocabulary), np.int64, len(vocabulary))
            tokens = numbers[given.tokens] if len(given.tokens) else given.tokens
            places = np.flatnonzero(tokens >= 0)
            keys = given.documents[places] * TOKENS_MAX + tokens[places]
            order = np.argsort(keys, kind="stable")
            self._streams[column] = _Stream(tokens, given.pieces, keys[order], places[order])
        return self._streams[column]

    def counts(self, documents: Ints, numbers: Ints, phrases: PhraseTable) -> Ints:
        """How often each document has its phrase; ``numbers`` are places in ``phrases``."""
        found = np.zeros(len(documents), np.int64)
        of_column = phrases.column[numbers]
        for number, column in enumerate(phrases.columns):
            some = np.flatnonzero(of_column == number)
            if len(some):
                found[some] = self._occurrences(self._stream(column), documents[some], numbers[some], phrases)
        return found

    def _occurrences(self, stream: _Stream, documents: Ints, numbers: Ints, phrases: PhraseTable) -> Ints:
        begin, length = phrases.begins[numbers], phrases.begins[numbers + 1] - phrases.begins[numbers]
        keys = documents * TOKENS_MAX + phrases.tokens[begin]
        first, behind = np.searchsorted(stream.keys, keys), np.searchsorted(stream.keys, keys, "right")
        owner, entry = expanded(np.arange(len(documents)), first, behind - first)
        start = stream.places[entry]
        for step in range(1, int(length.max(initial=0))):
            longer = length[owner] > step
            at = np.minimum(start + step, len(stream.tokens) - 1)
            follows = (
                (start + step < len(stream.tokens))
                & (stream.tokens[at] == phrases.tokens[np.where(longer, begin[owner] + step, 0)])
                & (stream.pieces[at] == stream.pieces[start])
            )
            kept = follows | ~longer
            owner, start = owner[kept], start[kept]
        return np.bincount(owner, minlength=len(documents))
