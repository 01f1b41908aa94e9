"""Producer progress: how far each producer is in event time.

What it is: ``ProducerProgress``: the largest event time of one producer and the time of its last append;
``progress_of`` computes it for a range of offsets, ``progress_of_batch`` for rows that were read.
Invariants: exact for any range, Arrow or sealed; rows without an event time (tombstones) count for the append time
only. A sealed row group that one producer wrote is not read: its statistics suffice.
Not here: watermarks (``watermarks.py``). Read next: ``watermarks.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.clock import to_us
from headwater.log.storage.active_segment import ArrowSegment, FrameRange
from headwater.log.storage.frame_index import NO_TIME_MAX
from headwater.log.storage.sealed_segment import SealedSegment, time_range

if TYPE_CHECKING:
    from headwater.log.topic import Topic

NEVER = NO_TIME_MAX  # neutral for max: no event time was seen


@dataclass(frozen=True)
class ProducerProgress:
    """One producer's largest event time, its last heartbeat, and the time of its last append.

    >>> ProducerProgress(newest_us=5, seen_us=9).merge(ProducerProgress(nothing_before_us=7, seen_us=8))
    ProducerProgress(newest_us=5, nothing_before_us=7, seen_us=9)
    """

    newest_us: int = NEVER
    nothing_before_us: int = NEVER
    seen_us: int = NEVER

    def merge(self, other: ProducerProgress) -> ProducerProgress:
        """The later of both, field by field."""
        return ProducerProgress(
            max(self.newest_us, other.newest_us),
            max(self.nothing_before_us, other.nothing_before_us),
            max(self.seen_us, other.seen_us),
        )


def merge_progress(
    one: Mapping[int, ProducerProgress], other: Mapping[int, ProducerProgress]
) -> dict[int, ProducerProgress]:
    """The progress of two ranges as that of one.

    >>> merge_progress({1: ProducerProgress(5)}, {1: ProducerProgress(7), 2: ProducerProgress(3)})[1].newest_us
    7
    """
    return {
        producer: one.get(producer, ProducerProgress()).merge(other.get(producer, ProducerProgress()))
        for producer in {**one, **other}
    }


def progress_of_batch(rows: pa.RecordBatch, column: str) -> dict[int, ProducerProgress]:
    """The progress of each producer in rows with their event time, ``_appended_at`` and ``_producer``.

    >>> rows = pa.record_batch({"at": [5, 3], "_appended_at": [8, 9], "_producer": [0, 0]})
    >>> progress_of_batch(rows.cast(pa.schema([("at", pa.timestamp("us")), *list(rows.schema)[1:]])), "at")
    {0: ProducerProgress(newest_us=5, nothing_before_us=-9223372036854775808, seen_us=9)}
    """
    found: dict[int, ProducerProgress] = {}
    producers = rows.column("_producer")
    known = pc.unique(producers).to_pylist()
    for producer in known:
        mine = rows if len(known) == 1 else rows.filter(pc.equal(producers, producer))
        seen_us = pc.max(mine.column("_appended_at").cast(pa.int64())).as_py()
        found[producer] = ProducerProgress(time_range(mine.column(column))[1], seen_us=seen_us)
    return found


def progress_of(topic: Topic, start: Mapping[int, int], stop: Mapping[int, int]) -> dict[int, ProducerProgress]:
    """The progress of each producer (0: anonymous ones) between two frontiers of a topic with an event time.

    >>> import datetime as dt, headwater as hw, tempfile
    >>> topic = hw.Log(tempfile.mkdtemp()).topic("clicks", "at TIMESTAMP", event_time="at")
    >>> _ = topic.append([{"at": dt.datetime(1970, 1, 1, second=7)}])
    >>> progress_of(topic, {0: 0}, {0: 1})[0].newest_us
    7000000
    """
    column = topic.settings.event_time
    assert column is not None, "ask only for topics with an event time"
    found: dict[int, ProducerProgress] = {}
    for number in sorted(stop):
        for producer, progress in _in_partition(topic, number, start.get(number, 0), stop[number], column):
            found[producer] = found.get(producer, ProducerProgress()).merge(progress)
    return found


def _in_partition(
    topic: Topic, number: int, start: int, stop: int, column: str
) -> Iterator[tuple[int, ProducerProgress]]:
    reader = topic.reader(number)
    position = max(start, reader.start_offset())
    while position < stop:
        arrow, sealed = reader.locate(position)
        until = stop
        if arrow is not None:
            whole, rest = _entries(arrow, position, stop)
            yield from whole
            for first, following in rest:
                for chunk in reader.chunks(first, following):
                    yield from _in_chunk(chunk, column)
            position = max(position, min(stop, arrow.next_offset))
            continue
        if sealed is not None:
            until = min(stop, sealed.next_offset)
            rest = []
            for first, following, known in _row_groups(sealed, position, until, column):
                if known is None:
                    rest.append((first, following))
                else:
                    yield known
            for first, following in rest:
                for chunk in reader.chunks(first, following, [column, "_appended_at", "_producer"]):
                    yield from _in_chunk(chunk, column)
            position = until
            continue
        for chunk in reader.chunks(position, until):
            yield from _in_chunk(chunk, column)
        position = until


def _entries(
    arrow: ArrowSegment, start: int, stop: int
) -> tuple[list[tuple[int, ProducerProgress]], list[tuple[int, int]]]:
    """The index entries of the frames inside a range, and the parts of the range that other frames hold."""
    entries = arrow.entries
    first = entries["base_offset"]
    following = first + entries["rows"]
    inside = (first >= start) & (following <= stop)
    found = []
    for producer in np.unique(entries["producer"][inside]).tolist():
        mine = entries[inside & (entries["producer"] == producer)]
        found.append((producer, ProducerProgress(int(mine["time_max"].max()), seen_us=int(mine["appended_us"].max()))))
    cut = ~inside & (following > start) & (first < stop)
    ranges = zip(first[cut].tolist(), following[cut].tolist(), strict=True)
    return found, [(max(low, start), min(high, stop)) for low, high in ranges]


def _row_groups(
    sealed: SealedSegment, start: int, stop: int, column: str
) -> Iterator[tuple[int, int, tuple[int, ProducerProgress] | None]]:
    """The row groups that overlap a range: the part they hold and, where statistics suffice, the progress."""
    metadata = pq.read_metadata(sealed.path)
    for place in range(metadata.num_row_groups):
        group = metadata.row_group(place)
        columns: dict[str, Any] = {
            group.column(at).path_in_schema: group.column(at).statistics for at in range(group.num_columns)
        }
        offsets = columns.get("_offset")
        if offsets is None or not offsets.has_min_max:
            yield start, stop, None
            return
        first, following = offsets.min, offsets.max + 1
        if following <= start or first >= stop:
            continue
        inside = start <= first and following <= stop
        wanted: list[Any] = [columns.get(name) for name in (column, "_appended_at")]
        has_statistics = all(known is not None and known.has_min_max for known in wanted)
        times, appended = wanted
        producer = _only_producer(columns.get("_producer"), group.num_rows)
        if inside and has_statistics and producer is not None:
            yield first, following, (producer, ProducerProgress(_us(times.max), seen_us=_us(appended.max)))
        else:
            yield max(first, start), min(following, stop), None


def _only_producer(statistics: Any, rows: int) -> int | None:
    """The producer of all rows of a row group (0: they have none); None when there are several."""
    if statistics is None or not statistics.has_null_count:
        return None
    if statistics.null_count == rows:
        return 0
    alone = statistics.has_min_max and statistics.min == statistics.max and not statistics.null_count
    return int(statistics.max) if alone else None


def _us(value: Any) -> int:
    """A statistic of a time column in microseconds."""
    if isinstance(value, int):
        return value
    return to_us(value) if hasattr(value, "hour") else int(pa.scalar(value, pa.date32()).value) * 86_400_000_000


def _in_chunk(chunk: FrameRange, column: str) -> Iterator[tuple[int, ProducerProgress]]:
    times = chunk.batch.column(column)
    if not len(times):
        return
    appended, producer = chunk.appended_us, chunk.producer
    if isinstance(producer, int) and isinstance(appended, int):
        yield producer, ProducerProgress(_newest(times), seen_us=appended)
        return
    producers = pa.array(np.full(len(times), producer)) if isinstance(producer, int) else producer.fill_null(0)
    moments = pa.array(np.full(len(times), appended)) if isinstance(appended, int) else appended.cast(pa.int64())
    for each in pc.unique(producers).to_pylist():
        mine = pc.equal(producers, each)
        yield each, ProducerProgress(_newest(times.filter(mine)), seen_us=pc.max(moments.filter(mine)).as_py())


def _newest(times: pa.Array) -> int:
    return time_range(times)[1]
