"""Routes: queries and searches.

What it is: ``POST /v1/query`` over the serving store (SQLite) or Spark, and ``GET /v1/search/{sink}`` over the
full-text index of a sink.
Invariants: they change nothing. Time and rows are limited, and a truncated answer says so; every answer is of one tick,
which it names. Neither runs in this process.
Not here: which SQL is allowed (``views/serving/sql_authorizer.py``, ``views/serving/query_admission.py``), running it
(``server/queries/query_workers.py``, ``server/queries/spark_queries.py``).
Read next: ``server/queries/query_workers.py``.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query
from pydantic import BaseModel, Field

from headwater.errors import InvalidQuery, Misuse, UnknownSink
from headwater.hints import suggestion
from headwater.server.http.guard import Caller, needs
from headwater.server.http.masked_answers import Reader
from headwater.server.http.renderings import Rendered, accepted
from headwater.server.http.request_bodies import Seconds
from headwater.sinks.postgres.postgres_served_rows import PostgresServedRows

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

Scalar = str | int | float | bool | None


class QueryRequest(BaseModel):
    """The body of ``POST /v1/query``."""

    sql: str = Field(min_length=1, max_length=100_000, examples=["SELECT 1 AS one"])
    params: list[Scalar] | dict[str, Scalar] = Field(default_factory=list)
    engine: Literal["store", "spark"] = "store"
    at_least: str | None = Field(default=None, max_length=10_000)
    timeout: Seconds | None = Field(default=None, gt=0, le=3600, allow_inf_nan=False)
    limit: int | None = Field(default=None, ge=1, le=1_000_000)


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["queries"], dependencies=[Depends(needs("query"))])
    settings = state.settings

    @routes.post("/v1/query")
    async def query(
        asked: QueryRequest, caller: Caller, reader: Reader, accept: Annotated[str | None, Header()] = None
    ) -> Any:
        """One SELECT, as of one tick: in SQLite's dialect over views, or in Spark's over views, tables and topics.

        Columns that are masked for the key are null, and rows that are not for it are left out.
        """
        seconds = min(asked.timeout or settings.query_seconds_max, settings.query_seconds_max)
        limit = min(asked.limit or settings.query_rows_max, settings.query_rows_max)
        question: dict[str, Any] = {
            "sql": asked.sql,
            "rows_max": limit,
            "bytes_max": settings.query_bytes_max,
            "kind": accepted(accept),
            "hidden": await state.read(state.masked.hidden, reader) if state.masked.concern(reader) else {},
        }
        if state.masked.audit.enabled:
            await state.read(state.masked.audit.queried, reader, asked.sql, f"query of {asked.engine}")
        began = time.monotonic()
        token = await state.awaited(asked.at_least, seconds) if asked.at_least else None
        if asked.engine == "spark":
            if asked.params:
                raise InvalidQuery("a query of Spark takes no params", hint="Ask the store, or write the values.")
            asking = {**question, "at_least": None if token is None else str(token), "seconds_max": seconds}
            answer, body = await state.ask_spark(asking, caller)
            assert isinstance(body, bytes)
            return state.sending.answer(Rendered(body, answer["kind"], answer["headers"]))
        if isinstance(state.store, PostgresServedRows):
            raise Misuse(
                "this server reads the views from PostgreSQL, and asks it for rows by key and by columns only",
                hint=f"Ask PostgreSQL itself, with a user of your own: schema {state.store.serving.schema}.",
            )
        if token is not None:
            await state.covered(token, seconds, state.mentioned(asked.sql))
        waited = time.monotonic() - began
        left = max(0.001, seconds - waited)
        question |= {"params": asked.params, "seconds_max": left, "waited": waited}
        return state.sending.answer(await state.store_queries.ask(question, caller))

    @routes.get("/v1/search/{sink}")
    async def search(
        sink: str,
        caller: Caller,
        reader: Reader,
        q: Annotated[str, Query(min_length=1, max_length=4000)],
        limit: Annotated[int, Query(ge=1, le=1000)] = 10,
    ) -> Any:
        """The best rows for some words, in the full-text index that a sink keeps."""
        found = {each.name: each for each in state.app.sinks if each.sink.kind == "search"}
        if sink not in found:
            raise UnknownSink(f'no search sink "{sink}" was declared', hint=suggestion(sink, list(found)), sink=sink)
        await state.read(state.masked.check_every_row, reader, found[sink].view, "an index over the rows")
        if not found[sink].masked:
            await state.read(state.masked.check_shown, reader, found[sink].view, "an index over the rows")
        index: Any = found[sink].sink
        question = {
            "path": os.fspath(index.path),
            "words": q,
            "rows_max": limit,
            "bytes_max": settings.query_bytes_max,
            "seconds_max": settings.query_seconds_max,
            "facts": {"sink": sink, "view": found[sink].view},
        }
        return state.sending.answer(await state.searches.ask(question, caller))

    return routes
