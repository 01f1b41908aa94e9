"""Answers: values and tables as HTTP responses, errors in one shape.

Invariants: every error is ``{"error": {code, message, detail, hint, data}}`` with a code of ``errors.py`` and no stack
trace. Memory and time for sending large answers are bounded.
Not here: the routes; tables as text (``renderings.py``).
Read next: ``renderings.py``, ``errors.py``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater import errors
from headwater.errors import HeadwaterError
from headwater.server.http.renderings import JSON, Rendered, accepted, rendered

# The most special class counts.
STATUSES: dict[type[HeadwaterError], int] = {
    errors.Misuse: 400,
    errors.UnknownTopic: 404,
    errors.UnknownGroup: 404,
    errors.UnknownApp: 404,
    errors.UnknownView: 404,
    errors.UnknownRow: 404,
    errors.UnknownSink: 404,
    errors.UnknownAggregate: 404,
    errors.Rejected: 422,
    errors.CommandFailed: 500,
    errors.ReplayFailed: 500,
    errors.UnknownRequest: 404,
    errors.ProcessFailed: 500,
    errors.ProcessDiverged: 500,
    errors.ServiceFailed: 500,
    errors.UnknownPath: 404,
    errors.DeclarationConflict: 409,
    errors.OffsetOutOfRange: 416,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.TooLarge: 413,
    errors.AnswerTooLarge: 413,
    errors.OutOfMemory: 413,
    errors.MissingExtra: 501,
    errors.ClosedError: 409,
    errors.Conflict: 409,
    errors.Unavailable: 503,
    errors.TooMany: 429,
    errors.TimedOut: 504,
    errors.NotYetCovered: 504,
    errors.ViewPaused: 409,
    errors.DiskFull: 507,
    errors.Corruption: 500,
    HeadwaterError: 500,
}
RETRY_SECONDS = 1
PART_BYTES = 256 << 10


def status_of(error: HeadwaterError) -> int:
    """The HTTP status of an error.

    >>> status_of(errors.UnknownTopic("…")), status_of(errors.RowRefused("…")), status_of(errors.Fenced("…"))
    (404, 400, 409)
    """
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def error_answer(error: HeadwaterError) -> Response:
    """An error, as every client gets it."""
    status = status_of(error)
    headers = {"Retry-After": str(RETRY_SECONDS)} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    # In ASCII: a message may quote what cannot be written as UTF-8.
    body = json.dumps({"error": error.to_dict()}, default=str)
    return Response(body, status, headers, media_type=JSON)


def plain_answer(value: Any, status: int = 200) -> Response:
    """Plain values as JSON."""
    return Response(json.dumps(value, default=str), status, media_type=JSON)


def table_answer(table: pa.Table, facts: Mapping[str, Any], accept: str | None) -> Response:
    """A table in the format that the client accepts, with its metadata."""
    made = rendered(table, facts, accepted(accept))
    return Response(made.body, 200, made.headers, media_type=made.kind)


class Sending:
    """Large answers on their way to their readers, bounded in all: who asks much and reads nothing has no more."""

    def __init__(self, bytes_max: int, seconds_max: float) -> None:
        self.bytes_max = bytes_max
        self.seconds_max = seconds_max  # for a reader to take a part
        self.held = 0

    def answer(self, made: Rendered) -> Response:
        """The response; ``TooMany`` when too much is on its way already."""
        if len(made.body) <= PART_BYTES:
            return Response(made.body, 200, made.headers, media_type=made.kind)
        if self.held + len(made.body) > self.bytes_max:
            raise errors.TooMany(
                f"{self.held:,} bytes of answers wait for their readers, {self.bytes_max:,} may",
                hint="Read the answers that were asked for, or ask again in a moment.",
            )
        return LargeAnswer(made, self)


class LargeAnswer(Response):
    """An answer that is sent in parts, each when the reader has room for it, and is given up when it takes none."""

    def __init__(self, made: Rendered, sending: Sending) -> None:
        super().__init__(b"", 200, {**made.headers, "content-length": str(len(made.body))}, media_type=made.kind)
        self.body = made.body
        self._sending = sending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        del scope, receive
        sending, body = self._sending, memoryview(self.body)
        sending.held += len(body)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for start in range(0, len(body), PART_BYTES):
                part = bytes(body[start : start + PART_BYTES])
                more = start + PART_BYTES < len(body)
                message = {"type": "http.response.body", "body": part, "more_body": more}
                await asyncio.wait_for(send(message), sending.seconds_max)
        finally:
            sending.held -= len(body)
