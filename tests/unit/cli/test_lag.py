"""``headwater lag`` and ``headwater app forget``: every reader, groups, apps and sinks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.home import Log
from headwater.views.state.manifest import Manifest, Manifests
from tests.unit.command_line import CommandLine


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home") as log:
        orders = log.topic("orders", "id BIGINT", retention="7 days")
        orders.append([{"id": n} for n in range(20)])
        orders.consumer("billing").close()
        manifests = Manifests(log.catalog, "shop")
        epoch = manifests.take_over()
        for tick, offset in ((1, 5), (2, 12)):
            topics = {"orders": orders.id}
            manifests.commit(Manifest(tick=tick, epoch=epoch, frontier={"orders": {0: offset}}, topics=topics))
        status = {"sink": "copy", "view": "revenue", "state": "retrying", "tick": 1}
        with log.catalog.write() as db:
            db.execute("INSERT INTO sinks VALUES ('shop/revenue/copy', 'shop', 'copy', ?)", (json.dumps(status),))
        yield log


@pytest.fixture
def headwater(log: Log) -> CommandLine:
    return CommandLine(log.home)


def test_groups_apps_and_sinks_are_listed(headwater: CommandLine) -> None:
    found = headwater.json("lag")
    shown = headwater("lag").stdout

    assert [(each["topic"], each["reader"], each["kind"], each["lag"]) for each in found["readers"]] == [
        ("orders", "billing", "consumer", 20),
        ("orders", "shop", "app", 8),
    ]
    assert [(each["sink"], each["lag_ticks"], each["lag_rows"]) for each in found["sinks"]] == [("copy", 1, 7)]
    assert found["readers"][1]["positions"] == {"0": 12}
    assert 0 <= found["readers"][0]["retention_part"] < 0.01
    assert all(word in shown for word in ("billing", "shop", "copy"))


def test_one_topic_is_enough(headwater: CommandLine, log: Log) -> None:
    log.topic("quiet", "id BIGINT")

    assert headwater.json("lag", "--topic", "quiet") == {"readers": [], "sinks": []}
    assert "has a reader" in headwater("lag", "--topic", "quiet").stdout


def test_a_tick_that_reads_a_topic_no_longer_lets_go_of_it(headwater: CommandLine, log: Log) -> None:
    manifests = Manifests(log.catalog, "shop")

    manifests.commit(Manifest(tick=3, epoch=manifests.epoch()))

    assert [each["reader"] for each in headwater.json("lag")["readers"]] == ["billing"]


def test_an_app_is_forgotten(headwater: CommandLine) -> None:
    forgotten = headwater.json("app", "forget", "shop")
    again = headwater.error("app", "forget", "shop")

    assert forgotten == {"app": "shop", "forgotten": ["orders"]}
    assert (again["code"], again["exit_status"]) == ("unknown_app", 2)
    assert [each["reader"] for each in headwater.json("lag")["readers"]] == ["billing"]
