"""The engine: a real Spark beside a real server, killed and mourned, while subscribers keep their copies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from headwater.log.home import Log
from headwater.log.topic import Topic
from tests.services.server.conftest import declared
from tests.services.server.followers import EventFollower, Follower, SocketFollower
from tests.services.server.processes import ServerProcess
from tests.waiting import eventually

SPARK_S = 120.0


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with declared(tmp_path_factory.mktemp("engine") / "home") as log:
        yield log


@pytest.fixture(scope="module")
def server(log: Log) -> Iterator[ServerProcess]:
    log.get_topic("orders").append([{"order_id": 1, "country": "DE", "amount": 5}])
    server = ServerProcess(log.home, engine=True)
    eventually(lambda: state(server)["state"] == "running", seconds=SPARK_S)
    eventually(lambda: server.get("/v1/status")["tick"]["tick"], seconds=SPARK_S)
    yield server
    pids = [pid for pid in (state(server)["pid"], state(server)["standby_pid"]) if pid is not None]
    server.kill()
    eventually(lambda: not any(map(runs, pids)))  # an engine whose server is gone ends by itself


def runs(pid: int) -> bool:
    """Whether a process is at work; one that has ended may wait for somebody to ask how."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def state(server: ServerProcess) -> dict[str, Any]:
    return server.http.get("/health/ready").json()["engine"]


def append(orders: Topic, *rows: tuple[int, str, int]) -> str:
    return str(orders.append([{"order_id": i, "country": country, "amount": amount} for i, country, amount in rows]))


def ask(server: ServerProcess, sql: str, status: int = 200, **more: Any) -> Any:
    return server.post("/v1/query", {"sql": sql, "engine": "spark", **more}, status=status)


def test_what_is_appended_over_http_is_in_the_next_answer(server: ServerProcess) -> None:
    token = server.post("/v1/topics/orders/records", [{"order_id": 2, "country": "FR", "amount": 7}])["token"]

    from_store = server.post("/v1/query", {"sql": "SELECT * FROM revenue ORDER BY country", "at_least": token})
    from_spark = ask(server, "SELECT * FROM revenue ORDER BY country DESC", at_least=token)

    assert from_store["rows"] == [{"country": "DE", "total": 5}, {"country": "FR", "total": 7}]
    assert from_spark["rows"] == from_store["rows"][::-1]
    assert ask(server, "SELECT count(*) AS n FROM orders")["rows"] == [{"n": 2}]
    capped = ask(server, "SELECT id FROM range(100000)", limit=3)
    assert (len(capped["rows"]), capped["truncated"]) == (3, True)


def test_the_events_behind_a_row_are_told_over_http(server: ServerProcess) -> None:
    found = server.get("/v1/views/revenue/why?key=DE&limit=5")
    unknown = server.http.get("/v1/views/revenue/why?key=XX")

    (orders,) = found["inputs"]
    assert (found["rows"], found["exact"], orders["topic"]) == ([{"country": "DE", "total": 5}], True, "orders")
    assert [event["row"]["order_id"] for event in orders["events"]] == [1]
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_row")


# The rest is in tests/unit/views/serving/test_query_admission.py.
NOT_READS = [
    "DROP TABLE orders",
    "SELECT reflect('java.lang.System', 'exit', 0)",
    "SELECT no_such FROM orders",
    "SELECT * FROM parquet.`/etc/passwd`",
    "SELECT * FROM text.`/etc/passwd`",
    "FROM orders SELECT TRANSFORM(country) USING 'cat'",
]


@pytest.mark.parametrize("sql", NOT_READS, ids=[str(place) for place in range(len(NOT_READS))])
def test_spark_is_asked_for_nothing_but_one_select(server: ServerProcess, sql: str) -> None:
    pid = state(server)["pid"]

    answer = ask(server, sql, status=400)

    assert answer["error"]["code"] in ("invalid_query", "misuse")
    assert state(server)["pid"] == pid


def test_a_query_of_spark_that_takes_too_long_is_ended(server: ServerProcess) -> None:
    endless = "SELECT count(*) FROM range(100000000) a JOIN range(100000000) b ON a.id % 1000 = b.id % 999"

    assert ask(server, endless, status=504, timeout=2)["error"]["code"] == "timed_out"

    assert ask(server, "SELECT 1 AS one")["rows"] == [{"one": 1}]


def test_a_view_is_verified_and_rebuilt_over_http(server: ServerProcess) -> None:
    verified = server.post("/v1/views/revenue/verify")
    rebuilt = server.post("/v1/views/revenue/rebuild")

    assert [each["equal"] for each in verified["views"]] == [True]
    assert rebuilt["views"] == ["revenue"]


