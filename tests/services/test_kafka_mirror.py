"""A home moved to Kafka and back, and a mirror that is killed: nothing is missing, twice, or in another order."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import random
import subprocess
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import app as command_line
from headwater.errors import Fenced
from headwater.kafka.kafka_log import KafkaLog
from headwater.log.contract import EventLog
from headwater.log.home import Log
from headwater.log.table import declare_table
from headwater.upkeep.log_mirror import LogMirror
from headwater.upkeep.mirror_position import promote
from tests.app_process import running
from tests.services.kafka_broker import KafkaBroker
from tests.waiting import eventually

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))


@pytest.fixture
def address(kafka: KafkaBroker) -> str:
    return f"kafka://{kafka.servers}?prefix={uuid.uuid4().hex[:8]}."


def filled(home: Path) -> None:
    """Topics of each kind, with everything that a row can have."""
    at = dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)
    with Log(home) as log:
        users = declare_table(
            log, "users", "id BIGINT, name STRING, at TIMESTAMP", key="id", partitions=3, event_time="at"
        )
        clicks = log.topic("clicks", "page STRING, raw BINARY, tags ARRAY<STRING>", partitions=2)
        payments = log.topic("payments", "account BIGINT, cents BIGINT", ordered_by="account", partitions=3)
        basket = declare_table(log, "basket", "fruit STRING")
        for n in range(30):
            said = hw.Metadata(actor="anna", correlation_id=f"c-{n}")
            with log.transaction(metadata=said if n % 2 else None) as t:
                t.upsert(users, [{"id": each, "name": f"{n}", "at": at} for each in range(n % 7, 40, 3)])
                t.append(payments, [{"account": each % 5, "cents": n * 100 + each} for each in range(20)])
            users.delete([{"id": n, "at": at + dt.timedelta(hours=1)}])
            clicks.append(
                [{"page": f"p{n}", "raw": bytes([n, 0]), "tags": ["a", None]} for _ in range(n)], partition=n % 2
            )
        basket.insert([{"fruit": each} for each in ("apple", "apple", "pear")])
        basket.delete([{"fruit": "apple"}])


def streams(log: EventLog) -> dict[tuple[Any, ...], list[str]]:
    """Of each topic the rows of each key, or of each partition where there is none, in order."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for name in ("users", "clicks", "payments", "basket"):
        topic = log.get_topic(name)
        routed = topic.settings.routed_by
        marks = ["_deleted"] if topic.settings.key else []
        columns = [*topic.schema.names, *marks, "_actor", "_correlation_id", "_partition"]
        for row in topic.rows(columns=columns):
            partition = row.pop("_partition")
            stream = (name, *(row[each] for each in routed)) if routed else (name, "partition", partition)
            found.setdefault(stream, []).append(repr(row))
    return found


def test_a_home_is_moved_to_kafka_and_back_with_the_order_of_each_key(address: str, tmp_path: Path) -> None:
    home, back = tmp_path / "home", tmp_path / "back"
    filled(home)

    there = CliRunner().invoke(command_line, ["migrate", str(home), "--to", address, "--json"])
    again = CliRunner().invoke(command_line, ["migrate", address, "--to", str(back), "--json"])

    assert (there.exit_code, json.loads(there.stdout)["equal"]) == (0, True), there.output
    assert (again.exit_code, json.loads(again.stdout)["equal"]) == (0, True), again.output
    assert "s3cret" not in there.output
    with Log(home) as one, KafkaLog(address) as kafka, Log(back) as last:
        wanted = streams(one)
        assert streams(kafka) == wanted
        assert streams(last) == wanted
        assert kafka.get_topic("users").settings == one.get_topic("users").settings
        declared = declare_table(kafka, "basket", "fruit STRING")
        assert Counter(row["fruit"] for row in declared.to_arrow().to_pylist()) == {"apple": 1, "pear": 1}


