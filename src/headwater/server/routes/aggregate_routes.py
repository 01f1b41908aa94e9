"""Routes: aggregates: commands, states, histories.

What it is: ``/v1/aggregates``.
Invariants: a command is answered when its events are written, with their token; a rejection is 422 with the rule's
data. Command methods and states run in processes beside (``command_workers.py``); lists and histories are read from the
log by the server itself, and need no code of the app.
Not here: deciding (``aggregates/aggregate_repository.py``).
Read next: ``server/commands/command_workers.py``, ``aggregates/stored_history.py``; ``docs/server.md``.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import Response

from headwater.errors import Misuse, Rejected, RequestConflict
from headwater.server.http.answers import plain_answer
from headwater.server.http.guard import Caller, needs
from headwater.server.http.masked_answers import Reader
from headwater.server.http.renderings import JSON, Rendered
from headwater.server.routes.topic_routes import IdempotencyKey, SaidOfRows

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

IDS_MAX, EVENTS_MAX = 1000, 10_000
ETAG = re.compile(r'(?:W/)?"?([0-9]{1,18})"?')
IfMatch = Annotated[str | None, Header(max_length=40, description="The version that is expected, as in an ETag.")]
Expected = Annotated[int | None, Query(ge=0, description="The version that is expected.")]
ARGUMENTS = {
    "requestBody": {
        "required": False,
        "description": "The command's arguments, by name.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["aggregates"])
    sends, looks = [Depends(needs("produce"))], [Depends(needs("query"))]
    shows = [*looks, Depends(state.masked.topic_shown(""))]  # values of its events

    @routes.get("/v1/aggregates", dependencies=looks)
    async def aggregates() -> Any:
        """All aggregates and event stores of the log: counts, and the commands of those that the app declares."""
        return plain_answer({"aggregates": await state.read(state.histories.all)})

    @routes.get("/v1/aggregates/{name}", dependencies=shows)
    async def one_kind(
        name: str,
        prefix: Annotated[str, Query(max_length=1000, description="Ids that begin so.")] = "",
        after: Annotated[str, Query(max_length=1000, description="Ids after this one: the next page.")] = "",
        limit: Annotated[int, Query(ge=0, le=IDS_MAX)] = 100,
        newest: Annotated[int, Query(ge=0, le=IDS_MAX, description="Of all ids, the newest events.")] = 0,
    ) -> Any:
        """The counts of one kind of aggregate, its ids with their versions, and its newest events."""

        def look() -> dict[str, Any]:
            history = state.histories.find(name)
            ids = history.ids(prefix=prefix, after=after, limit=limit)
            return {
                **state.histories.summary(name),
                "page": [{"id": id, "version": version} for id, version in ids],
                "next": ids[-1][0] if len(ids) == limit and ids else None,
                "newest": history.newest(newest) if newest else [],
            }

        return plain_answer(await state.read(look))

    @routes.get("/v1/aggregates/{name}/{id}", dependencies=shows)
    async def one(
        name: str,
        id: str,
        caller: Caller,
        version: Annotated[int | None, Query(ge=0, description="After so many events; default: now.")] = None,
    ) -> Any:
        """The state of one aggregate and its version, which is its ETag too."""
        state.app.get_aggregate(name)
        return _answer(await state.commands.state(name, id, caller, version))

    @routes.get("/v1/aggregates/{name}/{id}/history", dependencies=shows)
    async def history(
        name: str,
        id: str,
        limit: Annotated[int, Query(ge=1, le=EVENTS_MAX, description="The newest so many.")] = 1000,
        before: Annotated[int | None, Query(ge=1, description="Those before this position: the page before.")] = None,
    ) -> Any:
        """The events of one aggregate in order, its rejected commands, and what became of tentative events."""

        def look() -> dict[str, Any]:
            found = state.histories.find(name)
            life = found.life(id, limit=limit, before=before)
            more = len(life) == limit
            return {
                "aggregate": name,
                "id": id,
                "version": found.version(id),
                "events": life,
                "before": life[0]["position"] if more else None,
            }

        return plain_answer(await state.read(look))

    @routes.post("/v1/aggregates/{name}/{id}/{command}", dependencies=sends, openapi_extra=ARGUMENTS)
    async def send(
        name: str,
        id: str,
        command: str,
        request: Request,
        said: SaidOfRows,
        caller: Caller,
        writer: Reader,
        idempotency_key: IdempotencyKey = None,
        if_match: IfMatch = None,
        expected: Expected = None,
    ) -> Any:
        """Send a command; answers its events, the version and the token.

        422 with the code ``rejected``: a rule refused it. ``Idempotency-Key``: a repeated request gives the first
        answer. ``If-Match`` or ``expected``: 409 when the aggregate has another version.
        """
        state.app.get_aggregate(name).declared.command(command)  # what is not there is said at once
        question = {
            "what": "send",
            "command": command,
            "arguments": _arguments(await request.body()),
            "request_id": idempotency_key,
            "expected": _expected(if_match, expected),
            "metadata": asdict(said),
        }
        try:
            return _answer(await state.commands.send(name, id, caller, question))
        except (Rejected, RequestConflict) as error:
            if isinstance(error, Rejected) and name not in state.app.claimed:
                raise  # what it says is the app's own words
            raise await state.read(state.masked.told, writer, name, error) from None

    @routes.post("/v1/aggregates/{name}/{id}/tentative/{version}/{how}", dependencies=sends)
    async def settle(
        name: str, id: str, version: int, how: str, caller: Caller, idempotency_key: IdempotencyKey = None
    ) -> Any:
        """Settle a tentative event, by its version: ``how`` is ``confirm`` or ``cancel``."""
        state.app.get_aggregate(name)
        question = {"what": "settle", "version": version, "how": how, "request_id": idempotency_key}
        return _answer(await state.commands.send(name, id, caller, question))

    return routes


def _answer(made: Rendered) -> Response:
    return Response(made.body, 200, dict(made.headers), media_type=JSON)


def _arguments(body: bytes) -> dict[str, Any]:
    """The arguments of a command.

    >>> _arguments(b""), _arguments(b'{"cents": 5}')
    ({}, {'cents': 5})
    """
    if not body.strip():
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"the body is not JSON: {error}", hint="Send the arguments as one object.") from error
    if not isinstance(found, dict):
        raise Misuse("the body is no JSON object", hint="Send the arguments as one object, by name.")
    return found


def _expected(if_match: str | None, expected: int | None) -> int | None:
    """The version that a request expects.

    >>> _expected('"3"', None), _expected("3", None), _expected(None, 4), _expected(None, None)
    (3, 3, 4, None)
    """
    if if_match is None:
        return expected
    found = ETAG.fullmatch(if_match.strip())
    if found is None:
        raise Misuse(f"If-Match cannot be {if_match!r}", hint='Give one version, as in If-Match: "3".')
    if expected is not None and expected != int(found[1]):
        raise Misuse("If-Match and expected name two versions", hint="Give one of them.")
    return int(found[1])
