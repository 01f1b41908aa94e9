"""A small schema registry for the tests: an HTTP server of ours that answers as Confluent's does, two requests.

What it is: ``Registry`` keeps schemas in memory and answers ``GET /schemas/ids/N`` and ``POST /subjects/S/versions``,
with a password if it has one. It is no real registry: those need a JVM and a Kafka of their own, and these are the only
requests that are made.
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
from urllib.parse import unquote

import fastavro


class Registry:
    """Schemas by their number."""

    def __init__(self, password: str | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.frozen = False  # takes no new schema of a subject that has one
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

            def do_POST(self) -> None:
                registry.asked.append(self.path)
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                subject = unquote(self.path.split("/")[2])
                known = registry.subjects.setdefault(subject, [])
                same = [n for n in known if registry.schemas[n]["schema"] == sent["schema"]]
                if registry.failing:
                    self._answer(503, {"error_code": 50301})
                elif registry.frozen and known and not same:
                    self._answer(409, {"error_code": 409, "message": "Schema being registered is incompatible"})
                else:
                    number = same[0] if same else 100 + len(registry.schemas)
                    if not same:
                        known.append(number)
                        registry.schemas[number] = {"schema": sent["schema"]}
                    self._answer(200, {"id": number})

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
