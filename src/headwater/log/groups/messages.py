"""Messages: rows that were delivered to a worker.

What it is: ``Message`` with its four answers (accept, release, reject, renew), and the reader of leased offsets.
Invariants: a message is answered once; the same answer again is harmless, another one is refused. The reader keeps one
batch per partition, since most takes continue where the last one ended.
Not here: the effect of an answer on the group (``leases.py``). Read next: ``worker.py``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.durations import Duration
from headwater.errors import Misuse, OffsetOutOfRange
from headwater.log.groups.leases import Gap, Lease
from headwater.log.schema.event_metadata import Metadata
from headwater.log.topic_reader import metadata_at

if TYPE_CHECKING:
    from headwater.log.batch import Batch
    from headwater.log.groups.worker import Worker
    from headwater.log.topic import Topic


class Message:
    """One row, leased to one worker.

    ``row`` holds the topic's columns; ``deleted`` says that it is a tombstone (keyed topics), and then only the
    key's columns have values. ``deliveries`` counts this delivery too.

    >>> import tempfile
    >>> from headwater.log.home import Log
    >>> jobs = Log(tempfile.mkdtemp()).topic("jobs", "id BIGINT", partitions=1)
    >>> _ = jobs.append([{"id": 7}])
    >>> worker = jobs.worker("runners")
    >>> [message] = worker.take()
    >>> message.release()
    >>> [again] = worker.take()
    >>> again.row, again.deliveries
    ({'id': 7}, 2)
    >>> again.accept()
    """

    __slots__ = ("_worker", "answer", "deleted", "lease", "row")

    def __init__(self, worker: Worker, lease: Lease, row: dict[str, Any], deleted: bool) -> None:
        self._worker = worker
        self.lease = lease
        self.row = row
        self.deleted = deleted
        self.answer: str | None = None

    @property
    def worker(self) -> Worker:
        """The worker that took it."""
        return self._worker

    @property
    def topic(self) -> str:
        """The topic's name."""
        return str(self._worker.topic.name)

    @property
    def partition(self) -> int:
        """The partition it is in."""
        return self.lease.partition

    @property
    def offset(self) -> int:
        """Its offset in the partition."""
        return self.lease.offset

    @property
    def deliveries(self) -> int:
        """The number of deliveries, this one included."""
        return self.lease.deliveries

    @property
    def metadata(self) -> Metadata:
        """Who wrote it and what it belongs to, read when it is asked for; give it on with what you write.

        >>> import headwater as hw, tempfile
        >>> jobs = hw.Log(tempfile.mkdtemp()).topic("jobs", "id BIGINT")
        >>> _ = jobs.append([{"id": 7}], metadata=hw.Metadata(correlation_id="basket-7"))
        >>> jobs.worker("runners").take()[0].metadata.correlation_id
        'basket-7'
        """
        return metadata_at(self._worker.topic, self.partition, self.offset)

    def accept(self) -> None:
        """Settle it as done. ``LeaseLost`` if another worker holds it by now."""
        self._worker.accept([self])

    def release(self, delay: Duration | None = None) -> None:
        """Return it to the group, after ``delay``; after the last allowed delivery it becomes a dead letter."""
        self._worker.release([self], delay)

    def reject(self, reason: str) -> None:
        """Give it up: it becomes a dead letter."""
        self._worker.reject([self], reason)

    def renew(self, lease: Duration | None = None) -> None:
        """Keep it for another ``lease`` from now."""
        self._worker.renew([self], lease)

    def unanswered(self, answer: str) -> bool:
        """Whether ``answer`` is still to be given; refuses one that contradicts an earlier answer."""
        if self.answer is not None and self.answer != answer:
            raise Misuse(
                f"{self!r} cannot be {answer}: it was {self.answer} already",
                topic=self.topic,
                partition=self.partition,
                offset=self.offset,
            )
        return self.answer is None

    def __repr__(self) -> str:
        return f"<Message {self.topic}[{self.partition}]@{self.offset}, delivery {self.deliveries}>"


