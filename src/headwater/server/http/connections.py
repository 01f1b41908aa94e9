"""Connections: their number, and their time limits.

What it is: ``bounded``, uvicorn's HTTP protocol with limits; ``connections_max``, the limit that fits the process.
Invariants: head, body and reading of the answer have a time limit each. The number of connections is bounded, so that
the log always finds file descriptors: at the limit the longest idle connection is closed for a new one; if none is
idle, the new one is answered 503. Refusals are logged once in a while, not one by one.
Not here: requests (``guard.py``), subscriptions (``server/realtime/broker.py``), signals (``running.py``).
Read next: ``running.py``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from headwater.errors import HeadwaterError, Misuse, TimedOut, TooMany
from headwater.log.storage.file_descriptors import open_files_max
from headwater.server.server_settings import ServerSettings

logger = logging.getLogger("headwater.server")

HEAD_BYTES_MAX = 64 << 10
BODY_BYTES_PER_S_MIN = 4 << 10  # a body that is slower than this does not get more time by being long
SEND_GRACE_S = 5.0  # who follows a stream is told by the stream first, see server/realtime/status_events.py
LINGER_S = 0.2
IDLE_MIN_S = 0.5  # of one that has just come the request may be on its way
ACCEPTED_AT_ONCE = 16  # in one turn of the event loop: asyncio takes so many before anybody can refuse one
CONNECTIONS_MIN, CONNECTIONS_MAX = 16, 16_384


def connections_max(settings: ServerSettings) -> int:
    """How many connections there may be: as set, or a quarter of what this process may have open."""
    if settings.connections_max is not None:
        return settings.connections_max
    return max(CONNECTIONS_MIN, min(CONNECTIONS_MAX, open_files_max() // 4))


class Counts:
    """The state that the connections of one server share."""

    def __init__(self, settings: ServerSettings) -> None:
        self.limit = connections_max(settings)
        self.idle: dict[Any, float] = {}  # those without a request, and since when; idle for longest first
        self.open: set[Any] = set()  # uvicorn's own, WebSockets among them
        self.refused = 0
        self.timed_out = 0

    def to_dict(self) -> dict[str, int]:
        """The shape programs get."""
        return {
            "connections": len(self.open),
            "connections_max": self.limit,
            "refused_connections": self.refused,
            "slow_connections": self.timed_out,
        }


def bounded(base: type[Any], settings: ServerSettings, counts: Counts) -> type[Any]:
    """A protocol class of uvicorn, with limits."""

    class Bounded(base):  # type: ignore[misc]
        """One connection."""

        _timer: asyncio.TimerHandle | None = None
        _send_timer: asyncio.TimerHandle | None = None
        _head_bytes = 0
        _body_bytes = 0
        _refused = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            counts.open = self.connections
            counts.idle[self] = self.loop.time()
            self._await_head()
            if len(self.connections) > counts.limit:
                self._make_room()

        def _make_room(self) -> None:
            longest, since = next(iter(counts.idle.items()))
            if self.loop.time() - since > IDLE_MIN_S:
                longest.transport.close()
                counts.idle.pop(longest, None)
                return
            counts.refused += 1
            logger.warning("%d connections are open, which is the limit: further ones are refused", counts.limit)
            self._refuse(
                503,
                TooMany(
                    f"{counts.limit} connections are open already",
                    hint="Try again later, or raise --connections and the limit of open files (ulimit -n).",
                ),
            )

        def data_received(self, data: bytes) -> None:
            if self._refused:
                return
            before = self.cycle
            super().data_received(data)
            if self.transport is None or self.transport.is_closing() or self.transport.get_protocol() is not self:
                self._at_rest()  # refused, or a WebSocket by now
                return
            if self.cycle is not before:
                self._body_bytes = self._head_bytes = 0
            if self._waiting():
                if self.cycle is None or not self.cycle.more_body:  # else the rest of a body that was refused
                    self._head_bytes += len(data)
                if self._head_bytes > HEAD_BYTES_MAX:
                    self._refuse(431, Misuse("the head of the request is too large", hint="Send shorter headers."))
                elif self._timer is None:
                    self._await_head()
                return
            counts.idle.pop(self, None)
            self._body_bytes += len(data)
            if not self.cycle.more_body:
                self._stop_timer()
            elif self.cycle is not before:
                self._await_body()

        def _waiting(self) -> bool:
            """Whether the next thing that comes is a request's head."""
            return self.cycle is None or bool(self.cycle.response_complete)

        def on_response_complete(self) -> None:
            self._stop_timer()
            super().on_response_complete()
            if self._waiting() and not self.transport.is_closing():
                counts.idle[self] = self.loop.time()

        # Times

        def _await_head(self) -> None:
            self._stop_timer()
            self._timer = self.loop.call_later(settings.head_seconds_max, self._too_slow, "head", 0.0)

        def _await_body(self) -> None:
            self._stop_timer()
            began = self.loop.time()
            self._timer = self.loop.call_later(settings.body_seconds_max, self._body_due, began)

        def _body_due(self, began: float) -> None:
            self._timer = None
            if self.cycle is None or not self.cycle.more_body or self.cycle.response_complete:
                return
            allowed = settings.body_seconds_max + self._body_bytes / BODY_BYTES_PER_S_MIN
            left = began + allowed - self.loop.time()
            if left <= 0 and not self.flow.read_paused:
                self._too_slow("body", allowed)
            else:  # it comes, or we ourselves are not done with what came
                self._timer = self.loop.call_later(max(left, 1.0), self._body_due, began)

        def _too_slow(self, what: str, seconds: float) -> None:
            self._timer = None
            if self.transport.is_closing() or (what == "head" and not self._waiting()):
                return
            counts.timed_out += 1
            if self._head_bytes or what == "body":
                limit = seconds or settings.head_seconds_max
                self._refuse(408, TimedOut(f"the {what} of the request did not come in {limit:g} s"))
            else:  # no request was sent
                self._refused = True
                self.transport.close()

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._send_timer is None:
                seconds = settings.send_seconds_max + SEND_GRACE_S
                self._send_timer = self.loop.call_later(seconds, self._not_read)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stop_send_timer()

        def _not_read(self) -> None:
            """The client takes nothing of its answer: what waits for it is thrown away."""
            self._send_timer = None
            counts.timed_out += 1
            self.transport.abort()

        # Its end

        def _refuse(self, status: int, error: HeadwaterError) -> None:
            self._refused = True
            body = json.dumps({"error": error.to_dict()}).encode()
            head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
            self._at_rest()
            # With something unread in it a closed socket is reset, and its client never sees the answer.
            linger = len(self.connections) < counts.limit + ACCEPTED_AT_ONCE
            self.loop.call_later(LINGER_S if linger else 0.0, self.transport.close)

        def _at_rest(self) -> None:
            counts.idle.pop(self, None)
            self._stop_timer()
            self._stop_send_timer()

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _stop_send_timer(self) -> None:
            if self._send_timer is not None:
                self._send_timer.cancel()
                self._send_timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._at_rest()
            super().connection_lost(exc)

    return Bounded
