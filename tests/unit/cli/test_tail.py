"""``headwater topic tail``: which rows, and how they are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.log.home import Log
from tests.unit.command_line import CommandLine


@pytest.fixture
def headwater(tmp_path: Path) -> CommandLine:
    home = tmp_path / "home"
    with Log(home) as log:
        topic = log.topic("t", "id BIGINT, name STRING", key="id", partitions=3)
        for n in range(30):
            topic.append([{"id": n, "name": f"name {n}"}])
    return CommandLine(home)


def rows(headwater: CommandLine, *words: str) -> list[dict[str, Any]]:
    result = headwater("topic", "tail", "t", "--json", *words)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_last_rows_over_all_partitions_are_shown_in_the_order_of_their_appends(headwater: CommandLine) -> None:
    assert [row["id"] for row in rows(headwater)] == list(range(20, 30))
    assert [row["id"] for row in rows(headwater, "-n", "3")] == [27, 28, 29]
    assert rows(headwater, "-n", "0") == []


def test_from_a_place_on_the_first_rows_are_shown(headwater: CommandLine) -> None:
    everything = rows(headwater, "--from", "earliest")
    two = rows(headwater, "--from", "2", "--partition", "1", "-n", "2", "--meta")

    assert sorted(row["id"] for row in everything) == list(range(30))
    assert [(row["_partition"], row["_offset"]) for row in two] == [(1, 2), (1, 3)]
    assert rows(headwater, "--from", "latest") == []


def test_a_time_is_a_place(headwater: CommandLine) -> None:
    assert len(rows(headwater, "--from", "1h")) == 30
    assert len(rows(headwater, "--from", "2020-01-01")) == 30
    assert rows(headwater, "--from", "2199-01-01T00:00Z") == []


def test_json_lines_can_be_appended_again(headwater: CommandLine) -> None:
    headwater("topic", "create", "copy", "--schema", "id BIGINT, name STRING", "--key", "id")
    text = headwater("topic", "tail", "t", "--from", "earliest", "--json").stdout

    headwater("topic", "append", "copy", stdin=text)

    with Log(headwater.home) as log:
        assert sorted(row["id"] for row in log.get_topic("copy").rows()) == list(range(30))


def test_people_get_aligned_columns(headwater: CommandLine) -> None:
    lines = headwater("topic", "tail", "t", "--from", "earliest").stdout.splitlines()

    assert lines[0].split() == ["id", "name"]
    assert {line.index("name") for line in lines} == {lines[0].index("name")}


def test_only_the_asked_columns_are_shown_in_their_order(headwater: CommandLine) -> None:
    assert list(rows(headwater, "-n", "1", "--columns", "name,id")[0].items()) == [("name", "name 29"), ("id", 29)]
    assert set(rows(headwater, "-n", "1", "--columns", "name", "--meta")[0]) == {
        "_partition",
        "_offset",
        "_appended_at",
        "name",
    }


def test_meta_shows_who_did_it(headwater: CommandLine) -> None:
    words = ("--actor", "anna", "--correlation-id", "c-7", "--causation-id", "click")
    headwater("topic", "append", "t", *words, stdin='{"id": 7, "name": "x"}')
    headwater("topic", "append", "t", stdin='{"id": 8, "name": "y"}')

    named, plain = ({**row} for row in rows(headwater, "-n", "2", "--meta"))
    assert {name: named.get(name) for name in ("id", "_actor", "_correlation_id", "_causation_id")} == {
        "id": 7,
        "_actor": "anna",
        "_correlation_id": "c-7",
        "_causation_id": "click",
    }
    assert "_actor" not in plain
    assert rows(headwater, "-n", "2", "--columns", "_actor,id") == [
        {"_actor": "anna", "id": 7},
        {"_actor": None, "id": 8},
    ]
    assert set(rows(headwater, "-n", "2")[0]) == {"id", "name"}


def test_a_delete_is_told_from_a_row_of_nulls(headwater: CommandLine) -> None:
    with Log(headwater.home) as log:
        log.get_topic("t").delete([{"id": 7}])

    assert rows(headwater, "-n", "1") == [{"id": 7, "name": None, "_deleted": True}]
    assert headwater("topic", "tail", "t", "-n", "1").stdout.splitlines()[1].endswith("(deleted)")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "yesterday"), "'yesterday' is not a place in a topic"),
        (("--columns", "nmae"), 'topic "t" has no column "nmae"'),
        (("--partition", "9"), 'topic "t" has no partition 9'),
        (("--from", "99"), 'offset 99 is after the end of topic "t" partition 0'),
    ],
)
def test_a_wrong_question_is_misuse(headwater: CommandLine, words: tuple[str, ...], message: str) -> None:
    error = headwater.error("topic", "tail", "t", *words)

    assert (error["message"], error["exit_status"]) == (message, 2)
