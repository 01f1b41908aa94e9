"""The broker: subscriptions to views, with one reader for each view and any number of subscribers.

What it is: ``SubscriptionBroker`` sends each subscriber a snapshot of one tick, then the changes of each tick.
Invariants: the messages applied so far are the view at the tick of the last message. If the subscriber's tick is no
longer kept, or the view's query changed, it gets a new snapshot with ``reset``. A slow subscriber is dropped with its
resume token; its queue is bounded.
Not here: the messages (``subscriber_messages.py``); sending them (``server/routes/subscribe_routes.py``).
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
from headwater.views.privacy.personal_data import PrivacyRights

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

logger = logging.getLogger("headwater.server")

KEEP_S = 15.0  # proxies close silent connections
TICKS_AT_ONCE = 50
QUEUED_BYTES_MAX = 8 << 20  # for one subscriber; equal messages are shared
QUEUED_PARTS_MAX = 8  # a message of more parts is read from its file, not queued

KEEP = b": still here\n\n"


@dataclass(frozen=True)
class SubscriberMessage:
    """One message to subscribers; without data it keeps the connection alive."""

    data: str | None
    kind: str = ""
    token: ResumeToken | None = None  # the subscriber's position after it; None within a tick

    @cached_property
    def event(self) -> bytes:
        """As a server-sent event."""
        if self.data is None:
            return KEEP
        return event(self.data, name=self.kind, id=str(self.token) if self.token is not None else None)


class Subscriber:
    """The queue of one subscriber."""

    def __init__(self, limit: int) -> None:
        self._waiting: deque[tuple[ResumeToken, list[SubscriberMessage]]] = deque()
        self._limit = limit
        self._bytes = 0
        self._news = asyncio.Event()
        self.left = False  # detached: too slow, or it must read by itself
        self.slow = False

    def give(self, token: ResumeToken, messages: list[SubscriberMessage]) -> None:
        """Queue the messages of one tick. Ignored once detached: there would be a gap."""
        if self.left:
            return
        self._bytes += _size(messages)
        if self._waiting and (len(self._waiting) >= self._limit or self._bytes > QUEUED_BYTES_MAX):
            self.leave(slow=True)
            return
        self._waiting.append((token, messages))
        self._news.set()

    def leave(self, *, slow: bool = False) -> None:
        """Detach."""
        self.left, self.slow = True, slow
        self._waiting.clear()
        self._news.set()

    async def take(self, seconds: float) -> tuple[ResumeToken, list[SubscriberMessage]] | None:
        """The next messages; None after the timeout, or when detached."""
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
    """The reader of one view, shared by its subscribers of the same rights."""

    def __init__(self, state: ServerState, view: str, rights: PrivacyRights) -> None:
        self._state = state
        self.encoder = MessageEncoder(view, state.committed, state.masked, rights)
        self.at: ResumeToken | None = None
        self.users = 0  # includes subscribers that read by themselves
        self.subscribers: set[Subscriber] = set()
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Read every tick and queue it for all subscribers."""
        while True:
            next_change = self._state.notifier.next_change()
            try:
                moved = await self._step()
            except Exception as error:  # busy catalog, removed file: subscribers read by themselves
                logger.warning('restarting the reader of view "%s": %s', self.encoder.view, error)
                self.at, moved = None, False
                self._detach_all()
                await asyncio.sleep(LOOK_S)
            if not moved:
                await self._state.notifier.after(next_change, LOOK_S)

    async def _step(self) -> bool:
        found = await self._state.read(self._next)
        if found is None:  # another query, or too far behind: each subscriber restarts
            self.at = None
            self._detach_all()
            return True
        for view_message in found:
            self._tell(view_message)
        return bool(found)

    def _next(self) -> list[ViewMessage] | None:
        if self.at is None:
            self.at = self.encoder.now()
            return []
        now = self.encoder.now()
        if now == self.at:
            return []
        return self.encoder.changes(self.at, ticks_max=TICKS_AT_ONCE)

    def _tell(self, view_message: ViewMessage) -> None:
        self.at = view_message.token
        if len(view_message) > QUEUED_PARTS_MAX:
            self._detach_all()  # each reads it from disk at its own pace
            return
        messages = [
            SubscriberMessage(
                view_message.said(number, reset=False),
                view_message.kind,
                view_message.token if view_message.is_last(number) else None,
            )
            for number in range(len(view_message))
        ]
        for subscriber in self.subscribers:
            subscriber.give(view_message.token, messages)
        self.subscribers = {subscriber for subscriber in self.subscribers if not subscriber.left}

    def _detach_all(self) -> None:
        for subscriber in self.subscribers:
            subscriber.leave()
        self.subscribers = set()


