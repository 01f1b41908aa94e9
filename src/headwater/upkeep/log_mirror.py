"""Mirror: the topics of one log, copied into another and kept in step.

What it is: ``LogMirror``, which declares the topics of a source in a target, copies their rows partition by partition,
and goes on with what comes.
Invariants: a batch of rows and the position behind it in the source are one transaction of the target, so a mirror that
is killed goes on where it was: nothing is missing and nothing there twice. Of two mirrors of the same topics one is
refused. ``follow`` waits for a log that does not answer, and goes on when it is back. Rows keep their columns, their
keys, deletions, event times and metadata; the rows of a key keep their order, and of a topic without a key those of a
partition. A topic that has rows of other origin is refused, and one that was promoted.
Not here: what is stored of a position, and promotion (``mirror_position.py``); comparing (``log_checksum.py``).
Read next: ``mirror_position.py``, ``log_checksum.py``; ``docs/mirror.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.backoff import Backoff
from headwater.errors import DeclarationConflict, Fenced, HeadwaterError, Unavailable, UnknownTopic
from headwater.hints import suggestion
from headwater.log.batch import Batch
from headwater.log.commits.handed_over import hand_over, take_back
from headwater.log.commits.stored_positions import PositionMoved
from headwater.log.contract import Capability, EventLog, EventTopic, EventTransaction, require
from headwater.log.home import Log
from headwater.log.schema.event_metadata import METADATA_COLUMNS
from headwater.log.schema.normalization import WEIGHT
from headwater.log.topic import Topic
from headwater.log.topic_settings import FOREVER
from headwater.upkeep.log_checksum import checksum_of, same_columns
from headwater.upkeep.mirror_position import MirrorPosition, position_name, refuse_promoted

ROWS_MAX = 20_000  # in one transaction of the target
WAIT_S = 1.0
AWAY_S_MAX = 10.0  # between two looks for a log that does not answer
STOPPING_S = 0.1
NOT_COPIED = ("archive", "captured_by")  # a place of the source's machine; and captures write for themselves


@dataclass(frozen=True)
class MirrorProgress:
    """How far the copy of one topic is: rows that were copied by this process, and offsets that are left."""

    topic: str
    rows: int
    left: int


@dataclass(frozen=True)
class TopicComparison:
    """The rows of a topic in both logs. ``equal``: the same rows, in the same order of each key or partition."""

    topic: str
    rows: int
    rows_there: int
    equal: bool

    def to_dict(self) -> dict[str, Any]:
        """The shape programs get."""
        return asdict(self)


class LogMirror:
    """A copy of one log's topics in another log.

    >>> import headwater as hw, tempfile
    >>> source, target = hw.Log(tempfile.mkdtemp()), hw.Log(tempfile.mkdtemp())
    >>> orders = source.topic("orders", "id INT, item STRING", key="id")
    >>> _ = orders.append([{"id": 1, "item": "cup"}, {"id": 2, "item": "pot"}])
    >>> _ = orders.delete([{"id": 1}])
    >>> mirror = LogMirror(source, target)
    >>> mirror.catch_up(), mirror.catch_up()
    (3, 0)
    >>> [row["id"] for row in target.get_topic("orders").rows()], mirror.compare()
    ([1, 2, 1], [TopicComparison(topic='orders', rows=3, rows_there=3, equal=True)])
    """

    def __init__(
        self,
        source: EventLog,
        target: EventLog,
        *,
        topics: Sequence[str] = (),
        on_progress: Callable[[MirrorProgress], None] | None = None,
        on_waiting: Callable[[HeadwaterError | None], None] | None = None,
        patient: bool = False,
    ) -> None:
        """``patient``: ``follow`` looks first, so that a log may be away now. It tells ``on_waiting`` of what it waits
        for, and None when that is over.
        """
        require(target, Capability.TRANSACTIONS, "a mirror")
        self.source = source
        self.target = target
        self._on_progress = on_progress
        self._on_waiting = on_waiting
        self._pairs: dict[str, _TopicCopy] = {}
        self._wanted = list(topics)
        if not patient:
            self.look()

    @property
    def _identity(self) -> str:
        return self.source.identity if isinstance(self.source, Log) else ""  # Kafka's topics have ids of their own

    def look(self) -> list[str]:
        """Declare the source's topics in the target; returns their names. Later calls find topics that came since."""
        there = self.source.topics()
        for name in self._wanted:
            if name not in {topic.name for topic in there}:
                raise UnknownTopic(
                    f'no topic "{name}" in the log at {self.source.shown}',
                    hint=suggestion(name, self.source.topic_names()),
                    topic=name,
                )
        for topic in there:
            wanted = topic.name in self._wanted if self._wanted else is_copied(topic)
            if wanted and topic.name not in self._pairs:
                self._pairs[topic.name] = _TopicCopy(topic, declared(self.target, topic), self._identity)
        return sorted(self._pairs)

    def left_out(self) -> list[str]:
        """The topics that are not copied: those of the system, and captured tables."""
        return sorted(set(self.source.topic_names()) - set(self._pairs))

    def catch_up(self, stopping: Callable[[], bool] = lambda: False) -> int:
        """Copy what the source holds now; returns how many rows."""
        copied = 0
        for copy in self._pairs.values():
            ends = copy.source.end_offsets()
            for number in ends:
                for rows in copy.catch_up(number, ends[number]):
                    copied += rows
                    if self._on_progress is not None:
                        self._on_progress(MirrorProgress(copy.source.name, copy.rows, copy.left(ends)))
                    if stopping():
                        return copied
        return copied

    def follow(self, stopping: Callable[[], bool]) -> None:
        """Copy, and go on with what comes, until ``stopping``. A log that does not answer is waited for."""
        backoff = Backoff(WAIT_S / 4, AWAY_S_MAX)
        waiting = False
        while not stopping():
            try:
                self.look()
                if waiting:
                    self._begin_again()
                copied = self.catch_up(stopping)
                if waiting:
                    waiting = False
                    backoff.reset()
                    self._told(None)
                if not copied and not stopping():
                    self._wait()
            except Unavailable as error:
                waiting = True
                self._told(error)
                deadline = self.source.clock.monotonic() + backoff.next()
                while not stopping() and self.source.clock.monotonic() < deadline:
                    self.source.clock.sleep(STOPPING_S)

    def _told(self, error: HeadwaterError | None) -> None:
        if self._on_waiting is not None:
            self._on_waiting(error)

    def _begin_again(self) -> None:
        """Ask how far the copy is: what was under way when an answer was lost may be there."""
        for copy in self._pairs.values():
            copy.find_positions()

    def _wait(self) -> None:
        """Until a topic grows, or a second is over."""
        first = next(iter(self._pairs.values()), None)
        if first is None:
            self.source.clock.sleep(WAIT_S)
        else:
            first.source.wait(first.source.end_offsets(), timeout=WAIT_S / max(1, len(self._pairs)))

    def hand_over(self, to: str) -> bool:
        """Let no process write to the source's topics any more, and copy what came before; whether that is possible.

        A log on Kafka cannot refuse what other programs write: there it is the user who stops them.
        """
        topics = self._own_topics()
        for topic in topics:
            hand_over(topic, to)
        self.catch_up()
        return bool(topics) or not self._pairs

    def take_back(self) -> None:
        """Let processes write to the source again."""
        for topic in self._own_topics():
            take_back(topic)

    def _own_topics(self) -> list[Topic]:
        return [copy.source for copy in self._pairs.values() if isinstance(copy.source, Topic)]

    def compare(self) -> list[TopicComparison]:
        """Compare both logs, up to what was copied; reads all of it."""
        found = []
        for name, copy in sorted(self._pairs.items()):
            if not same_columns(copy.source.schema, copy.target.schema):
                found.append(TopicComparison(name, -1, -1, equal=False))
                continue
            here, there = checksum_of(copy.source, copy.positions()), checksum_of(copy.target)
            found.append(TopicComparison(name, here.rows, there.rows, here == there))
        return found


