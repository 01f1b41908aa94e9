"""Queries of Spark that mean harm, beside an app that ticks: they end their own Java, and never the ticks."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from headwater.log.home import Log
from tests.services.server.conftest import declared
from tests.services.server.processes import ServerProcess
from tests.waiting import eventually

SPARK_S = 180.0


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with declared(tmp_path_factory.mktemp("hostile") / "home") as log:
        yield log


@pytest.fixture(scope="module")
def server(log: Log) -> Iterator[ServerProcess]:
    server = ServerProcess(log.home, "--spark-query-memory-mib", "512", engine=True)
    eventually(lambda: server.http.get("/health/ready").status_code == 200, seconds=SPARK_S)
    server.http.timeout = SPARK_S
    yield server
    server.kill()


def ask(server: ServerProcess, sql: str, **more: Any) -> Any:
    return server.http.post("/v1/query", json={"sql": sql, "engine": "spark", **more})


def ticked(server: ServerProcess, log: Log, number: int) -> None:
    """Rows that are appended now come into the view."""
    token = str(log.get_topic("orders").append([{"order_id": number, "country": "DE", "amount": number}]))
    body = {"sql": "SELECT total FROM revenue WHERE country = 'DE'", "at_least": token}
    server.post("/v1/query", body)


def javas(server: ServerProcess, module: str) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(server.process.pid).children():
        if module in " ".join(child.cmdline()):
            found += [each for each in child.children(recursive=True) if each.name() == "java"]
    return found


# Of a result, of the optimizer, of an aggregate: each took the heap of the engine, and with it all ticks.
GREEDY = [
    "SELECT concat(repeat('x', 1000000), id) AS s FROM range(10000)",
    "SELECT sequence(1, 1000000000) AS s",
    "SELECT collect_list(id) AS s FROM range(1000000000)",
]


def test_queries_that_fill_a_heap_fill_their_own_and_ticks_go_on(server: ServerProcess, log: Log) -> None:
    ticked(server, log, 1)
    epoch = server.get("/v1/status")["engine"]["epoch"]

    for number, sql in enumerate(GREEDY, start=2):
        answer = ask(server, sql, timeout=30)
        assert answer.json()["error"]["code"] in ("answer_too_large", "out_of_memory", "timed_out"), answer.text
        ticked(server, log, number)

    status = server.get("/v1/status")["engine"]
    assert (status["starts"], status["epoch"]) == (1, epoch)
    assert server.http.get("/health/ready").status_code == 200
    assert ask(server, "SELECT 1 AS one").json()["rows"] == [{"one": 1}], "the next one gets a Java that works"


# That no spelling helps: tests/spark/test_admitted_queries.py.
REACHING = [
    'SELECT /* /*+ */ reflect("java.lang.System", "getenv", "{variable}") AS b, -- */\n1 AS a',
    'SELECT 1 AS a, -- \\\n\'\nreflect("java.lang.System", "getenv", "{variable}") AS b -- \'',
    "SELECT '${{env:{variable}}}' AS a",
    "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv', '{variable}')",
    "SELECT * FROM text.`{file}`",
    "SELECT * FROM IDENTIFIER('text.`{file}`')",
    "SELECT from_xml('<a/>', 'b INT', map('rowValidationXSDPath', '{file}'))",
    "SELECT country, input_file_name() AS file FROM orders",
    "SELECT e.* FROM orders, _every e",
]


@pytest.mark.parametrize("sql", REACHING, ids=[str(place) for place in range(len(REACHING))])
def test_a_query_reads_no_file_no_variable_and_nothing_that_is_not_shown(
    server: ServerProcess, log: Log, sql: str
) -> None:
    file = log.home.parent / "secret"
    file.write_text("it is a secret")

    told = ask(server, sql.format(variable="SERVED_SHOP_HOME", file=file))

    assert told.status_code in (200, 400), told.text
    assert "it is a secret" not in told.text
    assert str(log.home) not in told.text


def test_a_query_that_spark_cannot_cancel_is_ended(server: ServerProcess, log: Log) -> None:
    # A loop that asks nobody, in the optimizer before there is a job.
    inner = "aggregate(sequence(1, 30000), 0L, (b, y) -> b + x * y)"
    folded = f"SELECT aggregate(sequence(1, z), 0L, (a, x) -> a + {inner}) AS s FROM VALUES (30000) AS t(z)"

    told = ask(server, folded, timeout=2)

    assert (told.status_code, told.json()["error"]["code"]) == (504, "timed_out")
    ticked(server, log, 50)


def test_an_engine_whose_java_ended_for_want_of_memory_is_started_again(server: ServerProcess, log: Log) -> None:
    before = server.get("/v1/status")["engine"]
    (java,) = javas(server, "headwater.server.engine.engine_process")
    assert "-XX:+ExitOnOutOfMemoryError" in java.cmdline()

    java.send_signal(signal.SIGKILL)

    eventually(lambda: server.get("/v1/status")["engine"]["starts"] > before["starts"], seconds=SPARK_S)
    eventually(lambda: server.http.get("/health/ready").status_code == 200, seconds=SPARK_S)
    ticked(server, log, 100)


def test_no_java_outlives_its_server_not_even_one_that_is_stuck(server: ServerProcess) -> None:  # the last one
    ask(server, "SELECT 1")
    left = javas(server, "headwater.server")
    assert len(left) == 2
    stuck = javas(server, "headwater.server.engine.engine_process")[0]
    stuck.send_signal(signal.SIGSTOP)  # as with a full heap: it does not notice that its parent has gone

    server.process.send_signal(signal.SIGTERM)
    server.process.wait(120)

    _, alive = psutil.wait_procs(left, timeout=60)
    assert alive == []
