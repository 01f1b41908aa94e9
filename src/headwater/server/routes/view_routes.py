"""Routes: views: description, rows by key, their provenance, history, changes, verification and rebuilds.

What it is: ``/v1/views`` except subscriptions; ``why`` and ``pattern`` are asked of the query engine, which has Spark.
Invariants: reading needs no engine: rows come from the serving store, history and changes from committed state. Every
answer names its tick. ``verify`` and ``rebuild`` run in the engine and require the scope admin.
Not here: subscribing (``subscribe_routes.py``), queries (``query_routes.py``).
Read next: ``views/serving/serving_store.py``, ``server/realtime/subscriber_messages.py``.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.types as kinds
from fastapi import APIRouter, Depends, Header, Query

from headwater.errors import HeadwaterError, Misuse, OffsetOutOfRange, TooLarge, Unavailable
from headwater.log.schema.far_times import far_json_rows
from headwater.log.schema.row_conversion import to_rows
from headwater.server.http.answers import plain_answer
from headwater.server.http.guard import Caller, needs
from headwater.server.http.keys import Holder
from headwater.server.http.masked_answers import Reader
from headwater.server.http.renderings import Rendered, accepted, rendered, rows_text
from headwater.server.routes.topic_routes import Wait
from headwater.views.serving.change_feed import VERSION, ChangeFeed
from headwater.views.serving.serving_queries import Bounds, answer_too_large, wrong_key
from headwater.views.serving.view_reader import ViewReader

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

MENDING_S = 3600.0
TICKS_MAX = 100
CHANGES_MAX = 100_000
EVENTS_MAX = 1_000  # of each topic, behind a row


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["views"])
    looks, mends = [Depends(needs("query"))], [Depends(needs("admin"))]

    @routes.get("/v1/views", dependencies=looks)
    async def views() -> Any:
        """All views, as they are."""
        return plain_answer({"views": (await state.read(state.status.read))["views"]})

    @routes.get("/v1/views/{view}", dependencies=looks)
    async def describe(view: str) -> Any:
        """One view: its SQL, its plan with the kinds, and how it is."""
        state.require_view(view)
        return plain_answer(await state.read(_described, state, view))

    @routes.get("/v1/views/{view}/rows", dependencies=looks)
    async def rows(
        view: str,
        caller: Caller,
        reader: Reader,
        key: Annotated[list[str] | None, Query(max_length=64, description="The key's values, in its order.")] = None,
        where: Annotated[str | None, Query(max_length=4000, description="A JSON object: column to value.")] = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
        at_least: Annotated[str | None, Query(max_length=10_000)] = None,
        wait: Wait = 10.0,
        accept: Annotated[str | None, Header()] = None,
    ) -> Any:
        """Rows by key, or by some columns, from the serving store; without both, the first ones."""
        state.require_view(view)
        if at_least:
            await state.covered(await state.awaited(at_least, wait), wait, [view])
        reading = partial(_rows, state, reader, view, key, where, limit, accepted(accept))
        if where is not None:  # the table may have to be searched
            return state.sending.answer(await state.question(caller, reading))
        return state.sending.answer(await (state.read_briefly if key is not None else state.read)(reading))

    @routes.get("/v1/views/{view}/history", dependencies=looks)
    async def history(
        view: str,
        caller: Caller,
        reader: Reader,
        tick: Annotated[int, Query(ge=1, le=2**53)],
        limit: Annotated[int, Query(ge=1, le=100_000)] = 10_000,
        accept: Annotated[str | None, Header()] = None,
    ) -> Any:
        """The rows of a view as they were after a tick, as far back as ticks are kept."""
        state.require_view(view)
        found = await state.question(caller, _history, state, reader, view, tick, limit, accepted(accept))
        return state.sending.answer(found)

    @routes.get("/v1/views/{view}/changes", dependencies=looks)
    async def changes(
        view: str,
        reader: Reader,
        from_tick: Annotated[int | None, Query(ge=1, le=2**53)] = None,
        ticks: Annotated[int, Query(ge=1, le=TICKS_MAX, description="Of at most so many ticks.")] = TICKS_MAX,
        wait: Wait = 0.0,
    ) -> Any:
        """A view's changes, tick by tick; the next page begins at ``next_tick``."""
        state.require_view(view)

        async def look() -> tuple[int, list[pa.Table]] | None:
            found = await state.read(_changes, state, view, from_tick, ticks)
            return found if found[1] else None

        came = await state.until(look, wait)
        following, tables = came if came is not None else await state.read(_changes, state, view, from_tick, ticks)
        if state.masked.concern(reader):
            tables = await state.read(lambda: [state.masked.table(reader, view, table, "changes") for table in tables])
        return _listed(view, following, tables)

    @routes.get("/v1/views/{view}/why", dependencies=[*looks, Depends(needs("consume", about="all"))])
    async def why(
        view: str,
        caller: Caller,
        reader: Reader,
        key: Annotated[list[str] | None, Query(max_length=64, description="The key's values, in its order.")] = None,
        where: Annotated[str | None, Query(max_length=4000, description="A JSON object: column to value.")] = None,
        at_tick: Annotated[int | None, Query(ge=1, le=2**53)] = None,
        limit: Annotated[int, Query(ge=1, le=EVENTS_MAX, description="So many events of each topic.")] = 20,
    ) -> Any:
        """The input events behind a row, stage by stage. It shows rows of topics: the key needs consume, too."""
        state.require_view(view)
        await state.read(partial(state.masked.check_shown, reader, view, "the events behind a row", upstream=True))
        asked = {"view": view, "key": key or [], "where": _where(where), "at_tick": at_tick, "limit": limit}
        settings = state.settings
        limits = {"seconds_max": settings.query_seconds_max, "bytes_max": settings.query_bytes_max, "rows_max": 0}
        answer, body = await state.ask_spark({"why": asked, **limits}, caller)
        assert isinstance(body, bytes)
        return state.sending.answer(Rendered(body, answer["kind"], answer["headers"]))

    @routes.get("/v1/views/{view}/pattern", dependencies=[*looks, Depends(needs("consume", about="all"))])
    async def pattern(
        view: str,
        caller: Caller,
        reader: Reader,
        only: Annotated[str | None, Query(max_length=4000, description="Only the rows of this partition.")] = None,
        limit: Annotated[int, Query(ge=1, le=EVENTS_MAX, description="At most so many rows.")] = 200,
    ) -> Any:
        """Which recorded rows match which variable of a view's pattern. It shows rows of topics: as ``why``."""
        state.require_view(view)
        await state.read(partial(state.masked.check_shown, reader, view, "the rows of a pattern", upstream=True))
        sql = state.app.get_view(view).declared.sql
        if sql is None:
            raise Misuse(f'the view "{view}" has no SQL', hint="Only a view with MATCH_RECOGNIZE has a pattern.")
        settings = state.settings
        limits = {"seconds_max": settings.query_seconds_max, "bytes_max": settings.query_bytes_max, "rows_max": 0}
        asked = {"sql": sql, "only": only, "limit": limit}
        answer, body = await state.ask_spark({"pattern": asked, **limits}, caller)
        assert isinstance(body, bytes)
        return state.sending.answer(Rendered(body, answer["kind"], answer["headers"]))

    @routes.post("/v1/views/{view}/verify", dependencies=mends, tags=["engine"])
    async def verify(view: str) -> Any:
        """Compute a view from the log alone, and compare."""
        state.require_view(view)
        answer, _ = await state.ask_engine({"verb": "verify", "view": view, "timeout": MENDING_S}, timeout=MENDING_S)
        return plain_answer(answer)

    @routes.post("/v1/views/{view}/rebuild", dependencies=mends, tags=["engine"])
    async def rebuild(view: str) -> Any:
        """Recompute a view beside the live one, then swap."""
        state.require_view(view)
        answer, _ = await state.ask_engine({"verb": "rebuild", "view": view, "timeout": MENDING_S}, timeout=MENDING_S)
        return plain_answer(answer)

    @routes.post("/v1/views/{view}/resume", dependencies=mends, tags=["engine"])
    async def resume(view: str) -> Any:
        """Recompute a paused view, with the paused ones that it reads or that wait for it, and let them run."""
        state.require_view(view)
        answer, _ = await state.ask_engine({"verb": "resume", "view": view, "timeout": MENDING_S}, timeout=MENDING_S)
        return plain_answer(answer)

    return routes


