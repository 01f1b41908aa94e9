"""Normal form: a query as alternatives, each a conjunction of literals.

What it is: ``normal_form`` turns a tree into conjunctions. An OR of atoms alone is one literal, a *group*, so that
``(a OR b) AND (c OR d)`` is one conjunction of two groups and not four of two atoms.
Invariants: a document matches the query if and only if it matches one of the conjunctions. Their number and size are
bounded; of a query beyond the bound there is one conjunction that every match satisfies, ``exact=False``: what passes
it is asked of the tree. Ranges of one column in a conjunction are one range. A phrase brings its words as literals.
Not here: the index over conjunctions (``query_index.py``).
Read next: ``query_index.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from headwater.searches.query_nodes import ATOMS, All, Atom, Between, Node, Not, Phrase, Some, Word

CONJUNCTIONS_MAX = 32
LITERALS_MAX = 256

Group: TypeAlias = frozenset  # of atoms: one of them is true


@dataclass(frozen=True, slots=True)
class Conjunction:
    """What must hold, and what must not. ``atoms`` are atoms and groups of them."""

    atoms: tuple[Any, ...] = ()
    not_atoms: tuple[Any, ...] = ()
    ranges: tuple[Between, ...] = ()
    not_ranges: tuple[Between, ...] = ()
    phrases: tuple[Phrase, ...] = ()
    not_phrases: tuple[Phrase, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether it has nothing by which an index could find it: every document must be looked at."""
        return not self.atoms and not self.ranges


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A query's conjunctions. Not ``exact``: a document that matches one is a candidate only."""

    conjunctions: tuple[Conjunction, ...]
    exact: bool = True


_Literal = tuple[Any, bool]  # a leaf or a group, and whether it is negated


class _TooLarge(Exception):
    pass


def normal_form(node: Node) -> NormalForm:
    """The conjunctions of a query.

    >>> a, b, c = (Word("title", token) for token in "abc")
    >>> [each.atoms for each in normal_form(All((a, Some((b, c))))).conjunctions]
    [(Word(column='title', token='a'), frozenset({...}))]
    >>> len(normal_form(Some((All((a, b)), All((a, c))))).conjunctions)
    2
    """
    try:
        found = _alternatives(node, negated=False)
    except _TooLarge:
        necessary = _necessary(node, negated=False)
        return NormalForm((Conjunction(atoms=() if necessary is None else (_as_group(necessary),)),), exact=False)
    made = (_conjunction(literals) for literals in found)
    return NormalForm(tuple(dict.fromkeys(each for each in made if each is not None)))


def _alternatives(node: Node, *, negated: bool) -> list[tuple[_Literal, ...]]:
    """The alternatives of a node, or of its negation, each the literals that must hold."""
    if isinstance(node, Not):
        return _alternatives(node.part, negated=not negated)
    if isinstance(node, All | Some):
        parts = [_alternatives(part, negated=negated) for part in node.parts]
        return _both(parts) if isinstance(node, All) != negated else _either(parts)
    return [((node, negated),)]


def _either(parts: Iterable[list[tuple[_Literal, ...]]]) -> list[tuple[_Literal, ...]]:
    """The alternatives of an OR; those that are one atom each become one group."""
    alternatives: list[tuple[_Literal, ...]] = []
    atoms: dict[Atom, None] = {}
    for part in parts:
        for literals in part:
            leaf, negated = literals[0] if len(literals) == 1 else (None, True)
            if not negated and isinstance(leaf, ATOMS):
                atoms[leaf] = None
            elif not negated and isinstance(leaf, frozenset):
                atoms.update(dict.fromkeys(leaf))
            else:
                alternatives.append(literals)
    if atoms:
        alternatives.insert(0, ((_as_group(atoms), False),))
    if len(alternatives) > CONJUNCTIONS_MAX or len(atoms) > LITERALS_MAX * 16:
        raise _TooLarge
    return alternatives


def _as_group(atoms: Iterable[Atom]) -> Any:
    group = frozenset(atoms)
    return next(iter(group)) if len(group) == 1 else group


