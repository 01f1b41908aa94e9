"""Status events: the status, sent to listeners after every tick and every two seconds.

What it is: ``Events`` makes one message for all listeners; ``EventStream`` sends messages as server-sent events.
Invariants: only the latest message is kept: a slow listener misses messages and costs no memory. Without listeners
nothing is read. A client that does not read for too long is disconnected, and so is one whose key has ended, was
removed or is good for something else now: before the next message.
Not here: the status itself (``server/status/status_reader.py``); subscriptions to views, which miss nothing
(``broker.py``).
Read next: ``server/status/status_reader.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.errors import TooMany

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

logger = logging.getLogger("headwater.server")

AT_LEAST_EVERY_S = 2.0
NOT_MORE_OFTEN_S = 0.2

Item = TypeVar("Item")


def event(data: str, *, name: str | None = None, id: str | None = None) -> bytes:
    """One server-sent event.

    >>> event('{"tick": 7}', name="changes", id="7")
    b'event: changes\\nid: 7\\ndata: {"tick": 7}\\n\\n'
    """
    head = (f"event: {name}\n" if name else "") + (f"id: {id}\n" if id else "")
    return f"{head}data: {data}\n\n".encode()


class HeldStream(Generic[Item]):
    """Messages for one listener, whose place is taken before the first was asked for, and is given back once.

    A generator alone would not do: it knows of its end only when it has begun, and a burst of listeners that have not
    begun would pass every limit.
    """

    def __init__(self, messages: AsyncGenerator[Item], give_back: Callable[[], None]) -> None:
        self._messages = messages
        self._give_back: Callable[[], None] | None = give_back

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        try:
            return await self._messages.__anext__()
        except BaseException:  # its end, or an error: nothing comes after it
            self._end()
            raise

    async def aclose(self) -> None:
        """End, and give the place back."""
        try:
            await self._messages.aclose()
        finally:
            self._end()

    def _end(self) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()

    def __del__(self) -> None:
        self._end()


class Events:
    """The latest status, for all listeners."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._number = 0
        self._message = b""
        self._news = asyncio.Event()
        self._wanted = asyncio.Event()
        self._awake = asyncio.Event()
        self.listeners = 0

    def wake(self) -> None:
        """Send a new message soon."""
        self._awake.set()
        if self._state.closing:
            self._news.set()  # listeners end

    async def run(self) -> None:
        """Make messages while there are listeners."""
        state = self._state
        tick = -1
        while not state.closing:
            await self._wanted.wait()
            next_change = state.notifier.next_change()
            now = await state.read(state.manifests.tick)
            if now != tick or self._awake.is_set():
                tick = now
                self._awake.clear()
                await self._send()
                await asyncio.sleep(NOT_MORE_OFTEN_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AT_LEAST_EVERY_S):
                    await _first(next_change.wait(), self._awake.wait())
                    continue
            await self._send()

    async def _send(self) -> None:
        try:
            self._message = event(json.dumps(await self.look(), default=str, ensure_ascii=False), name="status")
        except Exception as error:  # busy catalog, deleted topic: the next one will do
            logger.warning("the status could not be read: %s", error)
            return
        self._number += 1
        self._news.set()
        self._news = asyncio.Event()

    async def look(self) -> dict[str, Any]:
        """The status, with what only this process knows."""
        state = self._state
        found = await state.read(state.status.read)
        return {
            **found,
            "aggregates": state.commands.counts.of_topics(found["topics"]),
            "engine": state.engine.to_dict(),
            "not_ready": state.watchdog.reasons(),
            "watchdog": state.watchdog.to_dict(),
            "server": {"listeners": self.listeners, **state.broker.counts(), **state.connections.to_dict()},
        }

    def listen(self) -> HeldStream[bytes]:
        """Messages, from now on; refused when too many listen."""
        limit = self._state.settings.subscriptions_max
        if self.listeners >= limit:
            raise TooMany(f"{limit} listen already", hint="Try again later, or raise --subscriptions.")
        self.listeners += 1
        self._wanted.set()
        return HeldStream(self._messages(), self._left)

    def _left(self) -> None:
        self.listeners -= 1
        if not self.listeners:
            self._wanted.clear()

    async def _messages(self) -> AsyncGenerator[bytes]:
        yield event(json.dumps(await self.look(), default=str, ensure_ascii=False), name="status")
        seen = self._number
        while not self._state.closing:
            news = self._news
            if self._number == seen:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AT_LEAST_EVERY_S):
                        await news.wait()
                continue
            seen = self._number
            yield self._message


async def _first(*awaited: Awaitable[Any]) -> None:
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


Still = Callable[[], Awaitable[bool]]


def still_of(scope: Scope) -> Still:
    """Asks whether the rights are still those with which the request came; see ``server/http/guard.py``."""
    still: Still = scope["state"]["still"]
    return still


class EventStream(Response):
    """A response of server-sent events, made by ``written`` of each message."""

    def __init__(
        self,
        messages: HeldStream[Item],
        *,
        send_seconds_max: float,
        written: Callable[[Item], bytes],
        on_slow: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._messages = messages
        self._written: Callable[[Any], bytes] = written
        self._seconds = send_seconds_max
        self._on_slow = on_slow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all messages, until they end or the client is gone."""
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        except BaseException:
            await self._messages.aclose()
            raise
        pump = asyncio.ensure_future(self._pump(send, still_of(scope)))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, gone):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                await pump
            await self._messages.aclose()

    async def _pump(self, send: Send, still: Still) -> None:
        async for message in self._messages:
            if not await still():
                break
            try:
                async with asyncio.timeout(self._seconds):
                    await send({"type": "http.response.body", "body": self._written(message), "more_body": True})
            except TimeoutError:
                if self._on_slow is not None:
                    self._on_slow()
                raise
        await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
