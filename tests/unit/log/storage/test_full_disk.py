"""A full disk: told in a sentence, nothing half-done, and work goes on when there is room."""

from __future__ import annotations

import errno

import pytest

from headwater.errors import DiskFull, Unavailable
from headwater.log.home import Log
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.storage.files import Files, mapped
from tests.unit.small_disk import SmallDisk


@pytest.fixture
def disk(tmp_path):
    disk = SmallDisk(tmp_path / "disk")
    yield disk
    disk.close()


class NotedFiles(Files):
    """Remembers which syncs of the interval were asked for, and refuses them when told to."""

    def __init__(self):
        self.synced = []
        self.refuse = False

    def sync(self, fd, *, label):
        if label.startswith("interval"):
            self.synced.append(label)
            if self.refuse:
                raise mapped(OSError(errno.ENOSPC, "full"), label)
        super().sync(fd, label=label)


def declare_many(log):
    for number in range(200):
        log.topic(f"another-{number}", "x INT")


def rows(count):
    return [{"x": x, "text": "x" * 100} for x in range(count)]


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_an_append_to_a_full_disk_is_refused_whole_and_works_when_there_is_room(disk, fsync):
    with Log(disk.path / "home") as log:
        topic = log.topic("t", "x BIGINT, text STRING", fsync=fsync, segment_bytes_max=200_000)
        topic.append(rows(100))
        disk.fill()

        with pytest.raises(DiskFull) as refused:
            topic.append(rows(500))
        assert topic.end_offsets() == {0: 100}
        disk.free()
        topic.append(rows(10))

        assert "no space left on the disk for" in refused.value.message
        assert "Nothing of this write was kept" in refused.value.detail
        assert "Free some space" in refused.value.hint
    with Log(disk.path / "home") as log:
        found = [(row["_offset"], row["x"]) for row in log.get_topic("t").rows(columns=["_offset", "x"])]
        assert found == list(enumerate([*range(100), *range(10)]))
        assert log.check().ok


def test_appending_until_the_disk_is_full_keeps_exactly_what_was_acknowledged(disk):
    acknowledged = 0
    with Log(disk.path / "home") as log:
        topic = log.topic("t", "x BIGINT, text STRING", segment_bytes_max=100_000)

        def append_until_full():
            nonlocal acknowledged
            for _ in range(2000):
                topic.append(rows(50))
                acknowledged += 50

        if not disk.mounted:
            disk.fill()
        with pytest.raises(DiskFull):
            append_until_full()
        assert topic.end_offsets() == {0: acknowledged}
        for _ in range(30):  # refused again and again, no descriptor is lost by that
            with pytest.raises(DiskFull):
                append_until_full()

    disk.free()
    with Log(disk.path / "home") as log:
        assert log.get_topic("t").end_offsets() == {0: acknowledged}
        assert sum(batch.num_rows for batch in log.get_topic("t").read()) == acknowledged


def test_closing_on_a_full_disk_brings_what_was_appended_to_disk(disk):
    files = NotedFiles()
    with Log(disk.path / "home", files=files) as log:
        topic = log.topic("t", "x BIGINT, text STRING", segment_bytes_max=20_000, fsync_interval="1 minute")
        topic.append(rows(500))
        disk.fill()
        with pytest.raises(DiskFull):  # the next segment has no room to begin
            topic.append(rows(1))

    assert files.synced == ["interval.sync_data"]
    assert log.closed
    disk.free()
    with Log(disk.path / "home") as log:
        assert log.get_topic("t").end_offsets() == {0: 500}
        assert log.check().ok


def test_a_disk_that_refuses_the_last_sync_is_told_and_the_log_is_closed(tmp_path):
    files = NotedFiles()
    log = Log(tmp_path / "home", files=files)
    for name in ("one", "two"):
        log.topic(name, "x BIGINT, text STRING", fsync_interval="1 minute").append(rows(1))
    files.refuse = True

    with pytest.raises(DiskFull, match=r"interval\.sync_data"):
        log.close()

    assert files.synced == ["interval.sync_data"] * 2
    assert log.closed


def test_a_named_producers_retry_after_a_full_disk_is_written_once(disk):
    with Log(disk.path / "home") as log:
        topic = log.topic("t", "x BIGINT, text STRING", key="x", partitions=3, fsync="always")
        producer = topic.producer("importer")
        producer.append(rows(30))
        disk.fill()

        with pytest.raises(DiskFull):
            producer.append(rows(300), sequence=1)
        disk.free()
        producer.append(rows(300), sequence=1)

        assert sum(topic.end_offsets().values()) == 330


def test_sealing_on_a_full_disk_leaves_the_rows_where_they_are(disk):
    with Log(disk.path / "home") as log:
        topic = log.topic("t", "x BIGINT, text STRING")
        log.wake_maintenance = lambda: None  # this test seals by itself
        topic.partition(0).tail.on_roll = lambda: None
        topic.append(rows(500))
        topic.partition(0).roll()
        disk.fill()

        with pytest.raises(DiskFull) as refused:
            seal_partition(topic, 0)
        disk.free()

        assert "no space left" in refused.value.message
        assert len(list(topic.rows())) == 500
        assert seal_partition(topic, 0) == 1
        assert len(list(topic.rows())) == 500


def test_declaring_a_topic_on_a_full_disk_is_refused_and_works_when_there_is_room(disk):
    with Log(disk.path / "home") as log:
        log.topic("first", "x INT")
        disk.fill()

        # SQLite calls a limit on the size of files an input/output error.
        with pytest.raises(DiskFull if disk.mounted else Unavailable, match="catalog"):
            declare_many(log)
        disk.free()

        log.topic("second", "x INT").append([{"x": 1}])
        assert "second" in [topic.name for topic in log.topics()]


def test_a_home_cannot_be_made_on_a_full_disk_but_later(disk):
    disk.fill()

    with pytest.raises(DiskFull, match="no space left"):
        Log(disk.path / "home")
    disk.free()

    with Log(disk.path / "home") as log:
        assert log.topics() == []
