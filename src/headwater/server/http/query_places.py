"""Query slots: a limit on concurrent queries, shared fairly among keys.

What it is: ``QueryPlaces``; a query holds a slot while it runs.
Invariants: running and waiting queries are bounded, and none waits longer than it may run. A key holds half of the
slots at most; a free slot goes to the waiting key that holds the fewest. In a full queue a new query displaces the last
one of the key that has most of the queue.
Not here: the request rate of a key (``server/http/guard.py``).
Read next: ``query_workers.py``, ``docs/server.md``.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headwater.errors import TooMany

WAITING_MAX = 64
ANYBODY = ""  # all callers of a server without keys


class QueryPlaces:
    """Belongs to one event loop.

    >>> async def shown() -> tuple[int, int]:
    ...     places = QueryPlaces(4, "queries")
    ...     async with places.taken("ada", 1.0), places.taken("ada", 1.0):
    ...         try:
    ...             async with places.taken("ada", 0.01):
    ...                 pass
    ...         except TooMany as error:
    ...             print(error.message)
    ...         async with places.taken("bob", 0.01):
    ...             return places.running, places.waiting
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> ThreadPoolExecutor(1).submit(asyncio.run, shown()).result()
    2 queries of key "ada" run already, and none ended within 0.01 s
    (3, 0)
    """

    def __init__(
        self, at_once_max: int, what: str, *, waiting_max: int = WAITING_MAX, limit: str = "--queries"
    ) -> None:
        self.at_once_max = at_once_max
        self.share_max = max(1, at_once_max // 2)  # of one key
        self.waiting_max = waiting_max
        self._what = what
        self._limit = f" The server's limit is {limit}." if limit else ""
        self._running: Counter[str] = Counter()
        self._queues: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}  # by key, each in the order of coming
        self._came = 0

    @property
    def running(self) -> int:
        """How many places are taken."""
        return self._running.total()

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return sum(map(len, self._queues.values()))

    @asynccontextmanager
    async def taken(self, key: str, seconds: float) -> AsyncIterator[None]:
        """A place for a key, waited for at most so long; ``TooMany`` when none becomes free."""
        if key not in self._queues and self._free_for(key):  # none waits that could run
            self._running[key] += 1
        else:
            await self._wait(key, seconds)
        try:
            yield
        finally:
            self._give_back(key)

    def _free_for(self, key: str) -> bool:
        share = self.at_once_max if key == ANYBODY else self.share_max
        return self.running < self.at_once_max and self._running[key] < share

    async def _wait(self, key: str, seconds: float) -> None:
        self._make_room_for(key)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._came += 1
        entry = (self._came, future)
        self._queues.setdefault(key, deque()).append(entry)
        self._hand_on()  # those before it in the queue may just have left
        try:
            await asyncio.wait_for(future, seconds)
        except BaseException as error:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(key)  # granted after the wait was given up
            if isinstance(error, TimeoutError):
                raise self._none_free(key, seconds) from None
            raise
        finally:
            self._forget(key, entry)

    def _forget(self, key: str, entry: tuple[int, asyncio.Future[None]]) -> None:
        queue = self._queues.get(key)
        if queue is not None and entry in queue:
            queue.remove(entry)
        if not queue:
            self._queues.pop(key, None)

    def _make_room_for(self, key: str) -> None:
        if self.waiting < self.waiting_max:
            return
        greedy = max(self._queues, key=lambda each: len(self._queues[each]))
        full = TooMany(f"{self.waiting_max} {self._what} wait already", hint="Ask again in a moment.")
        if len(self._queues[greedy]) <= len(self._queues.get(key, ())) + 1:
            raise full
        _, last = self._queues[greedy].pop()
        if not last.done():
            last.set_exception(full)

    def _give_back(self, key: str) -> None:
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
        self._hand_on()

    def _hand_on(self) -> None:
        """Give free slots to waiting queries."""
        while self.running < self.at_once_max:
            able = [each for each, queue in self._queues.items() if queue and self._free_for(each)]
            if not able:
                return
            following = min(able, key=lambda each: (self._running[each], self._queues[each][0][0]))
            _, future = self._queues[following].popleft()
            if not future.done():
                self._running[following] += 1
                future.set_result(None)

    def _none_free(self, key: str, seconds: float) -> TooMany:
        own = self._running[key] >= self.share_max and key != ANYBODY
        whose = f'{self.share_max} {self._what} of key "{key}"' if own else f"{self.at_once_max} {self._what}"
        return TooMany(
            f"{whose} run already, and none ended within {seconds:.2g} s", hint=f"Try again in a moment.{self._limit}"
        )
