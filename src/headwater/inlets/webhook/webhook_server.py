"""Webhook server: HTTP in front of a receiver.

What it is: the standard library's HTTP server with bounds on threads, request size and time.
Invariants: one request per connection; a body that is announced too large is refused before it is read; a slow sender
is cut off; ``close`` waits for running requests.
Not here: TLS (use a proxy), answers (``webhook_receiver.py``). Read next: ``webhook_receiver.py``.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from typing import Any

from headwater.errors import MessageRefused
from headwater.inlets.webhook.webhook_receiver import WebhookAnswer, WebhookReceiver, WebhookRequest, too_large

THREADS_MAX = 64
BACKLOG = 512
REQUEST_SECONDS_MAX = 15.0
LINGER_SECONDS_MAX = 2.0
LINGER_BYTES_MAX = 32 << 20


class WebhookServer(ThreadingHTTPServer):
    """Listens on one port and answers with one receiver."""

    request_queue_size = BACKLOG
    daemon_threads = False  # close waits for them
    allow_reuse_address = True

    def __init__(self, host: str, port: int, receiver: WebhookReceiver) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)
        self.receiver = receiver
        self._places = threading.BoundedSemaphore(THREADS_MAX)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread; while all are busy, further senders wait in the backlog."""
        self._places.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a sender that disconnects; the receiver catches all other errors."""


class Handler(BaseHTTPRequestHandler):
    """Reads one request and sends one answer."""

    server: WebhookServer
    rfile: BufferedReader
    protocol_version = "HTTP/1.1"
    server_version = "headwater"
    sys_version = ""
    timeout = REQUEST_SECONDS_MAX

    def do_POST(self) -> None:
        """Read the body, unless it is announced too large, and answer."""
        refused = self._refused()
        if refused is not None:
            self._send(refused)
            self._let_sender_finish()
            return
        body = self._body(int(self.headers["Content-Length"]))
        if body is not None:  # a sender that disconnected has sent nothing
            self._send(self.server.receiver.answer(self._request(body)))

    def _body(self, length: int) -> bytes | None:
        deadline = time.monotonic() + REQUEST_SECONDS_MAX
        parts = []
        while length > 0:
            self.connection.settimeout(max(0.001, deadline - time.monotonic()))
            part = self.rfile.read1(min(length, 1 << 16))
            if not part:
                return None
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _other(self) -> None:
        self._send(self.server.receiver.answer(self._request(b"")))

    do_GET = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = _other

    def handle_expect_100(self) -> bool:
        """Answer ``Expect: 100-continue`` of a sender with a large body at once."""
        refused = self._refused()
        if refused is not None:
            self._send(refused)
            return False
        return super().handle_expect_100()

    def _refused(self) -> WebhookAnswer | None:
        receiver = self.server.receiver
        text = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") is not None or not text.isascii() or not text.isdigit():
            error = MessageRefused("the request has no Content-Length", hint="Send a Content-Length.")
            return receiver.refuse(411, error)
        limit = receiver.declared.body_bytes_max
        return receiver.refuse(413, too_large(int(text[:18]), limit)) if int(text[:18]) > limit else None

    def _request(self, body: bytes) -> WebhookRequest:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return WebhookRequest(self.command, self.path, headers, body)

    def _send(self, answer: WebhookAnswer) -> None:
        body = answer.body
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = True

    def _let_sender_finish(self) -> None:
        """Read the rest, within bounds: closing at once would reset the connection before the answer is read."""
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(LINGER_SECONDS_MAX)
            left = LINGER_BYTES_MAX
            while left > 0 and (read := self.connection.recv(1 << 16)):
                left -= len(read)

    def log_message(self, format: str, *args: Any) -> None:
        """No log line per request: counters suffice."""
