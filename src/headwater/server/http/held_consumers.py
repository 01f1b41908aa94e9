"""Held consumers: group members that the server holds for HTTP clients.

What it is: ``HeldConsumers``; each is a ``Consumer`` of the log whose heartbeats are its client's requests.
Invariants: a lost answer skips nothing: a batch is sent again until the client confirms it, and a commit names its
offsets. A client that is silent for its session time leaves the group, like any member. Only the key that joined may
use a member. The number of members is bounded.
Not here: what a group guarantees (``log/groups/consumer.py``); single messages (``server/routes/work_routes.py``).
Read next: ``log/groups/consumer.py``, ``server/routes/group_routes.py``.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import Fenced, HeadwaterError, TooMany
from headwater.log.batch import Batch
from headwater.log.contract import EventTopic
from headwater.log.groups.consumer import Consumer


@dataclass
class Held:
    """One consumer, and the batch that its client has not confirmed yet."""

    id: str
    owner: str  # the name of the key
    consumer: Consumer
    lock: threading.Lock = field(default_factory=threading.Lock)
    number: int = 0  # of the last batch that was given
    given: Batch | None = None
    member: str = ""  # who was given it: after an eviction the log gives it again
    used_at: float = 0.0


class HeldConsumers:
    """All of them. Its methods but ``find`` block: call them in a thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[str, Held] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def join(self, topic: EventTopic, group: str, owner: str, **options: Any) -> Held:
        """Join a group for a client."""
        self.close_expired()
        if len(self._held) >= self._limit:
            raise TooMany(
                f"{self._limit} consumers are held already",
                hint="Close other consumers, or wait until their sessions end.",
            )
        consumer = topic.consumer(group, background=False, **options)
        held = Held(secrets.token_urlsafe(16), owner, consumer, used_at=time.monotonic())
        with self._lock:
            self._held[held.id] = held
        return held

    def find(self, id: str, owner: str) -> Held:
        """The consumer of this id, if it is this owner's."""
        with self._lock:
            held = self._held.get(id)
        if held is None or held.owner != owner:
            raise Fenced(
                "this consumer is not known here",
                detail="Its session ended, it left, or the server was restarted.",
                hint="Join again; the group continues at its committed offsets.",
            )
        held.used_at = time.monotonic()
        return held

    def poll(self, held: Held, received: int | None) -> Batch | None:
        """The next batch, if one is there; the last one again, if the client has not received it. Never waits."""
        with held.lock:
            again = held.given
            if again is not None and received != held.number:
                if held.consumer.heartbeat() and held.member == held.consumer.member and self._owns(held, again):
                    return again
                held.given = None  # it is another's now, or comes again from the log
            batch = held.consumer.poll(timeout=0)
            held.given, held.member = batch, held.consumer.member
            held.number += batch is not None
            return batch

    def _owns(self, held: Held, batch: Batch) -> bool:
        return batch.partition in held.consumer.assignment

    def commit(self, held: Held, offsets: dict[int, int]) -> None:
        """Remember what is done."""
        with held.lock:
            held.consumer.commit(offsets)

    def leave(self, held: Held) -> None:
        """Leave the group."""
        with self._lock:
            self._held.pop(held.id, None)
        with held.lock:
            held.consumer.close(commit=False)

    def close_expired(self) -> None:
        """Forget those whose session is over; the catalog has struck them off, or will at the next heartbeat."""
        now = time.monotonic()
        with self._lock:
            silent = [held for held in self._held.values() if now - held.used_at > held.consumer.session_timeout]
        for held in silent:
            with contextlib.suppress(HeadwaterError):
                self.leave(held)

    def close(self) -> None:
        """Leave all groups: the server stops."""
        for held in list(self._held.values()):
            with contextlib.suppress(HeadwaterError):
                self.leave(held)
