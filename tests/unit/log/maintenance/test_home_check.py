"""Check: every kind of damage is found and named, and nothing else is."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from headwater.errors import Corruption
from headwater.log.home import Log
from headwater.log.maintenance.alerts import ALERTS_TOPIC
from headwater.log.maintenance.home_check import check_home
from headwater.log.topic import Topic
from tests.unit.weighted_rows import thorough

EACH = settings(
    max_examples=thorough(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class UnsealedLog(Log):
    """Leaves rolled segments as they are."""

    def wake_maintenance(self) -> None:
        """Nothing: the test wants them to stay Arrow."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with UnsealedLog(tmp_path / "home", maintenance_interval=None) as log:
        yield log


def rolled(log: Log) -> tuple[Topic, Path]:
    """A topic with two rolled Arrow segments and an active one; and the first one's data file."""
    topic = log.topic("t", "x INT, name STRING, at TIMESTAMP", event_time="at")
    for segment in range(3):
        for n in range(3):
            topic.append([{"x": segment, "name": f"row {n}", "at": "2030-01-01T00:00:00Z"}] * 3)
        if segment < 2:
            topic.partition(0).roll()
    return topic, topic.directory / "0" / f"{0:020d}.arrow"


def sealed(log: Log) -> tuple[Topic, Path]:
    """The same, sealed; and the first sealed file."""
    topic, path = rolled(log)
    log.maintain()
    return topic, path.with_suffix(".parquet")


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x40]))


def errors(log: Log) -> list[str]:
    return [problem.message for problem in log.check().problems if problem.severity == "error"]


def read_x(topic: Topic) -> list[int]:
    return [row["x"] for row in topic.rows()]


def test_a_sound_home_has_no_problem_and_is_counted(log: Log) -> None:
    topic, _ = rolled(log)
    log.topic("other", "id INT", key="id", partitions=2).append([{"id": n} for n in range(10)])
    before = log.check()
    log.maintain()
    steps: list[tuple[int, int]] = []

    report = log.check(progress=lambda done, total: steps.append((done, total)))

    assert before.problems == report.problems == ()
    assert (report.topics, report.partitions, report.segments, report.rows) == (2, 3, 5, 37)
    assert report.bytes > 0
    assert report.ok
    assert steps[-1][0] == steps[-1][1] > 0
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert json.loads(json.dumps(report.to_dict()))["rows"] == 37
    assert str(report).startswith("All is well: 2 topics")
    assert read_x(topic) == [0] * 9 + [1] * 9 + [2] * 9


@EACH
@given(place=st.floats(0, 1, exclude_max=True))
def test_a_flipped_byte_anywhere_in_a_sealed_segment_is_found_and_never_read(
    tmp_path_factory: pytest.TempPathFactory, place: float
) -> None:
    with UnsealedLog(tmp_path_factory.mktemp("home"), maintenance_interval=None) as log:
        topic, path = sealed(log)
        flip(path, int(place * path.stat().st_size))

        report = log.check()

        assert [(p.severity, p.where) for p in report.problems] == [("error", str(path))]
        with pytest.raises(Corruption):
            read_x(topic)


