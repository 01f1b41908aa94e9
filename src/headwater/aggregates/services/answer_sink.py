"""Answer sink: answers the requests of a service by a view, tick by tick.

What it is: ``AnswerSink``, a sink over the view that joins the open requests with the service's query.
Invariants: a request has a row in the first tick that contains it, also when the query has none for it. That row is its
reply, and later changes of it are not. The reply and the removal of the request from the table of open requests are one
transaction; so the view holds open requests alone.
Not here: the topics (``service.py``); when ticks are delivered (``sinks/runner/sink_task.py``).
Read next: ``service.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.aggregates.services.service import DONE, ERROR, EXPIRED, NONE, Service
from headwater.errors import RequestConflict, ServiceFailed
from headwater.log.schema.row_conversion import to_rows
from headwater.sinks.runner.kept_progress import kept_progress
from headwater.sinks.sink import Sink, SinkContext, StoredProgress, Target, check_fence, is_next, reached
from headwater.views.serving.deliveries import upserts

if TYPE_CHECKING:
    from headwater.log.contract import EventLog
    from headwater.views.serving.deliveries import Delivery

ANSWERED = "answered"  # whether the query has a row for the request


def answers_sql(service: Service) -> str:
    """The view of all open requests, each with its reply."""
    columns = "".join(f", a.`{name}`" for name in service.reply_columns.names)
    return (
        f"SELECT q.request_id, q.expires, a.request_id IS NOT NULL AS {ANSWERED}{columns} "
        f"FROM `{service.name}_requests` q LEFT JOIN `{service.name}` a ON a.request_id = q.request_id"
    )


@dataclass(frozen=True)
class AnswerSink(Sink):
    """Writes the replies of a service that is answered by a view."""

    service: Service

    kind = "replies"
    merges = False  # a request is answered from its own tick

    def open(self, context: SinkContext, log: EventLog) -> Target:
        return AnswerTarget(context, log, self.service)

    def __str__(self) -> str:
        return f"replies of service {self.service.name}"


class AnswerTarget(Target):
    """The topic of the replies."""

    def __init__(self, context: SinkContext, log: EventLog, service: Service) -> None:
        super().__init__(context)
        self._service = service
        self._memory = kept_progress(log, context)

    def progress(self) -> StoredProgress | None:
        return self._memory.recall()[0]

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        check_fence(self.progress(), self.context, epoch, filling=True)
        self._answer([row for batch in rows for row in to_rows(batch)])
        return self._memory.remember(tick, epoch)

    def apply(self, delivery: Delivery) -> StoredProgress:
        progress = self.progress()
        if not is_next(progress, self.context, delivery):
            return reached(progress, self.context)
        come = upserts(delivery.changes)
        self._answer([row for batch in come.to_batches() for row in to_rows(batch)])
        return self._memory.remember(delivery.tick, delivery.epoch)

    def _answer(self, rows: list[dict[str, Any]]) -> None:
        by_request: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            by_request.setdefault(row["request_id"], []).append(row)
        service = self._service
        assert service.table is not None
        for id, found in by_request.items():
            if service.reply_of(id) is not None:
                continue  # a later change of an answer
            try:
                with service.transaction(id) as transaction:
                    transaction.append_batch(service.replies, self._reply(id, found))
                    transaction.delete(service.table, [{"request_id": id}])
            except RequestConflict:  # a process that was replaced has answered it meanwhile
                continue

    def _reply(self, id: str, found: list[dict[str, Any]]) -> pa.RecordBatch:
        service = self._service
        if service.is_late(found[0]["expires"]):
            return service.reply_row(id, EXPIRED)
        if len(found) > 1:
            return service.reply_row(id, ERROR, error=ServiceFailed(f"its query gives {len(found)} rows for it"))
        if not found[0][ANSWERED]:
            return service.reply_row(id, NONE)
        try:
            return service.reply_row(id, DONE, {name: found[0][name] for name in service.reply_columns.names})
        except ServiceFailed as error:  # a null that may not be
            return service.reply_row(id, ERROR, error=error)
