"""A query evaluated over one document: the compiled tree.

What it is: ``AnalysedDocument``, the tokens and values of one row, and ``compiled``, which makes a function of a
query's tree that says whether a document matches.
Invariants: it answers as the index does; it is asked where a query's conjunctions are too many to be indexed, and is
the brute force that the benchmark compares with.
Not here: batches (``query_segment.py``).
Read next: ``query_segment.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from headwater.searches.query_nodes import (
    EVERY_TEXT,
    All,
    Between,
    Equals,
    IsNull,
    Node,
    Not,
    Phrase,
    Some,
    StartsWith,
    Word,
    WordPrefix,
)

Predicate = Callable[["AnalysedDocument"], bool]


class AnalysedDocument:
    """One document: ``tokens`` by text column (with gaps), ``values`` by column, as ``search_columns.py`` has them."""

    def __init__(self, tokens: Mapping[str, list[str]], values: Mapping[str, Any]) -> None:
        self.values = values
        self._tokens = dict(tokens)

    def tokens(self, column: str) -> list[str]:
        """The tokens of a text column, or of all of them with gaps between."""
        if column == EVERY_TEXT and column not in self._tokens:
            self._tokens[column] = [token for tokens in self._tokens.values() for token in (*tokens, "")]
        return self._tokens[column]

    @cached_property
    def counts(self) -> dict[str, Counter[str]]:
        """How often each token is in each text column."""
        found = {column: Counter(tokens) for column, tokens in self._tokens.items() if column != EVERY_TEXT}
        found[EVERY_TEXT] = sum(found.values(), Counter())
        return found


def compiled(node: Node) -> Predicate:
    """A function that says whether a document matches.

    >>> document = AnalysedDocument({"title": ["rivers", "of", "europe"]}, {"price": 12})
    >>> compiled(All((Word("title", "rivers"), Between("price", 10, 20))))(document)
    True
    """
    if isinstance(node, All):
        parts = [compiled(part) for part in node.parts]
        return lambda document: all(part(document) for part in parts)
    if isinstance(node, Some):
        parts = [compiled(part) for part in node.parts]
        return lambda document: any(part(document) for part in parts)
    if isinstance(node, Not):
        inner = compiled(node.part)
        return lambda document: not inner(document)
    if isinstance(node, Word):
        column, token = node.column, node.token
        return lambda document: token in document.counts[column]
    if isinstance(node, WordPrefix):
        column, start = node.column, node.start
        return lambda document: any(each.startswith(start) for each in document.counts[column])
    if isinstance(node, Phrase):
        return _phrase(node)
    return _of_value(node)


def _phrase(node: Phrase) -> Predicate:
    column, tokens = node.column, list(node.tokens)
    first, length = tokens[0], len(node.tokens)

    def found(document: AnalysedDocument) -> bool:
        if any(token not in document.counts[column] for token in tokens):
            return False
        every = document.tokens(column)
        return any(token == first and every[at : at + length] == tokens for at, token in enumerate(every))

    return found


def _of_value(node: Equals | StartsWith | IsNull | Between) -> Predicate:
    name = node.column
    if isinstance(node, IsNull):
        return lambda document: document.values[name] is None
    if isinstance(node, Between):
        return lambda document: (value := document.values[name]) is not None and lies_in(node, value)
    if isinstance(node, Equals):
        wanted = node.value

        def equal(document: AnalysedDocument) -> bool:
            value = document.values[name]
            return wanted in value if isinstance(value, list) else value is not None and value == wanted

        return equal
    start = node.start

    def begins(document: AnalysedDocument) -> bool:
        value = document.values[name]
        several = value if isinstance(value, list) else [value]
        return any(each is not None and each.startswith(start) for each in several)

    return begins


def lies_in(node: Between, value: Any) -> bool:
    """Whether a value that is there lies between the bounds.

    >>> lies_in(Between("price", 10, 20, high_open=True), 20)
    False
    """
    key = _ordered(value)
    if node.low is not None:
        low = _ordered(node.low)
        if key < low or (key == low and node.low_open):
            return False
    if node.high is not None:
        high = _ordered(node.high)
        return not (key > high or (key == high and node.high_open))
    return True


def _ordered(value: Any) -> tuple[bool, Any]:
    """As it is ordered: NaN is the greatest number, and equal to itself."""
    if isinstance(value, float) and value != value:
        return True, 0
    return False, value
