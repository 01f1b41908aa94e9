"""Webhook: a view's changes as HTTP requests.

What it is: ``WebhookSink``, a sink that POSTs each change as signed JSON.
Invariants: at least once: an answered request is not repeated, one whose answer was lost is, with the same
``Idempotency-Key``. Requests are sequential, so the changes of a key stay in order. A change that the receiver refuses
for good (4xx) goes to the topic ``SINK.dead`` and does not block the others.
Not here: later retries (``sinks/runner/sink_task.py``).
Read next: ``email.py``; ``docs/sinks.md``.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import random
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from headwater.backoff import Backoff
from headwater.clock import Clock, format_us
from headwater.durations import Duration, to_seconds
from headwater.errors import InvalidDeclaration, Unavailable
from headwater.log.schema.normalization import WEIGHT
from headwater.log.schema.row_conversion import to_rows
from headwater.sinks.runner.kept_progress import kept_progress
from headwater.sinks.sink import Leftover, Sink, SinkContext, StoredProgress, Target, check_fence, is_next, reached
from headwater.sinks.text_values import json_text, key_texts
from headwater.views.serving.deliveries import Delivery, row_names

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

ANSWER_SECONDS_MAX = 30.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 2.0
LATER = {408, 425, 429}  # refusals that ask for another try
NOTED = 100  # the home stores the count of sent changes this often
DEAD_SCHEMA = "at TIMESTAMP, tick BIGINT, status INT, reason STRING, idempotency_key STRING, body STRING"


@dataclass(frozen=True)
class WebhookSink(Sink):
    """An address that takes each change as a POST of JSON.

    With a ``secret`` each request has ``Headwater-Signature: t=SECONDS,v1=HEX``, the HMAC-SHA256 of ``SECONDS.BODY``.
    ``tries`` bounds how often a request is tried before the sink waits for longer.

    >>> WebhookSink("https://example.com/hooks/revenue", secret="s3cret")
    Webhook('https://example.com/hooks/revenue')
    """

    url: str
    secret: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tries: int = 4
    timeout: Duration = ANSWER_SECONDS_MAX

    kind = "webhook"
    merges = False  # a retried tick must be the same requests

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname:
            raise InvalidDeclaration(f"{self.url!r} is not a URL", hint="Use http:// or https:// and a host.")
        to_seconds(self.timeout, what="timeout")

    def open(self, context: SinkContext, log: EventLog) -> Target:
        return WebhookTarget(context, log, self)

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def __repr__(self) -> str:
        return f"Webhook({str(self)!r})"


def signature(secret: str, seconds: int, body: bytes) -> str:
    """The value of ``Headwater-Signature``: what a receiver computes and compares.

    >>> signature("s3cret", 0, b"{}")[:16]
    't=0,v1=4f08262fc'
    """
    digest = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


class Poster:
    """One connection to an address, reopened when it breaks."""

    def __init__(self, hook: WebhookSink, clock: Clock) -> None:
        self.hook = hook
        self.clock = clock
        self._connection: http.client.HTTPConnection | None = None
        self._backoff = Backoff(PAUSE_FIRST_S, PAUSE_MAX_S, jitter=random.Random())
        self._pause = threading.Event()

    def post(self, body: bytes, idempotency_key: str) -> tuple[int, str]:
        """Send until a final answer: its status and text. ``Unavailable`` after some tries."""
        said = ""
        for failures in range(self.hook.tries):
            self._pause.wait(self._backoff.after(failures))
            try:
                status, said = self._once(body, idempotency_key)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                said = f"{type(error).__name__}: {error}"
                continue
            if status < 500 and status not in LATER:
                return status, said
            said = f"{status} {said}"
        raise Unavailable(
            f"{self.hook} did not take a change after {self.hook.tries} tries: {said[:200]}",
            hint="Check that the receiver runs. It is retried.",
        )

    def _once(self, body: bytes, idempotency_key: str) -> tuple[int, str]:
        parts = urlsplit(self.hook.url)
        if self._connection is None:
            host, port, timeout = parts.hostname or "", parts.port, to_seconds(self.hook.timeout)
            if parts.scheme == "https":
                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
            else:
                self._connection = http.client.HTTPConnection(host, port, timeout=timeout)
        headers = {"Content-Type": "application/json", "Idempotency-Key": idempotency_key, **self.hook.headers}
        if self.hook.secret is not None:
            seconds = self.clock.now_us() // 1_000_000
            headers["Headwater-Signature"] = signature(self.hook.secret, seconds, body)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection.request("POST", path, body, headers)
        answer = self._connection.getresponse()
        said = answer.read(4096).decode(errors="replace")
        if answer.read(1):  # a long body: a new connection is cheaper
            self.close()
        return answer.status, said

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class WebhookTarget(Target):
    """The receiver. The home stores its progress."""

    def __init__(self, context: SinkContext, log: EventLog, hook: WebhookSink) -> None:
        super().__init__(context)
        self.log = log
        self.memory = kept_progress(log, context)
        self.poster = Poster(hook, log.clock)

    def progress(self) -> StoredProgress | None:
        progress, _ = self.memory.recall()
        return None if progress is None or progress.tick < 0 else progress

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        """See ``Target.fill``. The receiver gets a "reset", then every row as an "insert"."""
        progress, _ = self.memory.recall()
        check_fence(progress, self.context, epoch, filling=True)
        self._send({"change": "reset", "tick": tick, "before": None, "after": None}, "", epoch)
        for place, batch in enumerate(rows):
            table = pa.Table.from_batches([batch])
            for name, row in zip(self._names(table, place), _rows(table), strict=True):
                self._send({"change": "insert", "tick": tick, "before": None, "after": row}, name, epoch)
        return self.memory.remember(tick, epoch)

    def forget(self) -> Leftover | None:
        return Leftover("what was sent cannot be called back; the deletion was sent too", final=True)

    def apply(self, delivery: Delivery) -> StoredProgress:
        progress, memory = self.memory.recall()
        if not is_next(progress, self.context, delivery):
            return reached(progress, self.context)
        assert progress is not None
        sent = memory["sent"] if memory and memory.get("of") == delivery.tick else 0
        done = sent
        try:
            for place, (name, change) in enumerate(self._changes(delivery)):
                if place >= sent:
                    self._send({**change, "tick": delivery.tick}, name, delivery.epoch)
                    done = place + 1
                    if done % NOTED == 0:
                        self.memory.remember(progress.tick, delivery.epoch, {"of": delivery.tick, "sent": done})
        except Unavailable:
            self.memory.remember(progress.tick, delivery.epoch, {"of": delivery.tick, "sent": done})
            raise
        return self.memory.remember(delivery.tick, delivery.epoch)

    def close(self) -> None:
        self.poster.close()

    # Requests

    def _changes(self, delivery: Delivery) -> Iterator[tuple[str, dict[str, Any]]]:
        """The message of each change, with the change's name in its tick. Always in the same order."""
        changes = delivery.changes
        rows = changes.drop_columns([WEIGHT])
        names, weights, listed = self._names(rows, 0), changes.column(WEIGHT).to_pylist(), _rows(rows)
        if not self.context.key:
            for name, weight, row in zip(names, weights, listed, strict=True):
                for copy in range(abs(weight)):
                    come = weight > 0
                    change = {
                        "change": "insert" if come else "delete",
                        "before": None if come else row,
                        "after": row if come else None,
                    }
                    yield f"{name}/{copy}", change
            return
        before = {name: row for name, weight, row in zip(names, weights, listed, strict=True) if weight < 0}
        after = {name: row for name, weight, row in zip(names, weights, listed, strict=True) if weight > 0}
        for name in dict.fromkeys(names):
            kind = "update" if name in before and name in after else "insert" if name in after else "delete"
            yield name, {"change": kind, "before": before.get(name), "after": after.get(name)}

    def _names(self, rows: pa.Table, batch: int) -> list[str]:
        if self.context.key:
            return key_texts(rows, self.context.key)
        return [f"{name.hex()}/{batch}.{place}" for place, name in enumerate(row_names(rows))]

    def _send(self, change: Mapping[str, Any], name: str, epoch: int) -> None:
        context = self.context
        idempotency_key = f"{context.app}/{context.view}/{context.version}/{change['tick']}/{change['change']}/{name}"
        about = {"app": context.app, "view": context.view, "key": list(context.key), "epoch": epoch, **change}
        body = (json_text(about) or "").encode()
        status, said = self.poster.post(body, _ascii(idempotency_key))
        if status >= 300:
            self._bury(change["tick"], status, said, idempotency_key, body)

    def _bury(self, tick: int, status: int, said: str, idempotency_key: str, body: bytes) -> None:
        dead = self.log.topic(f"{self.context.sink}.dead", DEAD_SCHEMA)
        at = format_us(self.log.clock.now_us())
        row = {
            "at": at,
            "tick": tick,
            "status": status,
            "reason": said,
            "idempotency_key": idempotency_key,
            "body": body.decode(),
        }
        dead.append_json([json.dumps(row)])


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return [row for batch in table.to_batches() for row in to_rows(batch)]


def _ascii(text: str) -> str:
    """A text that may stand in a header.

    >>> _ascii("shop/revenue/1/ü")
    'shop/revenue/1/%C3%BC'
    """
    from urllib.parse import quote

    return quote(text, safe="/:,.=_-")
