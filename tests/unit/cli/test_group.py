"""``headwater group ls|describe|reset|delete|redrive``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import Fenced
from headwater.log.home import Log
from tests.unit.command_line import CommandLine


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home") as log:
        topic = log.topic("orders", "id BIGINT", partitions=2)
        for n in range(20):
            topic.append([{"id": n}])
        topic.consumer("billing").close()
        topic.worker("senders").close()
        yield log


@pytest.fixture
def headwater(log: Log) -> CommandLine:
    return CommandLine(log.home)


def test_groups_are_listed_with_their_lag(headwater: CommandLine) -> None:
    listed = headwater.json("group", "ls")

    assert [(group["group"], group["kind"], group["lag_total"]) for group in listed] == [
        ("billing", "consumer", 20),
        ("senders", "work", 20),
    ]
    assert headwater.json("group", "ls", "--topic", "orders") == listed
    assert "billing" in headwater("group", "ls").stdout


def test_a_description_shows_owners(headwater: CommandLine, log: Log) -> None:
    consumer = log.get_topic("orders").consumer("billing", member="ada")

    people = headwater("group", "describe", "billing", "--topic", "orders").stdout
    programs = headwater.json("group", "describe", "billing", "--topic", "orders")

    assert people.count(consumer.member) == 3  # two partitions, one member
    assert programs["members"][0]["partitions"] == [0, 1]
    consumer.close()


def test_a_reset_moves_the_group(headwater: CommandLine) -> None:
    moved = headwater.json("group", "reset", "billing", "--topic", "orders", "--to", "latest")
    back = headwater.json("group", "reset", "billing", "--topic", "orders", "--to", "3", "--partition", "1")

    assert moved["positions"] == {"0": 10, "1": 10}
    assert back["positions"] == {"0": 10, "1": 3}
    assert "+7" in headwater("group", "reset", "billing", "-t", "orders", "--to", "latest").stdout


def test_a_reset_under_active_members_needs_force(headwater: CommandLine, log: Log) -> None:
    consumer = log.get_topic("orders").consumer("billing")

    error = headwater.error("group", "reset", "billing", "--topic", "orders", "--to", "latest")
    forced = headwater.json("group", "reset", "billing", "--topic", "orders", "--to", "latest", "--force")

    assert (error["code"], error["exit_status"]) == ("conflict", 3)
    assert forced["positions"] == {"0": 10, "1": 10}
    consumer.close()


def test_an_unknown_group_is_told_with_those_there_are(headwater: CommandLine) -> None:
    error = headwater.error("group", "describe", "biling", "--topic", "orders")

    assert (error["code"], error["exit_status"]) == ("unknown_group", 2)
    assert error["detail"] == "Its groups are: billing, senders."


def test_a_group_is_deleted_and_its_topic_may_be_left_out(headwater: CommandLine, log: Log) -> None:
    deleted = headwater.json("group", "delete", "billing")

    assert deleted == {"topic": "orders", "group": "billing", "deleted": True, "positions": {"0": 0, "1": 0}}
    assert [group.name for group in log.get_topic("orders").groups()] == ["senders"]
    assert "deleted group" in headwater("group", "delete", "senders", "--topic", "orders").stdout


def test_the_topic_is_asked_for_when_several_have_the_group(headwater: CommandLine, log: Log) -> None:
    log.topic("payments", "id BIGINT").consumer("billing").close()

    several = headwater.error("group", "delete", "billing")
    unknown = headwater.error("group", "delete", "nobody")

    assert several["message"] == '2 topics have a group "billing": orders, payments'
    assert several["hint"] == "Name one: --topic TOPIC"
    assert (unknown["code"], unknown["message"]) == ("unknown_group", 'no topic has a group "nobody"')


def test_deleting_under_active_members_needs_force(headwater: CommandLine, log: Log) -> None:
    consumer = log.get_topic("orders").consumer("billing")

    error = headwater.error("group", "delete", "billing", "--topic", "orders")
    headwater("group", "delete", "billing", "--topic", "orders", "--force")

    assert (error["code"], error["exit_status"]) == ("conflict", 3)
    with pytest.raises(Fenced):
        consumer.poll(timeout=0)
    consumer.close()


def test_dead_letters_are_put_back(headwater: CommandLine, log: Log) -> None:
    orders = log.get_topic("orders")
    with orders.worker("senders") as worker:
        worker.reject(worker.take(3, timeout=5), "down")

    some = headwater.json("group", "redrive", "senders", "--limit", "2")
    rest = headwater("group", "redrive", "senders", "--topic", "orders").stdout
    wrong = headwater.error("group", "redrive", "billing")

    assert some == {"topic": "orders", "group": "senders", "redriven": 2, "gone": 0, "left": 1}
    assert "put back 1 messages" in rest
    assert wrong["code"] == "misuse"
    assert "put back" in headwater("group", "describe", "senders", "--topic", "orders").stdout
