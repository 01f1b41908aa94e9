"""Groups on partitions whose rows are partly gone, by compaction or by retention."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import OffsetOutOfRange


@pytest.fixture
def topic(log):
    topic = log.topic("users", "id BIGINT", partitions=1)
    topic.append([{"id": n} for n in range(100)])
    return topic


def compact(topic, monkeypatch, keep):
    """Reading shows what it shows after compaction: offsets as they were, and only some of the rows."""
    read = topic.read_partition

    def read_compacted(*arguments, **options):
        for batch in read(*arguments, **options):
            left = np.array([place for place, offset in enumerate(batch.offsets) if keep(offset)], dtype=np.int64)
            yield dataclasses.replace(batch, data=batch.data.take(pa.array(left)), _offsets=batch.offsets[left])

    monkeypatch.setattr(topic, "read_partition", read_compacted)


def retain_from(topic, start):
    """Retention has moved the start."""
    with topic.log.catalog.write() as db:
        db.execute("UPDATE partitions SET start_offset = ? WHERE topic_id = ?", (start, topic.id))


def test_a_worker_skips_compacted_offsets(topic, monkeypatch):
    compact(topic, monkeypatch, keep=lambda offset: offset % 3 == 0)
    worker = topic.worker("g")

    taken = []
    while messages := worker.take(7, timeout=0):
        taken += [message.offset for message in messages]
        worker.accept(messages)

    assert taken == list(range(0, 100, 3))
    assert topic.group("g").positions() == {0: 100}


def test_a_worker_jumps_over_a_long_gap_at_once(topic, monkeypatch):
    compact(topic, monkeypatch, keep=lambda offset: offset in (0, 90))
    worker = topic.worker("g")

    messages = worker.take(2, timeout=0) + worker.take(2, timeout=0)

    assert [message.offset for message in messages] == [0, 90]
    assert topic.log.catalog.read("SELECT lease FROM work_groups")[0][0] <= 3


def test_a_worker_passes_an_end_where_nothing_is_left(topic, monkeypatch):
    compact(topic, monkeypatch, keep=lambda offset: offset < 5)
    worker = topic.worker("g")

    worker.accept(worker.take(10, timeout=0))

    assert worker.take(timeout=0) == []
    assert topic.group("g").describe().lag_total == 0


def test_a_consumer_passes_gaps_and_an_empty_end(topic, monkeypatch):
    compact(topic, monkeypatch, keep=lambda offset: 20 <= offset < 25)
    consumer = topic.consumer("g", rows_max=10, background=False)

    batches = list(iter(lambda: consumer.poll(timeout=0), None))
    consumer.commit()

    assert [row["id"] for batch in batches for row in batch.to_pylist()] == [20, 21, 22, 23, 24]
    assert topic.group("g").describe().lag_total == 0


def test_a_worker_skips_and_counts_what_retention_took_first(topic):
    worker = topic.worker("g")
    worker.take(10)
    worker.close()
    retain_from(topic, 40)

    messages = topic.worker("g").take(20, timeout=0)

    assert [message.offset for message in messages] == list(range(40, 60))
    description = topic.group("g").describe()
    assert (description.missed, description.positions) == (40, {0: 40})


def test_a_consumer_behind_the_start_is_told_the_way_out(topic):
    consumer = topic.consumer("g", background=False)
    retain_from(topic, 40)

    with pytest.raises(OffsetOutOfRange) as caught:
        consumer.poll(timeout=0)

    assert "offset 0 of group g is before the start" in caught.value.message
    assert caught.value.hint == "Reset with: headwater group reset g --topic users --to earliest"
    consumer.close()
    topic.group("g").reset("earliest")
    assert topic.consumer("g", background=False).poll(timeout=0).first_offset == 40
