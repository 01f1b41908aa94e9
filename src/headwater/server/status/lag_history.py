"""Lag history: the lag of groups, sinks and views over the last ten minutes.

What it is: ``LagHistory``, ring buffers of samples of the status, and ``GET /v1/history``.
Invariants: names and samples are bounded. It samples every ``EVERY_S`` seconds and starts empty with the server.
Not here: rates of topics (``topic_rates.py``); durations of ticks, which the home keeps (``status_reader.py``).
Read next: ``status_reader.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends

from headwater.server.http.answers import plain_answer
from headwater.server.http.guard import needs

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

logger = logging.getLogger("headwater.server")

EVERY_S = 5.0
SAMPLES = 120
NAMES_MAX = 1000


class LagHistory:
    """Samples of lag.

    >>> history = LagHistory()
    >>> groups = [{"group": "billing", "lag": 7}]
    >>> history.take(1000, {"tick": {"behind": 2}, "topics": [{"name": "orders", "groups": groups}], "sinks": []})
    >>> history.to_dict()
    {'behind': [[1000, 2]], 'group:orders/billing': [[1000, 7]]}
    """

    def __init__(self) -> None:
        self._rings: dict[str, deque[list[int]]] = {}

    def take(self, at_ms: int, status: dict[str, Any]) -> None:
        """Add the samples of a status."""
        seen = dict(_behind(status))
        for gone in self._rings.keys() - seen.keys():
            del self._rings[gone]
        for name, value in list(seen.items())[:NAMES_MAX]:
            self._rings.setdefault(name, deque(maxlen=SAMPLES)).append([at_ms, value])

    def to_dict(self) -> dict[str, list[list[int]]]:
        """For each name its samples: milliseconds since 1970, and the value; the latest at the end."""
        return {name: list(ring) for name, ring in self._rings.items()}

    async def run(self, state: ServerState) -> None:
        """Sample until cancelled."""
        while True:
            try:
                self.take(state.log.clock.now_us() // 1000, await state.read(state.status.read))
            except Exception as error:  # busy catalog, deleted topic: the next look will do
                logger.warning("the lag could not be sampled: %s", error)
            await asyncio.sleep(EVERY_S)


def _behind(status: dict[str, Any]) -> Iterator[tuple[str, int]]:
    yield "behind", status["tick"]["behind"]
    for topic in status["topics"]:
        for group in topic["groups"]:
            yield f"group:{topic['name']}/{group['group']}", group["lag"]
    for sink in status["sinks"]:
        yield f"sink:{sink['sink']}", sink["lag"]["ticks"]


def router(state: ServerState) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["status"])

    @routes.get("/v1/history", dependencies=[Depends(needs("query"))])
    async def history() -> Any:
        """The lag of groups, sinks and views over the last ten minutes, since the server started."""
        return plain_answer(state.history.to_dict())

    return routes
