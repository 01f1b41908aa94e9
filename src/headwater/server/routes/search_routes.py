"""Routes: stored searches.

What it is: ``/v1/searches``: the searches of an app, put and removed; a document asked about; one search's matches as
they change.
Invariants: a query that cannot be read is refused with its place, and nothing is written. Nothing here starts Spark: a
document is compared in the server's own process, with an index of the table as the log has it.
Not here: the matches as a view (``/v1/views/…``); queries (``headwater/searches``).
Read next: ``docs/searches.md``; ``docs/server.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headwater.errors import Misuse, UnknownRow
from headwater.log.schema.json_lines import json_decoder
from headwater.server.http.answers import plain_answer
from headwater.server.http.guard import needs
from headwater.server.http.keys import Holder
from headwater.server.http.masked_answers import Reader
from headwater.server.realtime.broker import SubscriberMessage
from headwater.server.realtime.status_events import EventStream, event
from headwater.server.realtime.subscriber_messages import ResumeToken
from headwater.server.routes.topic_routes import IdempotencyKey, SaidOfRows

if TYPE_CHECKING:
    from headwater.searches.stored_searches import Searches
    from headwater.server.server_state import ServerState

LISTED_MAX = 10_000
Owner = Annotated[str | None, Query(max_length=1000, description="Only searches of this owner.")]
Tags = Annotated[list[str] | None, Query(alias="tag", max_length=100, description="Only searches with such a tag.")]
BODY = {
    "requestBody": {
        "required": True,
        "description": "The document: its columns by name. What is left out is null.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


class SearchBody(BaseModel):
    """A search that is put."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[str, Field(min_length=1, max_length=20_000)]
    owner: Annotated[str, Field(max_length=1000)] | None = None
    tags: Annotated[list[str], Field(max_length=100)] = []
    look_back: bool = False


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["searches"])
    writes, looks = [Depends(needs("produce"))], [Depends(needs("query"))]

    async def shown(name: str, reader: Holder) -> Searches:
        """Searches whose texts and owners a key may see."""
        searches = state.app.get_searches(name)
        await state.read(state.masked.check_shown, reader, searches.table.name, "stored searches")
        return searches

    @routes.get("/v1/searches", dependencies=looks)
    async def declared() -> Any:
        """The stored searches that the app declares: over what, and in which text columns."""
        listed = [
            {"searches": name, "over": each.over, "text": list(each.text), "declared": each.location}
            for name, each in state.app.stored_searches.items()
        ]
        return plain_answer({"searches": listed})

    @routes.get("/v1/searches/{name}", dependencies=looks)
    async def found(
        name: str,
        reader: Reader,
        owner: Owner = None,
        tags: Tags = None,
        limit: Annotated[int, Query(ge=1, le=LISTED_MAX)] = 1000,
    ) -> Any:
        """Searches, as the log has them now, each with its ``problem`` and its ``cost``."""
        searches = await shown(name, reader)
        every = await state.read(lambda: searches.find(owner=owner, tags=tags or ()))
        listed = [each.to_dict() for each in every[:limit]]
        return plain_answer({"searches": listed, "count": len(every)})

    @routes.post("/v1/searches/{name}/percolate", dependencies=looks, openapi_extra=BODY)
    async def percolate(name: str, request: Request, reader: Reader, owner: Owner = None, tags: Tags = None) -> Any:
        """The searches that a document would match, the best first. Nothing is written."""
        searches = await shown(name, reader)
        document = _document(searches, await request.body())
        matches = await state.read(lambda: searches.percolate_json(document, owner=owner, tags=tags or ()))
        return plain_answer({"matches": matches})

    @routes.get("/v1/searches/{name}/{id}", dependencies=looks)
    async def one(name: str, id: str, reader: Reader) -> Any:
        """One search, as the log has it now."""
        search = await state.read((await shown(name, reader)).get, id)
        if search is None:
            raise UnknownRow(f'there is no search "{id}" in "{name}"', hint=f"List them: GET /v1/searches/{name}.")
        return plain_answer(search.to_dict())

    @routes.put("/v1/searches/{name}/{id}", dependencies=writes)
    async def put(
        name: str, id: str, asked: SearchBody, writer: Reader, said: SaidOfRows, idempotency_key: IdempotencyKey = None
    ) -> Any:
        """Store a search, or another query under its id. ``cost`` says what it costs beyond the ordinary."""
        searches, metadata = state.app.get_searches(name), None if said.empty else said
        await state.read(state.masked.check_searched, writer, searches.table.name)
        made = await state.write(
            lambda: searches.put(id, **asked.model_dump(), request_id=idempotency_key, metadata=metadata)
        )
        return plain_answer(made.to_dict())

    @routes.delete("/v1/searches/{name}/{id}", dependencies=writes)
    async def remove(name: str, id: str, said: SaidOfRows, idempotency_key: IdempotencyKey = None) -> Any:
        """Take a search away, with its matches."""
        searches, metadata = state.app.get_searches(name), None if said.empty else said
        token = await state.write(lambda: searches.remove(id, request_id=idempotency_key, metadata=metadata))
        return plain_answer({"id": id, "token": str(token)})

    @routes.get("/v1/searches/{name}/{id}/subscribe", dependencies=looks, response_class=Response)
    async def subscribe(
        name: str,
        id: str,
        reader: Reader,
        token: Annotated[str | None, Query(max_length=64)] = None,
        last_event_id: Annotated[str | None, Header(max_length=64)] = None,
    ) -> Any:
        """One search's matches as server-sent events: a snapshot, then what changes, tick by tick."""
        view = (await shown(name, reader)).name
        await state.read(state.masked.check_shown, reader, view, "the matches of a search")
        state.require_view(view)
        have = token or last_event_id
        rights = await state.read(state.masked.rights_about, reader, view)
        messages = state.broker.subscribe(view, ResumeToken.parse(have) if have else None, rights)
        seconds = state.settings.send_seconds_max
        return EventStream(messages, written=_of_search(id), send_seconds_max=seconds, on_slow=state.broker.note_slow)

    return routes


def _document(searches: Searches, body: bytes) -> dict[str, Any]:
    try:
        found = json_decoder(searches.columns.schema).decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise Misuse(f"the body is not JSON: {error}", hint="Send the document's columns as one object.") from error
    if not isinstance(found, dict):
        raise Misuse("the body is no JSON object", hint="Send the document's columns as one object, by name.")
    return found


def _of_search(id: str) -> Callable[[SubscriberMessage], bytes]:
    """A view's message with the rows of one search alone."""

    def written(message: SubscriberMessage) -> bytes:
        if message.data is None:
            return message.event
        said = json.loads(message.data)
        for part in ("rows", "changes"):
            if part in said:
                said[part] = [row for row in said[part] if row["search"] == id]
        token = str(message.token) if message.token is not None else None
        return event(json.dumps(said, ensure_ascii=False), name=message.kind, id=token)

    return written