def test_a_mirror_that_is_killed_goes_on_where_it_was(address: str, tmp_path: Path) -> None:
    home, count, chance = tmp_path / "home", 12_000 * THOROUGH, random.Random(5)

    with Log(home) as source, KafkaLog(address) as target:
        orders = source.topic("orders", "id BIGINT", key="id", partitions=2)

        def write() -> None:
            for first in range(0, count, 100):
                orders.append([{"id": n} for n in range(first, first + 100)])

        def there() -> list[int]:
            topic = target.find_topic("orders")
            return [] if topic is None else [row["id"] for row in topic.rows()]

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(3 * THOROUGH):
            with running("headwater.cli.main", "mirror", home, "--to", address, stdout=subprocess.DEVNULL):
                grown = min(len(there()) + chance.randrange(1, 4_000), count)
                eventually(lambda grown=grown: len(there()) >= grown, "rows of the next process")
        writer.join()
    last = CliRunner().invoke(command_line, ["migrate", str(home), "--to", address, "--json"])

    assert (last.exit_code, json.loads(last.stdout)["equal"]) == (0, True), last.output
    with KafkaLog(address) as target:
        assert sorted(row["id"] for row in target.get_topic("orders").rows()) == list(range(count))


def test_a_mirror_to_kafka_that_stalls_over_a_promotion_writes_nothing(address: str, tmp_path: Path) -> None:
    with Log(tmp_path / "home") as source, KafkaLog(address) as target, KafkaLog(address) as other:
        orders = source.topic("orders", "x INT")
        orders.append([{"x": 1}])
        stalled = LogMirror(source, target)
        stalled.catch_up()
        orders.append([{"x": 2}])

        assert [each.epoch for each in promote(other)] == [2]
        with pytest.raises(Fenced, match="no copy any more"):
            stalled.catch_up()
        other.get_topic("orders").append([{"x": 7}])
        assert [row["x"] for row in other.get_topic("orders").rows()] == [1, 7]


def test_a_home_forwards_when_it_is_online(kafka: KafkaBroker, address: str, tmp_path: Path) -> None:
    home, ids = tmp_path / "edge", itertools.count()
    words = ("headwater.cli.main", "mirror", home, "--json", "--to", address)

    def there() -> list[int]:
        with KafkaLog(address) as target:
            topic = target.find_topic("readings")
            return [] if topic is None else [row["id"] for row in topic.rows()]

    with Log(home) as source:
        readings = source.topic("readings", "id BIGINT", partitions=2)

        def take_readings(count: int) -> None:
            for _ in range(count):
                readings.append([{"id": next(ids)} for _ in range(20)])

        take_readings(50)
        with running(*words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as forwarding:
            assert forwarding.stderr is not None
            eventually(lambda: len(there()) == 1_000, "what was written before")
            writer = threading.Thread(target=take_readings, args=(200,))
            writer.start()
            kafka.kill()  # in the middle of it
            writer.join()  # the home takes rows all the while
            said = [json.loads(forwarding.stderr.readline())]
            while "waiting" not in said[-1]:
                said.append(json.loads(forwarding.stderr.readline()))
            kafka.start()
            while said[-1] != {"waiting": None}:  # before it is ended: it says so after the rows are there
                said.append(json.loads(forwarding.stderr.readline()))
            eventually(lambda: len(there()) >= 5_000, "what was written while it was away")
            forwarding.terminate()

    # The first sentence may be about the transaction that was under way.
    assert f"Kafka at {kafka.servers} " in next(each["waiting"] for each in said if "waiting" in each)
    assert sorted(there()) == list(range(5_000)), "each once"


def test_a_mirror_may_begin_while_its_target_is_away(tmp_path: Path) -> None:
    told: list[Any] = []
    with Log(tmp_path / "edge") as source, KafkaLog("kafka://127.0.0.1:1") as target:
        source.topic("readings", "id BIGINT").append([{"id": 1}])

        LogMirror(source, target, on_waiting=told.append, patient=True).follow(lambda: bool(told))

    assert [each.code for each in told] == ["log_unavailable"]
