"""Routes: transactions over several topics and tables.

What it is: ``POST /v1/transactions``: rows, and offsets of consumers that this server holds.
Invariants: everything in the body is written or nothing; a repeated request with its ``Idempotency-Key`` is recognised
and answered as the first one. System topics and captured tables are refused.
Not here: a single append (``topic_routes.py``). Read next: ``log/commits/transaction.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from headwater.errors import HeadwaterError, InvalidDeclaration
from headwater.log.schema import clock_correction
from headwater.log.schema.json_lines import json_rows
from headwater.log.table import Table
from headwater.server.http.answers import plain_answer
from headwater.server.http.guard import check_name_of, needs
from headwater.server.routes.group_routes import Offsets, offsets_of, owner_of
from headwater.server.routes.topic_routes import IdempotencyKey, SaidOfRows, expected_of, not_null, writable

if TYPE_CHECKING:
    from headwater.log.contract import EventTransaction
    from headwater.log.schema.event_metadata import Metadata
    from headwater.log.token import Token
    from headwater.server.http.keys import Holder
    from headwater.server.server_state import ServerState

Rows = list[dict[str, Any]]
KINDS = {"topic": ("append",), "table": ("upsert", "insert", "delete"), "consumer": ("commit",)}
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Operation(BaseModel):
    """A part of a transaction: rows for a topic; rows of a table to upsert, insert or delete; a consumer's offsets."""

    model_config = ConfigDict(extra="forbid")

    topic: Name | None = None
    table: Name | None = None
    append: Rows | None = None
    upsert: Rows | None = None
    insert: Rows | None = None
    delete: Rows | None = None
    consumer: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    commit: Offsets | None = None
    expected: Annotated[str, Field(pattern="^([0-9]{1,18}|none|exists)$")] | Annotated[int, Field(ge=0)] | None = None


class Operations(BaseModel):
    """What a transaction takes."""

    model_config = ConfigDict(extra="forbid")

    operations: Annotated[list[Operation], Field(min_length=1, max_length=1000)]


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["topics"])

    @routes.post("/v1/transactions", dependencies=[Depends(needs("produce", about="own"))])
    async def transact(
        asked: Operations, said: SaidOfRows, request: Request, idempotency_key: IdempotencyKey = None
    ) -> Any:
        """Write rows of several topics and tables and commit offsets, all or none; answers the token of the rows.

        So a client that consumes, computes and produces does each row once: ``{"consumer": ID, "commit": {"0": 120}}``.
        """
        holder: Holder = request.scope["state"]["holder"]
        for operation in asked.operations:
            if operation.consumer is None:
                check_name_of(holder, operation.topic or operation.table)
        token = await state.write(_written, state, asked, idempotency_key, said, holder, owner_of(request))
        return plain_answer({"token": str(token), "repeated": token.repeated})

    return routes


def _written(
    state: ServerState, asked: Operations, request_id: str | None, said: Metadata, holder: Holder, owner: str
) -> Token:
    with state.log.transaction(request_id=request_id, metadata=said) as t:
        for place, operation in enumerate(asked.operations):
            try:
                _add(state, t, operation, holder, owner)
            except HeadwaterError as error:
                error.message = f"operation {place} (counted from 0): {error.message}"
                raise
    return t.token


def _add(state: ServerState, t: EventTransaction, asked: Operation, holder: Holder, owner: str) -> None:
    name, kind = _kind(asked)
    if kind == "commit":
        assert asked.commit is not None
        t.commit(state.consumers.find(name, owner).consumer, offsets_of(asked.commit))
        return
    topic = writable(state, name, holder)
    rows = getattr(asked, kind)
    if kind == "append":
        schema = clock_correction.input_schema(topic.schema, topic.settings)
        expected = expected_of(str(asked.expected)) if asked.expected is not None else None
        t.append(topic, json_rows(rows, schema, not_null=not_null(topic)), expected=expected)
        return
    table = Table(topic)
    if kind == "delete":
        fields = [field.with_nullable(True) for field in table.schema]
        t.delete(table, json_rows(rows, pa.schema(fields), not_null=frozenset(table.key)))
        return
    batch = json_rows(rows, table.schema, not_null=frozenset(table.key))
    (t.upsert if kind == "upsert" else t.insert)(table, batch)


def _kind(asked: Operation) -> tuple[str, str]:
    """The name and the kind of an operation, which has one of each.

    >>> _kind(Operation(topic="orders", append=[{}]))
    ('orders', 'append')
    """
    named = [place for place in ("topic", "table", "consumer") if getattr(asked, place) is not None]
    kinds = [kind for kinds in KINDS.values() for kind in kinds if getattr(asked, kind) is not None]
    if len(named) == 1 and len(kinds) == 1 and kinds[0] in KINDS[named[0]]:
        return getattr(asked, named[0]), kinds[0]
    raise InvalidDeclaration(
        "an operation names a topic and rows to append, or a table and rows to upsert, insert or delete, or a consumer "
        "and offsets to commit",
        hint='For example {"topic": "orders", "append": [{…}]} or {"table": "stock", "upsert": [{…}]}.',
    )
