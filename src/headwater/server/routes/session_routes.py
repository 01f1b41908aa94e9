"""Routes: a browser's session, which keeps a key in a cookie.

What it is: ``POST`` and ``DELETE /v1/session`` for the dashboard: a page cannot add headers to an event stream.
Invariants: scripts cannot read the cookie, and only pages of this server send it. Only a valid key becomes a cookie.
Not here: checking keys (``server/http/guard.py``, ``server/http/keys.py``).
Read next: ``server/http/guard.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request

from headwater.errors import Unauthenticated
from headwater.server.http.answers import plain_answer
from headwater.server.http.guard import COOKIE
from headwater.server.http.keys import Holder

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState


class SessionRequest(BaseModel):
    """The body of a request that opens a session."""

    key: str = Field(min_length=1, max_length=4000)  # a key, or a token


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["session"])

    @routes.get("/v1/session")
    async def look(request: Request) -> Any:
        """Whose the request's key is, and what it is good for."""
        holder = request.scope["state"]["holder"]
        return plain_answer({"keys": state.identities is not None, **_about(holder)})

    @routes.post("/v1/session")
    async def open(given: SessionRequest, request: Request) -> Any:
        """Keep a key in a cookie of this browser."""
        holder = await state.identities.holder(given.key) if state.identities is not None else None
        if holder is None:
            raise Unauthenticated("this key is not known here", hint="headwater key ls shows the names.")
        answer = plain_answer(_about(holder))
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, given.key, httponly=True, samesite="strict", secure=secure, path="/")
        return answer

    @routes.delete("/v1/session")
    async def close() -> Any:
        """Forget the cookie."""
        answer = plain_answer({"closed": True})
        answer.delete_cookie(COOKIE, path="/")
        return answer

    return routes


def _about(holder: Holder) -> dict[str, Any]:
    return {
        "name": holder.name,
        "scopes": sorted(holder.scopes),
        "only": list(holder.only),
        "purposes": list(holder.purposes),
        "claims": sorted({claim for claim, _ in holder.claims}),
    }
