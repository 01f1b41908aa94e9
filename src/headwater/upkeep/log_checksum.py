"""Checksums of a topic's rows, which are equal in two logs that hold the same rows in the same order.

What it is: ``checksum_of``: a digest of every row with its place among the rows of its key or, of a topic without one,
of its partition.
Invariants: the digest changes when a row is missing, there twice, changed, or in another order within its key or
partition. It does not depend on offsets, on the time of the append, or on how a log routes keys to partitions, which
differ between logs. Values count as equal as in GROUP BY (``log/schema/row_identity.py``).
Not here: copying (``log_mirror.py``); checksums of files (``log/storage/checksums.py``). Read next: ``log_mirror.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from headwater.log.schema.event_metadata import METADATA_COLUMNS
from headwater.log.schema.row_identity import row_identities

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic

WHOLE = 1 << 128


@dataclass(frozen=True)
class TopicChecksum:
    """The rows of a topic, and their digest; of a topic without a key by partition, else of all of them."""

    rows: int
    digests: Mapping[int | None, str]


def checksum_of(topic: EventTopic, stop: Mapping[int, int] | None = None) -> TopicChecksum:
    """The checksum of a topic from its start up to ``stop``, or its end. Reads all of it.

    >>> import headwater as hw, tempfile
    >>> one, other = (hw.Log(tempfile.mkdtemp()).topic("t", "id INT, x INT", key="id", partitions=n) for n in (1, 3))
    >>> for topic in (one, other):
    ...     for n in (1, 2, 3):
    ...         _ = topic.append([{"id": 1, "x": n}, {"id": 2, "x": n}])
    >>> checksum_of(one) == checksum_of(other)
    True
    """
    routed, stops = topic.settings.routed_by, stop or topic.end_offsets()
    columns = [*topic.schema.names, *METADATA_COLUMNS, *(["_deleted"] if topic.settings.key else [])]
    places: dict[bytes, int] = {}  # how many rows of a key came before
    sums: dict[int | None, int] = {}
    rows = 0
    for number, start in topic.start_offsets().items():
        of = None if routed else number
        sums.setdefault(of, 0)
        for batch in topic.read_partition(number, start, stop=stops[number], columns=columns):
            rows += batch.num_rows
            streams = row_identities(batch.data.select(list(routed))) if routed else [b""] * batch.num_rows
            for stream, row in zip(streams, row_identities(batch.data), strict=True):
                known = stream if routed else str(number).encode()
                place = places[known] = places.get(known, 0) + 1
                sums[of] = (sums[of] + xxhash.xxh3_128_intdigest(b"%d " % place + row, seed=1)) % WHOLE
    return TopicChecksum(rows, {of: f"{total:032x}" for of, total in sums.items()})


def same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether rows of the two can be compared: the same names and types, in the same order.

    >>> same_columns(pa.schema([("x", pa.int32())]), pa.schema([("x", pa.int64())]))
    False
    """
    return bool(one.names == other.names and one.types == other.types)
