"""One partition's writing side: rolling, group commit, several handles, what an interruption leaves."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from headwater.log.commits.append_request import AppendRequest, StaleSchema
from headwater.log.home import Log
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.storage.files import Files
from headwater.log.storage.framing import frames_of
from headwater.testing import Crash, CrashingFiles, ManualClock
from tests.waiting import eventually


class Interrupting(Files):
    """Stands for Ctrl-C at the worst moment: in the middle of an append."""

    armed = False

    def write(self, fd, parts, *, label):
        if self.armed and label == "append.write_data":
            self.armed = False
            raise KeyboardInterrupt
        return super().write(fd, parts, label=label)


class Counting(Files):
    """Counts the syncs of appends; fails one on demand."""

    syncs = 0
    fail_next_sync = False

    def sync(self, fd, *, label):
        if label == "append.sync_data":
            self.syncs += 1
            if self.fail_next_sync:
                self.fail_next_sync = False
                raise OSError("the disk is dying")
        super().sync(fd, label=label)


def test_an_append_that_was_interrupted_is_written_when_it_is_tried_again(tmp_path):
    files = Interrupting()
    topic = Log(tmp_path / "home", files=files).topic("t", "x INT")
    topic.append([{"x": 0}], producer="importer", sequence=0)

    files.armed = True
    with pytest.raises(KeyboardInterrupt):
        topic.append([{"x": 1}], producer="importer", sequence=1)
    topic.append([{"x": 1}], producer="importer", sequence=1)

    assert [row["x"] for row in topic.rows()] == [0, 1]


def test_a_large_append_that_was_cut_short_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("headwater.log.storage.framing.FRAME_ROWS_MAX", 10)
    for boundary in range(8):
        files = CrashingFiles()
        log = Log(tmp_path / str(boundary), files=files)
        topic = log.topic("t", "x INT", fsync="never")
        topic.append([{"x": -1}])
        files.crash_at = len(files.boundaries) + boundary
        with suppress(Crash):
            topic.append([{"x": x} for x in range(95)])
        for partition in topic._partitions:
            partition.abandon()

        rows = [row["x"] for row in Log(tmp_path / str(boundary)).get_topic("t").rows()]

        assert rows in ([-1], [-1, *range(95)])
        log.closed = True


def test_threads_that_append_at_once_each_keep_their_order(tmp_path):
    files = Counting()
    topic = Log(tmp_path / "home", files=files).topic("t", "who INT, n INT", fsync="always")
    topic.append([{"who": -1, "n": 0}])
    files.syncs = 0
    threads = [
        threading.Thread(target=lambda who=who: [topic.append([{"who": who, "n": n}]) for n in range(25)])
        for who in range(8)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    rows = list(topic.rows(1, columns=["_offset", "who", "n"]))
    assert [row["_offset"] for row in rows] == list(range(1, 201))
    for who in range(8):
        assert [row["n"] for row in rows if row["who"] == who] == list(range(25))
    assert files.syncs <= 200


def test_appends_that_wait_for_their_turn_share_one_sync(tmp_path):
    files = Counting()
    topic = Log(tmp_path / "home", files=files).topic("t", "n INT", fsync="always")
    topic.append([{"n": -1}])
    files.syncs = 0
    (partition,) = topic._partitions
    threads = [threading.Thread(target=lambda n=n: topic.append([{"n": n}])) for n in range(8)]

    with partition._turn:  # as a slow sync holds it
        for thread in threads:
            thread.start()
        eventually(lambda: len(partition._queue) == 8, "eight appends wait")
    for thread in threads:
        thread.join()

    assert sorted(row["n"] for row in topic.rows(1)) == list(range(8))
    assert files.syncs == 1


def test_a_failed_sync_is_told_and_the_rows_are_not_there_afterwards(tmp_path):
    files = Counting()
    topic = Log(tmp_path / "home", files=files).topic("t", "x INT", fsync="always")
    topic.append([{"x": 1}])
    files.fail_next_sync = True

    with pytest.raises(OSError, match="disk is dying"):
        topic.append([{"x": 2}])
    topic.append([{"x": 3}])

    assert [row["x"] for row in topic.rows()] == [1, 3]


def test_an_append_sees_what_another_handle_wrote_rolled_and_sealed(tmp_path):
    logs = [Log(tmp_path / "home") for _ in range(2)]
    topics = [log.topic("t", "x INT") for log in logs]

    for x in range(6):
        topics[x % 2].append([{"x": x}], producer="importer", sequence=x)
        topics[x % 2].append([{"x": x}], producer="importer", sequence=x)
        if x % 3 == 2:
            topics[(x + 1) % 2].partition(0).roll()
            seal_partition(topics[0], 0)
    topics[0].append([{"x": 4}], producer="importer", sequence=4)

    assert [row["x"] for row in topics[0].rows()] == list(range(6))
    assert topics[1].end_offsets() == {0: 6}


def test_a_segment_ends_when_it_is_too_large_or_too_old(tmp_path):
    clock = ManualClock()
    topic = Log(tmp_path / "home", clock=clock).topic("t", "x INT", segment_age_max="1 minute", segment_bytes_max=900)

    topic.append([{"x": 1}])
    clock.advance(59)
    topic.append([{"x": 2}])
    young = topic.partition(0).tail.active.writer.base_offset
    clock.advance(1)
    topic.append([{"x": 3}])
    old = topic.partition(0).tail.active.writer.base_offset
    for x in range(4, 8):
        topic.append([{"x": x}])

    assert (young, old) == (0, 2)
    assert topic.partition(0).tail.active.writer.base_offset > 2
    assert [row["x"] for row in topic.rows()] == list(range(1, 8))


def test_rows_made_under_an_older_schema_never_land_in_a_segment_of_a_newer_one(log):
    topic = log.topic("t", "x INT", segment_bytes_max=1)
    topic.append([{"x": 0}])
    row = topic.row()
    frames = frames_of(topic.row_batch([{"x": 1}]), row, producer=0, sequence=None, deleted=False)
    log.topic("t", "x INT, y STRING")

    # The segment is full, so this append rolls, and the next segment has the newer schema.
    with pytest.raises(StaleSchema):
        topic.partition(0).append(AppendRequest(frames, row.version))
    topic.append([{"x": 2, "y": "two"}])

    assert list(topic.rows()) == [{"x": 0, "y": None}, {"x": 2, "y": "two"}]