class _TopicCopy:
    """One topic and its copy."""

    def __init__(self, source: EventTopic, target: EventTopic, identity: str) -> None:
        self.source = source
        self.target = target
        self.rows = 0
        self._place = f"{identity}/{source.name}/{source.id}"
        self._at: dict[int, MirrorPosition | None] = {}
        self.find_positions()
        origins = {at.source for at in self._at.values() if at is not None}
        if origins - {self._place} or (any(target.end_offsets().values()) and not origins):
            raise DeclarationConflict(
                f'topic "{target.name}" of the log at {target.log.shown} has rows, and not from this source',
                hint="Mirror into a log that has no topic of this name.",
                topic=target.name,
            )

    def find_positions(self) -> None:
        """See how far the copy is, as the target knows it."""
        log, name = self.target.log, self.target.name
        numbers = range(self.source.settings.partitions)
        self._at = {number: MirrorPosition.find(log, name, number) for number in numbers}
        for position in self._at.values():
            refuse_promoted(log, name, position)

    def positions(self) -> dict[int, int]:
        """The offset of each partition up to which it was copied."""
        starts = self.source.start_offsets()
        return {number: max(starts[number], at.offset if at else 0) for number, at in self._at.items()}

    def left(self, ends: Mapping[int, int]) -> int:
        """How many offsets are still to be copied."""
        return sum(max(0, ends[number] - at) for number, at in self.positions().items())

    def catch_up(self, number: int, end: int) -> Iterator[int]:
        """Copy one partition up to an offset; the number of rows of each transaction."""
        start = self.positions()[number]
        if start >= end:
            return
        self.source.refresh()
        if not same_columns(self.source.schema, self.target.schema):  # columns that came since
            self.target = declared(self.target.log, self.source)
        extra = [*METADATA_COLUMNS, *(["_deleted"] if self.source.settings.key else [])]
        columns = [*self.target.schema.names, *extra]
        for batch in self.source.read_partition(number, start, stop=end, columns=columns, rows_max=ROWS_MAX):
            self._copy(number, batch)
            yield batch.num_rows

    def _copy(self, number: int, batch: Batch) -> None:
        before, log, name = self._at[number], self.target.log, self.target.name
        after = MirrorPosition(self._place, batch.next_offset)
        try:
            with log.transaction() as t:
                self._rows(t, number, batch.data)
                said = None if before is None else str(before)
                t.store_position(position_name(name, number), before=said, after=str(after))
        except PositionMoved:
            there = MirrorPosition.find(log, name, number)
            refuse_promoted(log, name, there)
            # Of a commit to Kafka the answer may have been lost: then the position is where this one has put it.
            if isinstance(log, Log) or there != after:
                raise Fenced(
                    f'another process mirrors topic "{self.source.name}" to the log at {log.shown}',
                    hint="Stop one of the two.",
                ) from None
        self._at[number] = after
        self.rows += batch.num_rows

    def _rows(self, transaction: EventTransaction, number: int, data: pa.RecordBatch) -> None:
        partition = None if self.source.settings.routed_by else number
        shown = data.select([*self.target.schema.names, *_said(data)])
        if "_deleted" not in data.schema.names:
            if data.num_rows:
                transaction.append_batch(self.target, shown, partition=partition)
            return
        marks = data.column("_deleted").to_numpy(zero_copy_only=False)
        edges = [0, *(np.flatnonzero(marks[1:] != marks[:-1]) + 1).tolist(), len(marks)] if len(marks) else [0]
        for first, stop in pairwise(edges):
            part = shown.slice(first, stop - first)
            transaction.append_batch(self.target, part, deleted=bool(marks[first]), partition=partition)


