"""Routes: topics and tables: description, append, read.

What it is: ``/v1/topics`` and ``/v1/tables``.
Invariants: an append is answered when it is as durable as the topic's policy requires, with its token; a retry with the
same producer and sequence is not written twice. System topics are read-only. A read continues from the token of the one
before, and no partition waits for another.
Not here: consumer groups (``group_routes.py``); rows of views (``view_routes.py``).
Read next: ``server/http/request_bodies.py``, ``log/topic.py``.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query, Request

from headwater.errors import Forbidden, InvalidDeclaration, Misuse
from headwater.log.commits.value_versions import Expected
from headwater.log.schema import clock_correction
from headwater.log.schema.event_metadata import CHARACTERS_MAX, METADATA_COLUMNS, Metadata
from headwater.log.schema.normalization import WEIGHT
from headwater.log.table import Table
from headwater.log.token import Token
from headwater.log.topic_reader import Place, offsets_for
from headwater.server.http.answers import plain_answer, table_answer
from headwater.server.http.guard import needs
from headwater.server.http.masked_answers import Reader
from headwater.server.http.request_bodies import rows_of
from headwater.server.status.app_graph import is_system

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic
    from headwater.server.http.keys import Holder
    from headwater.server.server_state import ServerState

ROWS_MAX = 10_000
LAST = re.compile(r"-[0-9]{1,9}")  # so many rows before the end of each partition
BYTES_MAX = 16 << 20  # an answer has about so many at most, and at least one row
Wait = Annotated[float, Query(ge=0, le=30, allow_inf_nan=False, description="Seconds to wait for rows to come.")]
IdempotencyKey = Annotated[
    str | None, Header(min_length=1, max_length=200, description="An id of the request: repeated, it is recognised.")
]
Expectation = Annotated[str | None, Query(pattern="^([0-9]{1,18}|none|exists)$", description="A stream's version.")]
MetadataHeader = Annotated[
    str | None, Header(min_length=1, max_length=CHARACTERS_MAX, description="Of the rows; see event metadata.")
]
BRIEF_BYTES = 64 << 10  # of a body; to read a larger one takes longer than a change of threads
Ready = tuple["EventTopic", Callable[[], Token]]  # a topic, and what writes to it
ROW_BODY = {
    "requestBody": {
        "required": True,
        "description": "An object or an array of objects; or lines of JSON; or an Arrow IPC stream.",
        "content": {
            "application/json": {
                "schema": {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]}
            },
            "application/x-ndjson": {"schema": {"type": "string"}},
            "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


def metadata_of(
    headwater_correlation_id: MetadataHeader = None,
    headwater_causation_id: MetadataHeader = None,
    headwater_actor: MetadataHeader = None,
) -> Metadata:
    """What the headers of a request say about its rows."""
    return Metadata(headwater_correlation_id, headwater_causation_id, headwater_actor)


SaidOfRows = Annotated[Metadata, Depends(metadata_of)]


def router(state: ServerState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["topics"])
    produces, consumes = [Depends(needs("produce"))], [Depends(needs("consume"))]

    @routes.get("/v1/topics", dependencies=consumes)
    async def topics() -> Any:
        """All topics and tables of the home."""
        return plain_answer({"topics": await state.read(_all, state)})

    @routes.get("/v1/topics/{topic}", dependencies=consumes)
    async def describe(topic: str) -> Any:
        """A topic's schema, settings, partitions, sizes and groups."""
        return plain_answer(await state.read(_described, state, topic))

    @routes.post("/v1/topics/{topic}/records", dependencies=produces, openapi_extra=ROW_BODY)
    async def append(
        topic: str,
        request: Request,
        writer: Reader,
        said: SaidOfRows,
        headwater_producer: Annotated[str | None, Header(max_length=200)] = None,
        headwater_sequence: Annotated[int | None, Header(ge=0, lt=1 << 46)] = None,
        headwater_after: Annotated[str | None, Header(max_length=10_000)] = None,
        idempotency_key: IdempotencyKey = None,
        expected: Expectation = None,
    ) -> Any:
        """Append rows, all or none; answers the token that contains them.

        ``Idempotency-Key``: a repeated request is recognised. ``expected``: the version of the rows' stream, "none" or
        "exists"; another one is answered with 409.
        """
        body, kind = await request.body(), request.headers.get("content-type", "")

        def ready() -> Ready:
            found = writable(state, topic, writer)
            rows = rows_of(
                body, kind, clock_correction.input_schema(found.schema, found.settings), not_null=not_null(found)
            )
            return found, lambda: found.append(
                rows,
                producer=headwater_producer,
                sequence=headwater_sequence,
                request_id=idempotency_key,
                expected=expected_of(expected),
                after=headwater_after,
                metadata=said,
            )

        return await _appended(state, body, ready)

    @routes.get("/v1/topics/{topic}/records", dependencies=consumes)
    async def read(
        topic: str,
        reader: Reader,
        start: Annotated[str, Query(alias="from", max_length=4000)] = "earliest",
        limit: Annotated[int, Query(ge=1, le=ROWS_MAX)] = 100,
        wait: Wait = 0.0,
        partition: Annotated[int | None, Query(ge=0, le=1023)] = None,
        accept: Annotated[str | None, Header()] = None,
    ) -> Any:
        """Rows from a place on: earliest, latest, an offset, a time, or the token that the last answer had as next.

        ``from=-20`` are the last 20 offsets of each partition.
        """
        found = await state.read_briefly(state.log.get_topic, topic)
        begin = await state.read_briefly(_positions, found, start, partition)
        state.notifier.watch(found)

        async def look() -> tuple[dict[int, int], pa.Table] | None:
            following, table = await state.read(read_rows, found, begin, limit)
            return (following, table) if table.num_rows else None

        came = await state.until(look, wait)
        following, table = came if came is not None else await state.read(read_rows, found, begin, limit)
        if state.masked.concern(reader):
            table = await state.read(state.masked.table, reader, topic, table, "records")
        facts = {"topic": topic, "next": str(Token({topic: following})), "count": table.num_rows}
        return table_answer(table, facts, accept)

    @routes.post("/v1/tables/{table}/rows", dependencies=produces, openapi_extra=ROW_BODY)
    async def upsert(
        table: str,
        request: Request,
        writer: Reader,
        said: SaidOfRows,
        idempotency_key: IdempotencyKey = None,
        if_version: Annotated[int | None, Query(ge=0)] = None,
    ) -> Any:
        """Put rows into a table: one whose key is there takes the old one's place. Without a key they are added.

        ``if_version``: only if the row has this version still; another one is answered with 409.
        """
        body, kind = await request.body(), request.headers.get("content-type", "")

        def ready() -> Ready:
            found = Table(writable(state, table, writer))
            topic = found.topic
            if found.is_multiset:
                added = rows_of(body, kind, found.schema)
                return topic, lambda: found.insert(added, request_id=idempotency_key, metadata=said)
            rows = rows_of(
                body, kind, clock_correction.input_schema(topic.schema, topic.settings), not_null=not_null(topic)
            )
            return topic, lambda: found.upsert(rows, request_id=idempotency_key, if_version=if_version, metadata=said)

        return await _appended(state, body, ready)

    @routes.post("/v1/tables/{table}/delete", dependencies=produces, openapi_extra=ROW_BODY)
    async def delete(
        table: str, request: Request, writer: Reader, said: SaidOfRows, idempotency_key: IdempotencyKey = None
    ) -> Any:
        """Take rows away: rows with at least the key; without a key whole rows."""
        body, kind = await request.body(), request.headers.get("content-type", "")

        def ready() -> Ready:
            found = Table(writable(state, table, writer))
            fields = [field.with_nullable(True) for field in found.schema]
            rows = rows_of(body, kind, pa.schema(fields), not_null=frozenset(found.key))
            return found.topic, lambda: found.delete(rows, request_id=idempotency_key, metadata=said)

        return await _appended(state, body, ready)

    return routes


