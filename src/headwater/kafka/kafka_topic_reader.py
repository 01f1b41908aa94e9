"""Reading a topic of a log on Kafka: its declaration, its offsets, and the rows between them.

What it is: ``KafkaTopicReader``, from which ``KafkaTopic`` comes.
Invariants: offsets are Kafka's. They rise and are never used again, but some hold no message, and a message of a topic
without a key holds up to a thousand rows, all of which have its offset. Only what is committed is read; an end is the
end of what is committed. What was read last is kept, within bounds: a tick asks for a range several times.
Not here: consuming an exact range (``kafka_ranges.py``), decoding (``kafka_values.py``).
Read next: ``kafka_ranges.py``, ``kafka_topic.py``.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from headwater.clock import to_us
from headwater.durations import Duration, to_seconds, to_timeout
from headwater.errors import OffsetOutOfRange
from headwater.kafka.kafka_ranges import RangeReader
from headwater.kafka.kafka_values import MESSAGE_ROWS_MAX, KafkaValues
from headwater.log.batch import Batch
from headwater.log.catalog.registry import TopicRow
from headwater.log.storage.file_listing import Range
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.wake import Waker
from headwater.log.topic_declaration import DeclaredTopic
from headwater.log.topic_reader import Place, ReadOptions, check_columns, check_partitions, offsets_for

if TYPE_CHECKING:
    from headwater.kafka.kafka_log import KafkaLog
    from headwater.kafka.kafka_topic import KafkaTopic

BATCH_ROWS = 65_536
FOLLOW_S = 1.0


class KafkaTopicReader(DeclaredTopic):
    """The declaration, offsets and rows of one topic."""

    def __init__(self, log: KafkaLog, row: TopicRow) -> None:
        self.log: KafkaLog = log
        self._row = row
        self.kafka_name = log.kafka_name(row.name)
        self.values = KafkaValues(self.row, log.place)
        self._lock = threading.Lock()
        self._idle: list[RangeReader] = []
        self._kept: dict[int, list[Batch]] = {}  # of each partition what was read last, and may be asked for again

    @property
    def _topic(self) -> KafkaTopic:
        """This object, which is always a whole topic."""
        return cast("KafkaTopic", self)

    # Declaration

    def refresh(self) -> None:
        """See the declaration as it is now."""
        self._row = self.log.declared(self._row)

    def follow(self, row: TopicRow) -> None:
        """Take a newer declaration over."""
        self._row = row

    # Offsets

    @property
    def stored_names(self) -> list[str]:
        """The columns that a read without ``columns`` gives."""
        return stored_schema(self.schema, self._row).names  # type: ignore[no-any-return]

    @property
    def _numbers(self) -> range:
        return range(self.settings.partitions)

    def start_offsets(self) -> dict[int, int]:
        """The first offset that is kept, by partition."""
        return self.log.starts(self._topic)

    def end_offsets(self) -> dict[int, int]:
        """The end of what is committed, by partition."""
        return self.log.ends([self._topic])[self.name]

    def end_offset(self, partition: int) -> int:
        """The end of what is committed in one partition."""
        return self.end_offsets()[partition]

    def offsets_at(self, moment: dt.datetime) -> dict[int, int]:
        """The first offset whose message is of this moment or later, by the time of the append."""
        milliseconds = -(-to_us(moment) // 1000)
        return self.log.admin.at_time(self.kafka_name, self._numbers, milliseconds)

    def places(self, place: Place, partitions: Sequence[int]) -> dict[int, int]:
        """An offset for each partition, of "earliest", a time, a token and so on."""
        return offsets_for(self._topic, place, partitions)

    def check_bounds(self, partition: int, offset: int, end: int) -> None:
        """Refuse an offset that is before the start, or after ``end``."""
        start = self.start_offsets()[partition] if offset < end else 0
        if start <= offset <= end:
            return
        side, edge = ("before", "start") if offset < start else ("after", "end")
        raise OffsetOutOfRange(
            f'offset {offset} is {side} the {edge} of topic "{self.name}" partition {partition}',
            detail=f"The partition holds {start} up to, not including, {end}.",
            hint="Read from its start, or reset the reader's position.",
            topic=self.name,
            partition=partition,
            offset=offset,
            start=start,
            end=end,
        )

    def whole_after(self, partition: int, offset: int) -> int:
        """The offset itself: an append over several messages is seen whole, since it is a transaction."""
        del partition
        return offset

    def start_moved_us(self, partition: int) -> int | None:
        """Not known: Kafka does not say."""
        del partition
        return None

    def rows_most(self, start: Mapping[int, int], stop: Mapping[int, int]) -> int:
        """At most so many rows: as many as the messages could hold."""
        messages = sum(max(0, stop[number] - start.get(number, 0)) for number in stop)
        return messages * (1 if self.values.by_message else MESSAGE_ROWS_MAX)

    # Reading

    def read(
        self,
        start: Place = "earliest",
        *,
        stop: Place | None = None,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        timeout: Duration | None = None,
        rows_max: int | None = None,
    ) -> Iterator[Batch]:
        """Batches from ``start``, up to ``stop`` or to the end as it is now; or for ever with ``follow``."""
        self.log.check_open()
        numbers = check_partitions(self._topic, partitions)
        wanted = check_columns(self._topic, columns)
        positions, ends = self.places(start, numbers), self.end_offsets()
        stops = self.places(stop, numbers) if stop is not None else None
        for number in numbers:
            self.check_bounds(number, positions[number], ends[number])
        if not follow:
            stops = {number: min((stops or ends)[number], ends[number]) for number in numbers}
        return self._walk(positions, stops, wanted, to_timeout(timeout), rows_max)

    def _walk(
        self,
        positions: dict[int, int],
        stops: dict[int, int] | None,
        columns: list[str] | None,
        timeout: float | None,
        rows_max: int | None,
    ) -> Iterator[Batch]:
        heard = time.monotonic()
        while not self.log.closed:
            ends = stops or {number: end for number, end in self.end_offsets().items() if number in positions}
            for number, position in positions.items():
                for batch in self.read_partition(
                    number, position, stop=ends[number], columns=columns, rows_max=rows_max
                ):
                    positions[number], heard = batch.next_offset, time.monotonic()
                    if batch.num_rows:
                        yield batch
            if stops is not None and all(positions[number] >= stops[number] for number in positions):
                return
            left = FOLLOW_S if timeout is None else timeout - (time.monotonic() - heard)
            if left <= 0:
                return
            self.wait(positions, timeout=min(left, FOLLOW_S))

    def rows(self, start: Place = "earliest", **options: Unpack[ReadOptions]) -> Iterator[dict[str, Any]]:
        """The same as ``read``, row by row as dicts."""
        for batch in self.read(start, **options):
            yield from batch.to_pylist()

    def read_partition(
        self,
        partition: int,
        start: int,
        *,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        rows_max: int | None = None,
    ) -> Iterator[Batch]:
        """Batches of one partition up to ``stop`` or the end; never waits for more.

        A batch may be empty where offsets hold no message: continue at its ``next_offset``.
        """
        self.log.check_open()
        [number] = check_partitions(self._topic, [partition])
        wanted = check_columns(self._topic, columns)
        names = wanted if wanted is not None else self.stored_names
        end = self.end_offsets()[number] if stop is None else stop
        if start > end:
            self.check_bounds(number, start, end)
        for batch in self._read(number, start, end):
            yield from _cut(batch, names, rows_max)

    def read_unlocked(self, partition: int, start: int, *, stop: int, columns: Sequence[str]) -> Iterator[Batch]:
        """The same: partitions of Kafka have no locks."""
        return self.read_partition(partition, start, stop=stop, columns=columns)

    def _read(self, number: int, start: int, end: int) -> Iterator[Batch]:
        """Whole batches; those of the last range are kept, since a tick asks for a range several times."""
        kept = [each for each in self._kept.get(number, ()) if start <= each.first_offset and each.next_offset <= end]
        if kept and kept[0].first_offset == start and _version(kept[0]) == self.schema_version:
            yield from kept
            start = kept[-1].next_offset
            if start >= end:
                return
        else:
            kept = []
        reader = self._taken()
        try:
            for messages in reader.read(number, start, end):
                found = self.batch_of(number, start, messages)
                kept.append(found)
                start = found.next_offset
                yield found
            if start < end:
                found = self.batch_of(number, start, [], end)
                kept.append(found)
                yield found
            if sum(each.data.nbytes for each in kept) <= self.log.place.kept_bytes:
                self._kept[number] = kept
            else:
                self._kept.pop(number, None)
        finally:
            with self._lock:
                self._idle.append(reader)

    def batch_of(self, number: int, start: int, messages: Sequence[Any], stop: int | None = None) -> Batch:
        """Messages of one partition as rows, with every column; in a newer schema, if they have one."""
        try:
            data = self.values.batch(messages, number)
        except Exception:
            version = self.schema_version
            self.refresh()  # rows of a newer schema, perhaps
            if self.schema_version == version:
                raise
            data = self.values.batch(messages, number)
        data = data.replace_schema_metadata({"version": str(self.schema_version)})
        following = stop if stop is not None else messages[-1].offset() + 1
        return Batch(self.name, number, start, following, data, data.column("_offset").to_numpy())

    def _taken(self) -> RangeReader:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return RangeReader(self.log.place.cluster, self.kafka_name)

    def layout(self, start: Mapping[int, int], stop: Mapping[int, int]) -> Hashable:
        """A range is always the same messages."""
        return tuple(sorted(start.items())), tuple(sorted(stop.items()))

    def ranges(self, start: Mapping[int, int], stop: Mapping[int, int]) -> list[Range]:
        """One range for each partition."""
        found = [Range(number, start.get(number, 0), stop[number]) for number in sorted(stop)]
        return [each for each in found if each.start < each.stop]

    def wait(self, seen: Mapping[int, int], *, timeout: Duration) -> bool:
        """Sleep until a partition grows beyond ``seen``; False after ``timeout``."""
        deadline = self.clock.monotonic() + to_seconds(timeout, what="timeout")
        waker = self.log.waker
        while True:
            count = waker.count()
            ends = self.end_offsets()
            if any(ends[number] > offset for number, offset in seen.items()):
                return True
            left = deadline - self.clock.monotonic()
            if left <= 0 or self.log.closed:
                return False
            self.watched_by(waker)
            if waker.count() == count:
                waker.wait(count, min(left, FOLLOW_S))

    def watched_by(self, waker: Waker) -> None:
        """Let appends to this topic wake a waker."""
        self.log.wakes.watch(self.kafka_name, self.settings.partitions, waker)

    def close(self) -> None:
        """Leave the cluster. ``KafkaLog.close`` does it for all topics."""
        with self._lock:
            for reader in self._idle:
                reader.close()
            self._idle.clear()


def _version(batch: Batch) -> int:
    return int((batch.data.schema.metadata or {}).get(b"version", b"0"))


def _cut(batch: Batch, names: Sequence[str], rows_max: int | None) -> Iterator[Batch]:
    """The columns that were asked for, in batches of a bounded size; only between two offsets is one cut."""
    data = batch.data.select(list(names)).replace_schema_metadata(None)
    most = rows_max or BATCH_ROWS
    if batch.num_rows <= most:
        yield Batch(batch.topic, batch.partition, batch.first_offset, batch.next_offset, data, batch.offsets)
        return
    offsets = batch.offsets
    at, first = 0, batch.first_offset
    while at < len(offsets):
        upto = int(np.searchsorted(offsets, offsets[min(at + most, len(offsets)) - 1], side="right"))
        following = batch.next_offset if upto == len(offsets) else int(offsets[upto - 1]) + 1
        yield Batch(batch.topic, batch.partition, first, following, data.slice(at, upto - at), offsets[at:upto])
        at, first = upto, following
