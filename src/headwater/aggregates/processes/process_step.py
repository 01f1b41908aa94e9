"""Process step: one command of a process, and how it is taken back.

What it is: ``step``, which a process function yields; ``ProcessStep``; ``StepResult``, what the yield returns.
Invariants: a step is named by texts alone, so that it can be recorded and compared with what the function yields when
it is run again. Its result is made from the events in the log: the same one, whenever it is asked for.
Not here: sending it (``process_run.py``).
Read next: ``process_state.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.aggregates.aggregate_repository import AggregateRepository, Outcome, aggregate_id
from headwater.aggregates.claims import Claims
from headwater.aggregates.command_arguments import from_text, to_text
from headwater.aggregates.events.event_types import RecordedEvent
from headwater.errors import InvalidDeclaration, Misuse, Rejected

Undo = str | tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class StepResult:
    """What a step has done: its events.

    >>> StepResult(()).data
    {}
    """

    events: tuple[RecordedEvent, ...]

    @property
    def data(self) -> Mapping[str, Any]:
        """The data of its first event; empty when it had nothing to do."""
        return self.events[0].data if self.events else {}

    @staticmethod
    def of(outcome: Outcome) -> StepResult:
        """The result of a command that was answered, now or before."""
        return StepResult(tuple(outcome.events))


@dataclass(frozen=True)
class ProcessStep:
    """A command for an aggregate, with what takes it back. Arguments are texts of ``command_arguments.py``."""

    aggregate: str
    id: str
    command: str
    arguments: str
    undo: str | None = None
    undo_arguments: str | None = None

    def values(self) -> dict[str, Any]:
        """The arguments of the command."""
        return from_text(self.arguments)

    def undo_values(self) -> dict[str, Any]:
        """The arguments of the command that takes it back."""
        return from_text(self.undo_arguments) if self.undo_arguments else {}

    def to_dict(self) -> dict[str, Any]:
        """The step as the fields of its event."""
        return {
            "aggregate": self.aggregate,
            "id": self.id,
            "command": self.command,
            "arguments": self.arguments,
            "undo": self.undo,
            "undo_arguments": self.undo_arguments,
        }

    def __str__(self) -> str:
        return f'{self.command} {self.arguments} of {self.aggregate} "{self.id}"'


def step(
    aggregates: AggregateRepository | Claims, id: str, command: str, /, *, undo: Undo | None = None, **arguments: Any
) -> ProcessStep:
    """A step of a process: a command for one aggregate. The ``yield`` gives its ``StepResult``, or raises ``Rejected``.

    ``undo``: the command, with its arguments, that takes the step back when a later one is rejected or the deadline
    passes. A step without one is left as it is. An ``id`` that no aggregate can have, such as None, is ``Rejected``.

    >>> import headwater as hw, tempfile
    >>> names = hw.App("shop", home=tempfile.mkdtemp()).claims("username")
    >>> print(step(names, "ada", "claim", owner="user-7", id="r-1", undo=("release", {"owner": "user-7", "id": "r-1"})))
    claim {"owner":"user-7","id":"r-1"} of username "ada"
    """
    repository = aggregates.repository if isinstance(aggregates, Claims) else aggregates
    if not isinstance(repository, AggregateRepository):
        raise InvalidDeclaration(
            f"a step is a command for an aggregate, not for {type(aggregates).__name__}",
            hint='Write step(accounts, "7", "withdraw", cents=5), where accounts is what app.aggregate returned.',
        )
    try:
        named = aggregate_id(repository.name, id)
    except Misuse as error:  # what the request says cannot be done, so it fails, and what was done is taken back
        raise Rejected(error.message, aggregate=repository.name) from error
    values = repository.declared.command(command).checked(arguments)
    if undo is None:
        return ProcessStep(repository.name, named, command, to_text(values, command))
    name, given = (undo, {}) if isinstance(undo, str) else undo
    taken_back = repository.declared.command(name).checked(given)
    return ProcessStep(repository.name, named, command, to_text(values, command), name, to_text(taken_back, name))
