"""``headwater topic create|ls|describe|delete``."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli.log.create_topic import SETTING_OPTIONS
from headwater.log.topic_settings import SETTING_NAMES
from tests.unit.command_line import CommandLine

SCHEMA = "order_id BIGINT, amount DOUBLE, at TIMESTAMP"


@pytest.fixture
def headwater(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "home")


def test_a_created_topic_has_the_settings_that_were_asked_for(headwater: CommandLine) -> None:
    created = headwater.json(
        "topic",
        "create",
        "orders",
        "--schema",
        SCHEMA,
        "--key",
        "order_id",
        "--event-time",
        "at",
        "--partitions",
        "4",
        "--fsync",
        "always",
        "--fsync-interval",
        "20ms",
        "--segment-bytes-max",
        "64MiB",
        "--segment-age-max",
        "2h",
        "--retention",
        "7d",
        "--retention-bytes",
        "10GiB",
        "--archive",
        "old",
        "--compact",
        "--tombstone-grace",
        "1h",
        "--overflow",
        "block",
        "--overflow-rows-max",
        "1000",
        "--block-timeout",
        "5s",
        "--lateness",
        "30s",
        "--idle",
        "2m",
        "--until-read",
        "--group-expiry",
        "1d",
        "--values",
        "avro",
        "--proof",
    )

    assert created["outcome"] == "created"
    assert created["settings"] == {
        "key": ["order_id"],
        "event_time": "at",
        "lateness_ms": 30_000,
        "idle_ms": 120_000,
        "clock": None,
        "partitions": 4,
        "fsync": "always",
        "fsync_interval_ms": 20,
        "segment_bytes_max": 64 << 20,
        "segment_ms_max": 7_200_000,
        "retention_ms": 604_800_000,
        "retention_bytes": 10 << 30,
        "until_read": True,
        "archive": "old",
        "compact": True,
        "tombstone_grace_ms": 3_600_000,
        "overflow": "block",
        "overflow_rows_max": 1000,
        "block_timeout_ms": 5000,
        "remember_ids_ms": 604_800_000,
        "ordered_by": [],
        "group_expiry_ms": 86_400_000,
        "values": "avro",
        "partitioner": "murmur2",
        "captured_by": None,
        "events": False,
        "privacy": {},
        "rows_by": {},
        "proof": True,
    }


def test_every_setting_of_a_topic_has_an_option(headwater: CommandLine) -> None:
    settings = set(SETTING_NAMES) - {"captured_by", "events", "privacy", "rows_by"}  # declared in Python only
    text = headwater("topic", "create", "--help").stdout

    assert set(SETTING_OPTIONS) == settings
    assert [option for option in SETTING_OPTIONS.values() if option not in text] == []


def test_creating_again_says_what_changed(headwater: CommandLine) -> None:
    headwater("topic", "create", "orders", "--schema", SCHEMA, "--retention", "1d")

    same = headwater.json("topic", "create", "orders", "--schema", SCHEMA)
    settings = headwater.json("topic", "create", "orders", "--schema", SCHEMA, "--retention", "forever")
    schema = headwater.json("topic", "create", "orders", "--schema", f"{SCHEMA}, coupon STRING")

    assert same["outcome"] == "exists, unchanged"
    assert settings["outcome"] == "changed its settings"
    assert settings["settings"]["retention_ms"] is None
    assert schema["outcome"] == "changed to schema version 2"


def test_what_never_changes_is_refused(headwater: CommandLine) -> None:
    headwater("topic", "create", "orders", "--schema", SCHEMA, "--partitions", "4")

    error = headwater.error("topic", "create", "orders", "--schema", SCHEMA, "--partitions", "3")

    assert (error["code"], error["exit_status"]) == ("declaration_conflict", 2)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--retention", "7 parsecs", "'7 parsecs' is not a duration"),
        ("--retention", "7", "'7' is not a duration"),
        ("--segment-bytes-max", "much", "'much' is not a size"),
        ("--overflow-rows-max", "some", "'some' is not a whole number of rows"),
        ("--fsync", "sometimes", "fsync cannot be 'sometimes'"),
    ],
)
def test_a_value_that_cannot_be_read_is_refused(headwater: CommandLine, option: str, value: str, message: str) -> None:
    error = headwater.error("topic", "create", "orders", "--schema", SCHEMA, option, value)

    assert (error["message"], error["exit_status"]) == (message, 2)
    assert error["hint"]


def test_topics_are_listed_for_people_and_for_programs(headwater: CommandLine) -> None:
    headwater("topic", "create", "orders", "--schema", SCHEMA, "--key", "order_id")
    headwater("topic", "create", "clicks", "--schema", "url STRING")

    people = headwater("topic", "ls").stdout
    programs = headwater.json("topic", "ls")

    assert "order_id BIGINT NOT NULL, amount DOUBLE" in people
    assert [topic["name"] for topic in programs] == ["clicks", "orders"]


def test_a_description_has_partitions_and_groups(headwater: CommandLine) -> None:
    from headwater.log.home import Log

    headwater("topic", "create", "orders", "--schema", SCHEMA, "--partitions", "2")
    with Log(headwater.home) as log:
        log.get_topic("orders").append([{"order_id": 1}])
        log.get_topic("orders").consumer("billing").close()

    people = headwater("topic", "describe", "orders").stdout
    programs = headwater.json("topic", "describe", "orders")

    assert "billing" in people
    assert len(programs["partitions"]) == 2
    assert [group["lag_total"] for group in programs["groups"]] == [1]


def test_a_topic_is_deleted_only_after_a_yes(headwater: CommandLine) -> None:
    headwater("topic", "create", "orders", "--schema", SCHEMA)

    unasked = headwater.error("topic", "delete", "orders")
    deleted = headwater.json("topic", "delete", "orders", "--yes")

    assert unasked["hint"] == "Add --yes."
    assert deleted == {"topic": "orders", "deleted_rows": 0}
    assert headwater.json("topic", "ls") == []


def test_an_unknown_topic_is_told_with_its_neighbour(headwater: CommandLine) -> None:
    headwater("topic", "create", "orders", "--schema", SCHEMA)

    result = headwater("topic", "describe", "order")

    assert result.exit_code == 2
    assert result.stderr.splitlines() == ['error: no topic "order" in this home', '  hint: Did you mean "orders"?']
