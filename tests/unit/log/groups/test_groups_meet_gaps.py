"""Groups on partitions whose rows are partly gone, by compaction or by retention."""

import pytest

from headwater.errors import OffsetOutOfRange
from headwater.log.maintenance.compaction import compact_partition

GRACE_S = 60
REPLACED = -1


def compacted(log, clock, keys, *, deleted=()):
    """A partition with a row for each key in turn, of which only the latest of each key is left.

    Keys in ``deleted`` get a tombstone at the end, and that is gone as well.
    """
    topic = log.topic("users", "id BIGINT", key="id", compact=True, partitions=1, tombstone_grace=GRACE_S)
    topic.append([{"id": key} for key in keys])
    if deleted:
        topic.delete([{"id": key} for key in deleted])
    topic.partition(0).roll()
    clock.advance(GRACE_S)
    compact_partition(topic, 0, force=True)
    return topic


def retained(log, clock):
    """A topic of a hundred rows, and what to call to make retention take the first forty."""
    topic = log.topic("events", "id BIGINT", partitions=1, retention="1 second")
    topic.append([{"id": n} for n in range(40)])
    topic.partition(0).roll()

    def retain():
        clock.advance(2)
        topic.append([{"id": n} for n in range(40, 100)])
        log.maintain()
        assert topic.start_offsets() == {0: 40}

    return topic, retain


def test_a_worker_skips_compacted_offsets(log, clock):
    topic = compacted(log, clock, [n if n % 3 == 0 else REPLACED for n in range(100)])
    worker = topic.worker("g")

    taken = []
    while messages := worker.take(7, timeout=0):
        taken += [message.offset for message in messages]
        worker.accept(messages)

    assert taken == [*range(0, 98, 3), 98, 99]
    assert topic.group("g").positions() == {0: 100}


def test_a_worker_jumps_over_a_long_gap_at_once(log, clock):
    topic = compacted(log, clock, [0, *[REPLACED] * 1000, 1])
    worker = topic.worker("g")

    messages = worker.take(2, timeout=0) + worker.take(2, timeout=0)

    assert [message.offset for message in messages] == [0, 1000, 1001]
    assert log.catalog.read("SELECT lease FROM work_groups")[0][0] <= 3


def test_groups_pass_an_end_where_nothing_is_left(log, clock):
    topic = compacted(log, clock, range(100), deleted=range(5, 100))
    worker, consumer = topic.worker("w"), topic.consumer("c", rows_max=10, background=False)

    taken = []
    while messages := worker.take(10, timeout=0):
        taken += [message.row["id"] for message in messages]
        worker.accept(messages)
    batches = list(iter(lambda: consumer.poll(timeout=0), None))
    consumer.commit()

    assert taken == [row["id"] for batch in batches for row in batch.to_pylist()] == [0, 1, 2, 3, 4]
    assert [group.describe().lag_total for group in topic.groups()] == [0, 0]


def test_a_worker_skips_and_counts_what_retention_took_first(log, clock):
    topic, retain = retained(log, clock)
    with topic.worker("g") as worker:
        worker.take(10)
    retain()

    messages = topic.worker("g").take(20, timeout=0)

    assert [message.offset for message in messages] == list(range(40, 60))
    description = topic.group("g").describe()
    assert (description.missed, description.positions) == (40, {0: 40})


def test_a_consumer_behind_the_start_is_told_the_way_out(log, clock):
    topic, retain = retained(log, clock)
    consumer = topic.consumer("g", background=False)
    retain()

    with pytest.raises(OffsetOutOfRange) as caught:
        consumer.poll(timeout=0)

    assert "offset 0 of group g is before the start" in caught.value.message
    assert caught.value.hint == "Reset with: headwater group reset g --topic events --to earliest"
    consumer.close()
    topic.group("g").reset("earliest")
    assert topic.consumer("g", background=False).poll(timeout=0).first_offset == 40
