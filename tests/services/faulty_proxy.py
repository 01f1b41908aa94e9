"""A proxy before an HTTP server that answers with faults, when it is told to.

What it is: ``FaultyProxy`` passes requests on, one connection each. ``faults`` is what becomes of the next requests, in
their order: an error instead of an answer, silence, a connection that is reset, or an answer that is lost after the
request took effect. ``on_request`` may decide for each request.
Invariants: a fault that says so reaches the server; the others never do. It listens on loopback, in a thread.
Not here: the server (``s3_server.py``).
Read next: ``test_object_stores.py``.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import struct
import threading
from collections.abc import Callable

ERRORS = {
    "503": (503, "ServiceUnavailable"),
    "slow down": (503, "SlowDown"),
    "full": (507, "InsufficientStorage"),
    "forbidden": (403, "AccessDenied"),
    "not implemented": (501, "NotImplemented"),
}
HEADERS_OF_THE_HOP = {"connection", "transfer-encoding", "keep-alive"}


class FaultyProxy:
    """A proxy on a port of its own, while the block lasts."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.faults: list[str] = []
        self.requests = 0
        self.on_request: Callable[[str, str], str | None] | None = None  # of method and path: a fault
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultyProxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def next_fault(self, method: str, path: str) -> str | None:
        with self._lock:
            self.requests += 1
            if self.on_request is not None:
                return self.on_request(method, path)
            return self.faults.pop(0) if self.faults else None


class _Handler(http.server.BaseHTTPRequestHandler):
    proxy: FaultyProxy
    protocol_version = "HTTP/1.1"

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.proxy.next_fault(self.command, self.path)
        self.close_connection = True
        if fault in ERRORS:
            status, code = ERRORS[fault]
            self._answer(status, [], f"<Error><Code>{code}</Code></Error>".encode())
            return
        if fault == "reset":
            self._reset()
            return
        if fault == "silence":
            self._wait_for_the_client_to_leave()
            return
        answer = self._passed_on(body)
        if fault == "silence after it took effect":
            self._wait_for_the_client_to_leave()
            return
        if answer is None or fault == "answer lost":
            self._reset()
            return
        status, headers, content = answer
        if fault == "half an answer":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Le")
            self._reset()
            return
        self._answer(status, headers, content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

    def _passed_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes] | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=30)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():  # the signature is over the host as the client wrote it
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except (OSError, http.client.HTTPException):
            return None  # the server is away
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        with contextlib.suppress(OSError):  # the client has left
            self.send_response_only(status)
            length = str(len(content))
            for name, value in headers:
                if self.command == "HEAD" and name.lower() == "content-length":
                    length = value
                elif name.lower() not in HEADERS_OF_THE_HOP | {"content-length"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else content)

    def _reset(self) -> None:
        # Without a FIN: the client sees that the connection broke, not that an answer ended.
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _wait_for_the_client_to_leave(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.recv(1)  # nothing comes: it ends with the client's patience

    def log_message(self, *_: object) -> None:
        pass
