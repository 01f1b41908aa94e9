"""Topic reader: rows of all partitions from a given position.

What it is: resolving "earliest", an offset, a time or a token to an offset per partition, and reading the partitions
round-robin, waiting at the end to be woken.
Invariants: rows of a partition come in offset order, each once, and no batch ends inside an append; between partitions
there is no order, and none waits for another; without ``follow`` the end is the one at the start of the read.
Not here: one partition (``log/storage/partition_reader.py``), groups (``log/groups/consumer.py``,
``log/groups/worker.py``). Read next: ``log/storage/wake.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypedDict

from headwater.durations import Duration, to_seconds
from headwater.errors import InvalidDeclaration, NotYetCovered, OffsetOutOfRange
from headwater.log.batch import Batch
from headwater.log.schema.event_metadata import METADATA_COLUMNS, Metadata
from headwater.log.storage.partition_reader import BATCH_ROWS, PartitionReader
from headwater.log.token import Token

if TYPE_CHECKING:
    from headwater.log.contract import EventLog, EventTopic
    from headwater.log.topic import Topic
    from headwater.log.topic_partitions import TopicPartitions

Place = str | int | dt.datetime | Mapping[int, int] | Token
TURN_ROWS = 4 * BATCH_ROWS
WAIT_S = 60.0  # a follower without a time-out checks at this interval even if it is not woken


class ReadOptions(TypedDict, total=False):
    """What ``Topic.rows`` takes by keyword: what ``Topic.read`` does.

    >>> options: ReadOptions = {"columns": ["x"], "rows_max": 100}
    """

    stop: Place | None
    partitions: Sequence[int] | None
    columns: Sequence[str] | None
    follow: bool
    timeout: Duration | None
    rows_max: int | None


def offsets_for(topic: EventTopic, place: Place, partitions: Sequence[int]) -> dict[int, int]:
    """An offset for each partition. Reading from a token continues after the rows it contains."""
    if isinstance(place, Token):
        place = place.frontier.get(topic.name, {})
        starts = topic.start_offsets()
        return {p: place.get(p, starts[p]) for p in partitions}
    if isinstance(place, Mapping):
        starts = topic.start_offsets()
        unknown = sorted(p for p in place if p not in starts)
        if unknown:
            raise InvalidDeclaration(
                f'topic "{topic.name}" has no partition {unknown[0]}', hint=f"It has 0 to {len(starts) - 1}."
            )
        return {p: place.get(p, starts[p]) for p in partitions}
    if isinstance(place, bool):
        raise InvalidDeclaration(f"cannot read from {place!r}")
    if isinstance(place, int):
        return dict.fromkeys(partitions, place)
    if isinstance(place, dt.datetime):
        found = topic.offsets_at(place)
        return {p: found[p] for p in partitions}
    if place in ("earliest", "latest"):
        found = topic.start_offsets() if place == "earliest" else topic.end_offsets()
        return {p: found[p] for p in partitions}
    raise InvalidDeclaration(
        f"cannot read from {place!r}",
        hint='Use "earliest", "latest", an offset, {partition: offset}, a datetime, or a token.',
    )


def check_partitions(topic: EventTopic, partitions: Sequence[int] | None) -> list[int]:
    """The partitions to read; all when None."""
    everything = list(range(topic.settings.partitions))
    if partitions is None:
        return everything
    for number in partitions:
        if number not in everything:
            raise InvalidDeclaration(
                f'topic "{topic.name}" has no partition {number}', hint=f"It has 0 to {everything[-1]}."
            )
    return list(partitions)


def check_columns(topic: EventTopic, columns: Sequence[str] | None) -> list[str] | None:
    """The columns to read, known ones only."""
    if columns is None:
        return None
    marks = ["_deleted"] if topic.settings.key else []
    known = [*topic.schema.names, "_offset", "_partition", "_appended_at", "_producer", *METADATA_COLUMNS, *marks]
    for name in columns:
        if name not in known:
            raise InvalidDeclaration(
                f'topic "{topic.name}" has no column "{name}"', hint="It has " + ", ".join(known) + "."
            )
    return list(columns)


class IdleReaders:
    """The readers of a topic's partitions that wait for their next use, one for each partition.

    A reader knows the frames of the active segment. A new one would read the whole index again, at each poll and each
    tick: 0.3 ms for a thousand small appends, and it grows with them.
    """

    def __init__(self) -> None:
        self._idle: dict[int, PartitionReader] = {}

    def take(self, topic: TopicPartitions, number: int) -> PartitionReader:
        """A reader for one caller alone. Taking and giving back need no lock: each is one step of a dict."""
        return self._idle.pop(number, None) or topic.new_reader(number)

    def give_back(self, reader: PartitionReader) -> None:
        """Keep it for the next one; of two that were in use at once the second is closed."""
        if self._idle.setdefault(reader.number, reader) is not reader:
            reader.close()

    def close(self) -> None:
        for number in list(self._idle):
            self._idle.pop(number).close()


def read_partition(
    topic: Topic,
    idle: IdleReaders,
    partition: int,
    start: int,
    stop: int | None,
    columns: Sequence[str] | None,
    rows_max: int | None,
) -> Iterator[Batch]:
    """See ``Topic.read_partition``."""
    [number] = check_partitions(topic, [partition])
    wanted = check_columns(topic, columns)
    reader = idle.take(topic, number)
    try:
        end = reader.end_offset()
        reader.check_bounds(start, end)
        yield from reader.read(start, end if stop is None else min(stop, end), wanted, rows_max or BATCH_ROWS)
    finally:
        idle.give_back(reader)


def wait_for(log: EventLog, token: Token | str, timeout: Duration, *, who: str, hint: str) -> None:
    """Wait until a log holds what a token names; see ``Log.wait_for``. ``who`` is the log in the error's sentence."""
    wanted = Token.parse(token) if isinstance(token, str) else token
    seconds = to_seconds(timeout, what="timeout")
    deadline = log.clock.monotonic() + seconds
    for name, offsets in wanted.frontier.items():
        topic = log.get_topic(name)
        for partition, offset in offsets.items():
            left = deadline - log.clock.monotonic()
            if offset > 0 and not topic.wait({partition: offset - 1}, timeout=max(0.0, left)):
                raise NotYetCovered(
                    f"{who} has not got {wanted} after {seconds:g} s",
                    detail=f"Its topic {name} ends at {topic.end_offsets()}.",
                    hint=hint,
                    topic=name,
                )


