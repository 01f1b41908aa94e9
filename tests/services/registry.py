"""A small schema registry for the tests: an HTTP server of ours that answers as Confluent's does, for one GET.

What it is: ``Registry`` keeps schemas in memory and answers ``GET /schemas/ids/N``, with a password if it has one. It
is no real registry: those need a JVM and a Kafka of their own, and this is the only request that the inlet makes.
Invariants: it counts its requests, and can be told to fail.
Read next: ``test_kafka_avro.py``.
"""

from __future__ import annotations

import base64
import io
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro


class Registry:
    """Schemas by their number."""

    def __init__(self, password: str | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.failing = False
        registry, expected = self, None
        if password is not None:
            expected = "Basic " + base64.b64encode(f"ada:{password}".encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                found = registry.schemas.get(int(self.path.rpartition("/")[2]))
                if registry.failing:
                    self._answer(503, {"error_code": 50301})
                elif expected is not None and self.headers["Authorization"] != expected:
                    self._answer(401, {"error_code": 401})
                elif found is None:
                    self._answer(404, {"error_code": 40403, "message": "Schema not found"})
                else:
                    self._answer(200, found)

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Nothing is written to the tests' output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{'' if password is None else f'ada:{password}@'}{self.address}"

    def add(self, number: int, schema: dict[str, Any], **more: Any) -> None:
        self.schemas[number] = {"schema": json.dumps(schema), **more}

    def message(self, number: int, value: Any) -> bytes:
        """A value in the wire format."""
        written = io.BytesIO()
        fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(self.schemas[number]["schema"])), value)
        return struct.pack(">bI", 0, number) + written.getvalue()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
