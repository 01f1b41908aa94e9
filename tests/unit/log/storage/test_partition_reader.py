"""Reading one partition and a whole topic: bounds, places, columns, joins of small frames, following."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
import time

from headwater.log.home import Log
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.storage import frame_index
from tests.waiting import eventually


def test_a_handle_does_not_keep_reading_what_was_compacted_away(log):
    topic = log.topic("t", "k INT, v INT", key="k", compact=True)
    for v in range(3):
        topic.append([{"k": 1, "v": v}])
    reader = topic.reader(0)
    before = [chunk.batch.num_rows for chunk in reader.chunks(0, 3)]

    compact_partition(topic, 0, force=True, wait=True)

    assert sum(before) == 3
    assert sum(chunk.batch.num_rows for chunk in reader.chunks(0, 3)) == 1


def test_a_projection_reads_over_the_border_between_sealed_and_arrow_rows(log):
    topic = log.topic("t", "x INT, y INT, z INT")
    topic.append([{"x": 1, "y": 2, "z": 3}])
    topic.partition(0).roll()
    seal_partition(topic, 0)
    topic.append([{"x": 4, "y": 5, "z": 6}])

    rows = list(topic.rows(columns=["_offset", "z"]))

    assert rows == [{"_offset": 0, "z": 3}, {"_offset": 1, "z": 6}]


def fill(log, *, partitions=1):
    topic = log.topic("numbers", "n INT", key="n", partitions=partitions)
    for first in range(0, 30, 10):
        topic.append([{"n": n} for n in range(first, first + 10)])
        topic.partition(0).roll()
    return topic


def numbers(rows):
    return [row["n"] for row in rows]


def test_reading_begins_and_ends_where_it_is_told(log):
    topic = fill(log)

    assert numbers(topic.rows()) == list(range(30))
    assert numbers(topic.rows("latest")) == []
    assert numbers(topic.rows(25)) == list(range(25, 30))
    assert numbers(topic.rows({0: 12}, stop=15)) == [12, 13, 14]
    assert numbers(topic.rows(stop={0: 3})) == [0, 1, 2]
    assert numbers(topic.rows(dt.datetime(2000, 1, 1, tzinfo=dt.UTC))) == list(range(30))
    assert numbers(topic.rows(dt.datetime(2100, 1, 1, tzinfo=dt.UTC))) == []


def test_the_end_is_where_it_was_when_reading_began(log):
    topic = fill(log)
    rows = topic.rows()
    first = next(rows)
    topic.append([{"n": 30}])

    assert [first["n"], *numbers(rows)] == list(range(30))


def test_batches_are_no_larger_than_asked_and_say_where_they_are(log):
    topic = log.topic("numbers", "n INT", key="n")
    for first in range(0, 30, 3):
        topic.append([{"n": n} for n in range(first, first + 3)])

    batches = list(topic.read(rows_max=7))

    assert all(batch.num_rows == 6 for batch in batches)  # as many whole appends as fit
    assert [offset for batch in batches for offset in batch.offsets.tolist()] == list(range(30))
    assert [batch.next_offset for batch in batches][-1] == 30


def test_only_the_asked_partitions_are_read_each_in_order(log):
    topic = fill(log, partitions=3)
    columns = ["_partition", "_offset", "n"]

    everything = list(topic.rows(columns=columns))

    assert sorted(numbers(everything)) == list(range(30))
    for number in range(3):
        mine = [row for row in everything if row["_partition"] == number]
        assert [row["_offset"] for row in mine] == list(range(len(mine)))
        assert list(topic.rows(columns=columns, partitions=[number])) == mine


def test_a_follower_waits_and_goes_on_and_ends_when_nothing_comes(tmp_path):
    with Log(tmp_path / "home") as log:
        topic = log.topic("t", "n INT")
        topic.append([{"n": 0}])
        rows = topic.rows(follow=True, timeout=0.2)

        seen = [next(rows)["n"]]
        topic.append([{"n": 1}])
        topic.partition(0).roll()
        topic.append([{"n": 2}])
        seen += numbers(rows)

        assert seen == [0, 1, 2]


def test_a_follower_ends_when_its_log_is_closed(tmp_path):
    log = Log(tmp_path / "home")
    topic = log.topic("t", "n INT")
    seen: list[int] = []

    def follow() -> None:
        for row in topic.rows(follow=True):
            seen.append(row["n"])

    follower = threading.Thread(target=follow)
    follower.start()
    topic.append([{"n": 1}])
    eventually(lambda: seen)

    log.close()
    follower.join(timeout=30)

    assert not follower.is_alive()


FOLLOWER = """
import sys, time
from headwater.log.home import Log
topic = Log(sys.argv[1]).get_topic("t")
rows = topic.rows(follow=True)
print(next(rows)["n"], flush=True)  # one row is there already; the next one comes when it is told to
for row in rows:
    print(row["n"], flush=True)
