"""A home that can only be read: reading works, changing is refused in a sentence."""

from __future__ import annotations

import shutil

import pytest

from headwater.errors import ReadOnlyHome
from headwater.log.home import Log
from tests.unit.small_disk import ReadOnlyDisk


@pytest.fixture
def disk(tmp_path):
    disk = ReadOnlyDisk(tmp_path / "disk")
    yield disk
    disk.close()


def test_a_read_only_home_is_read_and_not_written(disk):
    with Log(disk.path / "home") as log:
        log.topic("t", "x INT", key="x").append([{"x": 1}, {"x": 2}])
    disk.protect()

    with Log(disk.path / "home") as log:
        topic = log.get_topic("t")
        assert [row["x"] for row in topic.rows()] == [1, 2]
        assert log.check().ok
        for change in (
            lambda: topic.append([{"x": 3}]),
            lambda: topic.delete([{"x": 1}]),
            lambda: log.topic("another", "x INT"),
            lambda: log.topic("t", "x INT, y INT"),
            lambda: log.delete_topic("t"),
            lambda: topic.producer("importer"),
        ):
            with pytest.raises(ReadOnlyHome, match="cannot be written") as refused:
                change()
            assert str(disk.path) in str(refused.value)
        assert topic.end_offsets() == {0: 2}


def test_what_a_killed_writer_left_in_the_catalogs_log_is_seen_on_a_read_only_disk(disk, tmp_path):
    with Log(tmp_path / "alive") as log:
        log.topic("t", "x INT", fsync="always").append([{"x": 1}])
        shutil.copytree(tmp_path / "alive", disk.path / "home")  # as a kill would leave it: the WAL is not empty
    assert (disk.path / "home" / "catalog.sqlite-wal").stat().st_size > 0
    disk.protect()

    with Log(disk.path / "home") as log:
        assert [row["x"] for row in log.get_topic("t").rows()] == [1]


def test_a_home_cannot_be_made_on_a_read_only_disk(disk):
    disk.protect()

    with pytest.raises(ReadOnlyHome, match="the home cannot be written") as refused:
        Log(disk.path / "home")

    assert "permissions" in refused.value.hint