class SubscriptionBroker:
    """The subscriptions of a server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._broadcasts: dict[tuple[str, PrivacyRights], Broadcast] = {}
        self.open = 0
        self.dropped = 0
        self.sent = 0

    def counts(self) -> dict[str, int]:
        """Counters: open, dropped for slowness, messages sent."""
        return {"subscriptions": self.open, "dropped_subscriptions": self.dropped, "messages": self.sent}

    def note_slow(self) -> None:
        """Count a subscriber that was dropped for slowness."""
        self.dropped += 1

    def end(self) -> None:
        """The server stops: detach all subscribers."""
        for broadcast in self._broadcasts.values():
            for subscriber in broadcast.subscribers:
                subscriber.leave()

    def subscribe(self, view: str, have: ResumeToken | None, rights: PrivacyRights) -> HeldStream[SubscriberMessage]:
        """The messages of one subscription, of the values that its rights show; ``TooMany`` at the limit."""
        limit = self._state.settings.subscriptions_max
        if self.open >= limit:
            raise TooMany(f"{limit} subscriptions are open", hint="Try again later, or raise --subscriptions.")
        self.open += 1
        return HeldStream(self._messages((view, rights), have), self._left)

    def _left(self) -> None:
        self.open -= 1

    async def _messages(
        self, what: tuple[str, PrivacyRights], have: ResumeToken | None
    ) -> AsyncGenerator[SubscriberMessage]:
        broadcast = self._broadcast(what)
        broadcast.users += 1
        try:
            async for message in self._follow(broadcast, have):
                self.sent += 1
                yield message
        finally:
            broadcast.users -= 1
            self._tidy(what, broadcast)

    async def _follow(self, broadcast: Broadcast, have: ResumeToken | None) -> AsyncGenerator[SubscriberMessage]:
        state, encoder = self._state, broadcast.encoder
        at = await state.read(encoder.resumed, have) if have is not None else None
        reset = have is not None and at is None
        while not state.closing:
            if at is None:
                async for message in self._snapshot(encoder, reset=reset):
                    at, reset = message.token or at, reset or message.data is not None
                    yield message
                continue
            behind = await state.read(lambda token: encoder.changes(token, ticks_max=TICKS_AT_ONCE), at)
            if behind is None:
                at = None
                continue
            for view_message in behind:
                async for message in self._parts(view_message, reset=False):
                    at = message.token or at
                    yield message
            subscriber = Subscriber(state.settings.subscription_queue_max)
            if behind or not self._attached(broadcast, subscriber, at):
                if not behind:  # the reader has just started
                    await asyncio.sleep(0.01)
                continue
            try:
                async for token, message in self._live(subscriber, at):
                    at = token or at
                    yield message
            finally:
                broadcast.subscribers.discard(subscriber)
            if subscriber.slow:
                self.dropped += 1
                yield self._end("too slow", at)
                return
        yield self._end("the server stops", at)

    def _attached(self, broadcast: Broadcast, subscriber: Subscriber, at: ResumeToken) -> bool:
        """Attach to the reader, unless it is ahead of the subscriber."""
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
            token, messages = taken
            if token.tick <= at.tick:  # the reader was behind
                continue
            for message in messages:
                yield message.token, message

    async def _snapshot(self, encoder: MessageEncoder, *, reset: bool) -> AsyncGenerator[SubscriberMessage]:
        state = self._state

        async def look() -> ViewMessage | None:
            return await state.read(encoder.snapshot)

        view_message = await state.notifier.until(look, KEEP_S)
        if view_message is None:
            yield SubscriberMessage(None)
            return
        async for message in self._parts(view_message, reset=reset):
            yield message

    async def _parts(self, view_message: ViewMessage, *, reset: bool) -> AsyncGenerator[SubscriberMessage]:
        for number in range(len(view_message)):
            if self._state.closing:  # an incomplete tick is not applied
                return
            yield await self._part(view_message, number, reset=reset)

    async def _part(self, view_message: ViewMessage, number: int, *, reset: bool) -> SubscriberMessage:
        if len(view_message) > QUEUED_PARTS_MAX:  # it may be in a file
            data = await self._state.read(lambda: view_message.said(number, reset=reset))
        else:
            data = view_message.said(number, reset=reset)
        return SubscriberMessage(data, view_message.kind, view_message.token if view_message.is_last(number) else None)

    def _end(self, reason: str, at: ResumeToken | None) -> SubscriberMessage:
        end = {"type": "end", "reason": reason, "tick": at.tick if at else None, "token": str(at) if at else None}
        return SubscriberMessage(json.dumps(end), "end", at)

    def _broadcast(self, what: tuple[str, PrivacyRights]) -> Broadcast:
        found = self._broadcasts.get(what)
        if found is None:
            found = self._broadcasts[what] = Broadcast(self._state, *what)
            found.task = self._state.begin(found.run())
        return found

    def _tidy(self, what: tuple[str, PrivacyRights], broadcast: Broadcast) -> None:
        if not broadcast.users and self._broadcasts.get(what) is broadcast:
            del self._broadcasts[what]
            assert broadcast.task is not None
            broadcast.task.cancel()