def expected_of(text: str | None) -> Expected | None:
    """What an append expects, as the query string has it.

    >>> expected_of("3"), expected_of("none"), expected_of(None)
    (3, 'none', None)
    """
    return int(text) if text is not None and text.isdigit() else text


def not_null(topic: EventTopic) -> frozenset[str]:
    """The columns that a row must have."""
    settings = topic.settings
    event_time = settings.event_time if settings.clock is None else None
    return frozenset({*settings.routed_by, *([event_time] if event_time else [])})


def writable(state: ServerState, name: str, holder: Holder) -> EventTopic:
    topic = state.log.get_topic(name)
    state.masked.check_searched(holder, name)
    if is_system(name):
        raise Forbidden(f'"{name}" is written by Headwater itself', hint="Append to a topic of yours.", topic=name)
    if topic.settings.captured_by is not None:
        raise Misuse(f'table "{name}" follows another database', hint="Write to that database.", table=name)
    return topic


async def _appended(state: ServerState, body: bytes, ready: Callable[[], Ready]) -> Any:
    def brief() -> Token | Callable[[], Token]:
        topic, write = ready()
        # An append that waits for the disk, or for room, waits in a thread of its own, where other appends join it.
        waits = topic.settings.fsync == "always" or topic.settings.overflow == "block" or topic.row().is_multiset
        waits = waits or topic.settings.partitions > 1  # a commit over several waits for cuts
        return write if waits else write()

    done = await (state.write_briefly(brief) if len(body) <= BRIEF_BYTES else state.write(brief))
    token = done if isinstance(done, Token) else await state.write(done)
    return plain_answer({"token": str(token), "dropped_rows": token.dropped_rows, "repeated": token.repeated})


