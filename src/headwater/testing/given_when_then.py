"""Given, when, then: tests of aggregate classes without a log.

What it is: ``given``, which makes an ``AggregateScenario``: the events that happened, a command, and what is expected.
Invariants: a command is decided by the same code as in a repository, over rows of the same types; the clock is moved by
hand and the seed is given, so a scenario gives the same events each time. Every command is decided twice: one that asks
the machine's clock or chance by itself, or changes the state outside of event methods, fails its test.
Not here: versions, request ids and conflicts, which need a log (``aggregates/aggregate_repository.py``).
Read next: ``aggregates/command_decision.py``; ``docs/aggregates.md``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from headwater.aggregates.aggregate_class import AggregateClass
from headwater.aggregates.aggregate_repository import EXTRA
from headwater.aggregates.aggregate_states import NOTED, REJECTED, LoadedState, apply_recorded
from headwater.aggregates.command_arguments import to_text
from headwater.aggregates.command_context import CommandContext
from headwater.aggregates.command_decision import Decide, decided
from headwater.aggregates.events.event_rows import EventDraft, EventRows
from headwater.aggregates.events.event_types import RecordedEvent
from headwater.aggregates.state_values import state_values
from headwater.durations import Duration, to_seconds
from headwater.errors import Misuse, Rejected
from headwater.testing.manual_clock import ManualClock

Given = str | tuple[str, Mapping[str, Any]]
MISSING = "(no such attribute)"


def given(
    declared: type, *, id: str = "1", actor: str | None = None, clock: ManualClock | None = None, seed: int = 0
) -> AggregateScenario:
    """Begin a test of an aggregate class: what has happened, then a command, then what it must give.

    >>> from headwater.aggregates import Rejected, command, event
    >>> from headwater.testing import given
    >>> class Account:
    ...     cents = 0
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
    >>> account = given(Account).events(("deposited", {"cents": 5}))
    >>> _ = account.when("withdraw", cents=9).then_rejected("no funds", missing=4)
    >>> _ = account.when("withdraw", cents=2).then(("withdrawn", {"cents": 2})).then_state(cents=3)
    >>> account.when("withdraw", cents=3).then(("withdrawn", {"cents": 4}))
    Traceback (most recent call last):
        ...
    AssertionError: withdraw(cents=3) of Account gave other events than expected
      - withdrawn {'cents': 4}
      + withdrawn {'cents': 3}
      (- expected, + given)
    """
    return AggregateScenario(declared, id=id, actor=actor, clock=clock, seed=seed)


class AggregateScenario:
    """One aggregate of a test; made by ``given``. Each method returns it, so calls are chained.

    A tentative event expires when the clock is moved past its deadline, as it does in the log: with the next command.

    >>> from headwater.aggregates import command, event
    >>> from headwater.testing import given
    >>> class Seat:
    ...     held = False
    ...     @command
    ...     def hold(self) -> None:
    ...         self.was_held()
    ...     @command
    ...     def look(self) -> None: ...
    ...     @event(tentative="10 minutes")
    ...     def was_held(self) -> None:
    ...         self.held = True
    ...     @was_held.cancelled
    ...     def _freed(self) -> None:
    ...         self.held = False
    >>> seat = given(Seat).when("hold").then("was_held").then_pending("was_held")
    >>> _ = seat.advance("11 minutes").when("look").then("expired").then_pending().then_state(held=False)
    >>> given(Seat).when("look").then_nothing().version
    0
    >>> _ = given(Seat).events("was_held").confirm(1).then("confirmed").then_state(held=True)
    >>> given(Seat).events("was_held").cancel(1).then("cancelled").state.held
    False
    """

    def __init__(
        self,
        declared: type,
        *,
        id: str = "1",
        actor: str | None = None,
        clock: ManualClock | None = None,
        seed: int = 0,
    ) -> None:
        self.id = id
        self.actor = actor
        self.clock = ManualClock() if clock is None else clock
        self._declared = AggregateClass(declared.__name__, declared)
        self._rows = EventRows([method.type for method in self._declared.events.values()], EXTRA)
        self._loaded = LoadedState(self._declared.new())
        self._seed = seed
        self._sent: str | None = None
        self._emitted: list[RecordedEvent] = []
        self._rejected: Rejected | None = None

    # Given

    def events(self, *events: Given) -> AggregateScenario:
        """What has happened before: ``("deposited", {"cents": 5})``, or the name alone of an event without data."""
        for type, data in map(_pair, events):
            self._rows.type(type)
            draft = EventDraft(type, data, stream=self.id, at_us=self.clock.now_us())
            tentative_us = self._declared.events[type].tentative_us
            if tentative_us is not None:
                draft.extra["deadline"] = draft.at_us + tentative_us
            self._take([draft])
        return self

    def advance(self, by: Duration) -> AggregateScenario:
        """Move the clock on: seconds, or a text such as ``"10 minutes"``."""
        self.clock.advance(to_seconds(by, what="advance"))
        return self

    # When

    def when(self, command: str, /, *, request_id: str | None = None, **arguments: Any) -> AggregateScenario:
        """Send a command. A rejection is kept for ``then_rejected``; any other error is raised here."""
        method = self._declared.command(command)
        values = method.checked(arguments)
        to_text(values, command)  # what cannot be recorded is refused here too

        def decide(context: CommandContext, instance: Any) -> None:
            method.decide(instance, context, copy.deepcopy(values))

        said = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return self._decide(command, f"{command}({said})", decide, request_id)

    def confirm(self, version: int) -> AggregateScenario:
        """Confirm a tentative event, by its version."""
        return self._decide("$confirm", f"confirm({version})", lambda context, _: context.confirm(version), None)

    def cancel(self, version: int) -> AggregateScenario:
        """Take a tentative event back, by its version."""
        return self._decide("$cancel", f"cancel({version})", lambda context, _: context.cancel(version), None)

    def _decide(self, name: str, said: str, decide: Decide, request_id: str | None) -> AggregateScenario:
        instances: list[Any] = []

        def noted(context: CommandContext, instance: Any) -> None:
            instances.append(instance)
            decide(context, instance)

        outcomes = []
        for _ in range(2):
            context = CommandContext(
                id=self.id,
                now_us=self.clock.now_us(),
                seed=self._seed,
                request_id=request_id,
                actor=self.actor,
                pending=copy.deepcopy(self._loaded.pending),
            )
            outcomes.append(decided(self._declared, self._loaded, context, noted, name))
        self._seed += 1
        (drafts, rejected), (again, _) = outcomes
        self._sent = f"{said} of {self._declared.name}"
        self._same(drafts, again)
        self._emitted, self._rejected = self._take(drafts), rejected
        if rejected is None:
            self._pure(instances[0])
        return self

    def _take(self, drafts: Sequence[EventDraft]) -> list[RecordedEvent]:
        """Let events be a part of the state, as their rows are read back from a log."""
        version = self._loaded.version
        for draft in drafts:
            version += draft.counted
            draft.version = version if draft.counted else None
        if not drafts:
            return []
        self._rows.batch(drafts)  # data that a log would refuse is refused
        recorded = self._rows.recorded(drafts, 0, self._loaded.position + len(drafts))
        for event in recorded:
            apply_recorded(self._declared, self._loaded, event)
        return [event for event in recorded if event.type not in (REJECTED, NOTED)]

    def _same(self, drafts: Sequence[EventDraft], again: Sequence[EventDraft]) -> None:
        first, second = _lines(drafts), _lines(again)
        if first != second:
            raise AssertionError(
                f"{self._sent} is not decided by its state and arguments alone: decided again, it gave other events\n"
                f"{_difference(first, second)}\n  (- first, + again)\n"
                "  Take the time, new ids and chance of the context: a parameter named context."
            )

    def _pure(self, instance: Any) -> None:
        left, right = state_values(instance), state_values(self._loaded.instance)
        if left != right:
            names = sorted({*left, *right})
            changed = [name for name in names if left.get(name, MISSING) != right.get(name, MISSING)]
            lines = [
                f"  {name}: the command left {left.get(name, MISSING)!r}, its events give {right.get(name, MISSING)!r}"
                for name in changed
            ]
            raise AssertionError(
                f"{self._sent} changed the state itself, and not by its events\n" + "\n".join(lines) + "\n"
                "  Only event methods change the state: what a command changes by itself is lost."
            )

    # Then

    def then(self, *events: Given) -> AggregateScenario:
        """The command gave exactly these events, in this order."""
        self._accepted()
        expected = [_line(type, data) for type, data in map(_pair, events)]
        emitted = [_line(event.type, event.data) for event in self._emitted]
        if expected != emitted:
            raise AssertionError(
                f"{self._sent} gave other events than expected\n{_difference(expected, emitted)}\n"
                "  (- expected, + given)"
            )
        return self

    def then_nothing(self) -> AggregateScenario:
        """The command was accepted, and nothing was to be done."""
        return self.then()

    def then_rejected(self, reason: str | None = None, **data: Any) -> AggregateScenario:
        """The command was rejected, for this reason and with this data if they are given."""
        sent = self._required()
        if self._rejected is None:
            emitted = "\n".join(f"  + {_line(event.type, event.data)}" for event in self._emitted)
            raise AssertionError(f"{sent} was accepted, and should be rejected\n{emitted or '  (it gave no events)'}")
        found = self._rejected
        if reason is not None and found.message != reason:
            raise AssertionError(f"{sent} was rejected for another reason\n  - {reason}\n  + {found.message}")
        if data and found.data != data:
            raise AssertionError(f"{sent} was rejected with other data\n  - {data}\n  + {dict(found.data)}")
        return self

    def then_state(self, **values: Any) -> AggregateScenario:
        """The state has these attributes; others are not looked at."""
        state = self._loaded.instance
        wrong = [
            f"  {name}: expected {value!r}, is {found!r}"
            for name, value in values.items()
            if (found := getattr(state, name, MISSING)) != value
        ]
        if wrong:
            after = "" if self._sent is None else f" after {self._sent}"
            raise AssertionError(f"the state{after} is not as expected\n" + "\n".join(wrong))
        return self

    def then_pending(self, *types: str) -> AggregateScenario:
        """These tentative events, by type, are neither confirmed nor cancelled."""
        found = [each.type for each in (self._loaded.pending or {}).values()]
        if found != list(types):
            raise AssertionError(f"expected tentative events: {list(types)}; there are {found}")
        return self

    @property
    def state(self) -> Any:
        """A copy of the state, to be looked at."""
        return self._declared.copy(self._loaded.instance)

    @property
    def version(self) -> int:
        """The number of its events."""
        return self._loaded.version

    def _required(self) -> str:
        if self._sent is None:
            raise Misuse("nothing was sent yet", hint='Call when("withdraw", cents=5) first.')
        return self._sent

    def _accepted(self) -> None:
        sent = self._required()
        if self._rejected is not None:
            raise AssertionError(
                f"{sent} was rejected: {self._rejected.message} {dict(self._rejected.data) or ''}".rstrip()
            )


def _pair(given: Given) -> tuple[str, Mapping[str, Any]]:
    return (given, {}) if isinstance(given, str) else given


def _line(type: str, data: Mapping[str, Any]) -> str:
    # Fields are compared by name, and one that is null is as good as absent, as in a row of the log.
    said = {name: data[name] for name in sorted(data) if data[name] is not None}
    return f"{type} {said}" if said else type


def _lines(drafts: Sequence[EventDraft]) -> list[str]:
    return [_line(draft.type, {**draft.data, **(draft.extra.get("rejected") or {})}) for draft in drafts]


def _difference(expected: Sequence[str], found: Sequence[str]) -> str:
    lines: list[str] = []
    for kind, first, last, begin, end in SequenceMatcher(None, expected, found, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [f"    {line}" for line in expected[first:last]]
        else:
            lines += [f"  - {line}" for line in expected[first:last]]
            lines += [f"  + {line}" for line in found[begin:end]]
    return "\n".join(lines)