def test_what_a_search_sink_keeps_is_found(server: ServerProcess) -> None:
    def found() -> list[dict[str, Any]]:
        answer = server.http.get("/v1/search/revenue.search?q=fr")
        return answer.json()["rows"] if answer.status_code == 200 else []

    assert [row["country"] for row in eventually(found)] == ["FR"]
    assert server.get("/v1/search/revenue.search?q=%22", status=400)["error"]["code"] == "invalid_query"
    sink = server.get("/v1/status")["sinks"][0]
    assert (sink["sink"], sink["state"]) == ("revenue.search", "following")


def test_the_status_has_the_ticks_and_what_each_view_took(server: ServerProcess) -> None:
    status = server.get("/v1/status")

    last = status["ticks"][-1]
    assert last["tick"] == status["tick"]["tick"]
    took_rows = [tick for tick in status["ticks"] if tick["rows_in"]]
    assert {each["view"] for each in took_rows[-1]["views"]} == {"revenue", "large"}
    assert status["engine"]["state"] == "running"


def test_copies_are_the_view_at_every_tick_through_a_kill_of_the_engine_and_a_restart_of_the_server(
    server: ServerProcess, log: Log
) -> None:
    orders = log.get_topic("orders")
    followers: list[Follower] = [EventFollower(server.address), SocketFollower(server.address)]
    for number in range(10, 30):
        token = append(orders, (number, ["DE", "FR", "IT"][number % 3], number), (number % 5, "XX", number))
    covered(server, token)

    killed = state(server)["pid"]
    os.kill(killed, signal.SIGKILL)
    token = append(orders, (100, "IT", 100))
    eventually(lambda: state(server)["state"] != "running")
    assert server.http.get("/health/ready").status_code == 503
    assert server.get("/v1/views/revenue/rows?key=DE")["rows"], "what is committed is served meanwhile"
    eventually(lambda: state(server)["pid"] not in (None, killed))  # it is started again

    starting = state(server)["pid"]
    server.stop()  # while Spark is starting
    assert not runs(starting), "an engine ends with its server"
    token = append(orders, (1, "ES", 1000))  # an order moves to another country
    server.arguments.append("--standby")  # for the next test
    server.start()
    covered(server, token)

    eventually(lambda: state(server)["state"] == "running", seconds=SPARK_S)
    answer = {row["country"]: row["total"] for row in ask(server, "SELECT * FROM revenue")["rows"]}
    assert [each["equal"] for each in server.post("/v1/views/revenue/verify")["views"]] == [True]
    tick = server.get("/v1/status")["tick"]["tick"]
    past = {each: server.get(f"/v1/views/revenue/history?tick={each}")["rows"] for each in range(1, tick + 1)}
    for follower in followers:
        copy = follower.wait_for(tick)
        expected = {each: {row["country"]: row["total"] for row in past[each]} for each in copy.past}
        assert copy.past == expected
        assert copy.rows == answer
        assert copy.resets == 0
        follower.stop()


def test_a_standby_takes_over_from_a_killed_engine_and_another_one_stands_by(server: ServerProcess, log: Log) -> None:
    eventually(lambda: state(server)["standby"] == "ready", seconds=SPARK_S)
    before = state(server)
    java = {child.pid for child in psutil.Process(before["pid"]).children(recursive=True)}

    os.kill(before["pid"], signal.SIGKILL)
    covered(server, append(log.get_topic("orders"), (200, "PL", 7), (200, "PL", 8)))

    after = state(server)
    assert (after["pid"], after["epoch"]) == (before["standby_pid"], before["epoch"] + 1)
    assert server.get("/v1/views/revenue/rows?key=PL")["rows"] == [{"country": "PL", "total": 8}]
    assert [each["equal"] for each in server.post("/v1/views/revenue/verify")["views"]] == [True]
    eventually(lambda: not any(map(runs, java)))  # the JVM of the one that was killed
    for _ in range(2):  # the next one stands by; it may die as well
        standing = eventually(lambda: state(server)["standby_pid"], seconds=SPARK_S)
        os.kill(standing, signal.SIGKILL)
        eventually(lambda standing=standing: state(server)["standby_pid"] not in (None, standing), seconds=SPARK_S)
    assert (state(server)["pid"], state(server)["state"]) == (after["pid"], "running")


def covered(server: ServerProcess, token: str) -> None:
    def look() -> bool:
        answer = server.http.post("/v1/query", json={"sql": "SELECT 1", "at_least": token, "timeout": 5})
        return answer.status_code == 200

    eventually(look, seconds=SPARK_S)
