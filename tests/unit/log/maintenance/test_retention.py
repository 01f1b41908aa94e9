"""Retention: what leaves, when, and where to. Crashes in between are in tests/crash."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headwater.errors import CorruptSegment, OffsetOutOfRange
from headwater.log.home import Log
from headwater.log.maintenance.retention import retain_partition
from headwater.log.topic import Topic
from headwater.testing import ManualClock

DAY_S = 24 * 3600


def fill(topic: Topic, segments: int, *, rows: int = 10) -> None:
    """Append this many sealed segments, then one row to the active one."""
    for _ in range(segments):
        topic.append([{"x": n} for n in range(rows)])
        topic.partition(0).roll()
    topic.append([{"x": -1}])
    topic.log.maintain()


def files_of(topic: Topic, pattern: str = "*.parquet") -> list[str]:
    return sorted(path.name for path in (topic.directory / "0").glob(pattern))


def test_segments_older_than_retention_ms_leave_and_the_start_moves(log: Log, clock: ManualClock) -> None:
    topic = log.topic("t", "x INT", retention=DAY_S)
    fill(topic, 2)
    clock.advance(DAY_S / 2)
    fill(topic, 1)

    clock.advance(DAY_S / 2)
    report = log.maintain()

    assert [step.action for step in report.steps] == ["retain"]
    assert topic.start_offsets() == {0: 20}
    assert [row["_offset"] for row in topic.rows(columns=["_offset"])] == list(range(20, 32))
    assert files_of(topic) == ["00000000000000000020.parquet"]


def test_reading_before_the_start_is_an_error_that_names_the_new_start(log: Log, clock: ManualClock) -> None:
    topic = log.topic("t", "x INT", retention="1 second")
    fill(topic, 1)
    clock.advance(1)
    log.maintain()

    with pytest.raises(OffsetOutOfRange) as caught:
        list(topic.read(5))

    assert caught.value.data["start"] == 11
    assert "Retention moved the start to 11 at 2030-01-01" in str(caught.value)


def test_an_active_segment_that_is_all_too_old_leaves_too_and_offsets_go_on(log: Log, clock: ManualClock) -> None:
    topic = log.topic("t", "x INT", retention="1 second")
    topic.append([{"x": 1}, {"x": 2}])
    clock.advance(1)

    log.maintain()
    token = topic.append([{"x": 3}])

    assert topic.start_offsets() == {0: 2}
    assert str(token) == "t:0=3"
    assert [row["x"] for row in topic.rows()] == [3]


def test_a_segment_is_judged_by_its_newest_row(log: Log, clock: ManualClock) -> None:
    topic = log.topic("t", "x INT", retention="10 seconds")
    topic.append([{"x": 1}])
    clock.advance(9)
    topic.append([{"x": 2}])
    topic.partition(0).roll()

    clock.advance(9)
    log.maintain()
    kept = topic.start_offsets()
    clock.advance(1)
    log.maintain()

    assert kept == {0: 0}
    assert topic.start_offsets() == {0: 2}


def test_by_bytes_the_oldest_sealed_segments_leave_until_the_rest_fits(log: Log) -> None:
    topic = log.topic("t", "x INT")
    fill(topic, 5, rows=500)
    sealed = [s.bytes for s in log.registry.sealed(topic.id, 0, topic.directory / "0")]
    active = sum(path.stat().st_size for path in (topic.directory / "0").glob("*.arrow"))
    limit = sum(sealed[3:]) + active

    log.topic("t", "x INT", retention_bytes=limit)
    report = log.maintain()

    assert topic.start_offsets() == {0: 1500}
    assert report.steps[0].numbers["rows"] == 1500
    assert log.maintain().steps == ()


def test_by_bytes_the_active_segment_stays_however_large(log: Log) -> None:
    topic = log.topic("t", "x INT", retention_bytes=1)
    fill(topic, 2)

    log.maintain()

    assert topic.start_offsets() == {0: 20}
    assert [row["x"] for row in topic.rows()] == [-1]


@pytest.mark.parametrize("other_filesystem", [False, True])
def test_what_leaves_is_in_the_archive(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, other_filesystem: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "another filesystem")

    if other_filesystem:
        monkeypatch.setattr(os, "link", refuse)
    log = Log(tmp_path / "home", clock=clock)
    topic = log.topic("t", "x INT", retention="1 second", archive=str(tmp_path / "attic"))
    fill(topic, 2)

    clock.advance(1)
    log.maintain()

    archived = sorted((tmp_path / "attic" / "t" / "0").iterdir())
    assert [path.name for path in archived] == [f"{base:020d}.parquet" for base in (0, 10, 20)]
    assert pq.read_table(archived[1]).column("_offset").to_pylist() == list(range(10, 20))
    assert files_of(topic) == []
    log.close()


def test_a_relative_archive_is_in_the_home_and_check_leaves_it_alone(log: Log, clock: ManualClock) -> None:
    topic = log.topic("t", "x INT", retention="1 second", archive="attic")
    fill(topic, 1)

    clock.advance(1)
    log.maintain()

    assert len(list((log.home / "attic" / "t" / "0").iterdir())) == 2
    assert log.check().problems == ()


def test_a_topic_made_anew_does_not_overwrite_what_its_namesake_archived(log: Log, clock: ManualClock) -> None:
    for value in (1, 2):
        topic = log.topic("t", "x INT", retention="1 second", archive="attic")
        topic.append([{"x": value}])
        clock.advance(1)
        log.maintain()
        log.delete_topic("t")

    archived = sorted((log.home / "attic" / "t" / "0").iterdir())

    assert sorted(pq.read_table(path).column("x").to_pylist() for path in archived) == [[1], [2]]


def test_a_damaged_segment_is_not_archived_as_if_it_were_whole(log: Log, clock: ManualClock) -> None:
    topic = log.topic("t", "x INT", retention="1 second", archive="attic")
    fill(topic, 1)
    path = topic.directory / "0" / files_of(topic)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    clock.advance(1)

    with pytest.raises(CorruptSegment):
        retain_partition(topic, 0, wait=True)

    assert topic.start_offsets() == {0: 0}
