"""Routes: work groups: take single messages and settle each.

What it is: ``/v1/topics/{topic}/groups/{group}/take``, ``ack``, ``nack``, ``extend`` and ``redrive``.
Invariants: a message is leased to one taker at a time and settled once. A handle names one delivery and is void once
the message was leased again. The server keeps no state: any server of this home accepts an answer, also after a
restart.
Not here: leases (``log/groups/leases.py``); whole partitions in order (``group_routes.py``).
Read next: ``log/groups/worker.py``.
"""

from __future__ import annotations

import base64
import json
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from starlette.responses import Response

from headwater.errors import LeaseLost, Misuse
from headwater.log.contract import EventTopic
from headwater.log.groups.groups import Group
from headwater.log.groups.leases import Lease
from headwater.log.groups.messages import Message, MessageReader
from headwater.log.groups.worker import Worker
from headwater.log.schema.json_lines import json_line
from headwater.log.topic_settings import check_name
from headwater.server.http.answers import plain_answer
from headwater.server.http.guard import needs
from headwater.server.http.masked_answers import Reader
from headwater.server.http.renderings import JSON
from headwater.server.http.request_bodies import Seconds

if TYPE_CHECKING:
    from headwater.log.topic import Topic
    from headwater.server.server_state import ServerState

WORKERS_MAX = 256
LOOK_AGAIN_S = 0.25  # what another taker gives back is seen after so long
Handles = Annotated[list[Annotated[str, Field(max_length=600)]], Field(min_length=1, max_length=1000)]


class Taking(BaseModel):
    """The body of a request that takes messages."""

    count: int = Field(default=1, ge=1, le=1000)
    lease: Seconds = Field(
        default=30.0, ge=0.1, le=43_200, allow_inf_nan=False, description='Seconds, or a text as "1 minute".'
    )
    deliveries_max: int = Field(default=5, ge=1, le=1000)
    deliver_at: str | None = Field(default=None, max_length=200, description="Of a new group: columns to look at.")
    expires_at: str | None = Field(default=None, max_length=200)
    priority: str | None = Field(default=None, max_length=200)
    ordered_by: list[Annotated[str, Field(max_length=200)]] | None = Field(default=None, max_length=10)
    wait: Seconds = Field(default=0.0, ge=0, le=30, allow_inf_nan=False)


class Acknowledging(BaseModel):
    """The body of a request that settles messages."""

    handles: Handles


class Refusing(Acknowledging):
    """The body of a request that releases messages; with a reason they are rejected, to the dead letters."""

    reject: str | None = Field(default=None, max_length=1000)
    delay: Seconds = Field(default=0.0, ge=0, le=31_536_000, allow_inf_nan=False, description="Until then.")


class Extending(Acknowledging):
    """The body of a request that renews leases."""

    lease: Seconds = Field(default=30.0, ge=0.1, le=43_200, allow_inf_nan=False, description="From now.")


class Redriving(BaseModel):
    """What putting dead letters back takes."""

    limit: int | None = Field(default=None, ge=1, le=1_000_000)


