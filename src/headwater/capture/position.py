"""Positions: places in a database's log, and the transactions that a snapshot saw.

What it is: PostgreSQL's LSN as a number and as text; ``Snapshot`` and ``Prefix``, which say whether a read saw a
transaction; and the mapping from a transaction's place to the sequence of an idempotent producer.
Invariants: sequences rise with commits. The places of two consecutive transactions are at least ``PLACES_APART`` apart:
the parts of a large one are numbered in between, and the last append of a transaction has the number ``PLACES_APART`` -
1 after its place. So a stored sequence says which transaction was written and whether completely.
Not here: connections (``capture/postgres/postgres_database.py``). Read next: ``change_writer.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

# A commit record has 40 bytes at least, and records begin at multiples of 8 bytes: places are LSNs over 8.
LSN_UNIT = 8
PLACES_APART = 5
LAST = PLACES_APART - 1


def to_number(text: str) -> int:
    """An LSN as a number.

    >>> to_number("1/10")
    4294967312
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def to_text(number: int) -> str:
    """An LSN as PostgreSQL writes it.

    >>> to_text(4294967312)
    '1/10'
    """
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class Snapshot:
    """The transactions that one read of a PostgreSQL database saw, from ``pg_current_snapshot()``.

    The order in which transactions become visible is not exactly the order of their commit records, so an LSN does not
    say whether a read saw a transaction. The ids of running transactions do.

    >>> snapshot = Snapshot.parse("740:745:741,743")
    >>> [number for number in range(738, 747) if snapshot.saw(number)]
    [738, 739, 740, 742, 744]
    """

    first_running: int
    next_number: int
    running: frozenset[int]

    @staticmethod
    def parse(text: str) -> Snapshot:
        first, following, running = text.split(":")
        return Snapshot(int(first), int(following), frozenset(map(int, filter(None, running.split(",")))))

    def saw(self, number: int) -> bool:
        """Whether a committed transaction was seen. The stream has only the lower 32 bits of its id."""
        near = self.next_number
        whole = near + ((number - near + 0x80000000) & 0xFFFFFFFF) - 0x80000000
        if whole < self.first_running:
            return True
        return whole < self.next_number and whole not in self.running

    def __str__(self) -> str:
        return f"{self.first_running}:{self.next_number}:{','.join(map(str, sorted(self.running)))}"


@dataclass(frozen=True)
class Prefix:
    """The transactions that a read saw where visibility follows the order of the log: all before ``end``.

    >>> snapshot = seen("<745")
    >>> [number for number in range(743, 747) if snapshot.saw(number)]
    [743, 744]
    """

    end: int

    def saw(self, number: int) -> bool:
        """Whether the transaction that began at this position was seen."""
        return number < self.end

    def __str__(self) -> str:
        return f"<{self.end}"


def seen(text: str) -> Snapshot | Prefix:
    """A snapshot of either kind, from its text."""
    return Prefix(int(text[1:])) if text.startswith("<") else Snapshot.parse(text)
