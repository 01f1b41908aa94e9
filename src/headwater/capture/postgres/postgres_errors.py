"""PostgreSQL errors: psycopg's errors mapped to Headwater's.

What it is: ``map_error`` and the errors of a capture from PostgreSQL, each with its remedy.
Invariants: no sentence shows a password; a transient error is ``SourceUnavailable``, one that needs a person is not.
Not here: the classes (``errors.py``). Read next: ``docs/capture.md``, "When something is wrong".
"""

from __future__ import annotations

from typing import Any

from headwater.errors import CaptureLost, HeadwaterError, MissingExtra, SourceRefused, SourceUnavailable
from headwater.hints import suggestion

# A refused connection has no code, only a text.
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
    """Headwater's error for one of psycopg's."""
    state = getattr(error, "sqlstate", None) or ""
    message = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if state.startswith("28") or any(sign in message for sign in NOT_LET_IN):
        return SourceRefused(
            "the database refused the login", detail=message, hint="Correct user and password in the dsn."
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
            hint="Raise max_replication_slots and restart the database, or drop an unused slot: "
            "SELECT slot_name, active FROM pg_replication_slots;",
        )
    if state == "55006":
        return CaptureLost(
            f'another process uses the slot "{name}"',
            detail=message,
            hint="Stop it, or give this capture another one: Postgres(…, slot=…).",
        )
    if state.startswith(("42", "22", "0A")):
        return SourceRefused("the database refused a statement", detail=message, hint="See the detail.")
    return SourceUnavailable(
        "the database does not answer", detail=message, hint="It is tried again; check that the database runs."
    )


def not_started(message: str, name: str) -> HeadwaterError:
    """The error for a refused START_REPLICATION."""
    if "does not exist" in message:
        return slot_gone(name)
    if "can no longer" in message or "invalidated" in message:
        return slot_lost(name)
    if "is active" in message:
        return slot_read(name, message)
    return SourceUnavailable(f'the slot "{name}" does not start to stream', detail=message, hint="It is tried again.")


def slot_gone(name: str) -> CaptureLost:
    """The error for a removed slot."""
    return _lost(name, "no longer exists", "Changes since then were not kept, so going on would lose them.")


def slot_lost(name: str) -> CaptureLost:
    """The error for a slot whose log the server removed (max_slot_wal_keep_size)."""
    return _lost(
        name,
        "was invalidated: the database has removed log that it needs",
        "The capture was stopped for longer than max_slot_wal_keep_size allows.",
    )


def slot_read(name: str, detail: str) -> SourceUnavailable:
    """The error for a slot in use: by another process, or by a killed one that the server has not noticed yet."""
    return SourceUnavailable(
        f'the slot "{name}" is read by another process',
        detail=detail,
        hint="It is tried again. If the other process is a mistake, stop it.",
    )


def slot_ahead(name: str) -> CaptureLost:
    """The error for a slot that another process has read, or a home that was restored from a backup."""
    return _lost(
        name,
        "is further on than this home has followed it",
        "The home was restored from a backup, or a copy of it has followed meanwhile: going on would leave a gap.",
    )


def _lost(name: str, what: str, detail: str) -> CaptureLost:
    hint = "Read the tables again: headwater capture restart APP.py"
    return CaptureLost(f'the replication slot "{name}" {what}', detail=detail, hint=hint, slot=name)


def slot_taken(name: str) -> SourceRefused:
    """The error for an existing slot that does not belong to this home."""
    return SourceRefused(
        f'the database has a replication slot "{name}" already, which does not belong to this home',
        hint="Give this capture another one: Postgres(…, slot=…); or remove it if it is unused: "
        f"SELECT pg_drop_replication_slot('{name}');",
        slot=name,
    )


def wal_level(level: str) -> SourceRefused:
    """The error for a server without logical decoding."""
    return SourceRefused(
        f"the database's wal_level is {level}, and capture needs logical",
        hint="ALTER SYSTEM SET wal_level = logical; then restart the database.",
    )


def no_key(table: str) -> SourceRefused:
    """The error for a table without a key, whose updates and deletes do not name a row."""
    return SourceRefused(
        f"{table} has no primary key",
        detail="Its updates and deletes would not name their row.",
        hint=f"ALTER TABLE {table} ADD PRIMARY KEY (…); or, to capture it as rows without a key: "
        f"ALTER TABLE {table} REPLICA IDENTITY FULL;",
        table=table,
    )


def unknown_table(table: str, known: list[str]) -> SourceRefused:
    """The error for an unknown table."""
    return SourceRefused(f"the database has no table {table}", hint=suggestion(table, known), table=table)
