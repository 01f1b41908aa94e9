"""The command line as real processes: following, being interrupted, being cut off."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.home import Log
from tests.unit.command_line import CommandLine

WAIT_S = 60


@pytest.fixture
def headwater(tmp_path: Path) -> CommandLine:
    with Log(tmp_path / "home") as log:
        log.topic("t", "x BIGINT", partitions=2).append([{"x": n} for n in range(10_000)])
    return CommandLine(tmp_path / "home")


@pytest.fixture
def follower(headwater: CommandLine) -> Iterator[subprocess.Popen[str]]:
    process = headwater.start("topic", "tail", "t", "-f", "--json", "-n", "1")
    guard = threading.Timer(WAIT_S, process.kill)  # a test that waits for ever fails instead
    guard.start()
    yield process
    guard.cancel()
    process.kill()
    process.communicate()


def test_a_follower_is_woken_by_another_process(headwater: CommandLine, follower: subprocess.Popen[str]) -> None:
    assert follower.stdout is not None
    first = json.loads(follower.stdout.readline())

    appended = headwater.start("topic", "append", "t")
    appended.communicate('{"x": 77777}\n', timeout=WAIT_S)
    second = json.loads(follower.stdout.readline())

    assert (first, second) == ({"x": 9999}, {"x": 77777})


def test_a_follower_shows_a_column_that_is_added(headwater: CommandLine, follower: subprocess.Popen[str]) -> None:
    assert follower.stdout is not None
    follower.stdout.readline()

    with Log(headwater.home) as log:
        log.topic("t", "x BIGINT, y STRING", partitions=2).append([{"x": 1, "y": "new"}])

    assert json.loads(follower.stdout.readline()) == {"x": 1, "y": "new"}


def test_an_interrupted_follower_ends_well(follower: subprocess.Popen[str]) -> None:
    assert follower.stdout is not None
    follower.stdout.readline()

    follower.send_signal(signal.SIGINT)
    _, words = follower.communicate(timeout=WAIT_S)

    assert (follower.returncode, words) == (0, "")


def test_a_follower_goes_when_its_reader_goes(follower: subprocess.Popen[str]) -> None:
    assert follower.stdout is not None
    follower.stdout.readline()

    follower.stdout.close()  # nothing is appended: it must notice by itself
    follower.wait(timeout=WAIT_S)

    assert follower.returncode == 0


def test_a_closed_pipe_is_no_error(headwater: CommandLine) -> None:
    process = headwater.start("topic", "tail", "t", "--from", "earliest")
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=WAIT_S)

    assert (process.returncode, process.stderr.read()) == (0, "")


def test_a_slow_pipe_is_appended_as_it_comes(headwater: CommandLine, follower: subprocess.Popen[str]) -> None:
    assert follower.stdout is not None
    follower.stdout.readline()
    appending = headwater.start("topic", "append", "t")
    assert appending.stdin is not None

    appending.stdin.write('{"x": 1}\n')
    appending.stdin.flush()
    seen = json.loads(follower.stdout.readline())  # though the pipe is open still, and the batch not full
    appending.communicate('{"x": 2}\n', timeout=WAIT_S)

    assert seen == {"x": 1}
    assert json.loads(follower.stdout.readline()) == {"x": 2}


def test_an_interrupted_append_says_what_was_written(headwater: CommandLine, follower: subprocess.Popen[str]) -> None:
    assert follower.stdout is not None
    follower.stdout.readline()
    appending = headwater.start("topic", "append", "t")
    assert appending.stdin is not None
    for line in ('{"x": 1}\n', '{"x": 2}\n'):  # when the second is seen, the first is counted
        appending.stdin.write(line)
        appending.stdin.flush()
        follower.stdout.readline()

    appending.send_signal(signal.SIGINT)
    _, words = appending.communicate(timeout=WAIT_S)

    assert appending.returncode == 130
    assert re.fullmatch(r"interrupted; [12] rows were written, the current batch possibly\n", words)
