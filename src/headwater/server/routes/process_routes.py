"""Routes: claims, processes and services.

What it is: ``/v1/claims``, ``/v1/processes``, ``/v1/services``.
Invariants: what is asked for is in the log when it is answered. No function of the app runs here: requests are carried
out, and services answered, by the engine or another program; claims are decided by Headwater's own rules.
Not here: carrying out (``aggregates/processes/``), answering (``aggregates/services/``).
Read next: ``docs/processes.md``; ``docs/server.md``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from headwater.errors import Misuse, Rejected, TimedOut
from headwater.server.http.answers import plain_answer
from headwater.server.http.guard import needs
from headwater.server.http.keys import Holder
from headwater.server.http.masked_answers import Reader
from headwater.server.routes.topic_routes import IdempotencyKey, SaidOfRows

if TYPE_CHECKING:
    from headwater.aggregates.processes.process import Process
    from headwater.aggregates.services.service import Service, ServiceReply
    from headwater.server.server_state import ServerState

LOOK_S, LOOK_MAX_S = 0.005, 0.05  # a waiting request looks for its reply at this interval, which doubles
REQUESTS_MAX = 1000
Text = Annotated[str, Field(min_length=1, max_length=1000)]
Wait = Annotated[float, Query(ge=0, le=60, description="Seconds to wait for its end.")]
BODY = {
    "requestBody": {
        "required": False,
        "description": "The columns of the request, by name.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


class ClaimOwner(BaseModel):
    """Who a value is claimed for."""

    model_config = ConfigDict(extra="forbid")

    owner: Text


class HeldClaim(BaseModel):
    """Whose claim it is, the request that made it, and to whom it goes."""

    model_config = ConfigDict(extra="forbid")

    owner: Text
    claim: Text
    to: Text | None = None


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["processes"])
    sends, looks = [Depends(needs("produce"))], [Depends(needs("query"))]
    shown = Depends(state.masked.topic_shown(""))
    _claims(routes, state, sends, [*looks, shown])
    _processes(routes, state, sends, looks, shown)
    _services(routes, state, [*sends, Depends(state.masked.topic_shown("_requests", "_replies"))], looks)
    return routes


def _claims(routes: APIRouter, state: ServerState, sends: Any, looks: Any) -> None:
    @routes.get("/v1/claims/{name}/{value}", dependencies=looks)
    async def owner(name: str, value: str) -> Any:
        """Who has a value; ``owner`` is null when nobody does."""
        claims = state.app.get_claims(name)
        found = await state.read(claims.get, value)
        return plain_answer({"value": value, "owner": found and found.owner, "claim": found and found.id})

    @routes.post("/v1/claims/{name}/{value}", dependencies=sends)
    async def claim(
        name: str,
        value: str,
        asked: ClaimOwner,
        writer: Reader,
        said: SaidOfRows,
        idempotency_key: IdempotencyKey = None,
    ) -> Any:
        """Claim a value; 422 with the owner in the data when it is taken. ``Idempotency-Key`` is the claim's id."""
        claims = state.app.get_claims(name)
        metadata = None if said.empty else said
        with _owner_shown(state, name, writer):
            made = await state.write(
                lambda: claims.claim(value, owner=asked.owner, request_id=idempotency_key, metadata=metadata)
            )
        return plain_answer(made.to_dict())

    @routes.post("/v1/claims/{name}/{value}/release", dependencies=sends)
    async def release(
        name: str, value: str, asked: HeldClaim, writer: Reader, idempotency_key: IdempotencyKey = None
    ) -> Any:
        """Give a value up, or with ``to`` to another owner; 422 when it is not this owner's and this claim."""
        claims, owner, held, to = state.app.get_claims(name), asked.owner, asked.claim, asked.to
        with _owner_shown(state, name, writer):
            if to is None:
                await state.write(lambda: claims.release(value, owner=owner, claim=held, request_id=idempotency_key))
                return plain_answer({"value": value, "released": True})
            made = await state.write(
                lambda: claims.transfer(value, to=to, owner=owner, claim=held, request_id=idempotency_key)
            )
        return plain_answer(made.to_dict())


@contextmanager
def _owner_shown(state: ServerState, name: str, holder: Holder) -> Iterator[None]:
    """A refusal names who has the value, and in which request, to whoever may see that."""
    try:
        yield
    except Rejected:
        if state.masked.sees_all_of(holder, name):
            raise
        raise Rejected("the claim is refused", hint="Who has the value is masked for this key.") from None


