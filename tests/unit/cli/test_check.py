"""``headwater check`` and ``headwater maintain``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.log.home import Log
from tests.unit.command_line import CommandLine


@pytest.fixture
def headwater(tmp_path: Path) -> CommandLine:
    with Log(tmp_path / "home") as log:
        topic = log.topic("t", "id BIGINT", segment_bytes_max=1 << 20)
        topic.append([{"id": n} for n in range(1000)])
        topic.partition(0).roll()
        topic.append([{"id": 1000}])
    return CommandLine(tmp_path / "home")


def test_a_whole_home_is_clean(headwater: CommandLine) -> None:
    report = headwater.json("check")

    assert (report["ok"], report["rows"], report["problems"]) == (True, 1001, [])
    assert headwater("check").stdout.startswith("all is well: 1 topics")


def test_a_flipped_byte_is_told_with_status_5(headwater: CommandLine) -> None:
    headwater.json("maintain")
    sealed = next(headwater.home.rglob("*.parquet"))
    content = bytearray(sealed.read_bytes())
    content[len(content) // 2] ^= 0xFF
    sealed.write_bytes(content)

    people = headwater("check")
    programs = headwater("check", "--json")

    assert (people.exit_code, programs.exit_code) == (5, 5)
    assert sealed.name in people.stdout
    assert json.loads(programs.stdout)["ok"] is False


def test_maintaining_seals_what_was_rolled_and_then_has_nothing_to_do(headwater: CommandLine) -> None:
    first = headwater.json("maintain")
    second = headwater("maintain")

    assert first["ok"] is True
    assert second.stdout.startswith("nothing to do in ")


@pytest.mark.parametrize("verb", ["check", "maintain"])
def test_a_home_that_is_not_there_is_not_made(tmp_path: Path, verb: str) -> None:
    headwater = CommandLine(tmp_path / "nowhere")

    error = headwater.error(verb)

    assert (error["code"], error["exit_status"]) == ("invalid_declaration", 2)
    assert not headwater.home.exists()
