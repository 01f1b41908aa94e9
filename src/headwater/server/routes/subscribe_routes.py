"""Routes: subscribing to a view, by server-sent events or WebSocket.

What it is: ``/v1/views/{view}/subscribe``: a snapshot of one tick, then the changes of each tick.
Invariants: every message has its tick, and the last one of a tick its resume token. A client that does not read for too
long is disconnected.
Not here: the messages (``server/realtime/broker.py``, ``server/realtime/subscriber_messages.py``).
Read next: ``server/realtime/broker.py``, ``docs/server.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from headwater.errors import HeadwaterError
from headwater.server.http.answers import status_of
from headwater.server.http.guard import WEBSOCKET_REFUSED, needs
from headwater.server.http.masked_answers import Reader
from headwater.server.realtime.broker import SubscriberMessage
from headwater.server.realtime.status_events import EventStream, HeldStream, still_of
from headwater.server.realtime.subscriber_messages import ResumeToken

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

GOING_AWAY = 1001
TRY_AGAIN = 1013


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["views"])
    may = needs("query")

    @routes.get("/v1/views/{view}/subscribe", dependencies=[Depends(may)], response_class=Response)
    async def subscribe(
        view: str,
        reader: Reader,
        from_tick: Annotated[int | None, Query(ge=1, le=2**53)] = None,
        token: Annotated[str | None, Query(max_length=64)] = None,
        last_event_id: Annotated[str | None, Header(max_length=64)] = None,
    ) -> Any:
        """A view as server-sent events: a snapshot, then its changes, tick by tick.

        Resume with the header Last-Event-ID (browsers send it by themselves), with ``token``, or with ``from_tick``,
        the first missing tick.
        """
        state.require_view(view)
        have = _resume_token(from_tick, token or last_event_id)
        rights = await state.read(state.masked.rights_about, reader, view)
        await state.read(state.masked.audit.shown, reader, view, None, None, "subscription")
        messages = state.broker.subscribe(view, have, rights)
        seconds = state.settings.send_seconds_max
        return EventStream(messages, written=_event, send_seconds_max=seconds, on_slow=state.broker.note_slow)

    @routes.websocket("/v1/views/{view}/subscribe")
    async def subscribe_socket(socket: WebSocket, view: str) -> None:
        try:
            await may(socket)
            state.require_view(view)
            given = socket.query_params
            tick = given.get("from_tick")
            have = _resume_token(ResumeToken.parse(tick).tick if tick else None, given.get("token"))
            holder = socket.scope["state"]["holder"]
            rights = await state.read(state.masked.rights_about, holder, view)
            await state.read(state.masked.audit.shown, holder, view, None, None, "subscription")
            messages = state.broker.subscribe(view, have, rights)
        except HeadwaterError as error:
            await socket.close(WEBSOCKET_REFUSED + status_of(error), error.message[:120])
            return
        try:
            await socket.accept()
            await _carry(socket, messages, state)
        finally:
            await messages.aclose()

    return routes


def _resume_token(from_tick: int | None, token: str | None) -> ResumeToken | None:
    """The resume token that the client sent."""
    if token:
        return ResumeToken.parse(token)
    return ResumeToken(from_tick - 1, None) if from_tick else None


def _event(message: SubscriberMessage) -> bytes:
    return message.event


async def _carry(socket: WebSocket, messages: HeldStream[SubscriberMessage], state: ServerState) -> None:
    pump = asyncio.ensure_future(_pump(socket, messages, state.settings.send_seconds_max))
    gone = asyncio.ensure_future(_until_gone(socket))
    try:
        await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (pump, gone):
            task.cancel()
        try:
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await pump
        except TimeoutError:
            state.broker.note_slow()


async def _pump(socket: WebSocket, messages: HeldStream[SubscriberMessage], seconds: float) -> None:
    still = still_of(socket.scope)
    async for message in messages:
        if not await still():
            await socket.close(WEBSOCKET_REFUSED + 401, "the key has ended, or its rights have changed")
            return
        if message.data is not None:  # WebSocket has its own pings
            async with asyncio.timeout(seconds):
                await socket.send_text(message.data)
        if message.kind == "end":
            await socket.close(GOING_AWAY if "stops" in (message.data or "") else TRY_AGAIN)
            return


async def _until_gone(socket: WebSocket) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        while True:
            await socket.receive()
