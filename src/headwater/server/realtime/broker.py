"""The hub: subscriptions to views, one reader for each view, however many subscribe.

What it is: ``SubscriptionBroker`` gives each subscriber its messages: a snapshot of one tick, then what changed, tick
by tick.
Invariants: what a subscriber has applied is the view at the tick that its last message named, whatever happened in
between; where its place is no longer kept, or the view's query changed, it gets a fresh snapshot that says ``reset``. A
subscriber that is slow is dropped with the token to go on from: so many messages wait for it, and no more.
Not here: what the messages say (``subscriber_messages.py``); carrying them (``server/routes/subscribe_routes.py``).
Read next: ``subscriber_messages.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.errors import TooMany
from headwater.server.realtime.change_notifier import LOOK_S
from headwater.server.realtime.status_events import HeldStream, event
from headwater.server.realtime.subscriber_messages import MessageEncoder, ResumeToken, ViewMessage

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

logger = logging.getLogger("headwater.server")

KEEP_S = 15.0  # so that proxies do not take a quiet subscription for a dead one
TICKS_AT_ONCE = 50
QUEUED_BYTES_MAX = 8 << 20  # that wait for one subscriber; all that wait for the same message share it
QUEUED_PARTS_MAX = 8  # a telling of more parts is read from where it is, not queued

KEEP = b": still here\n\n"


@dataclass(frozen=True)
class SubscriberMessage:
    """One message to one subscriber, or to all. None as data: only to keep the connection alive."""

    data: str | None
    kind: str = ""
    place: ResumeToken | None = None  # where the subscriber is after it; None in the middle of a tick

    @cached_property
    def event(self) -> bytes:
        """As a server-sent event."""
        if self.data is None:
            return KEEP
        return event(self.data, name=self.kind, id=str(self.place) if self.place is not None else None)


class Subscriber:
    """What waits for one subscriber."""

    def __init__(self, limit: int) -> None:
        self._waiting: deque[tuple[ResumeToken, list[SubscriberMessage]]] = deque()
        self._limit = limit
        self._bytes = 0
        self._news = asyncio.Event()
        self.left = False  # it is told no more: too slow, or it must read for itself
        self.slow = False

    def give(self, place: ResumeToken, messages: list[SubscriberMessage]) -> None:
        """Messages that take it to a place. Nothing after it has left: there would be a gap."""
        if self.left:
            return
        self._bytes += _size(messages)
        if self._waiting and (len(self._waiting) >= self._limit or self._bytes > QUEUED_BYTES_MAX):
            self.leave(slow=True)
            return
        self._waiting.append((place, messages))
        self._news.set()

    def leave(self, *, slow: bool = False) -> None:
        """Nothing more comes this way."""
        self.left, self.slow = True, slow
        self._waiting.clear()
        self._news.set()

    async def take(self, seconds: float) -> tuple[ResumeToken, list[SubscriberMessage]] | None:
        """The next; None after so many seconds, or when nothing more comes."""
        if not self._waiting and not self.left:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        if not self._waiting:
            return None
        taken = self._waiting.popleft()
        self._bytes -= _size(taken[1])
        return taken


def _size(messages: list[SubscriberMessage]) -> int:
    return sum(len(message.data or "") for message in messages)


class Broadcast:
    """One view's reader: follows its ticks for all its subscribers."""

    def __init__(self, state: ServerState, view: str) -> None:
        self._state = state
        self.teller = MessageEncoder(view, state.committed, state.home_id)
        self.at: ResumeToken | None = None
        self.users = 0  # also those that read for themselves at the moment
        self.subscribers: set[Subscriber] = set()
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Tell every tick, once for all."""
        while True:
            moment = self._state.pulse.moment()
            try:
                told = await self._step()
            except Exception as error:  # a busy catalog, a file that is gone: subscribers read for themselves meanwhile
                logger.warning('the reader of view "%s" begins anew: %s', self.teller.view, error)
                self.at, told = None, False
                self._let_all_go()
                await asyncio.sleep(LOOK_S)
            if not told:
                await self._state.pulse.after(moment, LOOK_S)

    async def _step(self) -> bool:
        found = await self._state.read(self._next)
        if found is None:  # another query, or too far behind: each begins anew
            self.at = None
            self._let_all_go()
            return True
        for telling in found:
            self._tell(telling)
        return bool(found)

    def _next(self) -> list[ViewMessage] | None:
        if self.at is None:
            self.at = self.teller.now()
            return []
        now = self.teller.now()
        if now == self.at:
            return []
        return self.teller.changes(self.at, ticks_max=TICKS_AT_ONCE)

    def _tell(self, telling: ViewMessage) -> None:
        self.at = telling.place
        if len(telling) > QUEUED_PARTS_MAX:
            self._let_all_go()  # they read it from the disk, each at its own pace
            return
        messages = [
            SubscriberMessage(
                telling.said(number, reset=False), telling.kind, telling.place if telling.is_last(number) else None
            )
            for number in range(len(telling))
        ]
        for subscriber in self.subscribers:
            subscriber.give(telling.place, messages)
        self.subscribers = {subscriber for subscriber in self.subscribers if not subscriber.left}

    def _let_all_go(self) -> None:
        for subscriber in self.subscribers:
            subscriber.leave()
        self.subscribers = set()


class SubscriptionBroker:
    """All subscriptions of a server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._broadcasts: dict[str, Broadcast] = {}
        self.open = 0
        self.dropped = 0
        self.told = 0

    def counts(self) -> dict[str, int]:
        """How many there are, and were dropped because they were slow."""
        return {"subscriptions": self.open, "dropped_subscriptions": self.dropped, "messages": self.told}

    def note_slow(self) -> None:
        """A subscriber has not taken a message in time, and is let go."""
        self.dropped += 1

    def end(self) -> None:
        """The server stops: wake everybody."""
        for broadcast in self._broadcasts.values():
            for subscriber in broadcast.subscribers:
                subscriber.leave()

    def subscribe(self, view: str, have: ResumeToken | None) -> HeldStream[SubscriberMessage]:
        """The messages of one subscription; refused when there are too many."""
        limit = self._state.settings.subscriptions_max
        if self.open >= limit:
            raise TooMany(f"{limit} subscriptions are open already", hint="Try again later, or raise --subscriptions.")
        self.open += 1
        return HeldStream(self._messages(view, have), self._left)

    def _left(self) -> None:
        self.open -= 1

    async def _messages(self, view: str, have: ResumeToken | None) -> AsyncGenerator[SubscriberMessage]:
        broadcast = self._broadcast(view)
        broadcast.users += 1
        try:
            async for message in self._follow(broadcast, have):
                self.told += 1
                yield message
        finally:
            broadcast.users -= 1
            self._tidy(view, broadcast)

    async def _follow(self, broadcast: Broadcast, have: ResumeToken | None) -> AsyncGenerator[SubscriberMessage]:
        state, teller = self._state, broadcast.teller
        at = await state.read(teller.resumed, have) if have is not None else None
        reset = have is not None and at is None
        while not state.closing:
            if at is None:
                async for message in self._snapshot(teller, reset=reset):
                    at, reset = message.place or at, reset or message.data is not None
                    yield message
                continue
            behind = await state.read(lambda place: teller.changes(place, ticks_max=TICKS_AT_ONCE), at)
            if behind is None:
                at = None
                continue
            for telling in behind:
                async for message in self._parts(telling, reset=False):
                    at = message.place or at
                    yield message
            subscriber = Subscriber(state.settings.subscription_queue_max)
            if behind or not self._attached(broadcast, subscriber, at):
                if not behind:  # the reader has just begun, and is not there yet
                    await asyncio.sleep(0.01)
                continue
            try:
                async for place, message in self._live(subscriber, at):
                    at = place or at
                    yield message
            finally:
                broadcast.subscribers.discard(subscriber)
            if subscriber.slow:
                self.dropped += 1
                yield self._end("too slow", at)
                return
        yield self._end("the server stops", at)

    def _attached(self, broadcast: Broadcast, subscriber: Subscriber, at: ResumeToken) -> bool:
        """Be told from now on, if the reader is where the subscriber is, or behind it."""
        there = broadcast.at
        if there is None or there.version != at.version or there.tick > at.tick:
            return False
        broadcast.subscribers.add(subscriber)
        return True

    async def _live(
        self, subscriber: Subscriber, at: ResumeToken
    ) -> AsyncGenerator[tuple[ResumeToken | None, SubscriberMessage]]:
        while not self._state.closing:
            taken = await subscriber.take(KEEP_S)
            if taken is None:
                if subscriber.left:
                    return
                yield None, SubscriberMessage(None)
                continue
            place, messages = taken
            if place.tick <= at.tick:  # the reader was behind
                continue
            for message in messages:
                yield message.place, message

    async def _snapshot(self, teller: MessageEncoder, *, reset: bool) -> AsyncGenerator[SubscriberMessage]:
        state = self._state

        async def look() -> ViewMessage | None:
            return await state.read(teller.snapshot)

        telling = await state.pulse.until(look, KEEP_S)
        if telling is None:
            yield SubscriberMessage(None)
            return
        async for message in self._parts(telling, reset=reset):
            yield message

    async def _parts(self, telling: ViewMessage, *, reset: bool) -> AsyncGenerator[SubscriberMessage]:
        for number in range(len(telling)):
            if self._state.closing:  # what was sent of it counts for nothing
                return
            yield await self._part(telling, number, reset=reset)

    async def _part(self, telling: ViewMessage, number: int, *, reset: bool) -> SubscriberMessage:
        if len(telling) > QUEUED_PARTS_MAX:  # it may be in a file
            data = await self._state.read(lambda: telling.said(number, reset=reset))
        else:
            data = telling.said(number, reset=reset)
        return SubscriberMessage(data, telling.kind, telling.place if telling.is_last(number) else None)

    def _end(self, reason: str, at: ResumeToken | None) -> SubscriberMessage:
        told = {"type": "end", "reason": reason, "tick": at.tick if at else None, "token": str(at) if at else None}
        return SubscriberMessage(json.dumps(told), "end", at)

    def _broadcast(self, view: str) -> Broadcast:
        found = self._broadcasts.get(view)
        if found is None:
            found = self._broadcasts[view] = Broadcast(self._state, view)
            found.task = self._state.begin(found.run())
        return found

    def _tidy(self, view: str, broadcast: Broadcast) -> None:
        if not broadcast.users and self._broadcasts.get(view) is broadcast:
            del self._broadcasts[view]
            assert broadcast.task is not None
            broadcast.task.cancel()
