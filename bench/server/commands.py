"""What is measured of commands to aggregates over HTTP: one hot aggregate, and many.

What it is: ``commands``: a real ``headwater serve`` process over the bank of the server's tests, without an engine.
Invariants: every answer is looked at: a rejected command would end the run. The processor time is told of the HTTP
process and of the processes that decide, each for itself.
Not here: commands without HTTP (``make bench-decide``).
Read next: ``parts.py``, ``src/headwater/server/commands/command_workers.py``.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil

from bench.server.client import load, request
from bench.server.parts import Scale, busy_seconds
from bench.views.scale import Lines
from tests.services.server.processes import ServerProcess
from tests.services.server.test_aggregates import APP

MANY = 1000
FEW = 100  # which the commands before have made, however slow the machine is


def commands(scale: Scale, folder: Path) -> Lines:
    """Commands to one aggregate, to many, and states."""
    lines = Lines()
    server = ServerProcess(folder / "home", "--rate", "1000000", app=APP)
    host, _, port = server.address.removeprefix("http://").partition(":")
    where = f"{host}:{port}"
    try:
        body = b'{"cents":1}'
        asked = {
            "commands to one aggregate": lambda _: request("POST", "/v1/aggregates/account/7/deposit", where, body),
            f"commands to {MANY} aggregates": lambda number: request(
                "POST", f"/v1/aggregates/account/{number % MANY}/deposit", where, body
            ),
            f"states of {FEW} aggregates": lambda number: request(
                "GET", f"/v1/aggregates/account/{1 + number % FEW}", where
            ),
        }
        for name, make in asked.items():
            asyncio.run(load(host, int(port), make, connections=scale.connections, seconds=1.0))
            before, decided = busy_seconds(server), _deciding_seconds(server)
            found = asyncio.run(load(host, int(port), make, connections=scale.connections, seconds=scale.seconds))
            count = len(found.took)
            busy, deciding = busy_seconds(server) - before, _deciding_seconds(server) - decided
            lines.figure(f"{name}, {scale.connections} connections", round(found.rate), "requests/s")
            lines.figure(f"{name}: processor time of the server", round(1000 * busy / count, 3), "ms/request")
            lines.figure(f"{name}: and of its processes", round(1000 * deciding / count, 3), "ms/request")
            lines.figure(f"{name}: p50", round(found.percentile(0.5), 2), "ms")
            lines.figure(f"{name}: p99", round(found.percentile(0.99), 2), "ms")
    finally:
        server.stop()
    return lines


def _deciding_seconds(server: ServerProcess) -> float:
    children = psutil.Process(server.process.pid).children()
    times = [each.cpu_times() for each in children if "command_worker" in " ".join(each.cmdline())]
    return float(sum(each.user + each.system for each in times))
