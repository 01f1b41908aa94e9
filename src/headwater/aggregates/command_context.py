"""Command context: what a command may use besides the aggregate's state and its own arguments.

What it is: ``CommandContext``: the time, new ids and random numbers, from a clock and a seed that are recorded with the
events; the events that are still tentative; ``Decision``, what a command has emitted so far.
Invariants: a command that is decided again with the recorded time, seed and arguments, over the same state, emits the
same events. An event is emitted by calling an event method inside a command, and nowhere else.
Not here: the command methods themselves (``aggregate_class.py``), writing (``aggregate_repository.py``).
Read next: ``aggregate_class.py``.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from headwater.aggregates.events.event_rows import EPOCH, MICROSECOND, EventDraft
from headwater.errors import Misuse, Rejected

CONFIRMED, CANCELLED, EXPIRED = "confirmed", "cancelled", "expired"
SETTLED = (CONFIRMED, CANCELLED, EXPIRED)


@dataclass(frozen=True)
class PendingEvent:
    """A tentative event that is neither confirmed nor cancelled yet.

    >>> PendingEvent(2, "held", {}, dt.datetime(2030, 1, 1)).version
    2
    """

    version: int
    type: str
    data: Mapping[str, Any]
    deadline: dt.datetime


class CommandContext:
    """The world outside of an aggregate, as one command sees it.

    A command method asks for it by a parameter named ``context``.

    >>> import headwater as hw, tempfile
    >>> from headwater.aggregates import CommandContext, command, event
    >>> class Ticket:
    ...     @command
    ...     def open(self, context: CommandContext) -> None:
    ...         self.opened(code=context.new_id()[:4], lot=context.random.randint(1, 6))
    ...     @event
    ...     def opened(self, code: str, lot: int) -> None:
    ...         self.code = code
    >>> tickets = hw.App("desk", home=tempfile.mkdtemp()).aggregate("ticket", Ticket)
    >>> len(tickets.send("1", "open").events[0].data["code"]), tickets.verify()  # the same, decided again
    (4, [])
    """

    def __init__(
        self,
        *,
        id: str,
        now_us: int,
        seed: int,
        request_id: str | None = None,
        actor: str | None = None,
        pending: Mapping[int, PendingEvent] | None = None,
    ) -> None:
        self.id = id
        self.now_us = now_us
        self.seed = seed
        self.request_id = request_id
        self.actor = actor
        self.settled: list[tuple[int, str]] = []
        self._pending = dict(pending or {})
        self._random: random.Random | None = None

    @property
    def now(self) -> dt.datetime:
        """The time of the decision."""
        return EPOCH + self.now_us * MICROSECOND

    @property
    def random(self) -> random.Random:
        """Random numbers, from the recorded seed."""
        if self._random is None:
            self._random = random.Random(self.seed)
        return self._random

    def new_id(self) -> str:
        """A new id, a UUID, from the recorded seed."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    @property
    def pending(self) -> list[PendingEvent]:
        """The tentative events that are neither confirmed nor cancelled, oldest first."""
        return list(self._pending.values())

    def confirm(self, version: int) -> None:
        """Confirm a tentative event, by its version.

        >>> import headwater as hw, tempfile
        >>> from headwater.aggregates import CommandContext, Rejected, command, event
        >>> class Seat:
        ...     @command
        ...     def hold(self) -> None:
        ...         self.held()
        ...     @command
        ...     def decide(self, paid: bool, context: CommandContext) -> None:
        ...         for each in context.pending:
        ...             if each.deadline < context.now:
        ...                 raise Rejected("too late")
        ...             context.confirm(each.version) if paid else context.cancel(each.version)
        ...     @event(tentative="15 minutes")
        ...     def held(self) -> None: ...
        ...     @held.cancelled
        ...     def _given_back(self) -> None: ...
        >>> seats = hw.App("cinema", home=tempfile.mkdtemp()).aggregate("seat", Seat)
        >>> _ = seats.send("7A", "hold")
        >>> seats.send("7A", "decide", paid=True).events[0].type
        'confirmed'
        """
        self._settle(version, CONFIRMED)

    def cancel(self, version: int) -> None:
        """Take a tentative event back, by its version."""
        self._settle(version, CANCELLED)

    def forget(self, version: int) -> None:
        """A tentative event's deadline has passed: it is no longer pending."""
        self._pending.pop(version, None)

    def _settle(self, version: int, how: str) -> None:
        decision = DECIDING.get()
        if decision is None or decision.context is not self:
            raise Misuse("a context is used by the command that it was given to", hint="Do not keep it.")
        if self._pending.pop(version, None) is None:
            raise Rejected(f"there is no tentative event {version} to be {how}", version=version)
        decision.settle(version, how)


@dataclass
class Decision:
    """What one command has emitted so far, and the copy of the state that it is decided over."""

    instance: Any
    context: CommandContext
    apply_settled: Any  # (instance, version, how): what confirmation or cancellation does to the state
    drafts: list[EventDraft] = field(default_factory=list)
    applying: bool = False

    def emit(self, type: str, data: Mapping[str, Any], deadline_us: int | None) -> None:
        """Note an event; the caller applies it."""
        if self.applying:
            raise Misuse(
                f'event method "{type}" was called by another event method',
                hint="An event method changes the state and emits nothing. Call both from the command.",
            )
        draft = EventDraft(type, data, stream=self.context.id, at_us=self.context.now_us)
        if deadline_us is not None:
            draft.extra["deadline"] = deadline_us
        self.drafts.append(draft)

    def settle(self, version: int, how: str, at_us: int | None = None) -> None:
        """Note that a tentative event is confirmed, cancelled or expired, and apply it."""
        moment = self.context.now_us if at_us is None else at_us
        self.drafts.append(EventDraft(how, {}, stream=self.context.id, at_us=moment, extra={"settles": version}))
        self.apply_settled(self.instance, version, how)


DECIDING: ContextVar[Decision | None] = ContextVar("headwater_deciding", default=None)
