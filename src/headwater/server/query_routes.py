"""Routes: queries and searches.

What it is: ``POST /v1/query`` over the serving store (SQLite, at once) or over Spark (by the engine), and
``GET /v1/search/{sink}`` over a full-text index that a sink keeps.
Invariants: nothing can be changed by any of them. A query is ended when its time is up, gives so many rows and says
when there were more, and is answered as of one tick, which it names.
Not here: which SQL is let through (``views/serving_queries.py``, ``views/admission.py``).
Read next: ``views/serving.py``.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query
from pydantic import BaseModel, Field

from headwater.errors import InvalidQuery, UnknownSink
from headwater.log.declare import suggestion
from headwater.log.token import Token
from headwater.server.answers import plain_answer, table_answer
from headwater.server.guard import needs
from headwater.views.serving import ServingStore

if TYPE_CHECKING:
    from headwater.server.state import State

Scalar = str | int | float | bool | None


class Asked(BaseModel):
    """What ``POST /v1/query`` takes."""

    sql: str = Field(min_length=1, max_length=100_000, examples=["SELECT 1 AS one"])
    params: list[Scalar] | dict[str, Scalar] = Field(default_factory=list)
    engine: Literal["store", "spark"] = "store"
    at_least: str | None = Field(default=None, max_length=10_000)
    timeout: float | None = Field(default=None, gt=0, le=3600, allow_inf_nan=False)
    limit: int | None = Field(default=None, ge=1, le=1_000_000)


class Stores:
    """A serving store for each thread that asks, so that a long query keeps no other one waiting."""

    def __init__(self, state: State) -> None:
        self._path = state.store.path
        self._own = threading.local()

    def get(self) -> ServingStore:
        """This thread's store."""
        if not hasattr(self._own, "store"):
            self._own.store = ServingStore(self._path)
        found: ServingStore = self._own.store
        return found


def router(state: State) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["queries"], dependencies=[Depends(needs("query"))])
    stores, settings = Stores(state), state.settings

    @routes.post("/v1/query")
    async def query(asked: Asked, accept: Annotated[str | None, Header()] = None) -> Any:
        """One SELECT, as of one tick: in SQLite's dialect over views, or in Spark's over views, tables and topics."""
        seconds = min(asked.timeout or settings.query_seconds_max, settings.query_seconds_max)
        limit = min(asked.limit or settings.query_rows_max, settings.query_rows_max)
        began = time.monotonic()
        token = Token.parse(asked.at_least) if asked.at_least else None
        if asked.engine == "spark":
            if asked.params:
                raise InvalidQuery("a query of Spark takes no params", hint="Ask the store, or write the values.")
            request = {
                "verb": "query",
                "sql": asked.sql,
                "at_least": asked.at_least,
                "timeout": seconds,
                "rows_max": limit,
            }
            answer, found = await state.ask_engine(request, timeout=seconds)
            tick, truncated, table = answer["tick"], answer["truncated"], pa.table({}) if found is None else found
        else:
            if token is not None:
                await state.covered(token, seconds, state.mentioned(asked.sql))
            left = max(0.001, seconds - (time.monotonic() - began))

            def ask() -> tuple[int, pa.Table]:
                return stores.get().asked(asked.sql, asked.params, rows_max=limit + 1, seconds_max=left)

            tick, table = await state.question(ask)
            truncated, table = table.num_rows > limit, table.slice(0, limit)
        facts = {
            "tick": tick, "engine": asked.engine, "truncated": truncated, "count": table.num_rows,
            "seconds": round(time.monotonic() - began, 4),
            "columns": [{"name": field.name, "type": str(field.type)} for field in table.schema],
        }  # fmt: skip
        return table_answer(table, facts, accept)

    @routes.get("/v1/search/{sink}")
    async def search(
        sink: str,
        q: Annotated[str, Query(min_length=1, max_length=4000)],
        limit: Annotated[int, Query(ge=1, le=1000)] = 10,
    ) -> Any:
        """The best rows for some words, in the full-text index that a sink keeps."""
        found = {each.name: each for each in state.app.sinks if each.sink.kind == "search"}
        if sink not in found:
            raise UnknownSink(f'no search sink "{sink}" was declared', hint=suggestion(sink, list(found)), sink=sink)
        index: Any = found[sink].sink
        rows = await state.question(lambda: index.search(q, limit=limit))
        return plain_answer({"sink": sink, "view": found[sink].view, "rows": rows})

    return routes
