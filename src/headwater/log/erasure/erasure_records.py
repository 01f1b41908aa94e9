"""Erasure records: who was erased, without saying who.

What it is: ``ErasureRecords``, the catalog's tables ``erasures`` and ``erasures_followed``: for each erased person the
subject, a salted hash of the id, how far the erasure is, and its certificate; and which apps have followed it. One
record is of no person but of the last expiry: what was too old for its purposes, in the same phases.
Invariants: a record is durable before the first byte is erased, and no id is in it. While a record is in phase
``LOG`` ticks stand still; whoever finds nobody at work on it goes on with it. The salt is one per home: one hash of a
value is compared with all records.
Not here: the work (``log_erasure.py``), what it reports (``upkeep/erasure/``).
Read next: ``log_erasure.py``.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.log.catalog.catalog import Catalog
from headwater.log.erasure.erased_people import Erased, ErasedPeople, person_hash
from headwater.log.erasure.expired_rows import ExpiredRows

TABLES_ERASURES = """
CREATE TABLE IF NOT EXISTS erasures (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    subject TEXT NOT NULL,
    salt BLOB NOT NULL,
    hash TEXT NOT NULL,                  -- of the person's id with the salt
    requested_us INTEGER NOT NULL,
    phase TEXT NOT NULL,                 -- log: segments are being rewritten; views: apps are to follow
    certificate TEXT,                    -- JSON: the last one that was given
    UNIQUE (subject, salt, hash)
);
CREATE TABLE IF NOT EXISTS erasures_followed (  -- by the views of an app
    app TEXT NOT NULL,
    erasure INTEGER NOT NULL REFERENCES erasures(id) ON DELETE CASCADE,
    tick INTEGER NOT NULL,               -- with which its views were corrected
    forgotten INTEGER NOT NULL DEFAULT 0,  -- whether the ticks before it are forgotten
    PRIMARY KEY (app, erasure)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS erasure_sinks (  -- what other systems keep after the last erasure
    app TEXT NOT NULL,
    sink TEXT NOT NULL,
    leftover TEXT,                       -- NULL: nothing
    final INTEGER NOT NULL,              -- whether nobody can change that
    asked_us INTEGER NOT NULL,
    PRIMARY KEY (app, sink)
) WITHOUT ROWID;
"""

LOG, VIEWS = "log", "views"
EXPIRY = ""  # the subject of the expiry's record, whose ``hash`` says in JSON what was too old


@dataclass(frozen=True)
class ErasureRecord:
    """One erased person."""

    id: int
    subject: str
    salt: bytes
    hash: str
    requested_us: int
    phase: str
    certificate: str | None = None

    @property
    def erased(self) -> Erased:
        """The person, or what was too old."""
        return ExpiredRows.from_json(self.hash) if self.subject == EXPIRY else self.people

    @property
    def people(self) -> ErasedPeople:
        """The person."""
        return ErasedPeople(self.subject, self.salt, frozenset({self.hash}))


class ErasureRecords:
    """The records of one home.

    >>> import headwater as hw, tempfile
    >>> records = ErasureRecords(hw.Log(tempfile.mkdtemp()).local.catalog)
    >>> record = records.request("user_id", "7", now_us=0)
    >>> record.phase, records.find("user_id", "7") == record, records.find("user_id", "8")
    ('log', True, None)
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    # Persons

    def request(self, subject: str, value: str, *, now_us: int) -> ErasureRecord:
        """The record of a person that is to be erased, in phase LOG; one that is there begins anew."""
        salt = self._salt()
        return self.begin(subject, salt, person_hash(subject, value, salt), now_us=now_us)

    def begin(self, subject: str, salt: bytes, hashed: str, *, now_us: int) -> ErasureRecord:
        """The same by the hash: of a record that another home has made."""
        with self.catalog.write(durable=True) as db:
            db.execute(
                "INSERT INTO erasures (subject, salt, hash, requested_us, phase) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET phase = excluded.phase, requested_us = excluded.requested_us",
                (subject, salt, hashed, now_us, LOG),
            )
            row = db.execute(
                "SELECT * FROM erasures WHERE subject = ? AND salt = ? AND hash = ?", (subject, salt, hashed)
            ).fetchone()
            db.execute("DELETE FROM erasures_followed WHERE erasure = ?", (row["id"],))
        return _record(row)

    def _salt(self) -> bytes:
        rows = self.catalog.read("SELECT salt FROM erasures WHERE subject <> ? ORDER BY id LIMIT 1", (EXPIRY,))
        return bytes(rows[0]["salt"]) if rows else secrets.token_bytes(16)

    def find(self, subject: str, value: str) -> ErasureRecord | None:
        """The record of a person."""
        found = (each for each in self.all() if each.subject == subject)
        return next((each for each in found if each.hash == person_hash(subject, value, each.salt)), None)

    def all(self) -> list[ErasureRecord]:
        """The records of all persons, oldest first."""
        rows = self.catalog.read("SELECT * FROM erasures WHERE subject <> ? ORDER BY id", (EXPIRY,))
        return [_record(row) for row in rows]

    def expiry(self) -> ErasureRecord | None:
        """The record of the last expiry that found something."""
        rows = self.catalog.read("SELECT * FROM erasures WHERE subject = ?", (EXPIRY,))
        return _record(rows[0]) if rows else None

    def begin_expiry(self, expired: ExpiredRows, *, now_us: int) -> ErasureRecord:
        """The record of an expiry, in phase LOG, in place of the one before.

        What some app has not followed of that one is part of this one: times only go on.
        """
        before = self.expiry()
        if before is not None and (before.phase == LOG or not self._all_have_followed(before)):
            expired = expired.with_topics(ExpiredRows.from_json(before.hash).topics)
        with self.catalog.write(durable=True) as db:
            if before is not None:
                db.execute("DELETE FROM erasures_followed WHERE erasure = ?", (before.id,))
                db.execute("DELETE FROM erasures WHERE id = ?", (before.id,))
            db.execute(
                "INSERT INTO erasures (subject, salt, hash, requested_us, phase) VALUES (?, ?, ?, ?, ?)",
                (EXPIRY, b"", expired.to_json(), now_us, LOG),
            )
        found = self.expiry()
        assert found is not None
        return found

    def _all_have_followed(self, record: ErasureRecord) -> bool:
        apps = self.catalog.read("SELECT name FROM apps")
        return {row["name"] for row in apps} <= set(self.standing(record))

    def in_phase(self, phase: str) -> list[ErasureRecord]:
        """The records in a phase, oldest first."""
        return [
            _record(row) for row in self.catalog.read("SELECT * FROM erasures WHERE phase = ? ORDER BY id", (phase,))
        ]

    def people(self, subject: str) -> list[ErasedPeople]:
        """Everybody of a subject who was erased, by salt."""
        by_salt: dict[bytes, set[str]] = {}
        for row in self.catalog.read("SELECT salt, hash FROM erasures WHERE subject = ?", (subject,)):
            by_salt.setdefault(bytes(row["salt"]), set()).add(row["hash"])
        return [ErasedPeople(subject, salt, frozenset(hashes)) for salt, hashes in by_salt.items()]

    def finish_log(self, record: ErasureRecord) -> None:
        """The log is without the person."""
        with self.catalog.write(durable=True) as db:
            db.execute("UPDATE erasures SET phase = ? WHERE id = ?", (VIEWS, record.id))

    def certify(self, record: ErasureRecord, certificate: str) -> None:
        """Keep a certificate."""
        with self.catalog.write(durable=True) as db:
            db.execute("UPDATE erasures SET certificate = ? WHERE id = ?", (certificate, record.id))

    # Apps

    def to_follow(self, app: str) -> list[ErasureRecord]:
        """The erasures that the views of an app are not corrected for."""
        rows = self.catalog.read(
            "SELECT * FROM erasures WHERE id NOT IN (SELECT erasure FROM erasures_followed WHERE app = ?) ORDER BY id",
            (app,),
        )
        return [_record(row) for row in rows]

    def followed(self, app: str, records: Sequence[ErasureRecord], tick: int) -> None:
        """The views of an app are corrected, as of a tick."""
        with self.catalog.write(durable=True) as db:
            db.executemany(
                "INSERT OR REPLACE INTO erasures_followed (app, erasure, tick) VALUES (?, ?, ?)",
                [(app, record.id, tick) for record in records],
            )

    def to_forget(self, app: str) -> int | None:
        """The last tick with which an app's views were corrected, when the ticks before it are still kept."""
        rows = self.catalog.read(
            "SELECT max(tick) AS tick FROM erasures_followed WHERE app = ? AND forgotten = 0", (app,)
        )
        return None if rows[0]["tick"] is None else int(rows[0]["tick"])

    def forgotten(self, app: str, tick: int) -> None:
        """The ticks up to this one are forgotten."""
        with self.catalog.write(durable=True) as db:
            db.execute("UPDATE erasures_followed SET forgotten = 1 WHERE app = ? AND tick <= ?", (app, tick))

    def sink_answered(self, app: str, sink: str, leftover: str | None, *, final: bool, now_us: int) -> None:
        """Keep what a sink's system keeps after an erasure."""
        with self.catalog.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO erasure_sinks VALUES (?, ?, ?, ?, ?)", (app, sink, leftover, int(final), now_us)
            )

    def sinks(self, app: str, record: ErasureRecord) -> dict[str, tuple[str | None, bool] | None]:
        """The sinks of an app, with what they answered after an erasure; None: not yet."""
        rows = self.catalog.read(
            "SELECT s.sink, e.leftover, e.final, e.asked_us FROM sinks s LEFT JOIN erasure_sinks e"
            " ON e.app = s.app AND e.sink = s.sink WHERE s.app = ? ORDER BY s.sink",
            (app,),
        )
        return {
            row["sink"]: (row["leftover"], bool(row["final"]))
            if (row["asked_us"] or 0) >= record.requested_us
            else None
            for row in rows
        }

    def standing(self, record: ErasureRecord) -> dict[str, tuple[int, bool]]:
        """The apps that have followed: {app: (tick, whether the ticks before it are forgotten)}."""
        rows = self.catalog.read("SELECT * FROM erasures_followed WHERE erasure = ?", (record.id,))
        return {row["app"]: (int(row["tick"]), bool(row["forgotten"])) for row in rows}


def _record(row: sqlite3.Row) -> ErasureRecord:
    return ErasureRecord(
        row["id"],
        row["subject"],
        bytes(row["salt"]),
        row["hash"],
        row["requested_us"],
        row["phase"],
        row["certificate"],
    )