def _described(state: ServerState, view: str) -> dict[str, Any]:
    from headwater.server.status import app_graph

    nodes = app_graph.describe(state.app)["nodes"]
    declared = next(node for node in nodes if node["id"] == f"view:{view}")
    status = next(each for each in state.status.read()["views"] if each["name"] == view)
    kept = state.manifests.kept()
    return {**declared, **status, "kept_ticks": [kept[0][0], kept[-1][0]] if kept else None}


# Rows


def _rows(
    state: ServerState, reader: Holder, view: str, key: list[str] | None, where: str | None, limit: int, kind: str
) -> Rendered:
    store, settings = state.store, state.settings
    bounds = Bounds(limit + 1, settings.query_bytes_max, settings.query_seconds_max)
    bounds = state.masked.bounded(reader, view, bounds)
    served = store.views().get(view)
    if served is None:
        raise _unserved(state, view)
    if not key and where is None:
        tick, found = store.first(view, bounds)
        return _rendered(state, reader, view, tick, found, limit, kind, "rows")
    if key and len(key) != len(served.key):
        raise wrong_key(served, key, instead='where={"column": value}')
    given = dict(zip(served.key, map(_value, key, map(served.schema.field, served.key)), strict=True)) if key else {}
    wanted = {**given, **_where(where)}
    state.masked.check_asked(reader, view, wanted)
    known = {name: value for name, value in wanted.items() if name in served.by_name}
    typed = to_rows(far_json_rows([known], served.schema_of(tuple(known))))[0] if known else {}
    tick, found = store.found(view, {**wanted, **typed}, bounds)  # what is no column is refused by the store
    return _rendered(state, reader, view, tick, found, limit, kind, "rows by value")


