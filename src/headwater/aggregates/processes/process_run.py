"""Process run: one request of a process is taken as far as it goes.

What it is: ``ProcessRun.advance``: it runs the process function over the recorded results, sends the step that comes
next, notes its outcome, and takes steps back when one was rejected or the deadline has passed.
Invariants: a step is sent with a request id that is made of the process, the request and the step's number, so it
happens once, whoever sends it and how often. What is noted is noted if nobody else has noted anything since (the
version of the request's own history); so two runners, or one that was thought dead, do no harm. Before a request
expires, the step that may be under way is revoked in its own history: either it was done, and is taken back, or it can
never be done.
Not here: which requests are open and when they are tried (``process_runner.py``).
Read next: ``process.py``.
"""

from __future__ import annotations

import inspect
import random
import uuid
import zlib
from collections.abc import Callable, Generator, Mapping
from typing import Any

from headwater.aggregates.aggregate_repository import AggregateRepository
from headwater.aggregates.command_arguments import to_text
from headwater.aggregates.events.event_rows import EPOCH, MICROSECOND
from headwater.aggregates.interrupts import is_interrupt
from headwater.aggregates.processes.process_state import (
    COMPENSATING,
    DONE,
    EXPIRED,
    FAILED,
    REJECTED,
    RUNNING,
    ProcessState,
    StepRecord,
)
from headwater.aggregates.processes.process_step import ProcessStep, StepResult
from headwater.errors import (
    HeadwaterError,
    ProcessDiverged,
    ProcessFailed,
    Rejected,
    RequestConflict,
    UnknownAggregate,
    VersionConflict,
)
from headwater.log.schema.event_metadata import Metadata

Steps = Generator[ProcessStep, StepResult, Any]
Entries = list[tuple[str, dict[str, Any]]]
LATE = "the deadline has passed"
ATTEMPTS_MAX = 100  # other runners were first so often: leave it to them


