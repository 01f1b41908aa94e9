"""Receipts: what the topic holds is known, whoever wrote it, and read once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.inlets.counters import CounterStore
from headwater.inlets.dedup_window import DedupWindow
from headwater.inlets.ingest import IncomingMessage, Ingest, Ingested
from headwater.log.home import Log
from headwater.log.topic import Topic


@pytest.fixture
def topic(log: Log) -> Topic:
    return log.topic("hooks", "x INT, id STRING", partitions=2)


def known(dedup_window: DedupWindow, *ids: str) -> list[bool]:
    with dedup_window.claimed(ids):
        return [dedup_window.has(one) for one in ids]


def test_what_another_process_wrote_is_known(log: Log, topic: Topic) -> None:
    dedup_window = DedupWindow(topic, "id")
    before = known(dedup_window, "a")

    with Log(log.home) as other:
        other.get_topic("hooks").append([{"x": 1, "id": "a"}, {"x": 2, "id": None}])

    assert before == [False]
    assert known(dedup_window, "a", "b") == [True, False]


def test_each_row_is_read_once(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    dedup_window = DedupWindow(topic, "id")
    asked: list[tuple[int, int]] = []
    reader = topic.reader(0)
    read = reader.read

    def watched(start: int, stop: int, *rest: Any) -> Iterator[Any]:
        asked.append((start, stop))
        return read(start, stop, *rest)

    monkeypatch.setattr(reader, "read", watched)
    for number in range(10):
        topic.append_batch(topic.json_batch([{"x": number, "id": str(number)}]))
        assert known(dedup_window, str(number)) == [True]

    assert [stop - start for start, stop in asked] == [1] * 5  # the other five are in the other partition
    assert [start for start, _ in asked] == list(range(5))


def test_sealed_rows_are_remembered_too(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        small = log.topic("small", "x INT, id STRING", segment_bytes_max=4096)
        for number in range(50):
            small.append([{"x": number, "id": f"message {number} " + "." * 200}])
        log.maintain()

        dedup_window = DedupWindow(small, "id", window=40)

        found = known(dedup_window, *(f"message {number} " + "." * 200 for number in range(50)))
    assert found == [False] * 10 + [True] * 40


def test_an_id_that_is_claimed_is_free_again_after_a_failure(topic: Topic) -> None:
    dedup_window = DedupWindow(topic, "id")

    with pytest.raises(RuntimeError), dedup_window.claimed(["a"]):
        raise RuntimeError("the append failed")

    assert known(dedup_window, "a") == [False]


def test_a_message_that_comes_twice_at_once_is_written_once(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest = Ingest(topic, CounterStore(topic.log, "", "hooks"), id_column="id")
    append, both = topic.append_batch, threading.Barrier(2)

    def at_once(batch: Any) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.5)  # were both let in, they would meet here, and both would write
        return append(batch)

    monkeypatch.setattr(topic, "append_batch", at_once)
    taken: list[Ingested] = []
    senders = [
        threading.Thread(target=lambda: taken.append(ingest.take([IncomingMessage(({"x": 1},), id="a")])))
        for _ in range(2)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()

    assert sorted((one.appended_rows, one.repeated) for one in taken) == [(0, 1), (1, 0)]
    assert sum(topic.end_offsets().values()) == 1