@pytest.mark.parametrize("where", ["first byte", "header", "middle", "footer", "last byte"])
def test_a_flipped_byte_in_each_part_of_a_sealed_segment_is_found(log: Log, where: str) -> None:
    topic, path = sealed(log)
    size = path.stat().st_size
    flip(path, {"first byte": 0, "header": 3, "middle": size // 2, "footer": size - 6, "last byte": size - 1}[where])

    found = errors(log)

    assert found == ["its bytes do not match the checksum in the catalog"]
    with pytest.raises(Corruption):
        read_x(topic)


@EACH
@given(place=st.floats(0, 1, exclude_max=True))
def test_a_flipped_byte_anywhere_in_a_rolled_arrow_segment_is_found_and_never_read(
    tmp_path_factory: pytest.TempPathFactory, place: float
) -> None:
    with UnsealedLog(tmp_path_factory.mktemp("home"), maintenance_interval=None) as log:
        topic, path = rolled(log)
        sound = read_x(topic)
        flip(path, int(place * path.stat().st_size))

        report = log.check()

        assert {(p.severity, p.where) for p in report.problems} == {("error", str(path))}
        # An entry's copy and the zeros between frames are not data: there, what is read is right all the same.
        with contextlib.suppress(Corruption):
            assert read_x(topic) == sound


@EACH
@given(place=st.floats(0, 1, exclude_max=True))
def test_a_flipped_byte_anywhere_in_the_index_of_a_rolled_segment_is_found(
    tmp_path_factory: pytest.TempPathFactory, place: float
) -> None:
    with UnsealedLog(tmp_path_factory.mktemp("home"), maintenance_interval=None) as log:
        topic, path = rolled(log)
        index = path.with_suffix(".index")
        flip(index, int(place * index.stat().st_size))

        report = log.check()

        assert not report.ok
        assert {problem.where for problem in report.problems} == {str(path)}
        assert all("index" in problem.message for problem in report.problems)
        assert topic.end_offsets() == {0: 27}


def test_a_truncated_rolled_segment_is_found(log: Log) -> None:
    _, path = rolled(log)
    os.truncate(path, path.stat().st_size - 64)

    assert errors(log) != []


def test_a_flipped_byte_in_the_active_segment_that_others_have_open_is_found(log: Log) -> None:
    topic, _ = rolled(log)
    active = topic.directory / "0" / f"{18:020d}.arrow"
    flip(active, active.stat().st_size // 2)

    report = log.check()

    assert [problem.where for problem in report.problems] == [str(active)]


@pytest.mark.parametrize("number", [0, 9])
def test_a_missing_sealed_file_is_found(log: Log, number: int) -> None:
    topic, path = sealed(log)
    path.with_name(f"{number:020d}.parquet").unlink()

    assert errors(log) == ["the file is missing"]
    with pytest.raises(Corruption):
        read_x(topic)


def test_a_missing_arrow_file_is_a_gap(log: Log) -> None:
    topic, path = rolled(log)
    path.with_name(f"{9:020d}.arrow").unlink()

    assert errors(log) == ["offsets 9 to 17 are missing"]
    assert topic.name == "t"


def test_a_missing_index_is_found(log: Log) -> None:
    _, path = rolled(log)
    path.with_suffix(".index").unlink()

    assert errors(log) == ["the file is missing"]


def test_files_that_nobody_knows_are_warnings(log: Log) -> None:
    topic, path = sealed(log)
    strays = [path.with_name(name) for name in ("notes.txt", f"{3:020d}.parquet", "x.parquet.tmp", f"{99:020d}.index")]
    for stray in strays:
        stray.write_bytes(b"?")
    (log.home / "topics" / "000099-gone").mkdir()

    report = log.check()

    assert report.ok
    assert {problem.severity for problem in report.problems} == {"warning"}
    assert sorted(problem.where for problem in report.problems) == sorted([*map(str, strays), "topics/000099-gone"])
    assert topic.end_offsets() == {0: 27}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE segments SET rows = rows + 1 WHERE base_offset = 0", "rows"),
        ("UPDATE segments SET bytes = bytes - 1 WHERE base_offset = 0", "bytes"),
        ("UPDATE segments SET checksum = checksum + 1 WHERE base_offset = 0", "checksum"),
        ("UPDATE segments SET next_offset = 8 WHERE base_offset = 0", "offset"),
        ("UPDATE segments SET base_offset = 1 WHERE base_offset = 0", "offset"),
        ("UPDATE segments SET schema_version = 7 WHERE base_offset = 0", "schema version 7"),
        ("UPDATE segments SET appended_max = appended_max + 1 WHERE base_offset = 0", "append times"),
        ("UPDATE segments SET time_max = NULL WHERE base_offset = 0", "event times"),
        ("UPDATE segments SET partition = 5 WHERE base_offset = 0", "name no partition"),
        ("DELETE FROM segments WHERE base_offset = 9", "offsets 9 to 17 are missing"),
        ("DELETE FROM partitions", "does not list its 1 partitions"),
        ("UPDATE partitions SET start_offset = 4", "offsets 0 to 3 are there twice"),
        ("UPDATE schemas SET version = 2", "version"),
        ("UPDATE schemas SET arrow = x'00'", ""),
        ("UPDATE topics SET settings = '{'", ""),
        ("DELETE FROM schemas", ""),
        ("PRAGMA foreign_keys = OFF; INSERT INTO positions VALUES (77, 0, 0, 0)", "foreign key"),
    ],
)
def test_a_changed_catalog_row_is_found(log: Log, change: str, message: str) -> None:
    sealed(log)
    home = log.home
    log.close()

    with sqlite3.connect(home / "catalog.sqlite") as db:
        db.executescript(change)
    db.close()

    report = check_home(home)

    assert not report.ok
    assert any(message in problem.message for problem in report.problems), str(report)


def test_positions_beyond_the_end_and_leases_astray_are_errors_and_lag_lost_is_a_warning(log: Log) -> None:
    topic, _ = sealed(log)
    topic.consumer("ahead").close()
    topic.consumer("behind").close()
    with topic.worker("work") as worker:
        worker.take(2, timeout=5)
        sound = log.check().problems

        with log.catalog.write() as db:
            db.execute("UPDATE positions SET offset = 28 WHERE group_id = 1")
            db.execute("UPDATE positions SET offset = -1 WHERE group_id = 2")
            db.execute("UPDATE work_messages SET offset = offset + 20")
        found = log.check().problems

    assert sound == ()
    assert [(problem.severity, problem.where) for problem in found] == [
        ("error", 'group "ahead" of t[0]'),
        ("warning", 'group "behind" of t[0]'),
        ("error", 'group "work" of t[0]'),
    ]


def test_rows_of_a_producer_that_the_catalog_does_not_know_are_an_error(log: Log) -> None:
    topic = log.topic("t", "x INT")
    topic.append([{"x": 1}], producer="importer", sequence=1)
    sound = log.check().problems

    with log.catalog.write() as db:
        db.execute("DELETE FROM producers")

    assert sound == ()
    assert errors(log) == ["rows of producer 1, which is not in the catalog"]


def test_a_catalog_that_is_no_database_is_a_problem_and_the_segments_are_checked_without_it(log: Log) -> None:
    _, path = sealed(log)
    home = log.home
    log.close()
    for name in ("catalog.sqlite-wal", "catalog.sqlite-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "catalog.sqlite").write_bytes(b"garbage" * 1000)

    sound = check_home(home)
    flip(path, path.stat().st_size // 2)
    worse = check_home(home)

    assert [problem.where for problem in sound.problems] == [str(home)]
    assert "damaged" in sound.problems[0].message
    assert (sound.segments, sound.rows) == (3, 27)
    assert [problem.where for problem in worse.problems] == [str(home), str(path)]


@EACH
@given(place=st.floats(0, 1, exclude_max=True), width=st.integers(1, 3000))
def test_whatever_is_done_to_the_catalog_check_does_not_raise(
    tmp_path_factory: pytest.TempPathFactory, place: float, width: int
) -> None:
    home = tmp_path_factory.mktemp("home")
    with UnsealedLog(home, maintenance_interval=None) as log:
        sealed(log)
    catalog = home / "catalog.sqlite"
    data = bytearray(catalog.read_bytes())
    at = int(place * len(data))
    data[at : at + width] = bytes(255 - byte for byte in data[at : at + width])
    catalog.write_bytes(data)

    report = check_home(home)

    assert isinstance(report.ok, bool)


def test_a_home_that_is_none_is_a_problem(tmp_path: Path) -> None:
    report = check_home(tmp_path / "nowhere")

    assert not report.ok
    assert "no Headwater home" in report.problems[0].message


def test_damage_is_alerted_once_until_it_is_mended(log: Log) -> None:
    told: list[Any] = []
    log.on_alert = told.append
    _, path = sealed(log)
    whole = path.read_bytes()
    flip(path, 100)
    log.check()
    log.check()
    once = len(told)

    path.write_bytes(whole)
    mended = log.check()
    flip(path, 100)
    log.check()

    assert once == 1
    assert mended.problems == ()
    assert [(alert.kind, alert.state) for alert in told] == [
        ("corruption", "begin"),
        ("corruption", "end"),
        ("corruption", "begin"),
    ]
    assert [row["group"] for row in log.get_topic(ALERTS_TOPIC).rows()] == [None, None, None]
