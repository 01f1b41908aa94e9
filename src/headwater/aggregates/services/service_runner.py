"""Service runner: answers the requests of a service by a function, one message after the other.

What it is: ``ServiceRunner``, workers of the work group of the service's requests; ``ServiceContext``, what a function
may use.
Invariants: the reply, what the function writes, and the acknowledgement of the request are one transaction. So a worker
that dies before it has done nothing, and another one answers; after it, nobody answers again. Requests with one key are
answered one at a time, in order, over all workers of all processes. A function that raises gives a reply, too.
Not here: the topics (``service.py``), leases (``log/groups/worker.py``).
Read next: ``service.py``.
"""

from __future__ import annotations

import datetime as dt
import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.aggregates.interrupts import is_interrupt
from headwater.aggregates.services.service import DONE, ERROR, EXPIRED, REJECTED, Service
from headwater.durations import Duration
from headwater.errors import ClosedError, LeaseLost, Rejected, RequestConflict, ServiceFailed, Unavailable
from headwater.log.contract import EventTransaction

logger = logging.getLogger("headwater.aggregates")

DELIVERIES_MAX = 5  # a request that has ended its process so often is answered with an error
LOOK_S = 0.5
RETRY_S = 0.1
STOP_SECONDS_MAX = 30.0
Function = Callable[..., Any]


@dataclass(frozen=True)
class ServiceContext:
    """What a function of a service may use besides the request.

    ``transaction``: rows that it appends or upserts there are written together with the reply, or not at all.
    ``id``: the request's, for the commands that the function sends: it may be called again after a crash.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> sold = app.topic("sold", "request STRING")
    >>> @app.service("sell", request="item STRING", reply="number BIGINT", key="item")
    ... def sell(request, context):
    ...     context.transaction.append(sold, [{"request": context.id}])
    ...     return {"number": 1}
    >>> with app.answering["sell"]:
    ...     _ = app.ask("sell", {"item": "cup"}, request_id="s-1")
    >>> list(sold.rows())
    [{'request': 's-1'}]
    """

    id: str
    expires: dt.datetime
    transaction: EventTransaction


class _Unanswered(Exception):
    """The function has no reply: what it wrote in its transaction is not to be kept."""

    def __init__(self, row: pa.RecordBatch) -> None:
        super().__init__()
        self.row = row


class ServiceRunner:
    """Answers one service in the background."""

    def __init__(self, service: Service, function: Function, *, workers: int, lease: Duration) -> None:
        self.service = service
        self._function = function
        self._takes_context = len(inspect.signature(function).parameters) > 1
        self._workers = workers
        self._lease = lease
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin."""
        if self._threads:
            return
        self._stopping.clear()
        for number in range(self._workers):
            name = f"headwater-service-{self.service.name}-{number}"
            thread = threading.Thread(target=self.follow, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End, after the requests that are being answered."""
        self._stopping.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(STOP_SECONDS_MAX)
        self._threads = []

    def __enter__(self) -> ServiceRunner:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def worker(self) -> Any:
        """A worker of the service's group."""
        ordered: dict[str, Any] = {"ordered_by": self.service.key} if self.service.key else {}
        return self.service.requests.worker(
            self.service.name, lease=self._lease, deliveries_max=DELIVERIES_MAX + 10, **ordered
        )

    def follow(self) -> None:
        """Answer until it is stopped."""
        while not self._stopping.is_set():
            try:
                with self.worker() as worker:
                    while not self._stopping.is_set():
                        # One at a time: when it ends its process, it alone counts as delivered.
                        for message in worker.take(1, timeout=LOOK_S):
                            if not self._stopping.is_set():  # else the worker releases it as it closes
                                self.answer(message)
            except ClosedError:
                return
            except Exception:  # the disk may be full, the catalog busy
                logger.exception("service %s cannot answer; retrying", self.service.name)
                self._stopping.wait(LOOK_S)

    def drain(self) -> int:
        """Answer what has been asked, for tests and cron; returns how many."""
        answered = 0
        with self.worker() as worker:
            while messages := worker.take(1, timeout=0):
                for message in messages:
                    self.answer(message)
                    answered += 1
        return answered

    def answer(self, message: Any) -> None:
        """Answer one request: reply and acknowledgement in one transaction."""
        service, id = self.service, message.row["request_id"]
        try:
            if service.reply_of(id) is not None:  # the group was set back
                message.accept()
                return
            try:
                with service.transaction(id) as transaction:
                    row = self._called(message, transaction)
                    transaction.append_batch(service.replies, row)
                    transaction.accept([message])
            except _Unanswered as said:
                with service.transaction(id) as transaction:
                    transaction.append_batch(service.replies, said.row)
                    transaction.accept([message])
        except (LeaseLost, RequestConflict) as error:  # another worker has it, and answers
            logger.info("service %s: %s", service.name, error.message)
        except Unavailable as error:
            logger.warning("service %s tries request %s again: %s", service.name, id, error.message)
            with suppress(LeaseLost):
                message.release(RETRY_S)

    def _called(self, message: Any, transaction: EventTransaction) -> pa.RecordBatch:
        """The row of the function's reply; ``_Unanswered`` has the row of any other end."""
        service, row = self.service, message.row
        id, expires = row["request_id"], row["expires"]
        if service.is_late(expires):
            raise _Unanswered(service.reply_row(id, EXPIRED))
        if message.deliveries > DELIVERIES_MAX:
            often = ServiceFailed(f"{message.deliveries - 1} processes that were to answer it have ended")
            raise _Unanswered(service.reply_row(id, ERROR, error=often))
        request = {name: row[name] for name in service.request_columns.names}
        given = [request, ServiceContext(id, expires, transaction)] if self._takes_context else [request]
        try:
            said = self._function(*given)
            answer = service.reply_row(id, DONE, {} if said is None else said)
        except Unavailable:
            raise
        except Rejected as error:
            raise _Unanswered(service.reply_row(id, REJECTED, error=error)) from error
        except BaseException as error:
            if is_interrupt(error):
                raise
            logger.warning("service %s: request %s failed: %s: %s", service.name, id, type(error).__name__, error)
            raise _Unanswered(service.reply_row(id, ERROR, error=error)) from error
        if service.is_late(expires):  # never late: nothing of it is kept
            raise _Unanswered(service.reply_row(id, EXPIRED))
        return answer
