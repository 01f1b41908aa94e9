"""Routes: the dashboard's pages, and the page of the API.

What it is: ``/``, ``/views/revenue`` and so on: each is the same file, which looks at its own address; ``/docs``.
Invariants: only names that are listed here are answered, with files of this package; nothing comes from other sites.
Not here: what the pages show (``dashboard/``); their scripts and styles (``/static``, ``application.py``).
Read next: ``application.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from headwater.errors import UnknownPath

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

DASHBOARD = Path(__file__).parents[1] / "dashboard"
PAGES = frozenset(
    {
        "aggregates",
        "topics",
        "groups",
        "views",
        "sinks",
        "captures",
        "inlets",
        "ticks",
        "alerts",
        "query",
        "search",
        "login",
    }
)

# A browser asks whether its copy is still good: else a new server would be met by scripts of the old one.
FRESH = {"Cache-Control": "no-cache"}


class DashboardFiles(StaticFiles):
    """The scripts and styles."""

    def file_response(self, *arguments: Any, **settings: Any) -> Response:
        """A file, or that it has not changed."""
        answer = super().file_response(*arguments, **settings)
        answer.headers.update(FRESH)
        return answer


def router(_: ServerState) -> APIRouter:
    """The routes; the last ones, for they take what no other takes."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/", response_class=Response)
    async def home() -> Response:
        """The dashboard."""
        return FileResponse(DASHBOARD / "index.html", headers=FRESH)

    @routes.get("/docs", response_class=Response)
    async def docs() -> Response:
        """The API, for people."""
        return FileResponse(DASHBOARD / "docs.html", headers=FRESH)

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
    return FileResponse(DASHBOARD / "index.html", headers=FRESH)
