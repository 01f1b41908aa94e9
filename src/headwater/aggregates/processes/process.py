"""Process: requests of one kind, each of which takes several steps over several aggregates.

What it is: ``Process``, made by ``app.process``: asking, looking, and running by hand; ``ProcessHandle``,
one request.
Invariants: a request is one event, written under its id: repeated, it is recognised. How it stands is what its events
add up to, in any process. Running it twice at once does no harm.
Not here: how a request is taken further (``process_run.py``); the thread that does it (``process_runner.py``).
Read next: ``process_run.py``; ``docs/processes.md``.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headwater.aggregates.aggregate_repository import AggregateRepository
from headwater.aggregates.events.event_types import EventType, RecordedEvent
from headwater.aggregates.processes.open_requests import OpenRequests
from headwater.aggregates.processes.process_run import ProcessRun
from headwater.aggregates.processes.process_state import NEW, STUCK, ProcessRecord, process_class
from headwater.durations import Duration, to_seconds, to_us
from headwater.errors import Conflict, HeadwaterError, InvalidDeclaration, TimedOut, Unavailable, UnknownRequest
from headwater.log.contract import EventLog, EventTopic
from headwater.log.maintenance.alerts import note_process
from headwater.log.schema.event_metadata import Metadata
from headwater.log.schema.json_lines import json_rows
from headwater.log.schema.row_conversion import to_batches, to_rows
from headwater.log.token import Token

REQUEST_ID_CHARACTERS_MAX = 100  # ids of steps are made of it


class ProcessHandle:
    """One request of a process.

    >>> import headwater as hw, tempfile
    >>> from headwater.aggregates import step
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> names = app.claims("username")
    >>> @app.process("sign_up", request="name STRING")
    ... def sign_up(request, context):
    ...     yield step(names, request["name"], "claim", owner=context.id)
    >>> handle = app.request("sign_up", {"name": "ada"}, request_id="user-7")
    >>> handle.repeated, handle.get().status
    (False, 'running')
    >>> sign_up.run_once(), handle.wait(timeout="1 second").status
    (1, 'finished')
    """

    def __init__(self, process: Process, request_id: str, token: Token) -> None:
        self.process = process
        self.request_id = request_id
        self.token = token

    @property
    def repeated(self) -> bool:
        """Whether the request had been made before."""
        return self.token.repeated

    def get(self) -> ProcessRecord:
        """How it stands."""
        return self.process.get(self.request_id)

    def wait(self, timeout: Duration = "30 seconds") -> ProcessRecord:
        """Wait until it has ended; ``TimedOut`` says how it stands. Somebody must run it: ``app.run``, ``drain``."""
        return self.process.wait(self.request_id, timeout)

    def __repr__(self) -> str:
        return f"ProcessHandle({self.process.name}, {self.request_id})"


class Process:
    """The requests of one process; made by ``app.process``.

    >>> import headwater as hw, tempfile
    >>> from headwater.aggregates import Rejected, command, event, step
    >>> class Account:
    ...     cents = 0
    ...     @command
    ...     def deposit(self, cents: int) -> None:
    ...         self.moved(cents)
    ...     @command
    ...     def withdraw(self, cents: int) -> None:
    ...         if cents > self.cents:
    ...             raise Rejected("no funds")
    ...         self.moved(-cents)
    ...     @event
    ...     def moved(self, cents: int) -> None:
    ...         self.cents += cents
    >>> app = hw.App("bank", home=tempfile.mkdtemp())
    >>> accounts = app.aggregate("account", Account)
    >>> @app.process("transfer", request="source STRING, target STRING, cents BIGINT", deadline="1 minute")
    ... def transfer(request):
    ...     cents = request["cents"]
    ...     yield step(accounts, request["source"], "withdraw", cents=cents, undo=("deposit", {"cents": cents}))
    ...     yield step(accounts, request["target"], "deposit", cents=cents)
    >>> _ = accounts.send("7", "deposit", cents=10)
    >>> handle = app.request("transfer", {"source": "7", "target": "9", "cents": 4}, request_id="t-1")
    >>> transfer.drain()
    1
    >>> handle.wait().status, accounts.get("7").cents, accounts.get("9").cents
    ('finished', 6, 4)
    >>> _ = transfer.request({"source": "7", "target": "9", "cents": 400}, request_id="t-2")
    >>> transfer.open_ids(), transfer.run_once(), transfer.wait("t-2").reason
    (['t-2'], 1, 'no funds')
    >>> [(found.request_id, found.status) for found in transfer.requests("failed")]
    [('t-2', 'failed')]
    >>> [event.type for event in transfer.history("t-2")]
    ['started', 'scheduled', 'step_rejected', 'compensating', 'failed']
    >>> transfer.get("t-2").ended, transfer.get("t-2").to_dict()["details"]
    (True, {})
    >>> transfer.retry("t-2")
    Traceback (most recent call last):
        ...
    headwater.errors.Rejected: it is failed, not stuck
    """

    def __init__(
        self,
        log: EventLog,
        name: str,
        function: Callable[..., Any],
        request: Any,
        aggregates: Mapping[str, AggregateRepository],
        *,
        deadline: Duration | None,
        partitions: int,
        location: str,
    ) -> None:
        if not inspect.isgeneratorfunction(function):
            raise InvalidDeclaration(
                f'process "{name}" is not declared by a generator function',
                hint="Write a function of the request that yields its steps: yield step(…).",
            )
        self.name = name
        self.function = function
        self.location = location
        self.deadline_us = None if deadline is None else to_us(deadline, what="deadline")
        declared = EventType.declared("started", request)
        self.columns = declared.columns  # of a request
        made = process_class(name, declared.fields, self.deadline_us)
        self.repository = AggregateRepository(log, name, made, partitions=partitions, snapshot_every=1000)
        self.runs = ProcessRun(name, function, self.repository, aggregates)
        self._open = OpenRequests(self.repository.store)

    # Asking

    def request(
        self, data: Mapping[str, Any], *, request_id: str | None = None, metadata: Metadata | None = None
    ) -> ProcessHandle:
        """Make a request; it is run by ``app.run``, in this process or another."""
        request_id = str(uuid.uuid4()) if request_id is None else request_id
        if not isinstance(request_id, str) or not 1 <= len(request_id) <= REQUEST_ID_CHARACTERS_MAX:
            raise InvalidDeclaration(
                f"the id of a process's request has 1 to {REQUEST_ID_CHARACTERS_MAX} characters, not {request_id!r}"
            )
        said = self._checked(data)
        outcome = self.repository.send(request_id, "start", request=said, request_id=request_id, metadata=metadata)
        return ProcessHandle(self, request_id, outcome.token)

    def from_json(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """A request that came as JSON, in the types of its columns."""
        if not len(self.columns):
            return dict(data)
        return to_rows(json_rows([dict(data)], self.columns))[0]

    def _checked(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The request with all of its columns, checked: so that repetitions are equal."""
        if not len(self.columns):
            return dict(data)
        return to_rows(to_batches([dict(data)], self.columns))[0]

    def get(self, request_id: str) -> ProcessRecord:
        """How a request stands; ``UnknownRequest`` when there is none of this id."""
        state, version = self.runs.load(request_id)
        if state.status == NEW:
            raise UnknownRequest(
                f'process "{self.name}" has no request "{request_id}"', process=self.name, request_id=request_id
            )
        return ProcessRecord.of(self.name, request_id, state, version)

    def history(self, request_id: str) -> list[RecordedEvent]:
        """The events of a request, in order."""
        return self.repository.history(request_id)

    def requests(self, status: str | None = None) -> Iterator[ProcessRecord]:
        """All requests, or those of a status."""
        for request_id in self.repository.ids():
            found = self.get(request_id)
            if status is None or found.status == status:
                yield found

    def wait(self, request_id: str, timeout: Duration = "30 seconds") -> ProcessRecord:
        """Wait until a request has ended."""
        store = self.repository.store
        index, clock = store.index(request_id), store.topic.clock
        until = clock.monotonic() + to_seconds(timeout, what="timeout")
        while not (found := self.get(request_id)).ended:
            left = until - clock.monotonic()
            if left <= 0:
                raise TimedOut(
                    f'request "{request_id}" of process "{self.name}" has not ended: it is {found.status}',
                    detail=found.reason,
                    hint="It goes on. Does an app with this process run? See: headwater process show.",
                    process=self.name,
                    request_id=request_id,
                    status=found.status,
                )
            store.topic.wait({index.partition: index.position}, timeout=min(left, 1.0))
        return found

    # Running by hand

    @property
    def topic(self) -> EventTopic:
        """The topic of its requests' events."""
        return self.repository.store.topic

    def seen(self) -> Mapping[int, int]:
        """How far ``open_ids`` has read."""
        return self._open.positions

    def open_ids(self) -> list[str]:
        """The requests that have not ended and are not stuck, oldest first."""
        self._open.catch_up()
        return self._open.ids()

    def advance(self, request_id: str) -> ProcessRecord:
        """Take one request as far as it goes. One that is stuck, or fails, raises an alert, which ends when it goes on.

        An error of the process function, or of a command, is raised: what was done stays, and it can be tried again.
        """
        log, about = self.repository.store.topic.log.local, f"{self.name}/{request_id}"
        detail = {"process": self.name, "request_id": request_id}
        try:
            state = self.runs.advance(request_id)
        except (Unavailable, Conflict):
            raise
        except HeadwaterError as error:
            message = f'request "{request_id}" of process "{self.name}" fails: {error.message}'
            note_process(log, about, message, {**detail, "code": error.code})
            raise
        found = self.get(request_id)
        stuck = f'request "{request_id}" of process "{self.name}" is stuck: {found.reason}'
        note_process(log, about, stuck if state.status == STUCK else None, detail)
        return found

    def run_once(self) -> int:
        """Take every open request as far as it goes; returns how many have ended. Raises the first failure, last.

        A request that fails does not keep the others from going on.
        """
        ended, failures = 0, []
        for request_id in self.open_ids():
            try:
                ended += self.advance(request_id).ended
            except HeadwaterError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return ended

    def drain(self) -> int:
        """As ``run_once``, until no request is open: for tests and cron. Returns how many have ended."""
        ended = 0
        while self.open_ids():
            ended += self.run_once()
        return ended

    def retry(self, request_id: str) -> ProcessRecord:
        """Let a stuck request be tried again: its compensation is sent as a new request."""
        self.get(request_id)
        self.repository.send(request_id, "resume")
        return self.get(request_id)

    def __repr__(self) -> str:
        return f"Process({self.name}, {self.function.__name__})"
