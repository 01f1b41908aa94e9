"""Routes: the dashboard's pages, and the page of the API.

What it is: ``/``, ``/views/revenue`` and so on: each is the same file, which looks at its own address; ``/docs``.
Invariants: only names that are listed here are answered, with files of this package; nothing comes from other sites.
Not here: what the pages show (``dashboard/``); their scripts and styles (``/static``, ``application.py``).
Read next: ``application.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

from headwater.errors import UnknownPath

if TYPE_CHECKING:
    from headwater.server.state import State

DASHBOARD = Path(__file__).parent / "dashboard"
PAGES = frozenset(
    {"topics", "groups", "views", "sinks", "captures", "inlets", "ticks", "alerts", "query", "search", "login"}
)


def router(_: State) -> APIRouter:
    """The routes; the last ones, for they take what no other takes."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/", response_class=Response)
    async def home() -> Response:
        """The dashboard."""
        return FileResponse(DASHBOARD / "index.html")

    @routes.get("/docs", response_class=Response)
    async def docs() -> Response:
        """The API, for people."""
        return FileResponse(DASHBOARD / "docs.html")

    @routes.get("/{page}", response_class=Response)
    async def page(page: str) -> Response:
        """A page of the dashboard."""
        return _page(page)

    @routes.get("/{page}/{rest:path}", response_class=Response)
    async def part(page: str, rest: str) -> Response:
        """A page about one thing."""
        del rest
        return _page(page)

    return routes


def _page(name: str) -> Response:
    if name not in PAGES:
        raise UnknownPath("there is nothing at this address", hint="See /docs.")
    return FileResponse(DASHBOARD / "index.html")
