"""Descriptors: more partitions than a process may have files open, and what it says when there are none left."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import headwater as hw
from headwater.log.storage.file_descriptors import DESCRIPTORS, HeldFiles

ROOT = Path(__file__).parents[4]
FILES_MAX = 256
PARTITIONS, TOPICS = 100, 6


def limited(files: int = FILES_MAX) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


def program(text: str, home: Path, *, files: int = FILES_MAX) -> subprocess.CompletedProcess[str]:
    """A Python program that may have so many files open."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), str(home)],
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=lambda: limited(files),
        check=False,
    )


def command(*words: str, files: int = FILES_MAX) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater.cli.main", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        preexec_fn=lambda: limited(files),
        check=False,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with far more partitions than descriptors, each appended to by turns, twice."""
    home = tmp_path_factory.mktemp("descriptors") / "home"
    done = program(
        f"""
        import sys, headwater as hw
        with hw.Log(sys.argv[1], maintenance_interval=None) as log:
            topics = [log.topic(f"t{{n}}", "id BIGINT", partitions={PARTITIONS}) for n in range({TOPICS})]
            for turn in range(2):
                for topic in topics:
                    for number in range({PARTITIONS}):
                        topic.append([{{"id": number}}])
        """,
        home,
    )
    assert done.returncode == 0, done.stderr
    return home


def test_more_partitions_than_descriptors_are_read_and_followed(home: Path) -> None:
    done = program(
        f"""
        import json, sys, headwater as hw
        with hw.Log(sys.argv[1], maintenance_interval=None) as log:
            followers = [topic.read("earliest", follow=True, timeout=0) for topic in log.topics()]
            for topic in log.topics():
                assert sorted(row["id"] for row in topic.rows()) == sorted(2 * list(range({PARTITIONS})))
                assert set(topic.end_offsets().values()) == {{2}}
            print(json.dumps([sum(batch.num_rows for batch in follower) for follower in followers]))
        """,
        home,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [2 * PARTITIONS] * TOPICS


@pytest.mark.parametrize("words", [("topic", "ls"), ("check",), ("doctor",)], ids=" ".join)
def test_the_command_line_works_with_more_partitions_than_descriptors(home: Path, words: tuple[str, ...]) -> None:
    done = command(*words, "--home", str(home))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "damaged" not in (done.stdout + done.stderr).lower()


def test_a_topic_of_more_partitions_than_descriptors_is_deleted_and_whoever_had_it_is_told(tmp_path: Path) -> None:
    done = program(
        """
        import sys, headwater as hw
        still = {"maintenance_interval": None}
        with hw.Log(sys.argv[1], **still) as log, hw.Log(sys.argv[1], **still) as other:
            topic = log.topic("t", "id BIGINT", partitions=300)
            topic.append([{"id": 1}])
            held = other.get_topic("t")
            held.end_offsets()
            log.delete_topic("t")
            try:
                for _ in range(300):
                    held.append([{"id": 1}])
            except hw.HeadwaterError as error:
                print(error.message)
        """,
        tmp_path / "home",
    )

    assert done.stdout.strip() == 'topic "t" was deleted', done.stderr
    assert not list((tmp_path / "home" / "topics").iterdir())


@pytest.mark.parametrize("verb", ["check", "append", "open"])
def test_out_of_descriptors_is_told_as_that_and_never_as_damage(tmp_path: Path, verb: str) -> None:
    done = program(
        f"""
        import json, os, sys, headwater as hw
        from headwater.log.maintenance.home_check import check_home
        log = hw.Log(sys.argv[1], maintenance_interval=None)
        topic = log.topic("t", "id BIGINT", partitions=8)
        topic.append([{{"id": 1}}])
        if {verb!r} == "open":
            log.close()
        taken = []
        from headwater.log.storage.file_descriptors import DESCRIPTORS
        DESCRIPTORS.close_idle()
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        verbs = {{"check": log.check, "append": lambda: topic.append([{{"id": 1}}])}}
        try:
            verbs.get({verb!r}, lambda: check_home(sys.argv[1]))()
        except hw.HeadwaterError as error:
            told = error.to_dict()
        for fd in taken:
            os.close(fd)
        print(json.dumps(told))
        if {verb!r} != "open":
            topic.append([{{"id": 2}}])
        assert check_home(sys.argv[1]).ok
        """,
        tmp_path / "home",
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["code"], told["data"]) == ("too_many_files", {"open_files_max": FILES_MAX})
    assert "ulimit -n" in told["hint"]


def test_a_file_in_use_stays_open_while_idle_ones_are_closed(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("used", "idle")]
    for path in paths:
        path.write_text(path.name)
    used, idle = (HeldFiles([path], os.O_RDONLY) for path in paths)
    with idle as (fd,):
        number_of_idle = fd

    with used as (fd,):
        assert DESCRIPTORS.close_idle()
        assert os.pread(fd, 9, 0) == b"used"
        with pytest.raises(OSError):
            os.fstat(number_of_idle)
        used.close()
        assert os.pread(fd, 9, 0) == b"used", "given back when the last user has done"

    with idle as (fd,):
        assert os.pread(fd, 9, 0) == b"idle"
    idle.close()


def test_rows_stay_right_when_descriptors_are_taken_away_between_any_two_calls(tmp_path: Path) -> None:
    with hw.Log(tmp_path / "home", maintenance_interval=None) as log:
        topic = log.topic("t", "id BIGINT", segment_bytes_max=2000)
        follower = topic.read("earliest", follow=True, timeout=0)
        seen = []
        for number in range(60):
            topic.append([{"id": number}], producer="p", sequence=number)
            DESCRIPTORS.close_idle()
            topic.append([{"id": number}], producer="p", sequence=number)
            if number % 7 == 0:
                topic.partition(0).sync()
                DESCRIPTORS.close_idle()
            if number % 20 == 10:
                log.maintain()
                DESCRIPTORS.close_idle()
        for batch in follower:
            seen += [row["id"] for row in batch.to_pylist()]
            DESCRIPTORS.close_idle()

        assert seen == list(range(60))
        assert log.check().ok
