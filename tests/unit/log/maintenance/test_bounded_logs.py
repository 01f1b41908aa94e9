"""Files that processes print into are cut while their writers go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headwater.log.maintenance.bounded_logs import bounded
from headwater.log.storage.files import Files

WRITER = "import sys\nfor line in sys.stdin: sys.stderr.write(line); sys.stderr.flush(); print(flush=True)"


def test_a_file_is_cut_and_its_writer_goes_on_at_the_new_beginning(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    with open(path, "ab", buffering=0) as log:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert writer.stdin is not None
    assert writer.stdout is not None

    def say(text: str) -> None:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write(text + "\n")
        writer.stdin.flush()
        writer.stdout.readline()  # it is written

    say("first")
    assert not bounded(path, Files(), bytes_max=100)
    say("x" * 200 + "last")
    assert bounded(path, Files(), bytes_max=100)
    say("and on")
    kept = (tmp_path / "engine.log.1").read_text()
    say("y" * 200)
    assert bounded(path, Files(), bytes_max=100)
    writer.communicate()

    assert kept == "x" * 95 + "last\n"
    assert (tmp_path / "engine.log.1").read_text() == "y" * 99 + "\n"
    assert path.read_text() == ""
    assert sorted(os.listdir(tmp_path)) == ["engine.log", "engine.log.1"]


def test_a_file_that_is_not_there_is_none_to_cut(tmp_path: Path) -> None:
    assert not bounded(tmp_path / "engine.log", Files())
