"""One key that asks for everything: the others get their answers, searches end in time, logs do not grow."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from headwater.log.home import Log
from headwater.log.maintenance.bounded_logs import BYTES_MAX
from headwater.server.http.keys import Keys
from headwater.sinks import Search
from headwater.sinks.runner.sink_task import SinkTask
from tests.services.server.processes import ServerProcess
from tests.services.server.ticks_by_hand import HandTicks
from tests.services.sinks.synthetic import SyntheticView
from tests.waiting import eventually

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
PLACES, SECONDS = 4, 3


@pytest.fixture(scope="module")
def keys(log: Log) -> tuple[Path, dict[str, dict[str, str]]]:
    """A file with two keys, and what each sends."""
    file = log.home.parent / "keys.json"
    return file, {name: {"x-api-key": Keys(file).add(name, ["query"])} for name in ("greedy", "other")}


@pytest.fixture(scope="module")
def server(log: Log, ticks: HandTicks, keys: tuple[Path, Any]) -> Iterator[ServerProcess]:
    ticks.commit({"DE": 1, "FR": 2})
    server = ServerProcess(log.home, "--key-file", str(keys[0]), "--queries", str(PLACES), "--query-timeout", "3s")
    yield server
    server.stop()


def workers(server: ServerProcess, module: str) -> list[psutil.Process]:
    found = []
    for each in psutil.Process(server.process.pid).children():
        with contextlib.suppress(psutil.Error):  # it is just ending
            found += [each] if module in " ".join(each.cmdline()) else []
    return found


def test_a_key_that_takes_every_place_it_can_get_leaves_some_to_the_others(
    server: ServerProcess, keys: tuple[Path, dict[str, dict[str, str]]]
) -> None:
    greedy, other = keys[1]["greedy"], keys[1]["other"]
    found: list[int] = []
    done = threading.Event()

    def hold() -> None:  # again and again, so that it wants places as long as the other one asks
        body = {"sql": ENDLESS, "timeout": SECONDS}
        while not done.is_set():
            found.append(httpx.post(f"{server.address}/v1/query", json=body, headers=greedy, timeout=60).status_code)

    def refused() -> Any:
        answer = server.http.post("/v1/query", json={"sql": "SELECT 1", "timeout": 0.05}, headers=greedy)
        return answer.json() if answer.status_code == 429 else None

    holding = [threading.Thread(target=hold) for _ in range(3 * PLACES)]
    for each in holding:
        each.start()
    told = eventually(refused)
    answers = [server.post("/v1/query", {"sql": "SELECT 1 AS one"}, headers=other) for _ in range(20)]
    done.set()
    for each in holding:
        each.join()

    assert told["error"]["message"].startswith('2 queries of key "greedy" run already')
    assert [answer["rows"] for answer in answers] == [[{"one": 1}]] * 20
    assert found.count(504) >= PLACES // 2
    assert set(found) == {429, 504}


def test_a_search_that_takes_too_long_is_ended_with_its_process(
    server: ServerProcess, log: Log, keys: tuple[Path, dict[str, dict[str, str]]]
) -> None:
    view = SyntheticView("country STRING, number BIGINT", key=("number",))
    view.change([{"country": "de fr " * 20_000, "number": number} for number in range(200)])
    sink = Search(log.home.parent / "index", text=["country"])
    follower = SinkTask("revenue.search", "revenue", "shop", sink, view, log)
    follower.catch_up()
    follower.close()
    mine = keys[1]["greedy"]

    found = server.get("/v1/search/revenue.search", params={"q": "fr", "limit": 1}, headers=mine)
    before = {each.pid for each in workers(server, "search_worker")}
    phrase = '"' + "de fr " * 600 + '"'  # each of its words is sought behind the one before, in each of the texts
    told = server.get("/v1/search/revenue.search", 504, params={"q": phrase}, headers=mine)
    large = server.get("/v1/search/revenue.search", 413, params={"q": "de", "limit": 200}, headers=mine)

    assert [row["number"] in range(200) for row in found["rows"]] == [True]
    assert (found["sink"], found["view"]) == ("revenue.search", "revenue")
    assert told["error"]["code"] == "timed_out"
    assert large["error"]["code"] == "answer_too_large"
    assert before
    assert before.isdisjoint(each.pid for each in workers(server, "search_worker"))


@pytest.mark.usefixtures("server")
def test_what_the_engine_prints_fills_no_disk(log: Log) -> None:
    folder = log.home / "views" / "shop"

    with open(folder / "engine.log", "ab") as printed:
        for _ in range(3):
            printed.write(b"x" * BYTES_MAX)
    eventually(lambda: (folder / "engine.log.1").exists() and not (folder / "engine.log").stat().st_size)

    assert (folder / "engine.log.1").stat().st_size == BYTES_MAX
