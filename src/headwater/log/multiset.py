"""Multiset: the rows of a table without a key, and how often each is there.

What it is: ``Multiset`` counts rows by what they are; ``MultisetRemoval`` holds the table's lock around a commit that
takes some away.
Invariants: no prefix of the log removes a row that is not there: a commit that removes rows holds the lock, over all
processes, while it looks for them and appends.
Not here: the user's interface (``table.py``), the commit (``log/commits/transaction.py``).
Read next: ``table.py``, ``log/schema/row_identity.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import RowRefused
from headwater.log.schema.columns import shorten
from headwater.log.schema.evolution import conform
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_rows
from headwater.log.schema.row_identity import row_identities
from headwater.log.storage.locks import FileLock

if TYPE_CHECKING:
    from headwater.log.topic import Topic

LOCK_FILE = "multiset.lock"
PARTITION = 0  # a table without a key has one: an equal row must be found wherever it was put


@dataclass(frozen=True)
class Missing:
    """A row that cannot be deleted."""

    place: int  # index among the rows of the call
    there: int  # how often it is in the table
    wanted: int  # how often the call deletes it


class Multiset:
    """The count of each row of a topic with weights. Not thread-safe."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._version = 0
        self._position = 0
        self._counts: dict[bytes, int] = {}

    def missing(self, rows: pa.RecordBatch) -> Missing | None:
        """The first of the rows that occurs less often than it is given; None when there is none."""
        identities = row_identities(rows)
        for identity, wanted in Counter(identities).items():
            there = self._counts.get(identity, 0)
            if there < wanted:
                last = [place for place, each in enumerate(identities) if each == identity][there]
                return Missing(last, there, wanted)
        return None

    def count(self, identity: bytes) -> int:
        """How often a row is there, by its identity (``log/schema/row_identity.py``)."""
        return self._counts.get(identity, 0)

    def catch_up(self) -> None:
        """Read the records since the last call."""
        topic = self.topic
        topic.refresh()
        if topic.schema_version != self._version:
            self._version, self._counts = topic.schema_version, {}
            self._position = topic.start_offsets()[PARTITION]
        names = [name for name in topic.schema.names if name != WEIGHT]
        for batch in topic.read_partition(PARTITION, self._position, columns=[WEIGHT, *names]):
            self._add(batch.data.select(names), batch.data.column(WEIGHT).to_pylist())
            self._position = batch.next_offset

    def _add(self, rows: pa.RecordBatch, weights: list[int]) -> None:
        counts = self._counts
        for identity, weight in zip(row_identities(rows), weights, strict=True):
            count = counts.get(identity, 0) + weight
            if count:
                counts[identity] = count
            else:
                counts.pop(identity, None)


@dataclass
class MultisetRemoval:
    """Rows that a commit takes away: they are looked for while no other commit takes any."""

    multiset: Multiset
    batches: list[pa.RecordBatch] = field(default_factory=list)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep out all other removals, and refuse a row that is not there."""
        topic = self.multiset.topic
        # A new lock for each call, so that threads and forked children exclude each other as processes do.
        lock = FileLock(topic.directory / LOCK_FILE)
        try:
            with lock:
                # A killed process may have appended rows that no reader sees yet; the commit would show them.
                topic.partition(PARTITION).take_up()
                self.multiset.catch_up()
                self._look()
                yield
        finally:
            lock.close()

    def _look(self) -> None:
        # After catching up, which may have met a newer schema.
        schema = pa.schema([column for column in self.multiset.topic.schema if column.name != WEIGHT])
        rows = [
            conform(batch.select([n for n in batch.schema.names if n in schema.names]), schema)
            for batch in self.batches
        ]
        for given in pa.Table.from_batches(rows, schema=schema).combine_chunks().to_batches():
            missing = self.multiset.missing(given)
            if missing is not None:
                raise _not_there(self.multiset.topic.name, given, missing)


def _not_there(table: str, given: pa.RecordBatch, missing: Missing) -> RowRefused:
    row = to_rows(given.slice(missing.place, 1))[0]
    often = "is not" if not missing.there else f"is there {missing.there} times, and taken {missing.wanted} times,"
    return RowRefused(
        f'row {missing.place} (counted from 0) {often} in table "{table}": {shorten(row)}',
        detail="Nothing of this call was done.",
        hint="A row is deleted by an equal one: every column counts, and a missing column is null.",
        table=table,
        row=missing.place,
        there=missing.there,
        wanted=missing.wanted,
    )
