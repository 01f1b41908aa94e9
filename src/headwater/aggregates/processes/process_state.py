"""Process state: the events of one request of a process, and what they add up to.

What it is: ``ProcessState``, an aggregate class whose events are those of every process; ``process_class`` adds the
event ``started``, which has the columns of the process's request. ``ProcessRecord`` is what users are shown.
Invariants: a request is started once, and ends once: finished, failed or expired. Between the two every step that was
done or rejected, and every one that was taken back, is an event; so a runner that knows only these goes on where
another one died. What is stuck stays so, until somebody resumes it.
Not here: which event comes next (``process_run.py``).
Read next: ``process_run.py``.
"""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.aggregates.aggregate_class import EventMethod, command, event
from headwater.aggregates.command_arguments import from_text
from headwater.aggregates.command_context import CommandContext
from headwater.aggregates.processes.process_step import ProcessStep
from headwater.errors import Rejected

NEW, RUNNING, COMPENSATING, STUCK = "new", "running", "compensating", "stuck"
FINISHED, FAILED, EXPIRED = "finished", "failed", "expired"
ENDED = (FINISHED, FAILED, EXPIRED)
DONE, REJECTED, COMPENSATED = "done", "rejected", "compensated"


@dataclass
class StepRecord:
    """One step as it was recorded: done, rejected or compensated."""

    step: ProcessStep
    status: str
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class ProcessState:
    """One request of a process; the class that ``process_class`` makes has the event ``started``, too."""

    deadline_us: int | None = None  # of the process, since the start of a request

    def __init__(self) -> None:
        self.status = NEW
        self.request: dict[str, Any] = {}
        self.deadline: dt.datetime | None = None
        self.actor: str | None = None
        self.steps: list[StepRecord] = []
        self.cause: str | None = None
        self.reason: str | None = None
        self.details: str | None = None
        self.result: str | None = None
        self.attempt = 1  # of compensation
        self.stuck_at: int | None = None

    @command
    def start(self, request: dict[str, Any], *, context: CommandContext) -> None:
        """Begin."""
        if self.status != NEW:
            raise Rejected(f'request "{context.id}" was started before')
        self.started(**request)  # type: ignore[attr-defined]
        due = None if self.deadline_us is None else context.now + dt.timedelta(microseconds=self.deadline_us)
        self.scheduled(deadline=due, actor=context.actor)

    @command
    def advance(self, entries: list[Any]) -> None:
        """Note what a runner has done: names of events and their fields."""
        for name, fields in entries:
            getattr(self, name)(**fields)

    @command
    def resume(self) -> None:
        """Let what is stuck be tried again."""
        if self.status != STUCK:
            raise Rejected(f"it is {self.status}, not stuck", status=self.status)
        self.resumed(attempt=self.attempt + 1)

    @event
    def scheduled(self, deadline: dt.datetime | None, actor: str | None) -> None:
        """When it must have ended, and for whom it runs."""
        self.deadline, self.actor = deadline, actor

    @event
    def step_done(
        self,
        number: int,
        aggregate: str,
        id: str,
        command: str,
        arguments: str,
        undo: str | None,
        undo_arguments: str | None,
    ) -> None:
        """A step's command was accepted."""
        assert number == len(self.steps)
        self.steps.append(StepRecord(ProcessStep(aggregate, id, command, arguments, undo, undo_arguments), DONE))

    @event
    def step_rejected(
        self,
        number: int,
        aggregate: str,
        id: str,
        command: str,
        arguments: str,
        undo: str | None,
        undo_arguments: str | None,
        reason: str,
        details: str | None,
    ) -> None:
        """A step's command was rejected."""
        assert number == len(self.steps)
        made = ProcessStep(aggregate, id, command, arguments, undo, undo_arguments)
        self.steps.append(StepRecord(made, REJECTED, reason, from_text(details) if details else {}))

    @event
    def compensating(self, cause: str, reason: str, details: str | None) -> None:
        """It will not be finished: what was done is taken back. ``cause`` is how it will end."""
        self.status, self.cause, self.reason, self.details = COMPENSATING, cause, reason, details

    @event
    def compensated(self, number: int) -> None:
        """A step was taken back."""
        self.steps[number].status = COMPENSATED

    @event
    def stuck(self, number: int, reason: str) -> None:
        """The command that takes a step back was rejected."""
        self.status, self.stuck_at = STUCK, number
        self.steps[number].reason = reason

    @event
    def resumed(self, attempt: int) -> None:
        """Somebody has asked that it be tried again."""
        self.status, self.attempt, self.stuck_at = COMPENSATING, attempt, None

    @event
    def finished(self, result: str | None) -> None:
        """All steps were done."""
        self.status, self.result = FINISHED, result

    @event
    def failed(self, reason: str, details: str | None) -> None:
        """It was rejected, and all that was done is taken back."""
        self.status, self.reason, self.details = FAILED, reason, details

    @event
    def expired(self, reason: str, details: str | None) -> None:
        """Its deadline has passed, and all that was done is taken back."""
        self.status, self.reason, self.details = EXPIRED, reason, details


def process_class(name: str, request: pa.StructType, deadline_us: int | None) -> type[ProcessState]:
    """The aggregate class of one process."""

    def started(self: ProcessState, **given: Any) -> None:
        self.status, self.request = RUNNING, given

    named = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    named += [inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY) for each in request]
    started.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    made = type(name, (ProcessState,), {"started": EventMethod(started, request), "deadline_us": deadline_us})
    made.__module__ = __name__
    return made


@dataclass(frozen=True)
class ProcessRecord:
    """One request of a process as it is now.

    ``status``: "running", "compensating" (what was done is being taken back), "stuck" (that was refused), or one of the
    ends: "finished", "failed", "expired".

    >>> found = ProcessRecord("transfer", "t-1", "finished", {"cents": 5}, (), result={"moved": 5})
    >>> found.ended, found.to_dict()["result"]
    (True, {'moved': 5})
    """

    process: str
    request_id: str
    status: str
    request: Mapping[str, Any]
    steps: tuple[StepRecord, ...]
    result: Any = None
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    deadline: dt.datetime | None = None
    version: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in ENDED

    @staticmethod
    def of(process: str, request_id: str, state: ProcessState, version: int) -> ProcessRecord:
        """The record of a state."""
        result = None if state.result is None else from_text(state.result)["result"]
        reason = state.reason
        if state.stuck_at is not None:
            stuck = state.steps[state.stuck_at]
            reason = f"step {state.stuck_at} ({stuck.step}) cannot be taken back: {stuck.reason}"
        details = from_text(state.details) if state.details else {}
        return ProcessRecord(
            process,
            request_id,
            state.status,
            state.request,
            tuple(state.steps),
            result,
            reason,
            details,
            state.deadline,
            version,
        )

    def to_dict(self) -> dict[str, Any]:
        """The record as plain values."""
        steps = [
            {**each.step.to_dict(), "number": number, "status": each.status, "reason": each.reason}
            for number, each in enumerate(self.steps)
        ]
        return {
            "process": self.process,
            "request_id": self.request_id,
            "status": self.status,
            "request": dict(self.request),
            "result": self.result,
            "reason": self.reason,
            "details": dict(self.details),
            "deadline": None if self.deadline is None else self.deadline.isoformat(),
            "steps": steps,
        }
