"""What is measured of the server: appends, point reads, queries, subscribers, slow subscribers.

What it is: one function for each part; a real ``headwater serve`` process, asked over loopback by ``client.py``.
Invariants: client and server share the machine's cores, so the figures are of both together. Ticks are committed by
hand, without Spark: what is measured is the HTTP process.
Not here: how long a tick takes (``bench/views``).
Read next: ``client.py``, ``src/headwater/server/realtime/broker.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from bench.server.client import follow, load, request
from bench.views.scale import Lines
from headwater.app_file import app_of
from headwater.log.home import Log
from tests.services.server.processes import APP, ServerProcess
from tests.services.server.ticks_by_hand import HandTicks
from tests.waiting import eventually

TICK_CHANGES = 20


@dataclass(frozen=True)
class Scale:
    """How long, and how many."""

    seconds: float = 10.0
    connections: int = 16
    rows: int = 10_000
    subscribers: int = 500
    ticks: int = 40
    ticks_per_second: float = 4.0
    slow: int = 20
    slow_ticks: int = 400
    looks: int = 60

    def quick(self) -> Scale:
        """A fifth of it."""
        return replace(self, seconds=2.0, ticks=12, slow_ticks=300, looks=12)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[ServerProcess, HandTicks, str, int]]:
    """A server over a home whose view has rows."""
    os.environ["SERVED_SHOP_HOME"] = str(folder / "home")
    app_of(APP).close()
    with Log(folder / "home", maintenance_interval=None) as log:
        ticks = HandTicks(log)
        server = ServerProcess(log.home, "--rate", "1000000")
        host, _, port = server.address.removeprefix("http://").partition(":")
        try:
            yield server, ticks, host, int(port)
        finally:
            server.stop()
            ticks.close()


def memory_mb(server: ServerProcess) -> float:
    """What the HTTP process holds."""
    return psutil.Process(server.process.pid).memory_info().rss / 1e6


def busy_seconds(server: ServerProcess) -> float:
    """The processor time of the HTTP process: what a request costs, however busy the machine is."""
    times = psutil.Process(server.process.pid).cpu_times()
    return float(times.user + times.system)


def requests(scale: Scale, folder: Path) -> Lines:
    """Appends, point reads and queries."""
    lines = Lines()
    with serving(folder) as (server, ticks, host, port):
        ticks.commit({f"country-{number}": number for number in range(scale.rows)})
        where = f"{host}:{port}"

        def order(number: int, count: int = 1) -> bytes:
            rows = [{"order_id": number * count + n, "country": "DE", "amount": n} for n in range(count)]
            return request("POST", "/v1/topics/orders/records", where, json.dumps(rows).encode())

        asked = {
            "appends of 1 row": lambda number: order(number),
            "appends of 100 rows": lambda number: order(number, 100),
            "point reads": lambda number: request(
                "GET", f"/v1/views/revenue/rows?key=country-{number * 7919 % scale.rows}", where
            ),
            "queries of the store": lambda number: request(
                "POST",
                "/v1/query",
                where,
                b'{"sql":"SELECT * FROM revenue WHERE country = ?","params":["country-%d"]}' % (number % scale.rows),
            ),
            "health": lambda _: request("GET", "/health/live", where),
        }
        for name, make in asked.items():
            asyncio.run(load(host, port, make, connections=scale.connections, seconds=0.5))
            before = busy_seconds(server)
            found = asyncio.run(load(host, port, make, connections=scale.connections, seconds=scale.seconds))
            busy = busy_seconds(server) - before
            lines.figure(f"{name}, {scale.connections} connections", round(found.rate), "requests/s")
            if name.endswith("100 rows"):
                lines.figure(f"{name}: rows", round(100 * found.rate), "rows/s")
            lines.figure(f"{name}: processor time of the server", round(1000 * busy / len(found.took), 3), "ms/request")
            lines.figure(f"{name}: p50", round(found.percentile(0.5), 2), "ms")
            lines.figure(f"{name}: p99", round(found.percentile(0.99), 2), "ms")
        lines.figure("memory of the server afterwards", round(memory_mb(server)), "MB")
    return lines


def subscribers(scale: Scale, folder: Path) -> Lines:
    """Many subscribers of one view: from the commit of a tick to its arrival, at each."""
    lines = Lines()
    with serving(folder) as (server, ticks, host, port):
        ticks.commit({f"country-{number}": number for number in range(1000)})
        server.get("/v1/status")
        before, busy = memory_mb(server), busy_seconds(server)
        committed: dict[int, float] = {}
        came: list[tuple[int, float]] = []
        ready = threading.Semaphore(0)
        first = ticks.manifests.tick()
        last = first + scale.ticks

        def commit() -> None:
            for _ in range(scale.subscribers):
                ready.acquire()
            for number in range(scale.ticks):
                began = time.perf_counter()
                changes = {f"country-{(number * TICK_CHANGES + n) % 1000}": number for n in range(TICK_CHANGES)}
                committed[ticks.manifests.tick() + 1] = time.perf_counter()
                ticks.commit(changes)
                time.sleep(max(0.0, 1 / scale.ticks_per_second - (time.perf_counter() - began)))

        async def one() -> None:
            async for data, at in follow(host, port, "/v1/views/revenue/subscribe"):
                message = json.loads(data)
                if message["type"] == "snapshot":
                    ready.release()
                    continue
                came.append((message["tick"], at))
                if message["tick"] == last:
                    return

        async def everybody() -> None:
            await asyncio.gather(*(one() for _ in range(scale.subscribers)))

        committing = threading.Thread(target=commit)
        committing.start()
        asyncio.run(everybody())
        committing.join()
        took = sorted(1000 * (at - committed[tick]) for tick, at in came)
        title = f"{scale.subscribers} subscribers, {scale.ticks_per_second:g} ticks/s of {TICK_CHANGES} changes"
        lines.figure(f"{title}: messages", len(took), "")
        lines.figure(f"{title}: every message came", int(len(took) == scale.subscribers * scale.ticks), "")
        lines.figure(f"{title}: commit to arrival, p50", round(took[len(took) // 2], 1), "ms")
        lines.figure(f"{title}: commit to arrival, p99", round(took[int(0.99 * len(took))], 1), "ms")
        spent = 1000 * (busy_seconds(server) - busy) / (len(took) + scale.subscribers)
        lines.figure(f"{title}: processor time of the server", round(spent, 3), "ms/message")
        lines.figure(f"{title}: memory before", round(before), "MB")
        lines.figure(f"{title}: memory after", round(memory_mb(server)), "MB")
    return lines


def slow(scale: Scale, folder: Path) -> Lines:
    """Subscribers that take nothing: they are dropped; and what ten times as many cost in memory."""
    lines = Lines()
    for count in (scale.slow, 10 * scale.slow):
        with serving(folder / str(count)) as (server, ticks, host, port):
            ticks.commit({"country-0": 0})
            server.get("/v1/status")
            sockets = [_taking_nothing(host, port) for _ in range(count)]
            eventually(lambda: server.get("/v1/status")["server"]["subscriptions"] == count)  # noqa: B023
            held = [memory_mb(server)]
            for number in range(scale.slow_ticks):
                ticks.commit({f"{n}-{'x' * 500}": number for n in range(100)})
                if number in (scale.slow_ticks // 2, scale.slow_ticks - 1):
                    held.append(memory_mb(server))
            dropped = eventually(lambda: _dropped(server) == count and count)  # noqa: B023
            title = f"{count} subscribers that take nothing, {scale.slow_ticks} ticks of 50 kB"
            lines.figure(f"{title}: dropped", dropped, "")
            for when, megabytes in zip(("before", "after half of them", "after all"), held, strict=True):
                lines.figure(f"{title}: memory {when}", round(megabytes), "MB")
            for each in sockets:
                each.close()
    return lines


def _taking_nothing(host: str, port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((host, port))
    made.sendall(request("GET", "/v1/views/revenue/subscribe", f"{host}:{port}"))
    return made


def _dropped(server: ServerProcess) -> int:
    return int(server.get("/v1/status")["server"]["dropped_subscriptions"])