def last_rows(topic: EventTopic, partition: int, stop: int, columns: Sequence[str] | None = None) -> list[Batch]:
    """The last rows before an offset: one, or those that share an offset. None where nothing is kept.

    >>> import headwater as hw, tempfile
    >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT")
    >>> _ = topic.append([{"x": n} for n in range(5)])
    >>> [batch.to_pylist() for batch in last_rows(topic, 0, 4)]
    [[{'x': 3}]]
    """
    start, span = topic.start_offsets()[partition], 1
    while start < stop:  # the offsets of some logs have holes
        low = max(start, stop - span)
        found = [each for each in topic.read_partition(partition, low, stop=stop, columns=columns) if each.num_rows]
        if found or low == start:
            return found[-1:]
        span *= 4
    return []


def metadata_at(topic: EventTopic, partition: int, offset: int) -> Metadata:
    """What was said about one record; nothing where retention or compaction has removed it.

    >>> import headwater as hw, tempfile
    >>> orders = hw.Log(tempfile.mkdtemp()).topic("orders", "order_id BIGINT")
    >>> _ = orders.append([{"order_id": 1}], metadata=hw.Metadata(actor="anna"))
    >>> metadata_at(orders, 0, 0).actor
    'anna'
    """
    with suppress(OffsetOutOfRange):
        for batch in topic.read_partition(partition, offset, stop=offset + 1, columns=METADATA_COLUMNS):
            for row in batch.to_pylist():
                return Metadata(*(row[name] for name in METADATA_COLUMNS))
    return Metadata()


def read(
    topic: Topic,
    start: Place,
    stop: Place | None,
    partitions: Sequence[int] | None,
    columns: Sequence[str] | None,
    *,
    follow: bool,
    timeout: float | None,
    rows_max: int | None,
) -> Iterator[Batch]:
    """See ``Topic.read``. The arguments are checked before the first batch is requested."""
    numbers = check_partitions(topic, partitions)
    wanted = check_columns(topic, columns)
    positions = offsets_for(topic, start, numbers)
    ends = topic.end_offsets()
    stops = offsets_for(topic, stop, numbers) if stop is not None else None
    for number in numbers:
        topic.reader(number).check_bounds(positions[number], ends[number])
    if stops is None and not follow:
        stops = {number: ends[number] for number in numbers}
    elif stops is not None and not follow:
        stops = {number: min(stops[number], ends[number]) for number in numbers}
    return _walk(topic, positions, stops, wanted, timeout, rows_max or BATCH_ROWS)


def _walk(
    topic: Topic,
    positions: dict[int, int],
    stops: dict[int, int] | None,
    columns: list[str] | None,
    timeout: float | None,
    rows_max: int,
) -> Iterator[Batch]:
    readers = {number: topic.new_reader(number) for number in positions}
    clock = topic.clock
    deadline = None if timeout is None else clock.monotonic() + timeout
    try:
        while True:
            moved = False
            for number, reader in readers.items():
                end = reader.end_offset()
                if stops is not None:
                    end = min(end, stops[number])
                if positions[number] >= end:
                    continue
                moved = True
                # One turn is at most a few batches, so that a long partition does not starve the others.
                until = end if len(readers) == 1 else positions[number] + TURN_ROWS
                for batch in reader.read(positions[number], end, columns, rows_max):
                    positions[number] = batch.next_offset
                    if batch.num_rows:
                        yield batch
                    if positions[number] >= until:
                        break
                else:
                    positions[number] = end
            if stops is not None and all(positions[number] >= stops[number] for number in positions):
                return
            if moved:
                deadline = None if timeout is None else clock.monotonic() + timeout
                continue
            left = WAIT_S if deadline is None else deadline - clock.monotonic()
            if left <= 0:
                return
            topic.wait(positions, timeout=min(left, WAIT_S))
            if topic.log.closed:
                return
    finally:
        for reader in readers.values():
            reader.close()
