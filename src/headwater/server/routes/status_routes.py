"""Routes: the app's declarations, status, health and metrics.

What it is: ``/v1/app``, ``/v1/status``, ``/v1/events``, ``/health/live``, ``/health/ready``, ``/metrics``.
Invariants: they only read. ``live``: this process answers; ``ready``: the app runs and keeps up.
Not here: the values (``server/status/app_graph.py``, ``server/status/status_reader.py``,
``server/status/prometheus.py``).
Read next: ``server/status/status_reader.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from headwater.server.http.answers import plain_answer
from headwater.server.http.guard import needs
from headwater.server.realtime.status_events import EventStream
from headwater.server.status import app_graph
from headwater.server.status.prometheus import TYPE, exposition

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["status"])
    looks = [Depends(needs("query"))]

    @routes.get("/health/live")
    async def live() -> Any:
        """This process answers."""
        return {"live": True}

    @routes.get("/health/ready")
    async def ready(request: Request) -> Any:
        """Whether the app is run and gets on: 200, or 503 with the reasons. More with a key.

        A paused view does not make it 503, as the others are kept up to date: it is named.
        """
        reasons, found = state.watchdog.reasons(), state.watchdog.found
        well = not reasons
        manifest = await state.read(state.manifests.current)
        answer = {
            "ready": well,
            "reasons": reasons,
            "role": state.role,
            "engine": state.engine.to_dict(),
            "tick": manifest.tick,
            "paused": sorted(manifest.paused),
            "waiting_rows": found.waiting_rows,
            "stalled_seconds": round(found.stalled_seconds, 1),
        }
        holder = request.scope["state"]["holder"]
        if holder.only or not holder.may("query"):
            answer = {"ready": well}
        return plain_answer(answer, 200 if well else 503)

    @routes.get("/v1/app", dependencies=looks)
    async def app() -> Any:
        """The app's declarations: captures, inlets, topics, tables, views, sinks, and the edges between them."""
        return plain_answer(await state.read(app_graph.describe, state.app))

    @routes.get("/v1/status", dependencies=looks)
    async def status() -> Any:
        """How everything is at the moment."""
        return plain_answer(await state.events.look())

    @routes.get("/v1/events", dependencies=looks, response_class=Response)
    async def events() -> Any:
        """The status as server-sent events: after every tick, and at least every two seconds."""
        seconds = state.settings.send_seconds_max
        return EventStream(state.events.listen(), written=bytes, send_seconds_max=seconds)

    @routes.get("/metrics", dependencies=looks, response_class=Response)
    async def metrics() -> Any:
        """The same for Prometheus."""
        return Response(exposition(await state.events.look()), media_type=TYPE)

    return routes
