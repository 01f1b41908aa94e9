"""Schema registry: the Avro schemas that messages name by a number, asked for once.

What it is: ``SchemaRegistry`` asks ``GET /schemas/ids/N`` of a registry that speaks Confluent's protocol, and reads
messages of its wire format: a zero byte, the schema's number in four bytes, the value in Avro. A schema of ours gets
its number by ``POST /subjects/S/versions``.
Invariants: a schema is asked for once in a process, since a number never changes its meaning. A registry that does not
answer is ``Unavailable``: the messages wait; a number that it does not know, and bytes that are no Avro, are
``RowRefused``. A password never appears in an error.
Not here: rows (``avro_values.py``), JSON Schema and Protobuf, which registries keep too.
Read next: ``avro_values.py``.
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
from urllib.parse import quote, urlsplit, urlunsplit

from headwater.errors import (
    DeclarationConflict,
    HeadwaterError,
    InvalidDeclaration,
    MissingExtra,
    RowRefused,
    Unavailable,
)

MAGIC = 0
HEADER = struct.Struct(">bI")
SECONDS_MAX = 10.0
BYTES_MAX = 16 << 20
SCHEMAS_MAX = 10_000
JSON = "application/vnd.schemaregistry.v1+json"


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
        self._headers = {"Accept": JSON}
        if parts.username is not None:
            secret = base64.b64encode(f"{parts.username}:{parts.password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {secret}"
        self._schemas: dict[int, Any] = {}
        self._numbers: dict[tuple[str, str], int] = {}

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
            answer = self._asked(f"schemas/ids/{number}", f"schema {number}")
            if not isinstance(answer.get("schema"), str):
                raise self._is_none()
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

    def number_of(self, subject: str, schema: dict[str, Any]) -> int:
        """The number of a schema that rows are written with; the registry is told of it first."""
        text = json.dumps(schema)
        if (subject, text) not in self._numbers:
            found = self._asked(f"subjects/{quote(subject, safe='')}/versions", f'"{subject}"', {"schema": text})
            if not isinstance(found.get("id"), int):
                raise self._is_none()
            self._numbers[subject, text] = found["id"]
        return self._numbers[subject, text]

    def _asked(self, path: str, what: str, sent: dict[str, Any] | None = None) -> dict[str, Any]:
        body = None if sent is None else json.dumps(sent).encode()
        headers = self._headers | ({} if sent is None else {"Content-Type": JSON})
        request = urllib.request.Request(f"{self.url}/{path}", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
                found = json.loads(answer.read(BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error, what) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(
                f"the schema registry at {self.url} does not answer: {error}", hint="Check that it runs. It is retried."
            ) from error
        if not isinstance(found, dict):
            raise self._is_none()
        return found

    def _refusal(self, error: urllib.error.HTTPError, what: str) -> HeadwaterError:
        if error.code == http.client.NOT_FOUND:
            return RowRefused(f"the registry at {self.url} has no {what}", expected="Avro")
        if error.code in (http.client.CONFLICT, http.client.UNPROCESSABLE_ENTITY):
            said = error.read(BYTES_MAX).decode("utf-8", "replace")
            return DeclarationConflict(
                f"the schema registry at {self.url} does not take the schema of {what}",
                detail=said[:300],
                hint="Its rules of compatibility are the subject's: change them there, or the columns here.",
            )
        hint = "Check the user and password in its address." if error.code in (401, 403) else "It is retried."
        return Unavailable(f"the schema registry at {self.url} answered {error.code} for {what}", hint=hint)

    def _is_none(self) -> Unavailable:
        return Unavailable(f"{self.url} does not answer as a schema registry does", hint="Check its address.")

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url!r})"
