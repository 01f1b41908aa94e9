"""Sealing: the same rows, as Parquet that others can read, and nothing left behind."""

from __future__ import annotations

import time

import pyarrow.parquet as pq
import pytest

from headwater.errors import CorruptSegment
from headwater.log.home import Log
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.storage.active_segment import arrow_bases
from tests.crash.ledger import QuietLog


@pytest.fixture
def quiet(tmp_path):
    with QuietLog(tmp_path / "home") as log:
        yield log


def test_a_sealed_segment_holds_the_same_rows_and_what_the_system_knows_of_them(quiet):
    topic = quiet.topic("t", "k INT, v STRING", key="k")
    topic.append([{"k": 1, "v": "a"}, {"k": 2, "v": None}], producer="importer", sequence=0)
    topic.delete([{"k": 1}])
    columns = ["_offset", "_appended_at", "_producer", "_deleted", "k", "v"]
    before = list(topic.rows(columns=columns))

    topic.partition(0).roll()
    assert seal_partition(topic, 0) == 1

    assert list(topic.rows(columns=columns)) == before
    (path,) = (topic.directory / "0").glob("*.parquet")
    assert pq.read_table(path).select(columns).to_pylist() == before


def test_the_active_segment_is_never_sealed(quiet):
    topic = quiet.topic("t", "x INT")
    topic.append([{"x": 1}])

    assert seal_partition(topic, 0) == 0
    assert list((topic.directory / "0").glob("*.parquet")) == []


@pytest.mark.parametrize("made", [[".arrow"], [".arrow", ".index"]])
def test_a_segment_that_a_writer_is_just_making_is_not_damage(quiet, made):
    topic = quiet.topic("t", "x INT")
    topic.append([{"x": 1}])
    topic.partition(0).roll()
    newest = topic.directory / "0" / f"{1:020d}"
    whole = newest.with_suffix(".arrow").read_bytes()
    listed = newest.with_suffix(".index").read_bytes()
    for suffix in (".arrow", ".index"):  # as another process leaves them between making the files and their headers
        newest.with_suffix(suffix).unlink()
        if suffix in made:
            newest.with_suffix(suffix).touch()

    assert seal_partition(topic, 0) == 1

    newest.with_suffix(".arrow").write_bytes(b"x" + whole[1:])
    newest.with_suffix(".index").write_bytes(listed)  # a header that the index lists is another matter
    with pytest.raises(CorruptSegment, match="header"):
        seal_partition(topic, 0)


def test_nothing_but_the_sealed_file_and_the_active_pair_is_left(quiet):
    topic = quiet.topic("t", "x INT", segment_bytes_max=1)
    for x in range(4):
        topic.append([{"x": x}])
    (topic.directory / "0" / "left-over.tmp").write_bytes(b"x")
    (topic.directory / "0" / "00000000000000000099.parquet").write_bytes(b"x")

    assert seal_partition(topic, 0) == 3

    names = sorted(path.name[20:] for path in (topic.directory / "0").iterdir() if path.name[:1] == "0")
    assert names == [".arrow", ".index", ".parquet", ".parquet", ".parquet"]
    assert not list((topic.directory / "0").glob("*.tmp"))
    assert [row["x"] for row in topic.rows()] == [0, 1, 2, 3]


def test_sealed_rows_are_found_by_time_and_column(quiet):
    topic = quiet.topic("t", "x INT, y INT, at TIMESTAMP", event_time="at")
    topic.append_json([f'{{"x": {n}, "y": {-n}, "at": "2026-01-01T00:00:{n:02d}Z"}}' for n in range(10)])
    topic.partition(0).roll()
    seal_partition(topic, 0)
    moment = next(topic.rows(4))["at"]

    assert topic.offsets_at(moment) == {0: 4}
    assert list(topic.rows(moment, columns=["y"]))[:2] == [{"y": -4}, {"y": -5}]


def test_the_background_seals_what_was_rolled(tmp_path):
    with Log(tmp_path / "home") as log:
        topic = log.topic("t", "x INT", segment_bytes_max=1)
        for x in range(5):
            topic.append([{"x": x}])

        deadline = time.monotonic() + 60
        while len(arrow_bases(topic.directory / "0")) > 1 and time.monotonic() < deadline:
            time.sleep(0.005)

        assert len(arrow_bases(topic.directory / "0")) == 1
        assert [row["x"] for row in topic.rows()] == list(range(5))
