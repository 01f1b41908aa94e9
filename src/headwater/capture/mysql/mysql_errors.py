"""MySQL errors: pymysql's errors mapped to Headwater's.

What it is: ``map_error`` and the errors of a capture from MariaDB or MySQL, each with its remedy.
Invariants: no sentence shows a password; a transient error is ``SourceUnavailable``, one that needs a person is not.
Not here: the classes (``errors.py``). Read next: ``docs/mysql.md``.
"""

from __future__ import annotations

from typing import Any

from headwater.errors import CaptureBlocked, CaptureLost, HeadwaterError, MissingExtra, SourceRefused, SourceUnavailable
from headwater.hints import suggestion

RESTART = "Read the tables again: headwater capture restart APP.py"
THEN_RESTART = "then read the tables again: headwater capture restart APP.py"
LACKS_RIGHT = {1044, 1142, 1143, 1227, 1370}
REFUSED = {1054, 1064, 1146, 1193, 1235}


def driver() -> Any:
    """pymysql, imported when it is first needed."""
    with MissingExtra.raised_for("capturing MariaDB or MySQL", "mysql"):
        import pymysql
        import pymysql.cursors
    return pymysql


def map_error(error: Exception) -> HeadwaterError:
    """Headwater's error for one of pymysql's."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    message = str(error.args[1]) if len(error.args) > 1 else str(error) or type(error).__name__
    if code == 1045:
        return SourceRefused(
            "the database refused the login", detail=message, hint="Correct user and password in the dsn."
        )
    if code == 1049:
        return SourceRefused("there is no such database", detail=message, hint="Correct the dsn.")
    if code in LACKS_RIGHT:
        return SourceRefused(
            "the database's user lacks a right",
            detail=message,
            hint="GRANT SELECT, LOCK TABLES ON … TO …; GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO …; "
            "and on MariaDB also BINLOG MONITOR.",
        )
    if code in REFUSED:
        return SourceRefused("the database refused a statement", detail=message, hint="See the detail.")
    return SourceUnavailable(
        "the database does not answer", detail=message, hint="It is tried again; check that the database runs."
    )


def setting(name: str, value: str, wanted: str) -> SourceRefused:
    """The error for a server setting that capture cannot work with."""
    hint = f"SET GLOBAL {name} = {wanted}; and put it into the server's configuration file."
    if name == "log_bin":
        hint = "Start the server with --log-bin and a --server-id."
    elif name in ("binlog_format", "binlog_row_image"):
        hint += " Open sessions keep the old value."
    return SourceRefused(f"the database's {name} is {value}, and capture needs {wanted}", hint=hint, setting=name)


def purged(position: str, first: str) -> CaptureLost:
    """The error for a binlog that was purged beyond the capture's position."""
    return CaptureLost(
        f"the database has removed binlog that the capture needs: {position} is before the start of {first}",
        detail="The capture was stopped for longer than binlog_expire_logs_seconds allows, or the binlog was purged.",
        hint=RESTART,
    )


def behind(position: str, last: str) -> CaptureLost:
    """The error for a binlog that ends before the capture's position."""
    return CaptureLost(
        f"the binlog ends at {last}, before {position}, where the capture was",
        detail="The server is a restored copy, or a replica that had not received everything when it took over.",
        hint=RESTART,
    )


def other_history(position: str, found: str) -> CaptureLost:
    """The error for another transaction with the number of the last one."""
    return CaptureLost(
        f"the binlog has {found} where the capture has seen {position}",
        detail="The server has another history: a replica took over that had not received everything.",
        hint=RESTART,
    )


def unknown_table(table: str, known: list[str]) -> SourceRefused:
    """The error for an unknown table."""
    return SourceRefused(f"the database has no table {table}", hint=suggestion(table, known), table=table)


def engine(table: str, name: str) -> SourceRefused:
    """The error for a table without transactions."""
    return SourceRefused(
        f"{table} is kept by {name}, which has no transactions",
        hint=f"ALTER TABLE {table} ENGINE = InnoDB;",
        table=table,
    )


def unknown_type(table: str, column: str, kind: str) -> SourceRefused:
    """The error for a column type that is not captured."""
    return SourceRefused(
        f'column "{column}" of {table} has the type {kind}, which is not captured',
        hint="Keep such values in a column of a type that docs/mysql.md names.",
        table=table,
        column=column,
    )


def not_understood(what: str, way_out: str = RESTART) -> CaptureBlocked:
    """The error for binlog content that would be captured wrongly."""
    return CaptureBlocked(what, hint=way_out)
