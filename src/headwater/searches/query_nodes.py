"""Query nodes: what a stored search asks, as a tree.

What it is: frozen nodes. Leaves are true or false of one document: a word in a text column, a value of another
column, a range of values. ``All``, ``Some`` and ``Not`` combine them.
Invariants: a leaf over a null is false, except ``IsNull``; so ``Not`` of a leaf over a null is true. SQL, where it is
unknown, is translated before (``sql_predicate.py``). Words are tokens, as the analyser left them; values are as
``search_columns.py`` writes them. Equal nodes mean the same.
Not here: the texts that people write (``query_parser.py``); conjunctions (``normal_form.py``).
Read next: ``normal_form.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

EVERY_TEXT = "*"  # in the place of a text column: all of them


@dataclass(frozen=True, slots=True)
class Word:
    """A token is in a text column."""

    column: str
    token: str


@dataclass(frozen=True, slots=True)
class WordPrefix:
    """A token of a text column begins so."""

    column: str
    start: str


@dataclass(frozen=True, slots=True)
class Phrase:
    """Two tokens or more stand one after the other in a text column."""

    column: str
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Equals:
    """A column has this value; an array has it among its elements, also None."""

    column: str
    value: Any


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The text of a column that is not analysed begins so; that of an element, where it is an array."""

    column: str
    start: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column has no value."""

    column: str


@dataclass(frozen=True, slots=True)
class Between:
    """A column's value lies between two others; None: it has no bound there."""

    column: str
    low: Any = None
    high: Any = None
    low_open: bool = False  # the bound itself is not in it
    high_open: bool = False


@dataclass(frozen=True, slots=True)
class All:
    """Every part is true. Without parts: always."""

    parts: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    """Some part is true. Without parts: never."""

    parts: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Not:
    """The part is false."""

    part: Node


Atom: TypeAlias = Word | WordPrefix | Equals | StartsWith | IsNull  # found in a dictionary
Leaf: TypeAlias = Atom | Phrase | Between
Node: TypeAlias = Leaf | All | Some | Not

ATOMS = (Word, WordPrefix, Equals, StartsWith, IsNull)
TEXT = (Word, WordPrefix, Phrase)


def all_of(parts: list[Node]) -> Node:
    """One node that says what all of these say.

    >>> all_of([Word("title", "a")])
    Word(column='title', token='a')
    """
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def any_of(parts: list[Node]) -> Node:
    """One node that says what some of these say."""
    return parts[0] if len(parts) == 1 else Some(tuple(parts))


def leaves(node: Node, *, negated: bool = False) -> Iterator[tuple[Leaf, bool]]:
    """The leaves, in the order of the text, each with whether it stands under an odd number of NOTs.

    >>> [(leaf.token, negated) for leaf, negated in leaves(All((Word("t", "a"), Not(Word("t", "b")))))]
    [('a', False), ('b', True)]
    """
    if isinstance(node, Not):
        yield from leaves(node.part, negated=not negated)
    elif isinstance(node, All | Some):
        for part in node.parts:
            yield from leaves(part, negated=negated)
    else:
        yield node, negated


def text_parts(node: Node) -> list[Word | WordPrefix | Phrase]:
    """The distinct words, prefixes and phrases that a document gets its score for: those not under a NOT."""
    return list(dict.fromkeys(leaf for leaf, negated in leaves(node) if not negated and isinstance(leaf, TEXT)))


def fold(node: Node, leaf: Callable[[Leaf], bool]) -> bool:
    """Whether a node is true, where ``leaf`` says so of its leaves.

    >>> fold(Not(All((IsNull("a"), IsNull("b")))), lambda leaf: leaf.column == "a")
    True
    """
    if isinstance(node, All):
        return all(fold(part, leaf) for part in node.parts)
    if isinstance(node, Some):
        return any(fold(part, leaf) for part in node.parts)
    if isinstance(node, Not):
        return not fold(node.part, leaf)
    return leaf(node)
