"""What was sent to a topic, what was acknowledged, and whether the topic agrees.

What it is: ``Ledger``, the book that every crash test keeps beside the log, with the one check they all share.
Invariants: each row is known by its number ``n``, which is used once. An acknowledged row is in the log exactly once;
one that was not acknowledged is there with all its batch (as far as it goes to the same partition) or not at all; rows
of a partition are in the order they were sent; offsets have no gaps.
Not here: the crashes.
Read next: ``test_every_boundary.py``.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.log.home import Log
from headwater.log.storage import routing
from headwater.log.topic import Topic


class QuietLog(Log):
    """A log without background threads, so that a crash happens at the same place every time."""

    def mark_dirty(self, partition: Any) -> None:
        """The workload syncs by itself."""

    def wake_maintenance(self) -> None:
        """The workload seals by itself."""

    def abandon(self) -> None:
        """Let go of everything as a dead process does: descriptors and locks go, nothing is written."""
        for topic in self._topics.values():
            topic.close()
        self.waker.close()
        self.catalog.close()
        self.closed = True


@dataclass
class Sent:
    """One append."""

    numbers: list[int]
    by_partition: dict[int, list[int]]
    producer: str | None = None
    sequence: int | None = None
    acknowledged: bool = False


@dataclass
class Ledger:
    """Appends to one topic through ``append`` and ``delete``; judges it with ``verify``."""

    sent: list[Sent] = field(default_factory=list)
    counter: Any = field(default_factory=itertools.count)

    def append(self, topic: Topic, rows: int, *, producer: str | None = None, sequence: int | None = None) -> Sent:
        numbers = [next(self.counter) for _ in range(rows)]
        one = self._note(topic, numbers, producer, sequence)
        topic.append(self.rows_of(topic, numbers), producer=producer, sequence=sequence)
        one.acknowledged = True
        return one

    def again(self, topic: Topic, one: Sent) -> None:
        """Try the same append again, as a producer does that never heard of its success."""
        topic.append(self.rows_of(topic, one.numbers), producer=one.producer, sequence=one.sequence)
        one.acknowledged = True

    def delete(self, topic: Topic, rows: int) -> None:
        numbers = [next(self.counter) for _ in range(rows)]
        one = self._note(topic, numbers, None, None)
        topic.delete([{"n": n} for n in numbers])
        one.acknowledged = True

    @staticmethod
    def rows_of(topic: Topic, numbers: list[int]) -> list[dict[str, Any]]:
        extra = {name: "later" for name in topic.schema.names if name.startswith("extra")}
        return [{"n": n, "text": text_of(n), **extra} for n in numbers]

    def _note(self, topic: Topic, numbers: list[int], producer: str | None, sequence: int | None) -> Sent:
        by_partition: dict[int, list[int]] = {}
        batch = pa.record_batch({"n": pa.array(numbers, pa.int64())})
        targets = routing.partition_of(batch, ["n"], topic.settings.partitions).tolist()
        for n, target in zip(numbers, targets, strict=True):
            by_partition.setdefault(target, []).append(n)
        one = Sent(numbers, by_partition, producer, sequence)
        self.sent.append(one)
        return one

    def verify(self, topic: Topic, *, acknowledged_may_be_lost: bool = False) -> dict[int, list[int]]:
        """Compare the topic with the book; returns the numbers found, by partition."""
        found: dict[int, list[int]] = {}
        for partition in range(topic.settings.partitions):
            rows = read_rows(topic, partition)
            found[partition] = [row["n"] for row in rows]
            assert [row["_offset"] for row in rows] == list(range(len(rows))), "offsets have a gap"
            for row in rows:
                assert row["_deleted"] or row["text"] == text_of(row["n"]), f"wrong row {row}"
            self._verify_partition(partition, found[partition], acknowledged_may_be_lost)
        assert topic.end_offsets() == {partition: len(numbers) for partition, numbers in found.items()}
        if not acknowledged_may_be_lost:  # without syncs, a power cut may take one partition's part
            self._verify_wholeness({n for numbers in found.values() for n in numbers})
        return found

    def _verify_wholeness(self, found: set[int]) -> None:
        """An append is there in all of its partitions or in none."""
        for one in self.sent:
            parts = {partition: set(numbers) <= found for partition, numbers in one.by_partition.items()}
            assert len(set(parts.values())) <= 1, f"an append is there in some partitions only: {parts}"

    def _verify_partition(self, partition: int, numbers: list[int], may_be_lost: bool) -> None:
        # Walk the book in the order of sending; each batch must come next, whole, or be absent.
        at, missing = 0, []
        for one in self.sent:
            mine = one.by_partition.get(partition, [])
            if not mine:
                continue
            if numbers[at : at + len(mine)] == mine:
                assert not missing, f"{mine} survived, but {missing}, sent before, did not"
                at += len(mine)
            elif one.acknowledged:
                missing.append(mine)
                assert may_be_lost, f"acknowledged rows {mine} are not at {at} in {numbers}"
        assert at == len(numbers), f"rows nobody sent, or twice, or torn: {numbers[at:]}"


def text_of(n: int) -> str:
    """A text that belongs to one row only, so that a mix-up shows."""
    return f"row {n} " + "x" * (n % 50)


def read_rows(topic: Topic, partition: int) -> list[dict[str, Any]]:
    """All rows of a partition, with their offsets."""
    columns = ["_offset", "_deleted", "n", "text"]
    return [row for batch in topic.read_partition(partition, 0, columns=columns) for row in batch.to_pylist()]


def many(count: int) -> int:
    """A number of repetitions, larger when HEADWATER_THOROUGH says so (a factor)."""
    return count * int(os.environ.get("HEADWATER_THOROUGH", "1"))