def _processes(routes: APIRouter, state: ServerState, sends: Any, looks: Any, shown: Any) -> None:
    @routes.get("/v1/processes", dependencies=looks)
    async def processes() -> Any:
        """The processes of the app, with the requests that are open, and where each was declared."""
        listed = [
            {"process": name, "declared": process.location, "open": len(await state.read(process.open_ids))}
            for name, process in state.app.processes.items()
        ]
        return plain_answer({"processes": listed})

    @routes.get("/v1/processes/{name}", dependencies=[*looks, shown])
    async def requests(
        name: str,
        status: Annotated[str | None, Query(max_length=20, description="Only those.")] = None,
        limit: Annotated[int, Query(ge=1, le=REQUESTS_MAX)] = 100,
    ) -> Any:
        """Requests of a process, or those of a status: "running", "stuck", "finished" and so on."""
        process = state.app.get_process(name)

        def look() -> list[dict[str, Any]]:
            found = []
            for each in process.requests(status):
                found.append(each.to_dict())
                if len(found) == limit:
                    break
            return found

        return plain_answer({"requests": await state.read(look)})

    @routes.post("/v1/processes/{name}", dependencies=sends, openapi_extra=BODY)
    async def make(
        name: str, request: Request, said: SaidOfRows, idempotency_key: IdempotencyKey = None, wait: Wait = 0
    ) -> Any:
        """Make a request; answers its id and how it stands, after ``wait`` seconds at most."""
        process = state.app.get_process(name)
        data, metadata = _object(await request.body()), None if said.empty else said
        handle = await state.write(
            lambda: process.request(process.from_json(data), request_id=idempotency_key, metadata=metadata)
        )
        found = await _ended(state, process, handle.request_id, wait)
        return plain_answer({**found, "token": str(handle.token), "repeated": handle.repeated})

    @routes.get("/v1/processes/{name}/{id}", dependencies=[*looks, shown])
    async def one(name: str, id: str, wait: Wait = 0) -> Any:
        """How a request stands, after ``wait`` seconds at most."""
        return plain_answer(await _ended(state, state.app.get_process(name), id, wait))

    @routes.post("/v1/processes/{name}/{id}/retry", dependencies=sends)
    async def retry(name: str, id: str) -> Any:
        """Let a stuck request be tried again."""
        found = await state.write(state.app.get_process(name).retry, id)
        return plain_answer(found.to_dict())


def _services(routes: APIRouter, state: ServerState, sends: Any, looks: Any) -> None:
    @routes.get("/v1/services", dependencies=looks)
    async def services() -> Any:
        """The services of the app, with the columns of their requests and replies."""
        listed = [
            {
                "service": name,
                "declared": service.location,
                "by": "function" if service.table is None else "view",
                "request": service.request_columns.names,
                "reply": service.reply_columns.names,
                "key": list(service.key),
            }
            for name, service in state.app.services.items()
        ]
        return plain_answer({"services": listed})

    @routes.post("/v1/services/{name}", dependencies=sends, openapi_extra=BODY)
    async def ask(
        name: str,
        request: Request,
        said: SaidOfRows,
        idempotency_key: IdempotencyKey = None,
        timeout: Annotated[float, Query(gt=0, le=60, description="Seconds: the deadline of the request.")] = 5,
    ) -> Any:
        """Ask a service; answers its reply. 422: rejected; 500: its function failed; 503: expired; 504: no reply yet.

        ``Idempotency-Key`` is the request's id: a repetition gets the first reply.
        """
        service = state.app.get_service(name)
        data, metadata = _object(await request.body()), None if said.empty else said
        id = await state.write(
            lambda: service.post(
                service.from_json(data), timeout=timeout, request_id=idempotency_key, metadata=metadata
            )
        )
        found = await _reply(state, service, id, timeout)
        return plain_answer({"request_id": id, "reply": found.value()})


async def _ended(state: ServerState, process: Process, id: str, wait: float) -> dict[str, Any]:
    loop, pause = asyncio.get_running_loop(), LOOK_S
    until = loop.time() + wait
    while True:
        found = await state.read(process.get, id)
        if found.ended or loop.time() >= until:
            return found.to_dict()
        await asyncio.sleep(min(pause, max(0.0, until - loop.time())))
        pause = min(2 * pause, LOOK_MAX_S)


async def _reply(state: ServerState, service: Service, id: str, timeout: float) -> ServiceReply:
    loop, pause = asyncio.get_running_loop(), LOOK_S
    until = loop.time() + timeout
    while True:
        found = await state.read(service.reply_of, id)
        if found is not None:
            return found
        if loop.time() >= until:
            raise TimedOut(
                f'service "{service.name}" has not answered request "{id}" in time',
                hint="Does the engine run? Asked again with this Idempotency-Key, it gives its first reply.",
                service=service.name,
                request_id=id,
            )
        await asyncio.sleep(min(pause, max(0.0, until - loop.time())))
        pause = min(2 * pause, LOOK_MAX_S)


def _object(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"the body is not JSON: {error}", hint="Send the columns of the request as one object.") from error
    if not isinstance(found, dict):
        raise Misuse("the body is no JSON object", hint="Send the columns of the request as one object, by name.")
    return found