class ProcessContext:
    """What a process function may use besides its request; the same whenever it is run again.

    A function asks for it by a second parameter.

    >>> context, again = (ProcessContext("transfer", "t-1", ProcessState()) for _ in range(2))
    >>> context.id, context.new_id() == again.new_id(), context.random.random() == again.random.random()
    ('t-1', True, True)
    """

    def __init__(self, process: str, request_id: str, state: ProcessState) -> None:
        self.process = process
        self.id = request_id
        self.deadline = state.deadline
        self.actor = state.actor
        self.random = random.Random(zlib.crc32(f"{process}/{request_id}".encode()))

    def new_id(self) -> str:
        """A new id, a UUID: the same one when the function is run again."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))


class ProcessRun:
    """Takes requests of one process further."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        repository: AggregateRepository,
        aggregates: Mapping[str, AggregateRepository],
    ) -> None:
        self.name = name
        self.repository = repository
        self._function = function
        self._takes_context = len(inspect.signature(function).parameters) > 1
        self._aggregates = aggregates

    def advance(self, request_id: str) -> ProcessState:
        """Take a request as far as it goes; returns its state then."""
        for _ in range(ATTEMPTS_MAX):
            state, version = self.load(request_id)
            try:
                if state.status == RUNNING:
                    self._run(request_id, state, version)
                elif state.status == COMPENSATING:
                    self._compensate(request_id, state, version)
                else:
                    return state
            except VersionConflict:
                continue  # another runner was first: go on from what it has noted
        return self.load(request_id)[0]

    def load(self, request_id: str) -> tuple[ProcessState, int]:
        """A copy of a request's state, and its version."""
        states = self.repository.states
        with states.lock(request_id):
            loaded = states.load(request_id)
            return self.repository.declared.copy(loaded.instance), loaded.version

    def _note(self, request_id: str, version: int, entries: Entries) -> int:
        noted = [[name, fields] for name, fields in entries]
        return self.repository.send(request_id, "advance", entries=noted, expected=version).version

    # Forward

    def _run(self, request_id: str, state: ProcessState, version: int) -> None:
        """Run the function to its end, sending the steps that are not recorded."""
        steps = self._begin(request_id, state)
        number, last = 0, None  # the result, or the rejection, of the step before
        entries: Entries = []
        while True:
            try:
                found = self._next(request_id, steps, last)
            except StopIteration as ended:
                result = None if ended.value is None else to_text({"result": ended.value}, self.name)
                self._note(request_id, version, [*entries, ("finished", {"result": result})])
                return
            except Rejected as error:
                self._note(request_id, version, [*entries, _turn(FAILED, error)])
                return
            except ProcessFailed:
                if entries:
                    self._note(request_id, version, entries)
                raise
            if entries:
                version = self._note(request_id, version, entries)
                entries = []
            if number < len(state.steps):
                last = self._recorded(request_id, number, state.steps[number], found)
            else:
                late = state.deadline is not None and self._now_us() >= _us(state.deadline)
                last = self._sent(request_id, number, found, state, late=late)
                entries = [_entry(number, found, last)]
                if late:
                    self._note(request_id, version, [*entries, _turn(EXPIRED, Rejected(LATE))])
                    return
            number += 1

    def _begin(self, request_id: str, state: ProcessState) -> Steps:
        given = [dict(state.request)]
        if self._takes_context:
            given.append(ProcessContext(self.name, request_id, state))  # type: ignore[arg-type]
        steps: Steps = self._function(*given)
        return steps

    def _next(self, request_id: str, steps: Steps, last: StepResult | Rejected | None) -> ProcessStep:
        """What the function yields next."""
        try:
            if last is None:
                found = next(steps)
            else:
                found = steps.throw(last) if isinstance(last, Rejected) else steps.send(last)
        except (StopIteration, Rejected):
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise ProcessFailed(
                f'process "{self.name}" raised {type(error).__name__} for request "{request_id}": {error}',
                detail="What it has done stays, and it is tried again.",
                hint="Correct the function. One that will not do what is asked raises Rejected.",
                process=self.name,
                request_id=request_id,
            ) from error
        if not isinstance(found, ProcessStep):
            raise ProcessFailed(
                f'process "{self.name}" yields {type(found).__name__}, which is no step',
                hint='Write: yield step(accounts, "7", "withdraw", cents=5).',
                process=self.name,
                request_id=request_id,
            )
        return found

    def _recorded(self, request_id: str, number: int, record: StepRecord, found: ProcessStep) -> StepResult | Rejected:
        """The outcome of a step that was noted before; another step in its place is refused."""
        if found != record.step:
            raise ProcessDiverged(
                f'process "{self.name}" yields another step {number} for request "{request_id}" than it did before',
                detail=f"Before: {record.step}. Now: {found}.",
                hint="A process function is run again over the recorded results, and must yield the same steps: no "
                "clock, no random numbers but those of its context. Keep the old code until its requests have ended.",
                process=self.name,
                request_id=request_id,
                step=number,
            )
        if record.status == REJECTED:
            return Rejected(record.reason or "", **record.details)
        return self._send(self._id(request_id, number), found, None)

    def _sent(
        self, request_id: str, number: int, found: ProcessStep, state: ProcessState, *, late: bool
    ) -> StepResult | Rejected:
        """Send a step; one that is late is revoked, unless it was done before."""
        id = self._id(request_id, number)
        try:
            if late:
                repository = self._repository(found.aggregate)
                return StepResult.of(
                    repository.revoke(found.id, found.command, request_id=id, reason=LATE, **found.values())
                )
            return self._send(id, found, Metadata(actor=state.actor, correlation_id=request_id, causation_id=id))
        except Rejected as error:
            return error
        except RequestConflict as error:  # sent before, and not noted: by other code
            raise ProcessDiverged(
                f'process "{self.name}" yields another step {number} for request "{request_id}" than was sent before',
                detail=f"{error.detail} Now: {found}.",
                hint="Keep the old code until its requests have ended.",
                process=self.name,
                request_id=request_id,
                step=number,
            ) from error

    def _send(self, id: str, found: ProcessStep, metadata: Metadata | None) -> StepResult:
        repository = self._repository(found.aggregate)
        return StepResult.of(
            repository.send(found.id, found.command, request_id=id, metadata=metadata, **found.values())
        )

    # Back

    def _compensate(self, request_id: str, state: ProcessState, version: int) -> None:
        """Take the steps that were done back, the last one first."""
        for number in reversed(range(len(state.steps))):
            record = state.steps[number]
            if record.status != DONE or record.step.undo is None:
                continue
            step, id = record.step, f"{self._id(request_id, number)}/undo"
            if state.attempt > 1:  # the first answer of a request is its answer: another try is another request
                id += f"-{state.attempt}"  # not "/": a request "t-1/0/undo" has steps, too
            metadata = Metadata(actor=state.actor, correlation_id=request_id, causation_id=id)
            repository = self._repository(step.aggregate)
            try:
                repository.send(step.id, str(step.undo), request_id=id, metadata=metadata, **step.undo_values())
            except Rejected as error:
                self._note(request_id, version, [("stuck", {"number": number, "reason": error.message})])
                return
            version = self._note(request_id, version, [("compensated", {"number": number})])
        said = {"reason": state.reason or "", "details": state.details}
        self._note(request_id, version, [(str(state.cause), said)])

    # Words

    def _id(self, request_id: str, number: int) -> str:
        return f"{self.name}/{request_id}/{number}"

    def _now_us(self) -> int:
        return self.repository.store.topic.clock.now_us()

    def _repository(self, name: str) -> AggregateRepository:
        known = self._aggregates.get(name)
        if known is None:
            raise UnknownAggregate(
                f'process "{self.name}" sends to aggregate "{name}", which this app does not declare',
                hint=f'Declare it: app.aggregate("{name}", …).',
                aggregate=name,
            )
        return known


def _entry(number: int, found: ProcessStep, outcome: StepResult | Rejected) -> tuple[str, dict[str, Any]]:
    said = {"number": number, **found.to_dict()}
    if isinstance(outcome, Rejected):
        return ("step_rejected", {**said, "reason": outcome.message, "details": _details(outcome)})
    return ("step_done", said)


def _turn(cause: str, error: Rejected) -> tuple[str, dict[str, Any]]:
    return ("compensating", {"cause": cause, "reason": error.message, "details": _details(error)})


def _details(error: HeadwaterError) -> str | None:
    return to_text(error.data, "rejection") if error.data else None


def _us(moment: Any) -> int:
    return int((moment - EPOCH) // MICROSECOND)