def _said(data: pa.RecordBatch) -> list[str]:
    """The metadata columns, where any row has metadata."""
    told = any(data.column(name).null_count < data.num_rows for name in METADATA_COLUMNS)
    return list(METADATA_COLUMNS) if told else []


def is_copied(topic: EventTopic) -> bool:
    """Whether a mirror of all topics takes this one: not those of the system, which name offsets, nor captured tables.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> [is_copied(log.topic(name, "x INT")) for name in ("orders", "_heartbeats")]
    [True, False]
    """
    return not topic.name.startswith("_") and topic.settings.captured_by is None


def declared(log: EventLog, like: EventTopic) -> EventTopic:
    """The topic of the same name, columns and settings in another log."""
    settings = like.settings
    schema = pa.schema([field for field in like.schema if field.name != WEIGHT or not like.row().is_multiset])
    forever: dict[str, Any] = {name: getattr(settings, name) for name in FOREVER if getattr(settings, name)}
    known = log.find_topic(like.name)
    if like.row().is_multiset:
        topic = log.multiset(like.name, schema, **forever)
    else:
        topic = log.topic(like.name, schema, **forever)
    if known is None:
        names = [field.name for field in fields(settings) if field.name not in (*FOREVER, *NOT_COPIED)]
        changes = {name: getattr(settings, name) for name in names}
        if any(getattr(topic.settings, name) != value for name, value in changes.items()):
            topic.change_settings(**changes)
    return topic
