"""Schema registry: the Avro schemas that messages name by a number, asked for once.

What it is: ``SchemaRegistry`` asks ``GET /schemas/ids/N`` of a registry that speaks Confluent's protocol, and reads
messages of its wire format: a zero byte, the schema's number in four bytes, the value in Avro.
Invariants: a schema is asked for once in a process, since a number never changes its meaning. A registry that does not
answer is ``Unavailable``: the messages wait; a number that it does not know, and bytes that are no Avro, are
``RowRefused``. A password never appears in an error.
Not here: rows (``value_formats.py``), JSON Schema and Protobuf, which registries keep too.
Read next: ``value_formats.py``.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import struct
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from headwater.errors import InvalidDeclaration, MissingExtra, RowRefused, Unavailable

MAGIC = 0
HEADER = struct.Struct(">bI")
SECONDS_MAX = 10.0
BYTES_MAX = 16 << 20
SCHEMAS_MAX = 10_000


def avro() -> Any:
    """fastavro, imported late."""
    with MissingExtra.raised_for("Avro", "kafka"):
        import fastavro
    return fastavro


class SchemaRegistry:
    """The schemas of a registry. ``url`` may have a user and password.

    >>> SchemaRegistry("http://ada:s3cret@localhost:8081")
    SchemaRegistry('http://localhost:8081')
    >>> SchemaRegistry("registry:8081")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: a schema registry is not reached at 'registry:8081'
      Hint: Write http://localhost:8081, with user:password@ before the host if it asks for them.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidDeclaration(
                f"a schema registry is not reached at {url.rpartition('@')[2]!r}",
                hint="Write http://localhost:8081, with user:password@ before the host if it asks for them.",
            )
        self.url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if parts.username is not None:
            secret = base64.b64encode(f"{parts.username}:{parts.password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {secret}"
        self._schemas: dict[int, Any] = {}

    def read(self, message: bytes) -> Any:
        """The value of a message in the wire format."""
        if len(message) < HEADER.size or message[0] != MAGIC:
            raise RowRefused(
                "the message is not Avro with the number of a schema",
                detail=f"It has {len(message)} bytes and begins with {message[:5].hex()}.",
                hint="A message begins with a zero byte and the schema's number in four bytes.",
                expected="Avro",
            )
        _, number = HEADER.unpack_from(message)
        schema = self.schema(number)
        try:
            value = avro().schemaless_reader(io.BytesIO(message[HEADER.size :]), schema, None)
        except Exception as error:  # fastavro raises what it trips over: EOFError, IndexError, UnicodeDecodeError, …
            raise RowRefused(
                f"the message is not Avro of schema {number}: {type(error).__name__} {error}"[:300], expected="Avro"
            ) from None
        return value

    def schema(self, number: int) -> Any:
        """The parsed schema of a number."""
        if number not in self._schemas:
            answer = self._asked(number)
            if answer.get("schemaType", "AVRO") != "AVRO" or answer.get("references"):
                kind = answer.get("schemaType", "Avro with references")
                raise RowRefused(f"schema {number} is {kind}, which is not read here", expected="Avro")
            if len(self._schemas) >= SCHEMAS_MAX:
                self._schemas.clear()
            try:
                self._schemas[number] = avro().parse_schema(json.loads(answer["schema"]))
            except Exception as error:  # a schema that fastavro does not understand
                raise RowRefused(f"schema {number} cannot be read: {error}"[:300], expected="Avro") from None
        return self._schemas[number]

    def _asked(self, number: int) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}/schemas/ids/{number}", headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
                found = json.loads(answer.read(BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                if error.code == http.client.NOT_FOUND:
                    raise RowRefused(f"the registry at {self.url} has no schema {number}", expected="Avro") from None
                hint = "Check the user and password in its address." if error.code in (401, 403) else "It is retried."
                raise Unavailable(
                    f"the schema registry at {self.url} answered {error.code} for schema {number}", hint=hint
                ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(
                f"the schema registry at {self.url} does not answer: {error}", hint="Check that it runs. It is retried."
            ) from error
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise Unavailable(f"{self.url} does not answer as a schema registry does", hint="Check its address.")
        return found

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url!r})"
