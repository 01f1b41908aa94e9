"""Limits of a server that many call at once, say nothing to, or send what is broken: no engine, real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from headwater.log.home import Log
from tests.own_loop import in_own_loop
from tests.services.server import processes
from tests.services.server.processes import PATIENCE_S, ServerProcess
from tests.waiting import eventually

FILES_MAX = 256


@pytest.fixture(scope="module")
def narrow(log: Log, ticks: Any) -> Iterator[ServerProcess]:
    """A server with short times and few descriptors."""
    ticks.commit({"DE": 1})
    popen = subprocess.Popen

    def limited(*arguments: Any, **more: Any) -> Any:
        files = (FILES_MAX, FILES_MAX)
        return popen(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, files), **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes.subprocess, "Popen", limited)
        server = ServerProcess(
            log.home, "--head-timeout", "1s", "--body-timeout", "1s", "--idle-timeout", "1s", "--subscriptions", "5"
        )
    yield server
    server.stop()


def connected(server: ServerProcess, *first: bytes) -> socket.socket:
    at = urlsplit(server.address)
    made = socket.create_connection((at.hostname or "", at.port or 0), timeout=PATIENCE_S)
    for part in first:
        made.sendall(part)
    return made


def heard(connection: socket.socket) -> bytes:
    """All that the server says until it closes."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            said += part
    return said


def lives(server: ServerProcess) -> bool:
    """Whether it answers; a connection that was kept from before may have been closed to make room."""
    try:
        return server.http.get("/health/live").status_code == 200
    except httpx.HTTPError:
        return False


HEAD = b"POST /v1/topics/clicks/records HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\n"


def test_connections_that_say_nothing_or_not_enough_are_ended(narrow: ServerProcess) -> None:
    silent = connected(narrow)
    half_a_head = connected(narrow, b"GET /v1/status HTTP/1.1\r\nHost: lo")
    half_a_body = connected(narrow, HEAD + b"content-length: 1000\r\n\r\n[")
    idle = connected(narrow, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    long_head = connected(narrow, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"x" * 100_000)

    assert heard(silent) == b""
    assert b" 408 " in heard(half_a_head)
    assert b"the body of the request did not come" in heard(half_a_body)
    assert heard(idle).count(b"HTTP/1.1 200") == 1
    assert b" 200 " not in heard(long_head)
    assert narrow.get("/v1/status")["server"]["slow_connections"] >= 3


def test_a_slow_trickle_does_not_keep_a_connection_open(narrow: ServerProcess) -> None:
    slow = connected(narrow, HEAD + b"content-length: 100000\r\n\r\n[")
    slow.settimeout(0.05)

    said = b""
    with contextlib.suppress(OSError):
        for _ in range(int(PATIENCE_S / 0.05)):
            slow.sendall(b" ")
            try:
                said = slow.recv(65_536)
                break
            except TimeoutError:
                continue

    assert b" 408 " in said


def test_a_flood_of_connections_leaves_the_server_answering_with_a_quiet_log(narrow: ServerProcess) -> None:
    errors = Path(narrow.errors.name)
    before = errors.stat().st_size

    flood = [connected(narrow) for _ in range(4 * FILES_MAX)]
    eventually(lambda: lives(narrow))  # in half a second the silent make room
    answers = [narrow.get("/health/live") for _ in range(20)]
    topics = narrow.get("/v1/topics")["topics"]

    assert all(answer == {"live": True} for answer in answers)
    assert topics
    assert errors.stat().st_size - before < 20_000
    for one in flood:
        one.close()
    server = narrow.get("/v1/status")["server"]
    assert server["connections"] <= server["connections_max"] == FILES_MAX // 4


def test_at_the_limit_of_working_connections_a_new_one_is_told_so(narrow: ServerProcess) -> None:
    waiting = b"GET /v1/topics/clicks/records?from=latest&wait=20 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    busy: list[socket.socket] = []

    def refused() -> bytes:
        """What one more is told; nothing when it was taken."""
        busy.append(connected(narrow, waiting))
        busy[-1].settimeout(0.05)
        with contextlib.suppress(OSError):
            return busy[-1].recv(65_536)
        return b""

    said = eventually(refused)
    taken = len(busy) - 1
    for one in busy:
        one.close()

    assert b" 503 " in said
    assert b"connections are open already" in said
    assert taken <= FILES_MAX // 4
    eventually(lambda: lives(narrow))


def test_a_burst_of_subscribers_does_not_pass_the_limit(narrow: ServerProcess) -> None:
    at = urlsplit(narrow.address)
    paths = ("/v1/views/revenue/subscribe", "/v1/events")

    async def subscribe(path: str, done: asyncio.Event) -> bytes:
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        first = await reader.readline()
        await done.wait()
        writer.close()
        return first.split()[1] if first else b""

    async def burst(path: str) -> list[bytes]:
        done = asyncio.Event()
        tasks = [asyncio.create_task(subscribe(path, done)) for _ in range(40)]
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(2, done.set)  # those that were taken stay until all have been answered
        return await asyncio.gather(*tasks)

    for path in paths:
        answers = in_own_loop(burst(path))

        assert answers.count(b"200") == 5, path
        assert answers.count(b"429") == 35, path

    counts = eventually(lambda: (now := narrow.get("/v1/status")["server"])["subscriptions"] == 0 and now)
    eventually(lambda: narrow.get("/v1/status")["server"]["listeners"] == 0)
    assert counts["subscriptions"] == 0


def test_without_an_engine_and_with_nobody_who_runs_the_app_it_is_not_ready(narrow: ServerProcess) -> None:
    answer = narrow.http.get("/health/ready")

    assert answer.status_code == 503
    assert "the app does not run" in eventually(lambda: narrow.http.get("/health/ready").json()["reasons"])[0]
    assert "headwater_ready 0" in narrow.http.get("/metrics").text
    assert narrow.get("/health/live") == {"live": True}
