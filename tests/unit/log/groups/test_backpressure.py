"""Overflow: what an append does when a group is too far behind."""

from __future__ import annotations

import threading

import pytest

from headwater.errors import Backpressure
from headwater.log.home import Log


@pytest.fixture
def home(tmp_path):
    with Log(tmp_path / "home") as log:
        yield log


def rows(count):
    return [{"x": x} for x in range(count)]


def behind(topic):
    """A group that has joined and reads nothing."""
    consumer = topic.consumer("slow")
    consumer.poll(timeout=0)
    consumer.commit({0: 0})
    return consumer


def test_keep_takes_everything(home):
    topic = home.topic("t", "x INT")
    with behind(topic):
        for _ in range(5):
            topic.append(rows(100))

    assert topic.end_offsets() == {0: 500}


def test_drop_takes_a_batch_or_leaves_it_whole_and_counts(home):
    topic = home.topic("t", "x INT", overflow="drop", overflow_rows_max=100)
    topic.append(rows(1))
    with behind(topic) as consumer:
        first = topic.append(rows(99))
        second = topic.append(rows(30))
        consumer.commit({0: 50})
        third = topic.append(rows(30))

    assert (first.dropped_rows, second.dropped_rows, third.dropped_rows) == (0, 30, 0)
    assert topic.end_offsets() == {0: 130}
    assert topic.describe()["dropped_rows"] == 30


def test_block_waits_until_the_group_has_caught_up(home):
    topic = home.topic("t", "x INT", overflow="block", overflow_rows_max=10)
    topic.append(rows(10))
    with behind(topic) as consumer:
        writer = threading.Thread(target=lambda: topic.append(rows(5)))
        writer.start()
        writer.join(timeout=0.05)
        assert writer.is_alive()
        assert topic.end_offsets() == {0: 10}

        consumer.commit({0: 10})
        writer.join(timeout=30)

    assert topic.end_offsets() == {0: 15}


def test_block_gives_up_after_its_time_and_says_who_is_behind(home):
    topic = home.topic("t", "x INT", overflow="block", overflow_rows_max=10, block_timeout="20 ms")
    topic.append(rows(10))
    with behind(topic), pytest.raises(Backpressure, match='group "slow" is 10 rows behind, 10 are allowed') as refused:
        topic.append(rows(5))

    assert "nothing of this batch was written" in refused.value.detail
    assert "Add consumers" in refused.value.hint
    assert topic.end_offsets() == {0: 10}


@pytest.mark.parametrize("overflow", ["drop", "block"])
def test_without_a_group_there_is_nobody_to_outrun(home, overflow):
    topic = home.topic("t", "x INT", overflow=overflow, overflow_rows_max=10)

    topic.append(rows(1000))
    topic.append(rows(1000))

    assert topic.end_offsets() == {0: 2000}
