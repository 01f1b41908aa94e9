"""The application: every route of the server, put together.

What it is: ``create``, which makes a FastAPI application of a ``ServerState``.
Invariants: every error has one shape; every route under ``/v1`` asks for a scope; names in paths are names of the log,
never of files. Nothing is loaded from other sites: the dashboard and ``/docs`` are files of this package.
Not here: what routes do (``*_routes.py``), who may call (``server/http/guard.py``), HTTP itself (``running.py``).
Read next: ``server/http/guard.py``, ``server/routes/status_routes.py``.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from headwater import __version__
from headwater.errors import HeadwaterError, Misuse, UnknownPath
from headwater.log.storage.file_descriptors import EXHAUSTED, too_many_files

if TYPE_CHECKING:
    from fastapi import FastAPI

    from headwater.server.server_state import ServerState


def create(state: ServerState) -> FastAPI:
    """The server of one app, as an ASGI application."""
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.responses import Response

    from headwater.server.http.answers import error_answer
    from headwater.server.http.guard import Guard
    from headwater.server.routes import (
        aggregate_routes,
        group_routes,
        page_routes,
        process_routes,
        query_routes,
        search_routes,
        session_routes,
        status_routes,
        subscribe_routes,
        topic_routes,
        transaction_routes,
        view_routes,
        work_routes,
    )
    from headwater.server.status import lag_history

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        await state.start()
        yield
        await state.stop()

    api = FastAPI(
        title=f"Headwater: {state.app.name}",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        description="One ordered log, and views kept in step with it.",
    )
    for routes in (
        status_routes,
        topic_routes,
        transaction_routes,
        aggregate_routes,
        process_routes,
        group_routes,
        work_routes,
        search_routes,
        view_routes,
        subscribe_routes,
        query_routes,
        session_routes,
        lag_history,
    ):
        api.include_router(routes.router(state))

    describe = api.openapi

    def with_keys() -> dict[str, Any]:
        found = describe()
        found.setdefault("components", {})["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"key": []}] if state.identities is not None else []
        return found

    api.openapi = with_keys  # type: ignore[method-assign]

    @api.exception_handler(HeadwaterError)
    async def ours(_: Request, error: HeadwaterError) -> Response:
        return error_answer(error)

    @api.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return error_answer(Misuse(f"{where}: {first['msg']}", hint="See /docs.", field=where))

    @api.exception_handler(HTTPException)
    async def of_starlette(request: Request, error: HTTPException) -> Response:
        if error.status_code in (404, 405):
            unknown = UnknownPath(f"there is no {request.method} {request.url.path}", hint="See /docs.")
            answer = error_answer(unknown)
            answer.status_code = error.status_code
            return answer
        if isinstance(error.__cause__, HeadwaterError):  # raised while FastAPI read the body
            return error_answer(error.__cause__)
        return error_answer(Misuse(str(error.detail)))

    @api.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=400)  # the client has gone

    @api.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> Response:
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            return error_answer(too_many_files(error))
        return error_answer(
            HeadwaterError(f"unexpected {type(error).__name__}", hint="The server's log has the trace.")
        )

    api.mount("/static", page_routes.DashboardFiles(directory=page_routes.DASHBOARD), name="static")
    api.include_router(page_routes.router(state))
    api.add_middleware(Guard, state=state)
    return api
