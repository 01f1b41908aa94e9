"""PostgreSQL errors: psycopg's errors mapped to Headwater's.

What it is: ``map_error`` and the errors of a capture from PostgreSQL, each with its remedy.
Invariants: no sentence shows a password; a transient error is ``SourceUnavailable``, one that needs a person is not.
Not here: the classes (``errors.py``).
Read next: ``docs/capture.md``, "When something is wrong".
"""

from __future__ import annotations

from typing import Any

from headwater.errors import CaptureLost, HeadwaterError, MissingExtra, SourceRefused, SourceUnavailable
from headwater.hints import suggestion

# A connection that is refused has no code, only words.
NOT_LET_IN = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    'role "',
)


def driver() -> Any:
    """psycopg, imported when it is first needed."""
    with MissingExtra.raised_for("capturing PostgreSQL", "postgres"):
        import psycopg
        import psycopg.conninfo
        import psycopg.errors
        import psycopg.pq
    return psycopg


def arrow_driver() -> Any:
    """The driver that reads tables into Arrow, imported when it is first needed."""
    with MissingExtra.raised_for("a backfill from PostgreSQL", "postgres"):
        import adbc_driver_postgresql.dbapi
    return adbc_driver_postgresql.dbapi


def map_error(error: Exception, name: str) -> HeadwaterError:
    """One of our errors for one of psycopg's."""
    state = getattr(error, "sqlstate", None) or ""
    message = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if state.startswith("28") or any(sign in message for sign in NOT_LET_IN):
        return SourceRefused(
            "the database does not let this user in", detail=message, hint="Correct user and password in the dsn."
        )
    if state == "3D000" or ("database" in message and "does not exist" in message):
        return SourceRefused("there is no such database", detail=message, hint="Correct the dsn.")
    if state == "42501":
        return SourceRefused(
            "the database's user lacks a right",
            detail=message,
            hint="It needs REPLICATION, SELECT on the tables, and for the publication CREATE on the database and to be "
            "the tables' owner (or superuser): ALTER ROLE … REPLICATION; GRANT SELECT ON … TO …; "
            "GRANT CREATE ON DATABASE … TO …;",
        )
    if state == "53400" or "all replication slots are in use" in message:
        return SourceRefused(
            "all replication slots of the database are in use",
            detail=message,
            hint="Raise max_replication_slots and restart the database, or drop a slot that nobody uses: "
            "SELECT slot_name, active FROM pg_replication_slots;",
        )
    if state == "55006":
        return CaptureLost(
            f'another process uses the slot "{name}"',
            detail=message,
            hint="Stop it, or give this capture another one: Postgres(…, slot=…).",
        )
    if state.startswith(("42", "22", "0A")):
        return SourceRefused("the database refused a statement", detail=message, hint="Look at the detail.")
    return SourceUnavailable(
        "the database does not answer", detail=message, hint="It is tried again; look whether the database runs."
    )


def not_started(message: str, name: str) -> HeadwaterError:
    """START_REPLICATION was refused."""
    if "does not exist" in message:
        return slot_gone(name)
    if "can no longer" in message or "invalidated" in message:
        return slot_lost(name)
    if "is active" in message:
        return slot_read(name, message)
    return SourceUnavailable(f'the slot "{name}" does not start to stream', detail=message, hint="It is tried again.")


def slot_gone(name: str) -> CaptureLost:
    """Somebody removed the slot."""
    return _lost(name, "is not there any more", "Changes since then were not kept, so going on would lose them.")


def slot_lost(name: str) -> CaptureLost:
    """The server threw the slot's log away (max_slot_wal_keep_size)."""
    return _lost(
        name,
        "was invalidated: the database has removed log that it needs",
        "The capture was away for longer than max_slot_wal_keep_size allows.",
    )


def slot_read(name: str, detail: str) -> SourceUnavailable:
    """Another process follows; or one that was killed, and the server has not noticed yet."""
    return SourceUnavailable(
        f'the slot "{name}" is read by another process',
        detail=detail,
        hint="It is tried again. If the other one was not meant, stop it.",
    )


def slot_ahead(name: str) -> CaptureLost:
    """The slot was read by somebody else, or this home went back to a backup."""
    return _lost(
        name,
        "is further on than this home has followed it",
        "The home went back to a backup, or a copy of it has followed meanwhile: going on would leave a gap.",
    )


def _lost(name: str, what: str, detail: str) -> CaptureLost:
    hint = "Read the tables again: headwater capture restart APP.py"
    return CaptureLost(f'the replication slot "{name}" {what}', detail=detail, hint=hint, slot=name)


def slot_taken(name: str) -> SourceRefused:
    """The slot exists and this home knows nothing of it."""
    return SourceRefused(
        f'the database has a replication slot "{name}" already, and it is not of this home',
        hint="Give this capture another one: Postgres(…, slot=…); or remove it when nobody uses it: "
        f"SELECT pg_drop_replication_slot('{name}');",
        slot=name,
    )


def wal_level(level: str) -> SourceRefused:
    """Logical decoding is off."""
    return SourceRefused(
        f"the database's wal_level is {level}, and capture needs logical",
        hint="ALTER SYSTEM SET wal_level = logical; then restart the database.",
    )


def no_key(table: str) -> SourceRefused:
    """Updates and deletes of this table could not be told."""
    return SourceRefused(
        f"{table} has no primary key",
        detail="Its updates and deletes would not say which row they mean.",
        hint=f"ALTER TABLE {table} ADD PRIMARY KEY (…); or, to capture it as rows without a key: "
        f"ALTER TABLE {table} REPLICA IDENTITY FULL;",
        table=table,
    )


def unknown_table(table: str, known: list[str]) -> SourceRefused:
    """No such table."""
    return SourceRefused(f"the database has no table {table}", hint=suggestion(table, known), table=table)
