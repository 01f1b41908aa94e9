"""The buffered producer: order, lingering, errors that surface, numbers that make a retry harmless, fencing."""

from __future__ import annotations

import threading
import time

import pytest

from headwater.errors import ClosedError, DiskFull, Fenced, RowRefused
from headwater.log.home import Log
from headwater.log.storage.files import Files


class FullFor(Files):
    """A disk that is full for the next few appends to one partition."""

    def __init__(self) -> None:
        self.refusals = 0

    def write(self, fd, parts, *, label):
        if self.refusals and label == "append.write_data":
            self.refusals -= 1
            if not self.refusals:
                raise DiskFull("no space left on the disk for: this test")
        return super().write(fd, parts, label=label)


@pytest.fixture
def topic(tmp_path):
    with Log(tmp_path / "home") as log:
        yield log.topic("t", "x BIGINT")


def flush_for_a_while(producer):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        producer.flush()


def values(topic):
    return [row["x"] for row in topic.rows()]


def test_rows_are_written_in_the_order_they_were_sent(topic):
    with topic.producer(batch_rows=7, linger=60) as producer:
        for x in range(40):
            producer.send({"x": x})

    assert values(topic) == list(range(40))


def test_a_full_buffer_is_written_at_once_and_the_rest_by_flush(topic):
    producer = topic.producer(batch_rows=3, linger=60)
    for x in range(4):
        producer.send({"x": x})
    before = topic.end_offsets()

    token = producer.flush()

    assert before == {0: 3}
    assert token.frontier == {"t": {0: 4}}


def test_a_row_is_written_after_the_linger_without_anybody_asking(topic):
    producer = topic.producer(linger=0.001)
    producer.send({"x": 1})

    deadline = time.monotonic() + 30
    while topic.end_offsets() != {0: 1} and time.monotonic() < deadline:
        time.sleep(0.001)

    assert topic.end_offsets() == {0: 1}


def test_no_row_is_lost_between_the_sender_and_the_lingering_thread(topic):
    producer = topic.producer(batch_rows=1_000_000, linger=0.0001)
    senders = [
        threading.Thread(target=lambda first=first: [producer.send({"x": first + n}) for n in range(3000)])
        for first in (0, 1_000_000)
    ]

    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    producer.close()

    rows = values(topic)
    assert len(rows) == 6000
    assert [x for x in rows if x < 1_000_000] == list(range(3000))
    assert [x for x in rows if x >= 1_000_000] == list(range(1_000_000, 1_003_000))


def test_a_row_that_does_not_fit_is_told_to_the_next_caller(topic):
    producer = topic.producer(linger=0.001)
    producer.send({"x": "not a number"})

    with pytest.raises(RowRefused, match="x"):
        flush_for_a_while(producer)
    producer.send({"x": 1})
    producer.close()

    assert values(topic) == [1]


def test_a_batch_that_failed_half_way_is_finished_before_the_next_and_not_doubled(tmp_path):
    files = FullFor()
    with Log(tmp_path / "home", files=files) as log:
        topic = log.topic("t", "x BIGINT", key="x", partitions=2)
        producer = topic.producer("importer", linger=60)
        for x in range(10):
            producer.send({"x": x})

        files.refusals = 2  # the first partition's part is written, the second's is not
        with pytest.raises(DiskFull):
            producer.flush()
        for x in range(10, 20):
            producer.send({"x": x})
        producer.close()

        assert sorted(values(topic)) == list(range(20))
        assert producer.last_sequence == 1


def test_a_named_producer_goes_on_counting_where_it_ended(topic):
    with topic.producer("importer") as producer:
        producer.append([{"x": 1}])
        producer.append([{"x": 2}])

    again = topic.producer("importer")
    again.append([{"x": 2}], sequence=1)
    again.append([{"x": 3}])

    assert values(topic) == [1, 2, 3]
    assert again.last_sequence == 2


def test_a_newer_producer_of_the_same_name_shuts_out_the_older(topic):
    older = topic.producer("importer")
    older.append([{"x": 1}])
    newer = topic.producer("importer")

    with pytest.raises(Fenced, match='producer "importer" was taken over') as fenced:
        older.append([{"x": 2}])
    newer.append([{"x": 3}])

    assert "own name" in fenced.value.hint
    assert values(topic) == [1, 3]


def test_a_closed_producer_takes_nothing(topic):
    producer = topic.producer()
    producer.send({"x": 1})
    producer.close()
    producer.close()

    with pytest.raises(ClosedError, match="closed"):
        producer.send({"x": 2})

    assert values(topic) == [1]
