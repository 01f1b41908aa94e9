"""The dictionary of atoms: words, prefixes and values that queries ask for, by number.

What it is: ``AtomDictionary`` numbers each atom and each group of atoms that some query uses, and finds the numbers of
what a document has. Tokens of phrases have numbers of their own.
Invariants: an atom is here as long as a query uses it, and has one number meanwhile; a number that is free is given
again. So the dictionary shrinks with the searches.
Not here: which query uses which (``query_segment.py``); what a document has (``document_batch.py``).
Read next: ``document_batch.py``.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.searches.query_nodes import Atom, Equals, IsNull, StartsWith, Word, WordPrefix

Ints = npt.NDArray[np.int64]

# How large a part of the documents has an atom, as long as no documents have told it.
PRIORS: dict[type, float] = {Equals: 0.01, Word: 0.02, WordPrefix: 0.05, StartsWith: 0.05, IsNull: 0.2}
GROUP_PRIOR = 0.1
KINDS = ("words", "prefixes", "values", "starts", "nulls")
PRIOR_DOCUMENTS = 50.0  # a prior counts as much as so many documents


class AtomDictionary:
    """The atoms in use.

    >>> atoms = AtomDictionary()
    >>> one = atoms.use(Word("title", "river"))
    >>> atoms.use(Word("title", "river")) == one, atoms.words["title"]
    (True, {'river': 0})
    >>> atoms.release(one), atoms.release(one), atoms.words["title"]
    (None, None, {})
    """

    def __init__(self) -> None:
        # By column, and there by token, beginning or value.
        self.words: dict[str, dict[Any, int]] = {}
        self.prefixes: dict[str, dict[Any, int]] = {}
        self.values: dict[str, dict[Any, int]] = {}
        self.starts: dict[str, dict[Any, int]] = {}
        self.nulls: dict[str, dict[Any, int]] = {}
        self.groups: dict[frozenset[int], int] = {}  # by the numbers of their members
        self._lengths: dict[int, Counter[int]] = {}  # of the beginnings in a dictionary, by its id
        self.tokens: dict[str, int] = {}  # of phrases
        self._token_texts: list[str] = []
        self._token_uses: list[int] = []
        self._free_tokens: list[int] = []
        self._uses: list[int] = []
        self._places: list[tuple[dict[Any, int], Any]] = []  # where each number is entered
        self._members: dict[int, tuple[int, ...]] = {}  # of a group
        self._groups_of: dict[int, list[int]] = {}  # that an atom is in
        self._free: list[int] = []
        self._priors = array("d")
        self._counts = np.zeros(0)  # documents that had an atom
        self._seen = 0.0  # documents
        self._group_arrays: tuple[Ints, Ints] | None = None

    @property
    def capacity(self) -> int:
        """One more than the greatest number that was given."""
        return len(self._uses)

    def __len__(self) -> int:
        return len(self._uses) - len(self._free)

    # Using and releasing

    def use(self, atom: Atom | frozenset[Atom]) -> int:
        """The number of an atom or a group, which is used once more now."""
        if isinstance(atom, frozenset):
            members = frozenset(map(self.use, atom))
            number = self.groups.get(members)
            if number is None:
                number = self._given(self.groups, members, GROUP_PRIOR)
                self._join(number, members)
            else:  # it holds its members already
                for member in members:
                    self.release(member)
        else:
            entries, key = self._entries(atom)
            number = entries.get(key)
            if number is None:
                number = self._given(entries, key, PRIORS[type(atom)])
        self._uses[number] += 1
        return number

    def _join(self, group: int, members: Iterable[int]) -> None:
        self._members[group] = tuple(members)
        for member in self._members[group]:
            self._groups_of.setdefault(member, []).append(group)
        self._group_arrays = None

    def _entries(self, atom: Atom) -> tuple[dict[Any, int], Any]:
        if isinstance(atom, Word):
            return self.words.setdefault(atom.column, {}), atom.token
        if isinstance(atom, WordPrefix):
            return self.prefixes.setdefault(atom.column, {}), atom.start
        if isinstance(atom, Equals):
            return self.values.setdefault(atom.column, {}), atom.value
        if isinstance(atom, StartsWith):
            return self.starts.setdefault(atom.column, {}), atom.start
        return self.nulls.setdefault(atom.column, {}), None

    def _given(self, entries: dict[Any, int], key: Any, prior: float) -> int:
        if self._free:
            number = self._free.pop()
            self._uses[number], self._places[number], self._priors[number] = 0, (entries, key), prior
            if number < len(self._counts):
                self._counts[number] = prior * self._seen
        else:
            number = len(self._uses)
            self._uses.append(0)
            self._places.append((entries, key))
            self._priors.append(prior)
        entries[key] = number
        if isinstance(key, str):
            self._lengths.setdefault(id(entries), Counter())[len(key)] += 1
        return number

    def lengths(self, entries: dict[Any, int]) -> list[int]:
        """The lengths of the texts in one of the dictionaries, in rising order."""
        return sorted(self._lengths.get(id(entries), ()))

    def release(self, number: int) -> None:
        """An atom is used once less."""
        self._uses[number] -= 1
        if self._uses[number]:
            return
        entries, key = self._places[number]
        del entries[key]
        if isinstance(key, str):
            lengths = self._lengths[id(entries)]
            lengths[len(key)] -= 1
            if not lengths[len(key)]:
                del lengths[len(key)]
        self._free.append(number)
        for member in self._members.pop(number, ()):
            self._groups_of[member].remove(number)
            if not self._groups_of[member]:
                del self._groups_of[member]
            self._group_arrays = None
            self.release(member)

    def use_token(self, token: str) -> int:
        """The number of a token of a phrase."""
        number = self.tokens.get(token)
        if number is None:
            if self._free_tokens:
                number = self._free_tokens.pop()
                self._token_texts[number] = token
            else:
                number = len(self._token_uses)
                self._token_uses.append(0)
                self._token_texts.append(token)
            self.tokens[token] = number
        self._token_uses[number] += 1
        return number

    def release_token(self, number: int) -> None:
        """A token of a phrase is used once less."""
        self._token_uses[number] -= 1
        if not self._token_uses[number]:
            del self.tokens[self._token_texts[number]]
            self._token_texts[number] = ""
            self._free_tokens.append(number)

    # Groups

    def groups_of(self) -> tuple[Ints, Ints]:
        """For each atom where its groups begin, and the groups of all atoms one behind the other."""
        if self._group_arrays is None or len(self._group_arrays[0]) != self.capacity + 1:
            counts = np.zeros(self.capacity + 1, np.int64)
            for atom, groups in self._groups_of.items():
                counts[atom + 1] = len(groups)
            places = np.cumsum(counts)
            every = np.empty(int(places[-1]), np.int64)
            for atom, groups in self._groups_of.items():
                every[places[atom] : places[atom] + len(groups)] = groups
            self._group_arrays = places, every
        return self._group_arrays

    # How frequent atoms are

    @property
    def documents_seen(self) -> float:
        """The documents that were counted; older ones count for less."""
        return self._seen

    def count(self, atoms: Ints, documents: int) -> None:
        """Count the atoms of some documents: one number for each atom of each document."""
        if len(self._counts) < self.capacity:
            more = np.array(self._priors)[len(self._counts) :] * self._seen
            self._counts = np.concatenate([self._counts, more])
        if self._seen > 100_000:  # the last documents tell more of the next than the first
            self._counts *= 0.5
            self._seen *= 0.5
        self._counts += np.bincount(atoms, minlength=self.capacity)[: self.capacity]
        self._seen += documents

    def frequencies(self) -> npt.NDArray[np.float64]:
        """For each atom the part of the documents that is expected to have it."""
        counts = np.zeros(self.capacity)
        counts[: len(self._counts)] = self._counts
        priors = np.array(self._priors)
        counts[len(self._counts) :] = priors[len(self._counts) :] * self._seen
        return np.asarray((counts + priors * PRIOR_DOCUMENTS) / (self._seen + PRIOR_DOCUMENTS))

    # As a file has it

    def written(self) -> dict[str, Any]:
        """What is kept of it, as JSON can hold it."""
        kinds = {kind: getattr(self, kind) for kind in KINDS}
        return {
            "kinds": {
                kind: {column: [list(entries), list(entries.values())] for column, entries in columns.items()}
                for kind, columns in kinds.items()
            },
            "groups": [[number, *members] for number, members in self._members.items()],
            "tokens": self._token_texts,
            "token_uses": self._token_uses,
            "uses": self._uses,
            "priors": self._priors.tolist(),
            "counts": self._counts.tolist(),
            "seen": self._seen,
        }

    @staticmethod
    def read(about: Mapping[str, Any]) -> AtomDictionary:
        """What ``written`` gave."""
        made = AtomDictionary()
        made._uses, made._priors = about["uses"], array("d", about["priors"])
        made._counts, made._seen = np.array(about["counts"], np.float64), about["seen"]
        made._places = [({}, None)] * len(made._uses)
        for kind in KINDS:
            for column, (keys, numbers) in about["kinds"][kind].items():
                entries = dict(zip(keys, numbers, strict=True))
                getattr(made, kind)[column] = entries
                made._lengths[id(entries)] = Counter(len(key) for key in keys if isinstance(key, str))
                for key, number in entries.items():
                    made._places[number] = entries, key
        for number, *members in about["groups"]:
            key = frozenset(members)
            made.groups[key] = number
            made._places[number] = made.groups, key
            made._join(number, members)
        made._free = [number for number, uses in enumerate(made._uses) if not uses]
        made._token_texts, made._token_uses = about["tokens"], about["token_uses"]
        made._free_tokens = [number for number, uses in enumerate(made._token_uses) if not uses]
        made.tokens = {token: n for n, token in enumerate(made._token_texts) if made._token_uses[n]}
        return made
