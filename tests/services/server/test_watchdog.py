"""The watchdog: an engine that hangs, for real, is noticed, told and started anew; and who runs the app is known."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from headwater.log.home import Log
from tests.services.server.conftest import declared
from tests.services.server.processes import ServerProcess
from tests.services.server.test_engine import SPARK_S, covered, runs, state
from tests.waiting import eventually

STALLED_S = 8


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with declared(tmp_path_factory.mktemp("watchdog") / "home") as log:
        yield log


def ready(server: ServerProcess) -> tuple[int, dict[str, Any]]:
    answer = server.http.get("/health/ready")
    return answer.status_code, answer.json()


def test_a_hanging_java_is_told_killed_and_replaced_and_no_java_outlives_the_server(log: Log) -> None:
    orders = log.get_topic("orders")
    orders.append([{"order_id": 1, "country": "DE", "amount": 5}])
    server = ServerProcess(log.home, "--stalled-after", f"{STALLED_S}s", engine=True)
    eventually(lambda: ready(server)[0] == 200, seconds=SPARK_S)
    covered(server, str(orders.append([{"order_id": 2, "country": "DE", "amount": 5}])))
    engine = state(server)["pid"]
    javas = [each for each in psutil.Process(engine).children(recursive=True) if each.name() == "java"]
    beside = ServerProcess(log.home)  # without an engine of its own
    eventually(lambda: ready(beside)[0] == 200)

    for java in javas:
        os.kill(java.pid, signal.SIGSTOP)
    token = str(orders.append([{"order_id": 3, "country": "FR", "amount": 7}]))

    said = eventually(lambda: next((told for status, told in [ready(server)] if status == 503), None), seconds=SPARK_S)
    assert said["reasons"]
    assert server.get("/health/live") == {"live": True}
    covered(server, token)  # by another engine
    eventually(lambda: ready(server)[0] == 200, seconds=SPARK_S)
    assert state(server)["pid"] != engine
    assert state(server)["stalls"] >= 1
    assert not any(runs(java.pid) for java in javas)
    alerts = [each for each in server.get("/v1/status")["alerts"] if each["kind"] == "engine"]
    assert alerts
    assert "no tick has come for" in alerts[0]["message"]
    eventually(lambda: not [a for a in server.get("/v1/status")["alerts"] if a["kind"] == "engine" and a["lasting"]])
    metrics = server.http.get("/metrics").text
    assert "headwater_ready 1" in metrics
    assert f"headwater_engine_stalls_total {state(server)['stalls']}" in metrics

    engine = state(server)["pid"]
    javas = [each for each in psutil.Process(engine).children(recursive=True) if each.name() == "java"]
    for java in javas:
        os.kill(java.pid, signal.SIGSTOP)  # it cannot end by itself
    server.stop()
    assert javas
    assert not any(runs(java.pid) for java in javas)
    eventually(lambda: ready(beside)[0] == 503)
    assert "the app does not run" in ready(beside)[1]["reasons"][0]
    beside.stop()
