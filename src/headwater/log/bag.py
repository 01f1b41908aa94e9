"""A bag: how often each row of a table without a key is there.

What it is: ``Bag`` counts the rows of a topic with weights by reading it, from where it read last; ``missing`` says
which of the rows that somebody wants to take away is not there.
Invariants: a count is the sum of the weights up to the offset that was read; a row whose weights sum to zero needs no
memory; after a change of the schema everything is counted anew, because older rows then have other columns.
Not here: that nobody else takes rows away meanwhile (``table.py`` holds the lock); what equal means
(``log/schema/row_identity.py``).
Read next: ``table.py``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_identity import row_identities

if TYPE_CHECKING:
    from headwater.log.topic import Topic

PARTITION = 0  # a bag has one: an equal row must be found wherever it was put


@dataclass(frozen=True)
class Missing:
    """A row that cannot be taken away."""

    place: int  # among the rows of the call
    there: int  # how often it is in the table
    wanted: int  # how often the call takes it away


class Bag:
    """The counts of one topic with weights. Not for several threads at once."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._version = 0
        self._position = 0
        self._counts: dict[bytes, int] = {}

    def missing(self, rows: pa.RecordBatch) -> Missing | None:
        """The first of the rows that is not there as often as it is given; None when all are."""
        identities = row_identities(rows)
        for identity, wanted in Counter(identities).items():
            there = self._counts.get(identity, 0)
            if there < wanted:
                last = [place for place, each in enumerate(identities) if each == identity][there]
                return Missing(last, there, wanted)
        return None

    def catch_up(self) -> None:
        """Read what was written since the last time."""
        topic = self._topic
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
