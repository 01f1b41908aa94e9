"""Webhook inlet: posted JSON becomes rows of a topic.

What it is: ``Webhook``, the declaration, and ``WebhookInlet``, which listens.
Invariants: nothing listens before ``start``; by default only this machine can reach it.
Not here: answers (``webhook_receiver.py``), HTTP (``webhook_server.py``), signatures (``signature.py``).
Read next: ``webhook_receiver.py``; ``docs/inlets.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from headwater.capture.door import Door
from headwater.errors import InvalidDeclaration, Unavailable
from headwater.inlets.ingest import Ingest
from headwater.inlets.inlet import Inlet, InletDeclaration
from headwater.inlets.message_door import MessageDoor
from headwater.inlets.webhook.signature import Signature
from headwater.inlets.webhook.webhook_receiver import WebhookReceiver
from headwater.inlets.webhook.webhook_server import WebhookServer
from headwater.log.contract import EventLog, EventTopic

STOP_SECONDS_MAX = 0.1
ENVELOPE_SCHEMA = "received_at TIMESTAMP, headers MAP<STRING, STRING>, body STRING"


@dataclass(frozen=True)
class Webhook(InletDeclaration):
    """Ingests posted JSON: an object, an array of them, or JSON lines.

    ``secret`` is the short form of ``signature=Signature.github(secret)``. With ``id_column`` a request that is sent
    again is recognised: by ``id_header``, whose value is stored in that column, or by the rows' own values in it.
    ``envelope=True`` stores each request unchanged, in the columns ``received_at``, ``headers`` and ``body``. A
    ``port`` of 0 takes a free one.

    >>> import headwater as hw, json, tempfile, urllib.request
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> topic = log.topic("pushes", "repository STRING")
    >>> with hw.inlets.Webhook(topic, path="/github").open(log, "github") as inlet:
    ...     kind = {"Content-Type": "application/json"}
    ...     request = urllib.request.Request(inlet.address, b'{"repository": "headwater"}', kind)
    ...     json.load(urllib.request.urlopen(request))
    {'rows': 1, 'repeated': False}
    >>> list(topic.rows())
    [{'repository': 'headwater'}]
    """

    kind: ClassVar[str] = "webhook"

    topic: EventTopic | str
    path: str = "/"
    port: int = 0
    host: str = "127.0.0.1"
    secret: str | None = field(default=None, repr=False)
    signature: Signature | None = None
    id_header: str | None = None
    id_column: str | None = None
    envelope: bool = False
    body_bytes_max: int = 1 << 20

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or "?" in self.path:
            raise InvalidDeclaration(f"path cannot be {self.path!r}", hint='It begins with "/", such as "/github".')
        if not 0 <= self.port <= 65535:
            raise InvalidDeclaration(
                f"port cannot be {self.port}", hint="Use one from 1 to 65535, or 0 for a free one."
            )
        if self.body_bytes_max < 1:
            raise InvalidDeclaration(f"body_bytes_max cannot be {self.body_bytes_max}", hint="Use a number above zero.")
        if self.secret is not None and self.signature is not None:
            raise InvalidDeclaration(
                "secret and signature say the same", hint="Give the secret to the signature: Signature.stripe(secret)."
            )
        if self.id_header is not None and self.id_column is None:
            raise InvalidDeclaration(
                "id_header needs a column for the ids",
                hint='Name a STRING column of the topic: id_column="message_id".',
            )
        assert self.secret is None or self.checked  # an empty secret is refused here, not at the first request

    @property
    def checked(self) -> Signature | None:
        """The required signature; None when requests need none."""
        return Signature.github(self.secret) if self.secret is not None else self.signature

    def open(self, log: EventLog, name: str, *, app: str = "") -> WebhookInlet:
        schema = ENVELOPE_SCHEMA + (f", {self.id_column} STRING" if self.id_column else "")
        topic = self.topic_on(log, schema if self.envelope else None)
        return WebhookInlet(self, log, name, topic, app=app)


class WebhookInlet(Inlet):
    """A running webhook."""

    kind = Webhook.kind

    def __init__(self, declared: Webhook, log: EventLog, name: str, topic: EventTopic, *, app: str = "") -> None:
        super().__init__(log, name, topic, app=app)
        self.declared = declared
        missing = [one for one in ("received_at", "headers", "body") if one not in topic.schema.names]
        if declared.envelope and missing:
            raise InvalidDeclaration(
                f'topic "{topic.name}" has no column "{missing[0]}" for the envelope',
                hint=f'Declare it with "{ENVELOPE_SCHEMA}".',
                topic=topic.name,
            )
        self.ingest = Ingest(topic, self.counter_store, id_column=declared.id_column)
        self.receiver = WebhookReceiver(declared, self.ingest)
        self._server: WebhookServer | None = None

    def pass_by(self, door: Door | None) -> None:
        """Keep no more of messages than a door lets in."""
        self.ingest.door = MessageDoor(door, self.log, self.topic, self.ingest.id_column)

    def _open(self) -> None:
        declared = self.declared
        try:
            self._server = WebhookServer(declared.host, declared.port, self.receiver)
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {declared.host} port {declared.port}: {error.strerror or error}",
                hint="Give another port; another process may have this one.",
                port=declared.port,
            ) from error
        port = self._server.server_address[1]
        host = f"[{declared.host}]" if ":" in declared.host else declared.host
        self.counter_store.address = f"http://{host}:{port}{declared.path}"
        self._begin(partial(self._server.serve_forever, poll_interval=STOP_SECONDS_MAX), "server")

    def _close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()  # waits for the requests that are being answered
            self._server = None
