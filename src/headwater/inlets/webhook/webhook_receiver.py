"""Webhook receiver: a request in, an answer out.

What it is: ``WebhookReceiver.answer`` decides about one request: signature, form, deduplication, append and answer. It
knows no socket, so any HTTP server can mount it.
Invariants: 202 (new) and 200 (already there) are answered only when the log has the rows, as durably as the topic's
policy says; any other status means that nothing was written, so the sender may retry. Nothing is parsed before the
signature was checked. Every refusal is the document of ``error.to_dict()``, and never names a secret.
Not here: HTTP (``webhook_server.py``). Read next: ``inlets/ingest.py``, ``signature.py``.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import Corruption, HeadwaterError, MessageRefused, RowRefused, Unavailable
from headwater.inlets.ingest import IncomingMessage, Ingest
from headwater.inlets.message_bodies import rows_of
from headwater.log.schema.event_metadata import Metadata

if TYPE_CHECKING:
    from headwater.inlets.webhook.webhook_inlet import Webhook

logger = logging.getLogger("headwater.inlets")

RETRY_AFTER_S = 5
JSON_TYPES = ("application/json", "application/x-ndjson", "application/ndjson", "application/jsonl", "text/json")
METADATA_HEADERS = ("headwater-correlation-id", "headwater-causation-id", "headwater-actor")
NOT_STORED = {"authorization", "cookie", "proxy-authorization"}  # an envelope keeps no passwords


@dataclass(frozen=True)
class WebhookRequest:
    """One HTTP request. Names of ``headers`` are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class WebhookAnswer:
    """The answer to the sender: a status, a JSON document, and further headers."""

    status: int
    document: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The document as it is sent."""
        return json.dumps(self.document, default=str, ensure_ascii=False).encode() + b"\n"


class WebhookReceiver:
    """Answers the requests of one webhook.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> topic = log.topic("pushes", "repository STRING, delivery STRING")
    >>> hook = hw.inlets.Webhook(topic, path="/github", id_header="X-GitHub-Delivery", id_column="delivery")
    >>> receiver = hook.open(log, "github").receiver
    >>> headers = {"content-type": "application/json", "x-github-delivery": "72d3162e"}
    >>> push = WebhookRequest("POST", "/github", headers, b'{"repository": "headwater"}')
    >>> [receiver.answer(push).status for _ in range(2)]
    [202, 200]
    >>> topic.end_offsets()
    {0: 1}
    """

    def __init__(self, declared: Webhook, ingest: Ingest) -> None:
        self.declared = declared
        self.ingest = ingest

    def answer(self, request: WebhookRequest) -> WebhookAnswer:
        """Decide about one request; never raises."""
        counter_store = self.ingest.counter_store
        counter_store.count(received=1)
        try:
            message = self._message(request)
            taken = self.ingest.take([message])
            for error in taken.refused.values():
                return _refusal(400, error)  # ``Ingest`` has counted it
            if taken.dropped_rows:
                return _dropped(self.ingest.topic.name, taken.dropped_rows)
            return WebhookAnswer(
                200 if taken.repeated else 202, {"rows": taken.appended_rows, "repeated": bool(taken.repeated)}
            )
        except (MessageRefused, RowRefused) as error:
            counter_store.count(refused=1)
            return _refusal(error.data.pop("status", 400), error)
        except Unavailable as error:
            return _refusal(503, error, {"Retry-After": str(RETRY_AFTER_S)})
        except HeadwaterError as error:
            logger.error("%s", error)
            return _refusal(500, error if isinstance(error, Corruption) else _ours(error))
        except Exception as error:  # a bug of ours must not look like an answer of a proxy
            logger.exception("a request to %s failed", request.path)
            return _refusal(500, _ours(error))

    def refuse(self, status: int, error: HeadwaterError) -> WebhookAnswer:
        """The answer to a request that the server could not read; counted as refused."""
        self.ingest.counter_store.count(received=1, refused=1)
        return _refusal(status, error)

    def _message(self, request: WebhookRequest) -> IncomingMessage:
        declared = self.declared
        if request.path.partition("?")[0] != declared.path:
            raise MessageRefused(
                f"there is nothing at {request.path[:200]}", hint=f"Post to {declared.path}.", status=404
            )
        if request.method != "POST":
            raise MessageRefused(f"{request.method[:20]} is not taken here", hint="Use POST.", status=405)
        if len(request.body) > declared.body_bytes_max:
            raise too_large(len(request.body), declared.body_bytes_max)
        if declared.checked is not None:
            try:
                declared.checked.check(request.headers, request.body, now=self.ingest.topic.clock.now_us() / 1_000_000)
            except MessageRefused as error:
                error.data["status"] = 401
                raise
        said = Metadata.carried(*(request.headers.get(name) for name in METADATA_HEADERS))
        return IncomingMessage(self._rows(request), self._id(request), said)

    def _rows(self, request: WebhookRequest) -> tuple[dict[str, Any], ...]:
        if self.declared.envelope:
            return (self._envelope(request),)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in JSON_TYPES and not kind.endswith("+json"):
            raise MessageRefused(
                f'content type "{kind[:100]}" is not taken here' if kind else "the request has no content type",
                hint="Send application/json, or application/x-ndjson; or declare the inlet with envelope=True.",
                status=415,
            )
        return rows_of(request.body, self.ingest.topic.schema)

    def _envelope(self, request: WebhookRequest) -> dict[str, Any]:
        topic = self.ingest.topic
        body: Any = request.body
        if not pa.types.is_binary(topic.schema.field("body").type):
            try:
                body = request.body.decode("utf-8")
            except UnicodeDecodeError:
                raise MessageRefused(
                    "the body is not UTF-8, and the topic keeps bodies as text",
                    hint="Declare the topic's column as BINARY to keep any bytes.",
                ) from None
        received = dt.datetime.fromtimestamp(topic.clock.now_us() / 1_000_000, dt.UTC)
        headers = {name: value for name, value in request.headers.items() if name not in NOT_STORED}
        return {"received_at": received, "headers": headers, "body": body}

    def _id(self, request: WebhookRequest) -> str | None:
        header = self.declared.id_header
        return (request.headers.get(header.lower()) or None) if header is not None else None


def too_large(length: int, limit: int) -> MessageRefused:
    """The error for a body over the limit."""
    return MessageRefused(
        f"the body has {length:,} bytes, {limit:,} are allowed", hint="Send less at once.", status=413, limit=limit
    )


def _refusal(status: int, error: HeadwaterError, headers: Mapping[str, str] | None = None) -> WebhookAnswer:
    error.data.pop("status", None)
    return WebhookAnswer(status, {"error": error.to_dict()}, headers or {})


def _dropped(topic: str, rows: int) -> WebhookAnswer:
    error = Unavailable(
        f'topic "{topic}" is full, and its policy is to drop',
        detail=f"{rows} rows were not written.",
        hint="Send them again later.",
        topic=topic,
    )
    return _refusal(429, error, {"Retry-After": str(RETRY_AFTER_S)})


def _ours(error: Exception) -> HeadwaterError:
    return HeadwaterError(f"unexpected {type(error).__name__}", hint="The server's log has the reason.")
