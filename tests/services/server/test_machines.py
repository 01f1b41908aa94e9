"""Two machines and one app: the log on Kafka, the state on S3, a home for each machine, and nothing else in common."""

from __future__ import annotations

import os
import signal
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.testing.postgres_server import PostgresServer
from tests.services.kafka_broker import KafkaBroker
from tests.services.s3_server import CREDENTIALS, S3Server
from tests.services.server.followers import EventFollower
from tests.services.server.processes import ServerProcess
from tests.services.server.test_engine import runs
from tests.waiting import eventually

APP = Path(__file__).parent / "shared_shop_app.py"
SPARK_S = 120.0

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def place(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("machines")
    server = S3Server(folder)
    server.start()
    postgres = PostgresServer()
    postgres.start()
    yield {
        **CREDENTIALS,
        "SHARED_SHOP_SERVE": postgres.dsn,
        "SHARED_SHOP_LOG": f"kafka://{kafka.servers}?prefix={uuid.uuid4().hex[:8]}.",
        "SHARED_SHOP_STATE": server.address("shop", settings="&lease_seconds=8"),
        "SHARED_SHOP_SINK": str(folder / "sink.db"),
    }
    server.kill()
    postgres.stop()


def reader(name: str, place: dict[str, str], folder: Path) -> ServerProcess:
    """A server that runs no engine, and has nothing on its disk."""
    home = folder / name / "home"
    home.parent.mkdir(parents=True, exist_ok=True)
    return ServerProcess(home, app=APP, environment={**place, "SHARED_SHOP_HOME": str(home)})


def machine(name: str, place: dict[str, str], folder: Path) -> ServerProcess:
    home = folder / name / "home"
    home.parent.mkdir(parents=True, exist_ok=True)
    return ServerProcess(home, "--standby", engine=True, app=APP, environment={**place, "SHARED_SHOP_HOME": str(home)})


def health(server: ServerProcess) -> dict[str, Any]:
    return server.http.get("/health/ready").json()


def upsert(server: ServerProcess, *orders: tuple[int, str, int]) -> str:
    rows = [{"order_id": i, "country": country, "amount": amount} for i, country, amount in orders]
    return server.post("/v1/tables/orders/rows", rows)["token"]


def revenue(server: ServerProcess, token: str) -> dict[str, int]:
    """The view over HTTP, not older than a token."""

    def look() -> dict[str, int] | None:
        answer = server.http.get("/v1/views/revenue/rows", params={"at_least": token, "wait": 5})
        if answer.status_code != 200:
            return None
        return {row["country"]: row["total"] for row in answer.json()["rows"]}

    found = eventually(look, seconds=SPARK_S)
    assert isinstance(found, dict)
    return found


def delivered(place: dict[str, str]) -> dict[str, int]:
    with sqlite3.connect(place["SHARED_SHOP_SINK"]) as db:
        return dict(db.execute("SELECT country, total FROM revenue"))


def engine_of(server: ServerProcess) -> int:
    return int(health(server)["engine"]["pid"])


def test_another_machine_goes_on_when_one_is_killed_or_stalls(place: dict[str, str], tmp_path: Path) -> None:
    one = machine("one", place, tmp_path)
    eventually(lambda: health(one)["role"] == "active" and health(one)["engine"]["state"] == "running", seconds=SPARK_S)
    first = upsert(one, (1, "DE", 5), (2, "FR", 7))
    assert revenue(one, first) == {"DE": 5, "FR": 7}

    # Two servers without an engine read from PostgreSQL.
    three, four = reader("three", place, tmp_path), reader("four", place, tmp_path)
    assert revenue(three, first) == revenue(four, first) == {"DE": 5, "FR": 7}
    assert three.get("/v1/views/revenue/rows?key=FR")["rows"] == [{"country": "FR", "total": 7}]
    assert three.get('/v1/views/revenue/rows?where={"total":5}')["rows"] == [{"country": "DE", "total": 5}]
    assert "Ask PostgreSQL itself" in four.post("/v1/query", {"sql": "SELECT 1"}, status=400)["error"]["hint"]
    eventually(lambda: health(four)["ready"])
    assert health(four)["role"] == "reader"

    # The second machine stands by. It takes rows in, and answers, since the log and the state are not of one machine.
    two = machine("two", place, tmp_path)
    eventually(lambda: health(two)["role"] == "standby", seconds=SPARK_S)
    eventually(lambda: health(two)["ready"])
    second = upsert(two, (3, "IT", 1))
    assert revenue(two, second) == revenue(one, second) == {"DE": 5, "FR": 7, "IT": 1}
    assert health(two)["role"] == "standby"
    follower = EventFollower(two.address)
    follower.wait_for(1)

    # The engine of the first machine stalls. The second one takes over; the server of the first one sees that, ends
    # the engine, which could only serve what is old, and stands by.
    before, stalled = health(one)["engine"], engine_of(one)
    os.killpg(stalled, signal.SIGSTOP)
    third = upsert(one, (2, "FR", 70))
    expected = {"DE": 5, "FR": 70, "IT": 1}
    assert revenue(two, third) == expected
    assert (health(two)["role"], health(two)["engine"]["epoch"]) == ("active", before["epoch"] + 1)
    eventually(lambda: health(one)["role"] == "standby", seconds=SPARK_S)
    assert not runs(stalled)
    assert revenue(one, third) == expected
    eventually(lambda: delivered(place) == expected)
    assert revenue(three, third) == revenue(four, third) == expected

    # Kill -9 of all of the second machine, and of one of the readers.
    three.kill()
    engine = engine_of(two)
    os.killpg(engine, signal.SIGKILL)
    two.kill()
    fourth = upsert(one, (1, "PL", 6), (4, "DE", 2))
    expected = {"DE": 2, "FR": 70, "IT": 1, "PL": 6}
    assert revenue(one, fourth) == expected
    assert (health(one)["role"], health(one)["engine"]["epoch"]) == ("active", before["epoch"] + 2)
    assert revenue(four, fourth) == expected
    assert [each["equal"] for each in one.post("/v1/views/revenue/verify")["views"]] == [True]
    eventually(lambda: delivered(place) == expected)

    # A subscriber of the second machine goes on at the first one, with its token and without a new copy.
    follower.address = one.address
    assert follower.wait_for(one.get("/v1/status")["tick"]["tick"]).rows == expected
    assert (follower.copy.resets, follower.copy.snapshots) == (0, 1)
    follower.stop()
    four.stop()
    one.stop()