def _rendered(
    state: ServerState, reader: Holder, view: str, tick: int, found: pa.Table, limit: int, kind: str, how: str
) -> Rendered:
    facts: dict[str, Any] = {"view": view, "tick": tick, "truncated": found.num_rows > limit}
    state.masked.audit.shown(reader, view, found.schema.names, min(limit, found.num_rows), how)
    masks = state.masked.masks(reader, view, found.schema.names)
    if masks:
        found, facts = state.masked.masked(found.slice(0, limit), masks), {**facts, "masked": sorted(masks)}
    paused = state.manifests.current().paused.get(view)
    if paused is not None:
        facts |= {"tick": int(paused["tick"]), "paused": True}
    return rendered(found.slice(0, limit), facts, kind, state.settings.query_bytes_max)


def _unserved(state: ServerState, view: str) -> HeadwaterError:
    if not state.app.get_view(view).declared.serve:
        return Misuse(f'view "{view}" is not served', hint="Declare it without serve=False, subscribe, or ask Spark.")
    return Unavailable(f'view "{view}" is not filled yet', detail=f"The engine is {state.engine.state}.")


def _value(text: str, field: pa.Field) -> Any:
    """A key's text as JSON has the value: a number where the column is one."""
    if kinds.is_temporal(field.type) and re.fullmatch(r"-?\d{6,19}", text):
        return int(text)  # a time far away, or a length of time: as the answers have them
    if kinds.is_string(field.type) or kinds.is_temporal(field.type) or kinds.is_binary(field.type):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misuse(f'{text[:60]!r} is no value of column "{field.name}"', column=field.name) from error


def _where(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"where is not JSON: {error}", hint='As in where={"country": "DE"}') from error
    if not isinstance(found, dict) or not found:
        raise Misuse("where is not a JSON object", hint='As in where={"country": "DE"}')
    return found


# The past


def _history(state: ServerState, reader: Holder, view: str, tick: int, limit: int, kind: str) -> Rendered:
    manifest = state.manifests.at(tick)
    if manifest is None or view not in manifest.views:
        kept = state.manifests.kept()
        raise OffsetOutOfRange(
            f'the history of view "{view}" at tick {tick} is not kept',
            detail=f"Kept are ticks {kept[0][0]} to {kept[-1][0]}." if kept else "There is no tick yet.",
            hint="Ask for a tick that is kept.",
            view=view,
        )
    shown = state.masked.rows_of(reader.privacy, view)
    with ViewReader(view, state.committed, epoch=lambda: 0).rows_at(manifest) as (head, batches):
        found, count, held = [], 0, 0
        seen = batches if shown is None else shown.batches(batches)
        for batch in seen:
            found.append(batch)
            count += batch.num_rows
            held += batch.nbytes
            if held > state.settings.query_bytes_max and count <= limit:
                raise answer_too_large(state.settings.query_bytes_max)
            if count > limit:
                break
        return _rendered(state, reader, view, tick, pa.Table.from_batches(found, head.schema), limit, kind, "history")


def _changes(state: ServerState, view: str, from_tick: int | None, ticks: int) -> tuple[int, list[pa.Table]]:
    """The next tick to ask for, and a table for each tick that changed something."""
    feed = ChangeFeed(view, state.committed, lambda *_: False)
    begin = from_tick if from_tick is not None else feed.first_tick
    last = min(feed.last_tick, begin + ticks - 1)
    found: list[pa.Table] = []
    rows = held = 0
    for table in feed.read(from_tick, last):
        tick = table.column(VERSION)[0].as_py()
        held += table.nbytes
        if found and held > state.settings.query_bytes_max:
            return tick, found
        if rows + table.num_rows > CHANGES_MAX:
            if not found:
                raise TooLarge(
                    f"tick {tick} has {table.num_rows:,} changes, {CHANGES_MAX:,} are answered at once",
                    hint="Subscribe: a large tick comes in parts.",
                    tick=tick,
                )
            return tick, found
        found.append(table)
        rows += table.num_rows
    return max(begin, last + 1), found


def _listed(view: str, following: int, tables: list[pa.Table]) -> Any:
    from starlette.responses import Response

    parts = []
    for table in tables:
        if not table.num_rows:  # none that the key sees
            continue
        tick = table.column(VERSION)[0].as_py()
        parts.append(f'{{"tick":{tick},"changes":{rows_text(table.drop_columns([VERSION]))}}}')
    head = json.dumps({"view": view, "next_tick": following})
    return Response(f'{head[:-1]},"ticks":[{",".join(parts)}]}}', media_type="application/json")
