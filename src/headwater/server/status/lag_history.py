"""The past: how far groups, sinks and views were behind, over the last minutes.

What it is: ``LagHistory``, samples of the status in rings, and ``GET /v1/past``, which shows them.
Invariants: memory is bounded: so many names, so many samples of each. It looks seldom, so that it costs next to nothing
while nobody watches. It begins anew with the server.
Not here: rates of topics, once a second (``topic_rates.py``); how long ticks took, which is kept in the home
(``status_reader.py``).
Read next: ``status_reader.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends

from headwater.server.http.answers import plain_answer
from headwater.server.http.guard import needs

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

EVERY_S = 5.0
SAMPLES = 120
NAMES_MAX = 1000


class LagHistory:
    """Samples of what may be behind.

    >>> past = LagHistory()
    >>> groups = [{"group": "billing", "lag": 7}]
    >>> past.take(1000, {"tick": {"behind": 2}, "topics": [{"name": "orders", "groups": groups}], "sinks": []})
    >>> past.to_dict()
    {'behind': [[1000, 2]], 'group:orders/billing': [[1000, 7]]}
    """

    def __init__(self) -> None:
        self._rings: dict[str, deque[list[int]]] = {}

    def take(self, at_ms: int, status: dict[str, Any]) -> None:
        """Remember what a status says."""
        seen = dict(_behind(status))
        for gone in self._rings.keys() - seen.keys():
            del self._rings[gone]
        for name, value in list(seen.items())[:NAMES_MAX]:
            self._rings.setdefault(name, deque(maxlen=SAMPLES)).append([at_ms, value])

    def to_dict(self) -> dict[str, list[list[int]]]:
        """For each name its samples: milliseconds since 1970, and the value; the latest at the end."""
        return {name: list(ring) for name, ring in self._rings.items()}

    async def run(self, state: ServerState) -> None:
        """Look now and then, as long as the server runs."""
        while True:
            with contextlib.suppress(Exception):  # a busy catalog: the next look will do
                self.take(state.log.clock.now_us() // 1000, await state.read(state.status.read))
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

    @routes.get("/v1/past", dependencies=[Depends(needs("query"))])
    async def past() -> Any:
        """How far groups, sinks and views were behind in the last ten minutes, as far as the server has run."""
        return plain_answer(state.past.to_dict())

    return routes