class Workers:
    """The log's workers that requests take with, one for each group and its terms; bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Any, ...], tuple[Worker, threading.Lock]] = OrderedDict()

    def get(
        self, topic: EventTopic, group: str, lease: float, deliveries_max: int, **columns: Any
    ) -> tuple[Worker, threading.Lock]:
        """A worker on these terms, and the lock under which it takes."""
        check_name("group", group)
        terms = (topic.id, group, lease, deliveries_max, json.dumps(columns, sort_keys=True))
        with self._lock:
            if terms not in self._known:
                made: Worker = topic.worker(group, lease=lease, deliveries_max=deliveries_max, name="server", **columns)
                self._known[terms] = (made, threading.Lock())
                if len(self._known) > WORKERS_MAX:
                    self._known.popitem(last=False)  # not closed: that would take its takers' messages away
            self._known.move_to_end(terms)
            return self._known[terms]

    def take(self, topic: EventTopic, group: str, asked: Taking) -> list[Message]:
        """The messages that can be taken now."""
        columns = asked.model_dump(include={"deliver_at", "expires_at", "priority", "ordered_by"}, exclude_none=True)
        worker, lock = self.get(topic, group, asked.lease, asked.deliveries_max, **columns)
        with lock:
            return worker.take(asked.count, timeout=0)


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["work"], dependencies=[Depends(needs("consume"))])
    workers = Workers()
    prefix = "/v1/topics/{topic}/groups/{group}"

    @routes.post(f"{prefix}/take")
    async def take(topic: str, group: str, asked: Taking, reader: Reader) -> Any:
        """Messages, each with a handle; answer before the lease ends, or another gets them."""
        found = await state.read_briefly(state.log.get_topic, topic)
        if not reader.privacy.every_row:  # a message that is left out would stay with this worker
            await state.read(state.masked.check_every_row, reader, topic, "messages of a work group")
        state.notifier.watch(found)

        async def look() -> list[Message] | None:
            return await state.write(workers.take, found, group, asked) or None

        messages = await state.until(look, asked.wait, LOOK_AGAIN_S)
        rows = [dict(message.row) for message in messages or []]
        if rows and state.masked.concern(reader):
            rows = await state.read(state.masked.rows, reader, topic, rows, "messages")
        return _taken(messages or [], rows, asked)

    @routes.post(f"{prefix}/ack")
    async def ack(topic: str, group: str, asked: Acknowledging) -> Any:
        """Settle messages as done. 409 when some are with another by now; the others are settled."""

        def work() -> None:
            for worker, messages in _answered(state, workers, topic, group, asked.handles, rows=False):
                worker.accept(messages)

        await state.write(work)
        return plain_answer({"done": len(asked.handles)})

    @routes.post(f"{prefix}/nack")
    async def nack(topic: str, group: str, asked: Refusing) -> Any:
        """Give messages back, for anybody, after ``delay`` seconds; or, with ``reject``, give them up."""

        def work() -> None:
            for worker, messages in _answered(state, workers, topic, group, asked.handles, rows=True):
                if asked.reject is None:
                    worker.release(messages, asked.delay)
                else:
                    worker.reject(messages, asked.reject)

        await state.write(work)
        return plain_answer({"done": len(asked.handles)})

    @routes.post(f"{prefix}/redrive", dependencies=[Depends(needs("admin"))])
    async def redrive(topic: str, group: str, asked: Redriving) -> Any:
        """Put dead letters back into the group, the oldest first."""

        def work() -> dict[str, Any]:
            found: Group = state.log.get_topic(topic).group(group)
            return found.redrive(limit=asked.limit).to_dict()

        return plain_answer(await state.write(work))

    @routes.post(f"{prefix}/extend")
    async def extend(topic: str, group: str, asked: Extending) -> Any:
        """Keep messages for longer."""

        def work() -> None:
            for worker, messages in _answered(state, workers, topic, group, asked.handles, rows=False):
                worker.renew(messages, asked.lease)

        await state.write(work)
        return plain_answer({"done": len(asked.handles)})

    return routes


# Handles


def handle_of(lease: Lease, deliveries_max: int) -> str:
    """The text that stands for one delivery."""
    return base64.urlsafe_b64encode(json.dumps([*lease, deliveries_max], separators=(",", ":")).encode()).decode()


def lease_of(handle: str) -> tuple[Lease, int]:
    """The delivery that a handle stands for, and the group's terms.

    >>> lease_of(handle_of(Lease(0, 7, 1, 3, "server-1"), 5))
    (Lease(partition=0, offset=7, deliveries=1, number=3, worker='server-1'), 5)
    """
    try:
        *numbers, worker, deliveries_max = json.loads(base64.urlsafe_b64decode(handle.encode()))
        whole = [*numbers, deliveries_max]
        if (
            len(numbers) != 4
            or not isinstance(worker, str)
            or not all(type(n) is int and 0 <= n < 2**62 for n in whole)
        ):
            raise ValueError(handle)
        partition, offset, deliveries, number = numbers
        return Lease(partition, offset, deliveries, number, worker), max(1, deliveries_max)
    except (ValueError, TypeError, RecursionError) as error:
        raise Misuse(f"{handle[:60]!r} is no handle", hint="Use a handle that take returned.") from error


def _taken(messages: list[Message], rows: list[dict[str, Any]], asked: Taking) -> Response:
    parts = []
    for message, row in zip(messages, rows, strict=True):
        head = {
            "handle": handle_of(message.lease, asked.deliveries_max),
            "partition": message.partition,
            "offset": message.offset,
            "deliveries": message.deliveries,
            "deleted": message.deleted,
        }
        parts.append(f'{json.dumps(head)[:-1]}, "row":{json_line(row)}}}')
    return Response(f'{{"messages":[{",".join(parts)}]}}', media_type=JSON)


def _answered(
    state: ServerState, workers: Workers, name: str, group: str, handles: list[str], *, rows: bool
) -> list[tuple[Worker, list[Message]]]:
    """The messages that handles stand for, by the terms on which they were taken."""
    topic = state.log.get_topic(name)
    topic.group(group)  # an unknown one is an error, and not made
    by_terms: dict[int, list[Lease]] = {}
    for lease, deliveries_max in map(lease_of, handles):
        by_terms.setdefault(deliveries_max, []).append(lease)
    found = []
    for deliveries_max, leases in by_terms.items():
        worker, _ = workers.get(topic, group, 30.0, deliveries_max)
        contents = _contents(topic, leases) if rows else {}
        missing = [lease for lease in leases if rows and lease[:2] not in contents]
        if missing:
            raise LeaseLost(
                f"{len(missing)} of {len(leases)} messages are not there any more",
                hint="Retention or compaction removed them; take others.",
                lost=[list(lease[:2]) for lease in missing],
            )
        found.append((worker, [Message(worker, lease, *contents.get(lease[:2], ({}, False))) for lease in leases]))
    return found


def _contents(topic: EventTopic, leases: list[Lease]) -> dict[tuple[int, ...], tuple[dict[str, Any], bool]]:
    ends = topic.end_offsets()
    known = [lease for lease in leases if lease.partition in ends and lease.offset < ends[lease.partition]]
    found, _ = MessageReader(cast("Topic", topic)).read(known, ends)
    return dict(found)