"""


def test_a_follower_is_woken_by_an_append_of_another_process(tmp_path):
    with Log(tmp_path / "home") as log:
        topic = log.topic("t", "n INT")
        topic.append([{"n": 0}])
        follower = subprocess.Popen(
            [sys.executable, "-c", FOLLOWER, str(tmp_path / "home")], stdout=subprocess.PIPE, text=True
        )
        try:
            assert follower.stdout.readline() == "0\n"
            for n in range(1, 20):
                # Each is seen before the next is sent: were it not woken, this would take a minute a row.
                topic.append([{"n": n}])
                assert follower.stdout.readline() == f"{n}\n"
        finally:
            follower.kill()
            follower.communicate()


def test_an_idle_follower_uses_next_to_no_processor_time(tmp_path):
    with Log(tmp_path / "home") as log:
        topic = log.topic("t", "n INT", partitions=4)
        looks = []
        looked = topic.reader(0).end_offset
        topic.reader(0).end_offset = lambda: looks.append(1) or looked()

        before = time.thread_time()  # of this thread: others belong to other tests
        assert list(topic.rows(follow=True, timeout=1.0)) == []
        used = time.thread_time() - before

        assert used < 0.25
        assert len(looks) < 20


def test_a_poll_reads_of_the_index_what_came_since(log, monkeypatch):
    topic = log.topic("t", "x INT")
    for x in range(200):
        topic.append([{"x": x}])
    consumer = topic.consumer("g")
    consumer.commit(consumer.poll(timeout=5))
    lengths, read_entries = [], frame_index.read_entries

    def noted(data):
        lengths.append(len(data) // frame_index.ENTRY_BYTES)
        return read_entries(data)

    monkeypatch.setattr(frame_index, "read_entries", noted)
    for x in range(200, 210):
        topic.append([{"x": x}])
        batch = consumer.poll(timeout=5)
        assert batch.to_pylist() == [{"x": x}]
        consumer.commit(batch)

    assert max(lengths) == 1


def test_reads_at_the_same_time_and_abandoned_ones_do_not_disturb_each_other(log):
    topic = log.topic("t", "x INT")
    for x in range(20):
        topic.append([{"x": x}])

    def xs(batches):
        return [row["x"] for batch in batches for row in batch.to_pylist()]

    one, two = topic.read_partition(0, 0, rows_max=3), topic.read_partition(0, 10, rows_max=3)
    assert xs([next(one), next(two)]) == [0, 1, 2, 10, 11, 12]
    topic.read_partition(0, 5).close()
    abandoned = topic.read_partition(0, 5, rows_max=1)
    next(abandoned)
    abandoned.close()
    seal_partition(topic, 0)
    topic.append([{"x": 20}])

    assert (xs(one), xs(two)) == (list(range(3, 20)), list(range(13, 20)))
    assert xs(topic.read_partition(0, 0)) == list(range(21))


def test_a_partition_that_was_read_before_is_read_as_compaction_left_it(log):
    topic = log.topic("t", "k INT, v INT", key="k", compact=True)
    for v in range(5):
        topic.append([{"k": v % 2, "v": v}])
    assert sum(batch.num_rows for batch in topic.read_partition(0, 0)) == 5

    compact_partition(topic, 0, force=True, wait=True)
    topic.append([{"k": 2, "v": 5}])

    rows = [row for batch in topic.read_partition(0, 0) for row in batch.to_pylist()]
    assert rows == [{"k": 1, "v": 3}, {"k": 0, "v": 4}, {"k": 2, "v": 5}]


def test_a_reader_that_is_behind_knows_the_end_while_the_newest_segment_is_being_created(log):
    topic = log.topic("t", "n INT")
    topic.append([{"n": 0}])
    reader, folder = topic.reader(0), topic.directory / "0"
    assert reader.end_offset() == 1
    for n in (1, 2):
        topic.partition(0).roll()
        topic.append([{"n": n}])
    topic.partition(0).roll()
    log.maintain()
    newest = folder / f"{3:020d}.arrow"
    assert list(folder.glob("*.arrow")) == [newest]
    (folder / "empty").touch()
    (folder / "empty").rename(newest)  # as its writer leaves it for a moment

    assert reader.end_offset() == 3
    assert reader.end_of_cut(log.cut_counter.now()) == 3
