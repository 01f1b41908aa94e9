"""Queries that mean harm: of the store, without an engine. None ends the server, fills its memory or keeps its time."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any

import httpx
import psutil
import pytest

from tests.services.server.processes import ServerProcess
from tests.waiting import eventually

WIDE = (
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 10000)"
    " SELECT n, printf('%.*c', 100000, 'x') AS s FROM c"
)
STUCK = "SELECT printf('%.*c', 900000000, 'x') AS s"  # one step of SQLite's machine, which asks nobody meanwhile
GREEDY = (
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 1000)"
    " SELECT n FROM c ORDER BY printf('%.*c', 1000000, 'x') || n"
)  # a sort of a gigabyte
ANSWERS_MB_MAX = 150  # what the server may have more than before: some answers, each of 16 MiB at most


def ask(server: ServerProcess, sql: str, status: int, **more: Any) -> Any:
    return server.post("/v1/query", {"sql": sql, **more}, status=status)


def workers(server: ServerProcess) -> list[psutil.Process]:
    found = []
    for each in psutil.Process(server.process.pid).children():
        with contextlib.suppress(psutil.Error):  # it is just ending
            found += [each] if "store_worker" in " ".join(each.cmdline()) else []
    return found


def memory_mb(server: ServerProcess) -> float:
    return psutil.Process(server.process.pid).memory_info().rss / 1e6


def test_no_query_ends_the_server_or_is_told_an_address(server: ServerProcess) -> None:
    told = ask(server, "SELECT fts3_tokenizer('simple') AS address", 400)
    for _ in range(4):
        ask(server, "SELECT fts3_tokenizer('simple', x'4141414141414141')", 400)
        ask(server, "SELECT token FROM fts3tokenize WHERE input = 'a'", 400)

    assert told["error"]["message"] == "a query cannot call fts3_tokenizer"
    assert server.process.poll() is None


def test_an_answer_of_a_gigabyte_is_refused_and_the_server_holds_nothing_of_it(server: ServerProcess) -> None:
    before, peak, done = memory_mb(server), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], memory_mb(server))

    watching = threading.Thread(target=watch)
    watching.start()
    told = ask(server, WIDE, 413)
    done.set()
    watching.join()

    assert told["error"]["code"] == "answer_too_large"
    assert told["error"]["message"] == "the answer has more than 16 MiB"
    assert peak[0] < before + ANSWERS_MB_MAX


def test_a_query_that_asks_nobody_is_ended_with_its_process(server: ServerProcess) -> None:
    ask(server, "SELECT 1", 200)
    before = {each.pid for each in workers(server)}

    told = ask(server, STUCK, 504, timeout=0.5)

    assert told["error"]["code"] == "timed_out"
    eventually(lambda: before - {each.pid for each in workers(server)})
    assert ask(server, "SELECT 1 AS one", 200)["rows"] == [{"one": 1}]


def test_a_query_has_so_much_memory_and_no_more(server: ServerProcess) -> None:
    told = ask(server, GREEDY, 413, timeout=30)

    assert told["error"]["code"] == "out_of_memory"
    assert told["error"]["message"] == "the query needs more than 256 MiB of memory"
    assert ask(server, "SELECT 1 AS one", 200)["rows"] == [{"one": 1}]


def test_a_worker_that_is_killed_is_replaced(server: ServerProcess) -> None:
    ask(server, "SELECT 1", 200)

    killed = workers(server)
    for each in killed:
        each.send_signal(signal.SIGKILL)
    eventually(lambda: not any(_runs(each.pid) for each in killed))

    assert ask(server, "SELECT 1 AS one", 200)["rows"] == [{"one": 1}]


def test_more_queries_than_may_run_wait_and_are_then_refused(server: ServerProcess) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    found: list[int] = []

    def busy(server: ServerProcess) -> Any:
        answer = server.http.post("/v1/query", json={"sql": "SELECT 1", "timeout": 0.1})
        return answer.json() if answer.status_code == 429 else None

    def one(seconds: float) -> None:
        body = {"sql": endless, "timeout": seconds}
        found.append(httpx.post(f"{server.address}/v1/query", json=body, timeout=60).status_code)

    long = [threading.Thread(target=one, args=(10.0,)) for _ in range(4)]
    for thread in long:
        thread.start()
    eventually(lambda: len(workers(server)) == 4)
    told = eventually(lambda: busy(server))
    for thread in long:
        thread.join()

    assert told["error"]["code"] == "too_many"
    assert found == [504] * 4


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"])
def test_a_large_answer_within_its_bounds_comes_whole(server: ServerProcess, kind: str) -> None:
    large = WIDE.replace("10000)", "100)")

    answer = server.http.post("/v1/query", json={"sql": large}, headers={"accept": kind})

    assert answer.status_code == 200
    assert answer.content.count(b"x" * 100_000) == 100
    assert int(answer.headers["content-length"]) == len(answer.content)


def test_workers_end_with_their_server(server: ServerProcess) -> None:
    ask(server, "SELECT 1", 200)
    pids = [each.pid for each in workers(server)]

    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(60)

    eventually(lambda: not any(psutil.pid_exists(pid) and _runs(pid) for pid in pids))
    server.start()


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
