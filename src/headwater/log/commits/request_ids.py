"""Request ids: an append that is repeated with its id is recognised.

What it is: ``RequestIds``, the catalog's table ``request_ids``: the id, what was appended, and the token of the first
append. Messages of inlets have their ids there too, without the content: a redelivery is recognised by its id alone.
Invariants: the id is stored in the catalog's transaction that decides the append, so both are there or neither is,
over processes and crashes. Of two appends with one id at the same instant, one is written and both get its token. The
same id with other content is refused. Ids are remembered for the topic's ``remember_ids``, then forgotten.
Not here: the commit (``atomic_append.py``). Read next: ``transaction.py``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

import pyarrow as pa
import xxhash

from headwater.errors import InvalidDeclaration, RequestConflict
from headwater.log.catalog.catalog import Catalog
from headwater.log.schema.event_metadata import taken_apart
from headwater.log.token import Token

HOME = 0  # the scope of a transaction's id; others are the topic's number
REMEMBERED_US = 7 * 24 * 3600 * 1_000_000  # the ids of transactions
ID_CHARACTERS_MAX = 200

TABLE_REQUEST_IDS = """
CREATE TABLE IF NOT EXISTS request_ids (
    scope INTEGER NOT NULL,              -- the topic, or 0 for a transaction
    id TEXT NOT NULL,
    content BLOB NOT NULL,               -- a digest of the rows
    token TEXT NOT NULL,
    appended_us INTEGER NOT NULL,
    PRIMARY KEY (scope, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS request_ids_by_age ON request_ids (scope, appended_us);
"""


def check_id(request_id: str) -> str:
    """Refuse what cannot be an id.

    >>> check_id("")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: a request id has 1 to 200 characters, not 0
    """
    if not isinstance(request_id, str):
        raise InvalidDeclaration(
            f"a request id is text, not {type(request_id).__name__}", hint='For example request_id="order-17".'
        )
    if not 1 <= len(request_id) <= ID_CHARACTERS_MAX:
        raise InvalidDeclaration(f"a request id has 1 to {ID_CHARACTERS_MAX} characters, not {len(request_id)}")
    return request_id


def content_of(parts: Iterable[tuple[int, bool, pa.RecordBatch]]) -> bytes:
    """A digest of what a request appends: the topic, whether rows are deleted, and the rows."""
    digest = xxhash.xxh3_128()
    for topic_id, deleted, batch in parts:
        digest.update(f"{topic_id} {deleted} {batch.num_rows} ".encode())
        digest.update(taken_apart(batch)[0].serialize())  # a retry may have another cause
    return digest.digest()


def other_rows(request_id: str, token: str) -> RequestConflict:
    """The error of an id that was used before, with other content."""
    return RequestConflict(
        f'request id "{request_id}" was used before, with other rows',
        detail=f"The first append with it ended at {token}. Nothing was written.",
        hint="Give each request its own id, and repeat a request with the same rows.",
        request_id=request_id,
        token=token,
    )


class IdsKnown(Exception):
    """Another writer has appended some of these messages meanwhile: they must be looked up again."""


class RequestIds:
    """The request ids of a home."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def find(self, scope: int, request_id: str, content: bytes, db: sqlite3.Connection | None = None) -> Token | None:
        """The token of the first append with this id; None for a new one. Refuses other content."""
        sql = "SELECT content, token FROM request_ids WHERE scope = ? AND id = ?"
        rows = self._catalog.read(sql, (scope, request_id)) if db is None else db.execute(sql, (scope, request_id))
        for row in rows:
            if row["content"] != content:
                raise other_rows(request_id, row["token"])
            return Token(Token.parse(row["token"]).frontier, repeated=True)
        return None

    def token_of(self, scope: int, request_id: str) -> Token | None:
        """Where a request was written, whatever its content was; None for one that is not remembered."""
        rows = self._catalog.read("SELECT token FROM request_ids WHERE scope = ? AND id = ?", (scope, request_id))
        return Token.parse(rows[0]["token"]) if rows else None

    def note(
        self, db: sqlite3.Connection, scope: int, request_id: str, content: bytes, token: Token, now_us: int
    ) -> None:
        """Store an id; inside the transaction that decides the append."""
        db.execute("INSERT INTO request_ids VALUES (?, ?, ?, ?, ?)", (scope, request_id, content, str(token), now_us))

    def known(self, scope: int, ids: Iterable[str], db: sqlite3.Connection | None = None) -> set[str]:
        """Those of some ids that are remembered."""
        sql = "SELECT id FROM request_ids WHERE scope = ? AND id IN (SELECT value FROM json_each(?))"
        asked = (scope, json.dumps(list(ids)))
        rows = self._catalog.read(sql, asked) if db is None else db.execute(sql, asked)
        return {row["id"] for row in rows}

    def claim(self, db: sqlite3.Connection, scope: int, ids: Iterable[str], now_us: int) -> None:
        """Store the ids of messages, all of them new; inside the transaction that decides their append."""
        wanted = list(ids)
        if self.known(scope, wanted, db):
            raise IdsKnown
        rows = [(scope, each, b"", "", now_us) for each in wanted]
        db.executemany("INSERT INTO request_ids VALUES (?, ?, ?, ?, ?)", rows)

    def forget(self, scope: int, before_us: int) -> int:
        """Delete ids that are older; returns how many."""
        if not self._catalog.read(
            "SELECT 1 FROM request_ids WHERE scope = ? AND appended_us < ? LIMIT 1", (scope, before_us)
        ):
            return 0
        with self._catalog.write() as db:
            return db.execute(
                "DELETE FROM request_ids WHERE scope = ? AND appended_us < ?", (scope, before_us)
            ).rowcount
