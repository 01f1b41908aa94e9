"""A receiver of webhooks, as a careful user writes one: it checks the signature and knows what it has seen.

What it is: ``Receiver``, an HTTP server in a thread, which keeps the rows that the changes so far make.
Invariants: a request without the right signature, or with an Idempotency-Key that was seen, changes nothing. It keeps
the order of requests.
Not here: the sink (``sinks/webhook_sink.py``).
Read next: ``test_webhook.py``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headwater.testing.local_server import free_port


class Receiver:
    """It can be stopped and started again, at the same address. ``answer`` decides the status of a request."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.port = free_port()
        self.rows: Counter[str] = Counter()  # as lines of JSON
        self.seen: Counter[str] = Counter()
        self.requests: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], int] = lambda _: 204
        self._lock = threading.Lock()
        self._stopped = False
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.take(body, dict(self.headers))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._stopped = False
        self._server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._stopped = True  # connections that are open are answered with 503
        self._server.shutdown()
        self._server.server_close()

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        with self._lock:
            if self._stopped:
                return 503
            moment, _, digest = headers.get("Headwater-Signature", ",").partition(",v1=")
            signed = f"{moment.removeprefix('t=')}.".encode() + body
            if not hmac.compare_digest(digest, hmac.new(self.secret.encode(), signed, hashlib.sha256).hexdigest()):
                return 401
            change = json.loads(body)
            status = self.answer(change)
            if status >= 300:
                return status
            key = headers["Idempotency-Key"]
            self.seen[key] += 1
            if self.seen[key] == 1:
                self.requests.append(change)
                self._change(change, body.decode())
            return status

    def _change(self, change: dict[str, Any], text: str) -> None:
        # The rows' own text, because Python's floats would round long decimals.
        before, after = _parts(text)
        if change["change"] == "reset":
            self.rows.clear()
        if change["before"] is not None:
            self.rows[before] -= 1
        if change["after"] is not None:
            self.rows[after] += 1


def _parts(text: str) -> tuple[str, str]:
    """The texts of "before" and "after", which stand between known names."""
    decoder = json.JSONDecoder()
    start = text.index('"before":') + len('"before":')
    _, end = decoder.raw_decode(text, start)
    later = end + len(',"after":')
    _, last = decoder.raw_decode(text, later)
    return text[start:end], text[later:last]
