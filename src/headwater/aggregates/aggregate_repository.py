"""Aggregate repository: commands come in, are decided over the state, and become events.

What it is: ``AggregateRepository``, made by ``app.aggregate``: ``send``, and reading states and histories; ``Outcome``,
the answer of a command.
Invariants: a command is decided over a state, and its events are written if the stream has still that state's version:
else it is decided again. A request id is answered once; a repetition gets the first answer, be it events or a
rejection. A rejection is recorded without a version and changes no state. The state is what the stored events add up
to: a command works on a copy.
Not here: the condition (``events/event_condition.py``), deciding again to compare (``replay_check.py``).
Read next: ``aggregate_class.py``, ``events/event_store.py``; ``docs/aggregates.md``.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.aggregates.aggregate_class import AggregateClass
from headwater.aggregates.aggregate_states import NOTED, REJECTED, AggregateStates, LoadedState
from headwater.aggregates.command_arguments import to_text
from headwater.aggregates.command_context import CommandContext, PendingEvent
from headwater.aggregates.command_decision import Decide, decided, rejection_of, revoked
from headwater.aggregates.events.event_index import EventIndex
from headwater.aggregates.events.event_store import EventStore
from headwater.aggregates.events.event_types import RecordedEvent
from headwater.aggregates.snapshots import Snapshots
from headwater.aggregates.tentative_deadlines import TentativeDeadlines
from headwater.backoff import Backoff
from headwater.errors import CommandFailed, Misuse, RequestConflict, VersionConflict
from headwater.log.contract import EventLog
from headwater.log.schema.ddl import TIMESTAMP
from headwater.log.schema.event_metadata import Metadata
from headwater.log.token import Token

if TYPE_CHECKING:
    from headwater.aggregates.replay_check import ReplayDifference

ATTEMPTS_MAX = 100
EXTRA = pa.schema(
    [
        ("command", pa.struct([("name", pa.string()), ("arguments", pa.string()), ("seed", pa.int64())])),
        ("rejected", pa.struct([("reason", pa.string()), ("details", pa.string())])),
        ("deadline", TIMESTAMP),  # of a tentative event
        ("settles", pa.int64()),  # the version of the tentative event that is confirmed, cancelled or expired
    ]
)


@dataclass(frozen=True)
class Outcome:
    """The answer of a command: its events, the aggregate's version after them, and a token for ``at_least``."""

    events: Sequence[RecordedEvent]
    version: int
    token: Token
    repeated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain values.

        >>> Outcome([], 1, Token({"account": {0: 1}})).to_dict()
        {'events': [], 'version': 1, 'token': 'account:0=1', 'repeated': False}
        """
        events = [event.to_dict() for event in self.events]
        return {"events": events, "version": self.version, "token": str(self.token), "repeated": self.repeated}


class AggregateRepository:
    """The aggregates of one kind; made by ``app.aggregate``.

    >>> import headwater as hw, tempfile
    >>> from headwater.aggregates import Rejected, command, event
    >>> class Account:
    ...     def __init__(self) -> None:
    ...         self.cents = 0
    ...     @command
    ...     def deposit(self, cents: int) -> None:
    ...         self.deposited(cents)
    ...     @command
    ...     def withdraw(self, cents: int) -> None:
    ...         if cents > self.cents:
    ...             raise Rejected("no funds", missing=cents - self.cents)
    ...         self.withdrawn(cents)
    ...     @event
    ...     def deposited(self, cents: int) -> None:
    ...         self.cents += cents
    ...     @event
    ...     def withdrawn(self, cents: int) -> None:
    ...         self.cents -= cents
    >>> accounts = hw.App("bank", home=tempfile.mkdtemp()).aggregate("account", Account)
    >>> accounts.send("7", "deposit", cents=10, request_id="r-1").version
    1
    >>> accounts.send("7", "deposit", cents=10, request_id="r-1").repeated
    True
    >>> accounts.send("7", "withdraw", cents=25)
    Traceback (most recent call last):
        ...
    headwater.errors.Rejected: no funds
    >>> accounts.get("7").cents, [event.type for event in accounts.history("7")]
    (10, ['deposited', 'rejected'])
    """

    def __init__(
        self,
        log: EventLog,
        name: str,
        declared: type,
        *,
        partitions: int,
        snapshot_every: int,
        personal: str | None = None,
    ) -> None:
        self.name = name
        self.declared = AggregateClass(name, declared)
        kinds = [method.type for method in self.declared.events.values()]
        self.store = EventStore(log, name, kinds, extra=EXTRA, streams=True, partitions=partitions, personal=personal)
        path = Path(log.local.home) / "aggregates" / f"{name}.sqlite"
        snapshots = Snapshots(path, self.declared.fingerprint, declared)
        self.states = AggregateStates(self.declared, self.store, snapshots, snapshot_every)
        self.conflicts = 0  # commands that were decided again, because another one came first
        self._deadlines = TentativeDeadlines(self)
        self._backoff = Backoff(0.001, 0.05, jitter=random.Random())

    # Commands

    def send(
        self,
        id: str,
        command: str,
        /,
        *,
        request_id: str | None = None,
        expected: int | None = None,
        metadata: Metadata | None = None,
        **arguments: Any,
    ) -> Outcome:
        """Send a command to an aggregate; returns its events, or raises ``Rejected``.

        ``request_id``: a command that is sent again gives the first answer. ``expected``: the version that the sender
        has seen; ``VersionConflict`` when it has changed. Otherwise a command that another one came before is decided
        again.

        >>> import headwater as hw, tempfile
        >>> from headwater.aggregates import command, event
        >>> class Counter:
        ...     @command
        ...     def count(self) -> None:
        ...         self.counted()
        ...     @event
        ...     def counted(self) -> None: ...
        >>> counters = hw.App("shop", home=tempfile.mkdtemp()).aggregate("counter", Counter)
        >>> [counters.send("a", "count").version for _ in range(3)]
        [1, 2, 3]
        >>> counters.send("a", "count", expected=1)
        Traceback (most recent call last):
            ...
        headwater.errors.VersionConflict: counter "a" has version 3; expected was 1
          Nothing was written.
          Hint: Read it again, and decide whether the command is still right.
        """
        stream = aggregate_id(self.name, id)
        method = self.declared.command(command)
        values = method.checked(arguments)
        said = {"name": command, "arguments": to_text(values, command)}

        def decide(context: CommandContext, instance: Any) -> None:
            method.decide(instance, context, values)

        return self._decided(stream, decide, said, request_id, expected, metadata)

    def revoke(self, id: str, command: str, /, *, request_id: str, reason: str, **arguments: Any) -> Outcome:
        """See to it that a command can never be accepted any more: it is recorded as rejected, for ``reason``.

        One that was accepted or rejected before stays so: the answer is the first one, as of ``send``. So whoever must
        know how a command ended, which others may be about to send, knows it afterwards.

        >>> import headwater as hw, tempfile
        >>> from headwater.aggregates import command, event
        >>> class Counter:
        ...     @command
        ...     def count(self) -> None:
        ...         self.counted()
        ...     @event
        ...     def counted(self) -> None: ...
        >>> counters = hw.App("shop", home=tempfile.mkdtemp()).aggregate("counter", Counter)
        >>> counters.revoke("a", "count", request_id="r-1", reason="too late")
        Traceback (most recent call last):
            ...
        headwater.errors.Rejected: too late
        >>> counters.send("a", "count", request_id="r-1")
        Traceback (most recent call last):
            ...
        headwater.errors.Rejected: too late
        """
        values = self.declared.command(command).checked(arguments)
        said = {"name": command, "arguments": to_text(values, command)}

        def decide(_context: CommandContext, _instance: Any) -> None:
            raise revoked(reason)

        return self._decided(aggregate_id(self.name, id), decide, said, request_id, None, None)

    def confirm(self, id: str, version: int, *, request_id: str | None = None) -> Outcome:
        """Confirm a tentative event, by its version: it stays.

        >>> import headwater as hw, tempfile
        >>> from headwater.aggregates import command, event
        >>> class Seat:
        ...     @command
        ...     def hold(self) -> None:
        ...         self.held()
        ...     @event(tentative="15 minutes")
        ...     def held(self) -> None: ...
        ...     @held.cancelled
        ...     def _given_back(self) -> None: ...
        >>> seats = hw.App("cinema", home=tempfile.mkdtemp()).aggregate("seat", Seat)
        >>> first, second = (seats.send("7A", "hold").version for _ in range(2))
        >>> seats.confirm("7A", first).events[0].type, seats.cancel("7A", second).events[0].type
        ('confirmed', 'cancelled')
        >>> seats.pending("7A"), list(seats.ids())
        ([], ['7A'])
        """
        return self._settled(id, version, "confirm", request_id)

    def cancel(self, id: str, version: int, *, request_id: str | None = None) -> Outcome:
        """Take a tentative event back, by its version."""
        return self._settled(id, version, "cancel", request_id)

    def _settled(self, id: str, version: int, how: str, request_id: str | None) -> Outcome:
        said = {"name": f"${how}", "arguments": json.dumps({"version": version})}
        return self._decided(
            aggregate_id(self.name, id), lambda context, _: getattr(context, how)(version), said, request_id, None, None
        )

    @property
    def has_tentative(self) -> bool:
        """Whether the class has tentative events."""
        return any(each.tentative_us is not None for each in self.declared.events.values())

    def expire(self) -> int:
        """Let the tentative events expire whose deadline has passed; returns of how many aggregates.

        A running app does it every second, and a command does it for its own aggregate first.

        >>> import headwater as hw, tempfile
        >>> from headwater.aggregates import command, event
        >>> class Seat:
        ...     free = True
        ...     @command
        ...     def hold(self) -> None:
        ...         self.held()
        ...     @event(tentative="1 microsecond")
        ...     def held(self) -> None:
        ...         self.free = False
        ...     @held.cancelled
        ...     def _given_back(self) -> None:
        ...         self.free = True
        >>> seats = hw.App("cinema", home=tempfile.mkdtemp()).aggregate("seat", Seat)
        >>> _ = seats.send("7A", "hold")
        >>> seats.expire(), seats.get("7A").free, [event.type for event in seats.history("7A")]
        (1, True, ['held', 'expired'])
        """
        expired = 0
        for stream in self._deadlines.overdue():
            said = {"name": "$expire", "arguments": "{}"}
            outcome = self._decided(stream, lambda *_: None, said, None, None, None)
            expired += bool(outcome.events)
        return expired

    def _decided(
        self,
        stream: str,
        decide: Decide,
        said: dict[str, Any],
        request_id: str | None,
        expected: int | None,
        metadata: Metadata | None,
    ) -> Outcome:
        with self.states.lock(stream):
            index, loaded = self.store.index(stream), self.states.in_memory(stream)
            for attempt in range(ATTEMPTS_MAX):
                if attempt or loaded is None:  # a state in memory is tried first: if it is old, the append is refused
                    self._pause(attempt)
                    loaded = self.states.load(stream)
                if request_id is not None and (known := index.request(stream, request_id)) is not None:
                    return self._answered(index, known, said)
                if expected is not None and expected != loaded.version:
                    if not attempt:
                        continue
                    raise VersionConflict(
                        f'{self.name} "{stream}" has version {loaded.version}; expected was {expected}',
                        detail="Nothing was written.",
                        hint="Read it again, and decide whether the command is still right.",
                        aggregate=self.name,
                        version=loaded.version,
                        expected=expected,
                    )
                version = loaded.version
                context = self._context(stream, loaded, request_id, metadata)
                try:
                    drafts, rejected = decided(self.declared, loaded, context, decide, said["name"])
                except CommandFailed:
                    if attempt:
                        raise
                    continue  # perhaps only over an old state
                if not drafts:
                    if not attempt and self.states.load(stream).version != version:
                        continue  # decided over an old state
                    return Outcome([], loaded.version, self._token(stream, loaded.position))
                drafts[0].extra["command"] = {**said, "seed": context.seed}
                try:
                    appended = self.store.append_drafts(
                        drafts, stream=stream, expected=version, request_id=request_id, metadata=metadata
                    )
                except VersionConflict:
                    self.conflicts += 1
                    continue
                if appended.repeated:
                    continue  # another process has written the same request meanwhile: its answer is the answer
                if rejected is not None:
                    raise rejected
                events = self.store.rows.recorded(drafts, index.partition, appended.position)
                if metadata is not None:
                    events = [replace(event, metadata=metadata) for event in events]
                self.states.advance(stream, loaded, events, appended.position)
                return Outcome(events, loaded.version, appended.token)
        raise VersionConflict(
            f'{self.name} "{stream}" changed {ATTEMPTS_MAX} times while the command was decided',
            detail="Nothing was written.",
            hint="Many processes send commands to this one aggregate. Send again later, or divide it.",
            aggregate=self.name,
        )

    def _pause(self, attempt: int) -> None:
        """Let the writer that came first go on, before the command is decided again."""
        if attempt > 1:
            self.store.topic.clock.sleep(self._backoff.after(attempt - 1))

    def _context(
        self, stream: str, loaded: LoadedState, request_id: str | None, metadata: Metadata | None
    ) -> CommandContext:
        return CommandContext(
            id=stream,
            now_us=self.store.topic.clock.now_us(),
            seed=secrets.randbits(62),
            request_id=request_id,
            actor=None if metadata is None else metadata.actor,
            pending=loaded.pending,
        )

    def _answered(self, index: EventIndex, known: tuple[int, int], said: Mapping[str, Any]) -> Outcome:
        """The first answer of a request."""
        first, count = known
        events = index.events(range(first, first + count))
        stored = (events[0].extra or {}).get("command") or {}
        if (stored.get("name"), stored.get("arguments")) != (said["name"], said["arguments"]):
            raise RequestConflict(
                f'request "{events[0].request_id}" of {self.name} "{events[0].stream}" was sent before, with another '
                "command",
                detail=f"It was {stored.get('name')} {stored.get('arguments')}.",
                hint="Give each command an id of its own.",
                request_id=events[0].request_id,
            )
        for event in events:
            if event.type == REJECTED:
                raise rejection_of(event)
        counted = [event for event in events if event.version is not None]
        version = counted[-1].version if counted else self.states.load(str(events[0].stream)).version
        assert version is not None
        token = self._token(str(events[0].stream), events[-1].position, repeated=True)
        return Outcome(counted, version, token, repeated=True)

    # States

    def get(self, id: str, *, version: int | None = None) -> Any:
        """A copy of an aggregate's state: as of now, or after its first ``version`` events."""
        stream = aggregate_id(self.name, id)
        if version is None:
            with self.states.lock(stream):
                return self.declared.copy(self.states.load(stream).instance)
        loaded = self.states.at_version(stream, version)
        if loaded.version < version:
            raise Misuse(f'{self.name} "{stream}" has {loaded.version} events, not {version}')
        return loaded.instance

    def version(self, id: str) -> int:
        """The number of events of an aggregate; 0 for one that is not there."""
        return self.store.version(aggregate_id(self.name, id))

    def history(self, id: str) -> list[RecordedEvent]:
        """The events of an aggregate in order, and its rejected commands, which have no version."""
        return [event for event in self.store.read(stream=aggregate_id(self.name, id)) if event.type != NOTED]

    def ids(self) -> Iterator[str]:
        """The ids of all aggregates that have events."""
        for index in self.store.indexes:
            index.catch_up()
            for stream, version in index.streams():
                if version:
                    yield stream

    def pending(self, id: str) -> list[PendingEvent]:
        """The tentative events of an aggregate that are neither confirmed nor cancelled."""
        return list((self.states.load(aggregate_id(self.name, id)).pending or {}).values())

    # Looking after them

    def verify(self, id: str | None = None) -> list[ReplayDifference]:
        """Decide every recorded command again, and compare its events with those in the log; [] when all are equal.

        Snapshots are compared with the states that the events give. See ``ReplayDifference``.

        >>> import headwater as hw, tempfile
        >>> from headwater.aggregates import command, event
        >>> class Counter:
        ...     @command
        ...     def count(self, by: int = 1) -> None:
        ...         self.counted(by)
        ...     @event
        ...     def counted(self, by: int) -> None: ...
        >>> counters = hw.App("shop", home=tempfile.mkdtemp()).aggregate("counter", Counter)
        >>> _ = counters.send("a", "count", by=2)
        >>> counters.verify()
        []
        """
        from headwater.aggregates.replay_check import ReplayCheck

        check = ReplayCheck(self)
        ids = self.ids() if id is None else [aggregate_id(self.name, id)]
        return [found for each in ids for found in check.stream(each)]

    def _token(self, stream: str, position: int, *, repeated: bool = False) -> Token:
        return Token({self.name: {self.store.partition_of(stream): position}}, repeated=repeated)

    def close(self) -> None:
        """Close the file of the snapshots."""
        self.states.snapshots.close()

    def __repr__(self) -> str:
        return f"AggregateRepository({self.name}, {self.declared.declared.__name__})"


def aggregate_id(name: str, id: str) -> str:
    """The id of an aggregate as text; what is neither a text nor a whole number is refused.

    >>> aggregate_id("account", 7)
    '7'
    >>> aggregate_id("account", None)
    Traceback (most recent call last):
        ...
    headwater.errors.Misuse: account cannot have the id None
      Hint: Use a text or a whole number.
    """
    if not isinstance(id, str | int) or isinstance(id, bool) or id == "":
        raise Misuse(f"{name} cannot have the id {id!r}", hint="Use a text or a whole number.")
    return str(id)