def _both(parts: Iterable[list[tuple[_Literal, ...]]]) -> list[tuple[_Literal, ...]]:
    """The alternatives of an AND: each of one part with each of the others."""
    found: list[tuple[_Literal, ...]] = [()]
    for part in parts:
        found = [tuple(dict.fromkeys((*before, *literals))) for before in found for literals in part]
        if len(found) > CONJUNCTIONS_MAX or any(len(literals) > LITERALS_MAX for literals in found):
            raise _TooLarge
    return found


def _conjunction(literals: tuple[_Literal, ...]) -> Conjunction | None:
    """The literals by their kinds; None when they contradict each other."""
    known = set(literals)
    if any((leaf, not negated) in known for leaf, negated in literals):
        return None
    lists: dict[tuple[str, bool], dict[Any, None]] = {}
    ranges: dict[str, Between] = {}
    for leaf, negated in literals:
        if isinstance(leaf, Between):
            if negated:
                lists.setdefault(("range", True), {})[leaf] = None
            else:
                ranges[leaf.column] = _narrowed(ranges[leaf.column], leaf) if leaf.column in ranges else leaf
        elif isinstance(leaf, Phrase):
            lists.setdefault(("phrase", negated), {})[leaf] = None
            if not negated:
                words = lists.setdefault(("atom", False), {})
                words.update(dict.fromkeys(Word(leaf.column, token) for token in leaf.tokens))
        else:
            lists.setdefault(("atom", negated), {})[leaf] = None

    def listed(kind: str, negated: bool) -> tuple[Any, ...]:
        return tuple(lists.get((kind, negated), ()))

    return Conjunction(
        listed("atom", False),
        listed("atom", True),
        tuple(ranges.values()),
        listed("range", True),
        listed("phrase", False),
        listed("phrase", True),
    )


def _narrowed(one: Between, other: Between) -> Between:
    """What lies in both.

    >>> _narrowed(Between("n", low=1), Between("n", high=5, high_open=True))
    Between(column='n', low=1, high=5, low_open=False, high_open=True)
    """
    low, low_open = one.low, one.low_open
    if other.low is not None and (low is None or (other.low, other.low_open) > (low, low_open)):
        low, low_open = other.low, other.low_open
    high, high_open = one.high, one.high_open
    if other.high is not None and (high is None or (other.high, not other.high_open) < (high, not high_open)):
        high, high_open = other.high, other.high_open
    return Between(one.column, low, high, low_open, high_open)


def _necessary(node: Node, *, negated: bool) -> frozenset[Atom] | None:
    """Atoms of which every match has one; None when there are no such."""
    if isinstance(node, Not):
        return _necessary(node.part, negated=not negated)
    if isinstance(node, All | Some):
        parts = [_necessary(part, negated=negated) for part in node.parts]
        if isinstance(node, All) != negated:  # one part is enough: that with the fewest atoms
            known = [part for part in parts if part is not None]
            return min(known, key=len) if known else None
        if any(part is None for part in parts):
            return None
        return frozenset(atom for part in parts if part is not None for atom in part)
    if negated:
        return None
    if isinstance(node, Phrase):
        return frozenset([Word(node.column, max(node.tokens, key=len))])
    return frozenset([node]) if isinstance(node, ATOMS) else None


def cost_of(form: NormalForm) -> str | None:
    """What a search costs beyond the ordinary, as a sentence; None when an index finds its candidates.

    >>> cost_of(normal_form(All()))
    'it matches every document'
    >>> cost_of(normal_form(Not(Word("title", "a"))))
    'every document is compared with it: it has neither a word, a value nor a range that must be there'
    """
    if form.exact and any(each == Conjunction() for each in form.conjunctions):
        return "it matches every document"
    if any(each.is_open for each in form.conjunctions):
        return "every document is compared with it: it has neither a word, a value nor a range that must be there"
    if not form.exact:
        return (
            f"it has more than {CONJUNCTIONS_MAX} alternatives: documents with one of its words or values are "
            "compared with it one by one"
        )
    if form.exact and not form.conjunctions:
        return "it matches no document: its parts contradict each other"
    return None