class MessageReader:
    """Finds the rows of leased offsets."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._batches: dict[int, Batch] = {}

    def read(
        self, leases: Sequence[Lease], ends: Mapping[int, int]
    ) -> tuple[dict[tuple[int, int], tuple[dict[str, Any], bool]], list[Gap]]:
        """The row and tombstone mark by (partition, offset), and the gaps."""
        found: dict[tuple[int, int], tuple[dict[str, Any], bool]] = {}
        gaps: list[Gap] = []
        by_partition: dict[int, dict[int, int]] = {}
        for lease in leases:
            by_partition.setdefault(lease.partition, {})[lease.offset] = lease.number
        for partition, numbers in by_partition.items():
            gaps += self._read_partition(partition, numbers, ends[partition], found)
        return found, gaps

    def _read_partition(
        self,
        partition: int,
        numbers: dict[int, int],
        end: int,
        found: dict[tuple[int, int], tuple[dict[str, Any], bool]],
    ) -> list[Gap]:
        gaps: list[Gap] = []

        def gap(missing: Sequence[int], next_row: int, *, retained_out: bool = False) -> None:
            pairs = tuple((offset, numbers[offset]) for offset in missing)
            gaps.append(Gap(partition, pairs, next_row, retained_out))

        offsets = sorted(numbers)
        done = 0
        while done < len(offsets):
            try:
                batch = self._batch(partition, offsets[done])
            except OffsetOutOfRange:
                start = self._topic.start_offsets()[partition]
                behind = bisect_left(offsets, start, done)
                if behind == done:  # not retention: the error is about something else
                    raise
                gap(offsets[done:behind], start, retained_out=True)
                done = behind
                continue
            if batch is None:
                gap(offsets[done:], end)
                break
            behind = bisect_left(offsets, batch.next_offset, done)
            missing = self._pick(batch, offsets[done:behind], found)
            if missing:
                after = int(np.searchsorted(batch.offsets, missing[-1], side="right"))
                next_row = int(batch.offsets[after]) if after < len(batch.offsets) else batch.next_offset
                gap(missing, next_row)
            done = behind
        return gaps

    def _pick(
        self, batch: Batch, wanted: list[int], found: dict[tuple[int, int], tuple[dict[str, Any], bool]]
    ) -> list[int]:
        """Put the wanted rows of a batch into ``found``; returns the offsets it does not have."""
        first, last = wanted[0] - batch.first_offset, wanted[-1] - batch.first_offset
        in_a_row = last - first + 1 == len(wanted)
        missing: list[int] = []
        if batch.next_offset - batch.first_offset == batch.num_rows and first >= 0:  # no gaps: offsets are places
            places = [offset - batch.first_offset for offset in wanted]
        else:
            have = batch.offsets
            hits = [(offset, int(place)) for offset, place in zip(wanted, np.searchsorted(have, wanted), strict=True)]
            there = {offset: place for offset, place in hits if place < len(have) and have[place] == offset}
            missing = [offset for offset in wanted if offset not in there]
            wanted, places, in_a_row = list(there), list(there.values()), False
        if wanted:
            part = batch.data.slice(first, len(wanted)) if in_a_row else batch.data.take(pa.array(places))
            for offset, row in zip(wanted, part.to_pylist(), strict=True):
                found[batch.partition, offset] = (row, bool(row.pop("_deleted", False)))
        return missing

    def _batch(self, partition: int, offset: int) -> Batch | None:
        batch = self._batches.get(partition)
        if batch is None or not batch.first_offset <= offset < batch.next_offset:
            columns = [*self._topic.schema.names, "_deleted"] if self._topic.settings.key else None
            batch = next(iter(self._topic.read_partition(partition, offset, columns=columns)), None)
            if batch is None:
                self._batches.pop(partition, None)
            else:
                self._batches[partition] = batch
        return batch
