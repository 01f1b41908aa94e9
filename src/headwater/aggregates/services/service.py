"""Service: questions that are asked through the log, and their answers.

What it is: ``Service``, made by ``app.service`` and ``app.service_view``: its topics ``<name>_requests`` and
``<name>_replies``, asking, and finding a reply; ``ServiceReply``.
Invariants: a request is one record under its id, and so is its reply: the second answer to a request is never written,
whoever gives it. A reply is never changed. A request that is repeated gets the first reply.
Not here: who answers (``service_runner.py``, ``answer_sink.py``).
Read next: ``service_runner.py``; ``docs/processes.md``.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.aggregates.command_arguments import from_text, to_text
from headwater.aggregates.events.event_rows import EPOCH, MICROSECOND
from headwater.aggregates.events.event_types import EventType
from headwater.durations import Duration, to_seconds, to_us
from headwater.errors import InvalidDeclaration, Rejected, RequestConflict, RequestExpired, ServiceFailed, TimedOut
from headwater.log.commits.request_ids import HOME
from headwater.log.contract import Capability, EventLog, EventTopic, EventTransaction, require
from headwater.log.schema.ddl import TIMESTAMP
from headwater.log.schema.event_metadata import Metadata
from headwater.log.schema.json_lines import json_rows
from headwater.log.schema.row_conversion import to_batches, to_rows
from headwater.log.table import Table, declare_table
from headwater.log.token import Token

REQUEST_ID_CHARACTERS_MAX = 100
ASKED = pa.schema([("request_id", pa.string()), ("expires", TIMESTAMP)])
ANSWERED = pa.schema(
    [
        ("request_id", pa.string()),
        ("status", pa.string()),  # done, none, rejected, error, expired
        ("reason", pa.string()),
        ("details", pa.string()),
        ("at", TIMESTAMP),
    ]
)
DONE, NONE, REJECTED, ERROR, EXPIRED = "done", "none", "rejected", "error", "expired"


@dataclass(frozen=True)
class ServiceReply:
    """The reply to one request. ``status``: "done", "none" (no row), "rejected", "error" or "expired".

    >>> ServiceReply("q-1", "done", {"cents": 750}).value()
    {'cents': 750}
    >>> refused = ServiceReply("q-2", "rejected", reason="not for sale")
    >>> refused.to_dict()["reason"]
    'not for sale'
    >>> refused.value()
    Traceback (most recent call last):
        ...
    headwater.errors.Rejected: not for sale
    """

    request_id: str
    status: str
    reply: Mapping[str, Any] | None = None
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    at: dt.datetime | None = None

    def value(self) -> dict[str, Any] | None:
        """The reply, or the error that it is."""
        if self.status == REJECTED:
            raise Rejected(self.reason or "", **self.details)
        if self.status == ERROR:
            raise ServiceFailed(f'request "{self.request_id}" failed: {self.reason}', request_id=self.request_id)
        if self.status == EXPIRED:
            raise RequestExpired(
                f'request "{self.request_id}" was not answered before its deadline',
                hint="Ask again, with another id and more time. Does an app with this service run?",
                request_id=self.request_id,
            )
        return None if self.reply is None else dict(self.reply)

    def to_dict(self) -> dict[str, Any]:
        """The reply as plain values."""
        at = None if self.at is None else self.at.isoformat()
        reply = None if self.reply is None else dict(self.reply)
        said = {"request_id": self.request_id, "status": self.status, "reply": reply, "reason": self.reason}
        return {**said, "details": dict(self.details), "at": at}


class Service:
    """Requests and replies of one service; made by ``app.service`` and ``app.service_view``.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> @app.service("quote", request="amount BIGINT", reply="cents BIGINT")
    ... def quote(request):
    ...     return {"cents": 250 * request["amount"]}
    >>> id = quote.post({"amount": 3}, timeout="1 minute", request_id="q-1")
    >>> quote.reply_of(id) is None, app.answering["quote"].drain(), quote.wait(id).value()
    (True, 1, {'cents': 750})
    >>> quote.ask({"amount": 3}, request_id="q-1")
    {'cents': 750}
    """

    def __init__(
        self,
        log: EventLog,
        name: str,
        *,
        request: Any,
        reply: Any,
        key: str | Sequence[str] | None,
        by_view: bool,
        partitions: int,
        retention: Duration | None,
        location: str,
    ) -> None:
        for needed in (Capability.REQUEST_IDS, Capability.TRANSACTIONS, Capability.WORK_GROUPS):
            require(log, needed, f'service "{name}"')
        self.name = name
        self.location = location
        self.key = (key,) if isinstance(key, str) else tuple(key or ())
        self.request_columns = _columns(name, "request", request, ASKED)
        self.reply_columns = _columns(name, "reply", reply, ANSWERED)
        unknown = [each for each in self.key if each not in self.request_columns.names]
        if unknown:
            raise InvalidDeclaration(
                f'service "{name}" has the key "{unknown[0]}", which is no column of its requests',
                hint=f"They have {', '.join(self.request_columns.names) or 'none'}.",
            )
        # Stored nullable: a reply that is an error has no values, and what is declared later may be without NOT NULL.
        asked = pa.schema([*ASKED, *(each.with_nullable(True) for each in self.request_columns)])
        answered = pa.schema([*ANSWERED, *(each.with_nullable(True) for each in self.reply_columns)])
        self.table: Table | None = None
        kept: dict[str, Any] = {} if retention is None else {"retention": retention}
        if by_view:  # a table, so that what is answered leaves the view
            self.table = declare_table(log, f"{name}_requests", asked, key="request_id", partitions=partitions)
            self.requests: EventTopic = self.table.topic
        else:
            ordered: dict[str, Any] = {"ordered_by": self.key} if self.key else {}
            self.requests = log.topic(f"{name}_requests", asked, partitions=partitions, **ordered, **kept)
        self.replies = log.topic(
            f"{name}_replies", answered, ordered_by="request_id", event_time="at", partitions=partitions, **kept
        )
        self._log = log
        self._clock = log.clock

    # Asking

    def ask(
        self,
        data: Mapping[str, Any],
        *,
        timeout: Duration = "5 seconds",
        request_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> dict[str, Any] | None:
        """Ask, and wait for the reply; see ``App.ask``."""
        id = self.post(data, timeout=timeout, request_id=request_id, metadata=metadata)
        return self.wait(id, timeout).value()

    def post(
        self,
        data: Mapping[str, Any],
        *,
        timeout: Duration = "5 seconds",
        request_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> str:
        """Ask without waiting; returns the request's id, for ``wait``. Its deadline is ``timeout`` from now."""
        id = str(uuid.uuid4()) if request_id is None else request_id
        if not isinstance(id, str) or not 1 <= len(id) <= REQUEST_ID_CHARACTERS_MAX:
            raise InvalidDeclaration(
                f"the id of a service's request has 1 to {REQUEST_ID_CHARACTERS_MAX} characters, not {id!r}"
            )
        said = to_rows(to_batches([dict(data)], self.request_columns))[0] if len(self.request_columns) else {}
        expires_us = self._clock.now_us() + to_us(timeout, what="timeout")
        row = {"request_id": id, "expires": EPOCH + expires_us * MICROSECOND, **said}
        try:
            if self.table is not None:
                self.table.upsert([row], request_id=id, metadata=metadata)
            else:
                self.requests.append([row], request_id=id, metadata=metadata)
        except RequestConflict as error:
            # The deadline is another one each time: what counts is what was asked.
            first = self._row_at(self.requests, Token.parse(error.data["token"]))
            if first is not None and {name: first[name] for name in said} != said:
                raise
        return id

    def from_json(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """A request that came as JSON, in the types of its columns."""
        if not len(self.request_columns):
            return dict(data)
        return to_rows(json_rows([dict(data)], self.request_columns))[0]

    def wait(self, request_id: str, timeout: Duration = "5 seconds") -> ServiceReply:
        """Wait for the reply to a request."""
        until = self._clock.monotonic() + to_seconds(timeout, what="timeout")
        while True:
            ends = self.replies.end_offsets()
            found = self.reply_of(request_id)
            if found is not None:
                return found
            left = until - self._clock.monotonic()
            if left <= 0:
                raise TimedOut(
                    f'service "{self.name}" has not answered request "{request_id}" in time',
                    hint="Does an app with this service run? Asked again with the same id, it gives its first reply.",
                    service=self.name,
                    request_id=request_id,
                )
            self.replies.wait(ends, timeout=min(left, 1.0))

    def reply_of(self, request_id: str) -> ServiceReply | None:
        """The reply to a request, if it was answered."""
        token = self._log.local.request_ids.token_of(HOME, self.reply_id(request_id))
        row = None if token is None else self._row_at(self.replies, token)
        if row is None:
            return None
        reply = {name: row[name] for name in self.reply_columns.names} if row["status"] == DONE else None
        details = from_text(row["details"]) if row["details"] else {}
        return ServiceReply(request_id, row["status"], reply, row["reason"], details, row["at"])

    def _row_at(self, topic: EventTopic, token: Token) -> dict[str, Any] | None:
        for partition, end in token.frontier.get(topic.name, {}).items():
            for batch in topic.read_partition(partition, end - 1, stop=end):
                return to_rows(batch.data)[0] if batch.num_rows else None
        return None

    # Answering

    def reply_id(self, request_id: str) -> str:
        """The id under which a reply is written."""
        return f"{self.name}_replies/{request_id}"

    def transaction(self, request_id: str) -> EventTransaction:
        """What writes the reply to a request: ``RequestConflict`` when there is another one."""
        return self._log.transaction(request_id=self.reply_id(request_id), metadata=Metadata(correlation_id=request_id))

    def is_late(self, expires: dt.datetime) -> bool:
        """Whether a deadline has passed."""
        return self._clock.now_us() * MICROSECOND >= expires - EPOCH

    def reply_row(
        self, request_id: str, status: str, reply: Any = None, error: BaseException | None = None
    ) -> pa.RecordBatch:
        """The row of a reply, checked."""
        said: dict[str, Any] = {"request_id": request_id, "status": status}
        if isinstance(error, Rejected):
            said |= {"reason": error.message, "details": to_text(error.data, self.name) if error.data else None}
        elif error is not None:
            said["reason"] = f"{type(error).__name__}: {error}"
        said["at"] = EPOCH + self._clock.now_us() * MICROSECOND
        if reply is not None:
            given = dict(reply) if isinstance(reply, Mapping) else None
            if given is None:
                raise ServiceFailed(f'service "{self.name}" replies {type(reply).__name__}, not a dict of its columns')
            said |= given
            missing = [each.name for each in self.reply_columns if not each.nullable and given.get(each.name) is None]
            if missing:
                raise ServiceFailed(f'service "{self.name}" replies no value of "{missing[0]}", which is NOT NULL')
        return self.replies.row_batch([said])

    def __repr__(self) -> str:
        return f"Service({self.name})"


def _columns(service: str, what: str, given: Any, taken: pa.Schema) -> pa.Schema:
    columns = EventType.declared(what, given).columns
    for name in columns.names:
        if name in taken.names:
            raise InvalidDeclaration(
                f'the {what} of service "{service}" cannot have a column "{name}"',
                detail=f"Every {what} has {', '.join(taken.names)}.",
                hint="Name it otherwise.",
            )
    return columns
