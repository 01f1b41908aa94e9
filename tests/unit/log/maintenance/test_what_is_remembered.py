"""What a process remembers of segments goes with their files, whoever removes them."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from headwater.log.commits.append_marks import AppendMarks
from headwater.log.home import Log
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.storage import checksums
from headwater.log.storage.checksums import LOOK_MIN, FileFacts
from headwater.log.topic import Topic

ROUNDS = 2 * LOOK_MIN * int(os.environ.get("HEADWATER_THOROUGH", "1"))


def replaced(log: Log, reader: Log, rounds: int) -> None:
    """Segments of a table that is compacted over and over, read here and by another one."""
    users: Topic = log.topic("users", "id INT, name STRING", key="id", compact=True)
    for number in range(rounds):
        users.append([{"id": 1, "name": f"{number}"}, {"id": 2, "name": f"{number}"}])
        compact_partition(users, 0, force=True)
        for each in (users, reader.get_topic("users")):
            assert [row["name"] for row in each.rows()] == [f"{number}"] * 2
            each.reader(0).append_marks(each.start_offsets()[0], each.end_offsets()[0])


def test_segments_that_were_replaced_are_forgotten(tmp_path: Path) -> None:
    before = len(checksums._compared)
    with Log(tmp_path / "home", maintenance_interval=None) as log, Log(tmp_path / "home") as reader:
        replaced(log, reader, ROUNDS)

        gc.collect()
        marks = [each for each in gc.get_objects() if isinstance(each, AppendMarks)]
        of_segments = [each for each in marks if each.cut_numbers.size]  # the one without marks is shared by all

    assert len(of_segments) <= 2 * LOOK_MIN + 2  # of each log, and those of the last segment
    assert len(checksums._compared) <= max(LOOK_MIN, 2 * before) + LOOK_MIN


def test_facts_of_files_that_are_there_stay_up_to_a_bound(tmp_path: Path) -> None:
    facts = FileFacts[int](most=100)
    paths = [tmp_path / str(number) for number in range(250)]
    for number, path in enumerate(paths):
        path.touch()
        facts.keep(path, number)
        facts.keep(path, number)
        assert len(facts) <= 100

    assert [facts.find(path) for path in paths[-50:]] == list(range(200, 250))
    assert facts.find(paths[0]) is None
