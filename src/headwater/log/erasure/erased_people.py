"""Erased people: persons as an erasure knows them, by a salted hash.

What it is: ``ErasedPeople``, some persons of one subject, and finding their rows by a column with their ids.
Invariants: an id is compared as text (``7`` and ``'7'`` are one person, ``'07'`` is another), so that the hash and the
value find the same rows. The value is in memory only, while an erasure works; what is stored is the hash.
Not here: where records are kept (``erasure_records.py``).
Read next: ``personal_rows.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic
    from headwater.log.erasure.personal_rows import PersonalRows

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Erased(Protocol):
    """What is to go from rows: what is of some persons, or what is kept no longer (``expired_rows.py``)."""

    def has(self, value: Any) -> bool:
        """Whether a value of the column that a rule looks at is meant."""

    def found_in(self, column: pa.Array | pa.ChunkedArray) -> Mask:
        """Which rows are meant, by that column."""

    def rules_of(self, topic: EventTopic) -> PersonalRows | None:
        """What a topic's declaration says of it; None: nothing."""


def person_hash(subject: str, value: str, salt: bytes) -> str:
    """What is kept of a person: a hash of the id with a salt.

    >>> person_hash("user_id", "7", b"salt") == person_hash("user_id", "7", b"salt")
    True
    """
    return hashlib.sha256(b"\0".join([salt, subject.encode(), value.encode()])).hexdigest()


@dataclass(frozen=True)
class ErasedPeople:
    """Persons of one subject whose hashes have one salt.

    >>> people = ErasedPeople("user_id", b"salt", frozenset({person_hash("user_id", "7", b"salt")}))
    >>> people.found_in(pa.array([6, 7, None, 7])).tolist()
    [False, True, False, True]
    """

    subject: str
    salt: bytes
    hashes: frozenset[str]
    values: tuple[str, ...] = field(default=(), repr=False)  # when all of them are known: comparing is faster

    @staticmethod
    def of(subject: str, value: str, salt: bytes) -> ErasedPeople:
        """One person, by the id."""
        return ErasedPeople(subject, salt, frozenset({person_hash(subject, value, salt)}), (value,))

    def rules_of(self, topic: EventTopic) -> PersonalRows | None:
        """What a topic's declaration says of their subject; None when nothing in it is."""
        from headwater.log.erasure.personal_rows import PersonalRows

        return PersonalRows.of_topic(topic, self.subject)

    def has(self, value: Any) -> bool:
        """Whether this id is one of theirs."""
        return value is not None and person_hash(self.subject, str(value), self.salt) in self.hashes

    def found_in(self, column: pa.Array | pa.ChunkedArray) -> Mask:
        """Which rows of a column are theirs."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if not len(column):
            return np.zeros(0, np.bool_)
        if self.values:
            wanted = _cast(self.values, column.type)
            return np.asarray(pc.is_in(column, value_set=wanted).to_numpy(zero_copy_only=False), np.bool_)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        texts = column.dictionary.cast(pa.string()).to_pylist()
        theirs = np.array([*(self.has(text) for text in texts), False], np.bool_)  # the last one: of a null
        places = column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        return np.asarray(theirs[places], np.bool_)


def _cast(values: Iterable[str], kind: pa.DataType) -> pa.Array:
    """The ids as values of a column, without those that no value of it is written as."""
    found = []
    for value in values:
        try:
            scalar = pa.scalar(value).cast(kind)
            same = scalar.cast(pa.string()).as_py() == value
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            continue
        found += [scalar.as_py()] if same else []
    return pa.array(found, kind)
