"""Routes: groups: look at them, move them, and consume with them.

What it is: ``/v1/topics/{topic}/groups`` and ``/v1/consumers``: join, poll, commit, heartbeat, leave; ``/v1/lag``.
Invariants: those of the log's consumer groups; see ``server/http/held_consumers.py`` for what HTTP adds.
Not here: work groups (``work_routes.py``).
Read next: ``server/http/held_consumers.py``.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from headwater.errors import InvalidDeclaration
from headwater.log.groups.groups import Group
from headwater.log.groups.readers import forget_app
from headwater.log.groups.sink_lag import sink_lags
from headwater.log.topic_settings import check_name
from headwater.server.http.answers import plain_answer
from headwater.server.http.guard import needs
from headwater.server.http.held_consumers import Held
from headwater.server.http.masked_answers import Reader
from headwater.server.http.renderings import JSON, rows_text
from headwater.server.http.request_bodies import Seconds
from headwater.server.routes.topic_routes import place_of

if TYPE_CHECKING:
    from headwater.log.batch import Batch
    from headwater.server.server_state import ServerState

Id = Annotated[str, Path(max_length=64)]
Offsets = Annotated[dict[str, Annotated[int, Field(ge=0, le=2**62)]], Field(min_length=1, max_length=1024)]


class Joining(BaseModel):
    """The body of a request that joins a consumer group."""

    member: str | None = Field(default=None, max_length=200, description="A name of your own; a namesake is replaced.")
    start: str = Field(default="earliest", max_length=4000, description="For a group that does not exist yet.")
    session_timeout: Seconds = Field(default=30.0, ge=1, le=3600, allow_inf_nan=False)
    rows_max: int = Field(default=1000, ge=1, le=10_000)


class Polling(BaseModel):
    """The body of a request that polls."""

    received: int | None = Field(default=None, ge=0, le=2**53, description="The number of the last batch received.")
    wait: Seconds = Field(default=0.0, ge=0, le=30, allow_inf_nan=False)


class Committing(BaseModel):
    """The body of a request that commits offsets."""

    offsets: Offsets


class Resetting(BaseModel):
    """The body of a request that resets a group."""

    to: str = Field(max_length=4000)
    force: bool = False


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["groups"])
    consumes, mends = [Depends(needs("consume"))], [Depends(needs("admin"))]
    holds = [Depends(needs("consume", about="own"))]  # a consumer is its key's, which was good for the topic
    held = state.consumers

    @routes.get("/v1/topics/{topic}/groups", dependencies=consumes)
    async def groups(topic: str) -> Any:
        """The groups of a topic, with their lag."""

        def work() -> list[dict[str, Any]]:
            return [group.describe().to_dict() for group in state.log.get_topic(topic).groups()]

        return plain_answer({"groups": await state.read(work)})

    @routes.get("/v1/topics/{topic}/groups/{group}", dependencies=consumes)
    async def describe(topic: str, group: str) -> Any:
        """A group's members, positions and lag."""
        return plain_answer(await state.read(lambda: state.log.get_topic(topic).group(group).describe().to_dict()))

    @routes.post("/v1/topics/{topic}/groups/{group}/reset", dependencies=mends)
    async def reset(topic: str, group: str, asked: Resetting) -> Any:
        """Move a group to another place."""

        def work() -> dict[int, int]:
            found: Group = state.log.get_topic(topic).group(group)
            return found.reset(place_of(asked.to), force=asked.force)

        return plain_answer({"positions": await state.write(work)})

    @routes.delete("/v1/topics/{topic}/groups/{group}", dependencies=mends)
    async def delete(topic: str, group: str, force: bool = False) -> Any:
        """Delete a group with its positions. 409 while it has active members, unless ``force``."""
        await state.write(lambda: state.log.get_topic(topic).group(group).delete(force=force))
        return plain_answer({"deleted": True})

    @routes.get("/v1/lag", dependencies=consumes)
    async def lag(topic: str | None = None) -> Any:
        """How far each group and app is behind in each topic, and each sink behind its app."""

        def work() -> dict[str, Any]:
            topics = [state.log.get_topic(topic)] if topic is not None else state.log.topics()
            readers = [each.to_dict() for found in topics for each in found.lag()]
            return {"readers": readers, "sinks": [each.to_dict() for each in sink_lags(state.log.local)]}

        return plain_answer(await state.read(work))

    @routes.delete("/v1/apps/{app}/positions", dependencies=mends)
    async def forget(app: str) -> Any:
        """Let go of an app that is gone: rows are no longer kept for it, and producers do not wait for it."""
        return plain_answer({"forgotten": await state.write(forget_app, state.log, app)})

    @routes.post("/v1/topics/{topic}/groups/{group}/consumers", dependencies=consumes)
    async def join(topic: str, group: str, asked: Joining, request: Request) -> Any:
        """Join a consumer group; poll before ``session_timeout`` is over, or be out of it."""
        check_name("group", group)

        def work() -> Held:
            return held.join(
                state.log.get_topic(topic),
                group,
                owner_of(request),
                member=asked.member,
                start=place_of(asked.start),
                session_timeout=asked.session_timeout,
                rows_max=asked.rows_max,
            )

        return plain_answer(_about(await state.write(work)), 201)

    @routes.post("/v1/consumers/{id}/poll", dependencies=holds)
    async def poll(id: Id, asked: Polling, request: Request, reader: Reader) -> Any:
        """The next batch. Give back its ``number`` as ``received``; until then the same batch comes again."""
        found = held.find(id, owner_of(request))
        state.notifier.watch(found.consumer.topic)

        async def look() -> Batch | None:
            return await state.write(held.poll, found, asked.received)

        batch = await state.until(look, asked.wait)
        found = held.find(id, owner_of(request))
        rows = "[]"
        if batch is not None:
            masks = partial(state.masked.table, reader, found.consumer.topic.name, how=f"group {found.consumer.group}")
            rows = await state.read(lambda: rows_text(masks(pa.Table.from_batches([batch.data]))))
        return _batch(found, batch, rows)

    @routes.post("/v1/consumers/{id}/commit", dependencies=holds)
    async def commit(id: Id, asked: Committing, request: Request) -> Any:
        """Remember up to where partitions are done: {"0": next_offset}. All of it, or (409) nothing."""
        offsets = offsets_of(asked.offsets)
        found = held.find(id, owner_of(request))
        await state.write(held.commit, found, offsets)
        return plain_answer({"committed": {str(number): offset for number, offset in offsets.items()}})

    @routes.post("/v1/consumers/{id}/heartbeat", dependencies=holds)
    async def heartbeat(id: Id, request: Request) -> Any:
        """Say that the client still works."""
        found = held.find(id, owner_of(request))
        alive = await state.write(found.consumer.heartbeat)
        return plain_answer({**_about(found), "alive": alive})

    @routes.delete("/v1/consumers/{id}", dependencies=holds)
    async def leave(id: Id, request: Request) -> Any:
        """Leave the group; the others take over at once."""
        found = held.find(id, owner_of(request))
        await state.write(held.leave, found)
        return plain_answer({"left": True})

    return routes


def owner_of(request: Request) -> str:
    """Whose request it is; a consumer belongs to who joined."""
    return str(request.scope["state"]["holder"].name)


def offsets_of(given: dict[str, int]) -> dict[int, int]:
    """Offsets by partition, as JSON has them."""
    try:
        return {int(number): offset for number, offset in given.items()}
    except ValueError as error:
        raise InvalidDeclaration("offsets are by partition", hint='As in {"offsets": {"0": 120}}') from error


def _about(held: Held) -> dict[str, Any]:
    consumer = held.consumer
    return {
        "consumer": held.id,
        "member": consumer.member,
        "generation": consumer.generation,
        "assignment": list(consumer.assignment),
        "session_timeout": consumer.session_timeout,
    }


def _batch(held: Held, batch: Batch | None, rows: str) -> Response:
    head: dict[str, Any] = {"number": held.number, "generation": held.consumer.generation}
    if batch is not None:
        head |= {"partition": batch.partition, "first_offset": batch.first_offset, "next_offset": batch.next_offset}
    return Response(f'{json.dumps(head)[:-1]}, "rows":{rows}}}', media_type=JSON)
