"""A bounded HTTP client: so many connections, each with one request under way.

What it is: ``load``, which sends requests over keep-alive connections for some seconds and notes how long each took;
``follow``, which reads a stream of server-sent events.
Invariants: a connection sends its next request when it has the whole answer to the one before; every answer's status is
looked at. It parses as little of HTTP as it must, so that it does not measure itself.
Not here: what is sent (``demo/roles.py``).
Read next: ``demo/roles.py``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field


@dataclass
class Load:
    """What a load found."""

    seconds: float = 0.0
    took: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.took) / self.seconds

    def percentile(self, part: float) -> float:
        """Milliseconds that this part of the requests took at most."""
        ordered = sorted(self.took)
        return 1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def request(method: str, path: str, host: str, body: bytes = b"") -> bytes:
    """A request as it goes over the wire."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def _answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 2"):
        raise RuntimeError(head.decode() + (await reader.read(500)).decode())
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))


async def load(host: str, port: int, make: Callable[[int], bytes], *, connections: int, seconds: float) -> Load:
    """Send what ``make`` makes of rising numbers, over so many connections."""
    found, number = Load(), 0
    deadline = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal number
        reader, writer = await asyncio.open_connection(host, port)
        try:
            while time.perf_counter() < deadline:
                number += 1
                sent = make(number)
                began = time.perf_counter()
                writer.write(sent)
                await _answer(reader)
                found.took.append(time.perf_counter() - began)
        finally:
            writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    found.seconds = time.perf_counter() - began
    return found


async def follow(host: str, port: int, path: str) -> AsyncIterator[tuple[bytes, float]]:
    """The data of server-sent events, each with the moment it came."""
    reader, writer = await asyncio.open_connection(host, port, limit=16 << 20)
    try:
        writer.write(request("GET", path, f"{host}:{port}"))
        while True:
            line = await reader.readline()
            if not line:
                return
            if line.startswith(b"data: "):
                yield line[6:], time.perf_counter()
    finally:
        writer.close()