def _all(state: ServerState) -> list[dict[str, Any]]:
    return [{**topic.describe(times=False), "system": is_system(topic.name)} for topic in state.log.topics()]


def _described(state: ServerState, name: str) -> dict[str, Any]:
    topic = state.log.get_topic(name)
    groups = [group.describe().to_dict() for group in topic.groups()]
    return {**topic.describe(), "system": is_system(name), "groups": groups}


# Reading


def _positions(topic: EventTopic, start: str, partition: int | None) -> dict[int, int]:
    count = topic.settings.partitions
    if partition is not None and partition >= count:
        raise InvalidDeclaration(f'topic "{topic.name}" has no partition {partition}', hint=f"It has {count}.")
    numbers = range(count) if partition is None else [partition]
    ends = topic.end_offsets()
    if LAST.fullmatch(start):
        starts = topic.start_offsets()
        return {number: max(starts[number], ends[number] + int(start)) for number in numbers}
    found = offsets_for(topic, place_of(start), numbers)
    for number, offset in found.items():
        topic.check_bounds(number, offset, ends[number])
    return found


def place_of(text: str) -> Place:
    """A place as the query string has it.

    >>> place_of("120"), place_of("latest"), place_of("orders:0=5")
    (120, 'latest', Token(frontier={'orders': {0: 5}}, dropped_rows=0))
    """
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    if "=" in text:
        return Token.parse(text)
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidDeclaration(
            f"{text[:60]!r} is no place in a topic", hint="Use earliest, latest, an offset, a time, or a token."
        ) from error


def read_rows(topic: EventTopic, positions: dict[int, int], limit: int) -> tuple[dict[int, int], pa.Table]:
    """Up to ``limit`` rows, of each partition its share, and the positions after them.

    Event metadata is a column where some row has it.
    """
    names = [name for name in topic.schema.names if name != WEIGHT]
    weight = [WEIGHT] if topic.row().is_multiset else []
    columns = ["_partition", "_offset", "_appended_at", *names, *weight, *(["_deleted"] if topic.settings.key else [])]
    read = [*columns, *METADATA_COLUMNS]
    following, tables, left, unsent = dict(positions), list[pa.Table](), limit, 0
    for place, number in enumerate(positions):
        share = -(-left // (len(positions) - place))
        taken = 0
        for batch in topic.read_partition(number, positions[number], columns=read, rows_max=share):
            rows = batch.data.slice(0, share - taken)
            taken += rows.num_rows
            whole = rows.num_rows == batch.num_rows
            following[number] = batch.next_offset if whole else rows.column("_offset")[-1].as_py() + 1
            if rows.num_rows:
                tables.append(pa.Table.from_batches([rows]))
            unsent += rows.nbytes
            if taken >= share or unsent > BYTES_MAX:
                break
        left -= taken
        if unsent > BYTES_MAX:
            break
    if not tables:
        return following, pa.table({name: pa.array([], pa.null()) for name in columns})
    found = pa.concat_tables(tables, promote_options="default")
    unsaid = [name for name in METADATA_COLUMNS if found.column(name).null_count == found.num_rows]
    return following, found.drop_columns(unsaid)
