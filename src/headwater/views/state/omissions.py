"""Omissions: records that the views of an app leave out, though the log has them.

What it is: which records of a topic were set aside (as a manifest lists them), and reading a topic without them.
Invariants: the log is never changed. Every way from the log to a view leaves the same records out: ticks, the first
fill, rebuilds, ``verify``, queries; so all views of an app agree on what its rows are.
Not here: setting records aside (``views/lifecycle/set_aside.py``).
Read next: ``views/lifecycle/set_aside.py``, ``views/tick/inputs.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.views.spark.topic_scan import quoted, read_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.log.batch import Batch
    from headwater.log.contract import EventTopic

Omitted = Mapping[int, tuple[int, ...]]  # {partition: offsets}, of one topic
PLACE = ("_partition", "_offset")


def omitted_of(aside: Mapping[str, Any], topic: EventTopic) -> Omitted:
    """A topic's records in what a manifest lists, which goes by the topic's number: a name may be given to another.

    >>> from types import SimpleNamespace
    >>> omitted_of({"3": {"0": [7, 9]}}, SimpleNamespace(id=3))
    {0: (7, 9)}
    """
    return {int(number): tuple(offsets) for number, offsets in aside.get(str(topic.id), {}).items()}


def with_records(aside: Mapping[str, Any], records: Sequence[tuple[EventTopic, int, int]]) -> dict[str, Any]:
    """The list with these records (topic, partition, offset) as well."""
    found = {topic: {number: list(offsets) for number, offsets in of.items()} for topic, of in aside.items()}
    for topic, partition, offset in records:
        offsets = found.setdefault(str(topic.id), {}).setdefault(str(partition), [])
        if offset not in offsets:
            offsets.append(offset)
            offsets.sort()
    return found


def without(batch: Batch, omitted: Omitted) -> pa.RecordBatch:
    """A batch's rows without those that are left out."""
    offsets = omitted.get(batch.partition)
    if not offsets:
        return batch.data
    return batch.data.filter(pa.array(~np.isin(batch.offsets, offsets)))


def count_within(omitted: Omitted, start: Mapping[int, int], stop: Mapping[int, int]) -> int:
    """How many of them lie in a range."""
    return sum(
        start.get(number, 0) <= offset < stop.get(number, 0)
        for number, offsets in omitted.items()
        for offset in offsets
    )


def mark(omitted: Omitted, partition: int, start: int, stop: int) -> str:
    """What tells a range with omissions from the same range without; nothing when it has none."""
    found = [offset for offset in omitted.get(partition, ()) if start <= offset < stop]
    return f"-{hashlib.sha256(repr(found).encode()).hexdigest()[:8]}" if found else ""


def frame_without(
    spark: SparkSession,
    topic: EventTopic,
    start: Mapping[int, int],
    stop: Mapping[int, int],
    columns: Sequence[str],
    omitted: Omitted,
    *,
    by_workers: bool = False,
) -> DataFrame:
    """As ``read_range``, without them."""
    if not count_within(omitted, start, stop):
        return read_range(spark, topic, start, stop, columns, by_workers=by_workers)
    every = [*columns, *(name for name in PLACE if name not in columns)]
    parts = (
        f"(_partition = {number} AND _offset IN ({', '.join(map(str, offsets))}))"
        for number, offsets in omitted.items()
        if offsets
    )
    frame = read_range(spark, topic, start, stop, every, by_workers=by_workers).where(f"NOT ({' OR '.join(parts)})")
    return frame.select(*map(quoted, columns))
