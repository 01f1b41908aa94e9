"""A table that is emptied, or gets a column, between the chunks of its backfill.

What it is: a change falls between two chunks, or a crash into the end of a backfill; the log then holds what the
database holds.
Invariants: chunks are read one after the other here, so that the moment of the change is known.
Not here: changes at random moments (``tests/crash/test_capture_torture.py``).
Read next: ``test_conformance.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headwater as hw
from headwater.capture import backfill
from headwater.capture.capture_state import CATCHING_UP, CaptureState
from headwater.capture.mysql import mysql_database
from headwater.capture.postgres import postgres_database
from tests.services.captures.contents import markers_of, same, shown


class KilledError(BaseException):
    """Stands for ``kill -9`` at one line."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (postgres_database, mysql_database):
        monkeypatch.setattr(module, "CHUNK_ROWS", 3)
    monkeypatch.setattr(backfill, "CONNECTIONS", 1)


def make_numbers(database: Any, app: hw.App) -> Any:
    rows = ", ".join(f"({number}, 0)" for number in range(1, 11))
    database.execute("CREATE TABLE numbers (id BIGINT PRIMARY KEY, n INT)", f"INSERT INTO numbers VALUES {rows}")
    return app.table("numbers", source=database.source("numbers")).topic


def follow(app: hw.App, after_chunk: dict[int, Callable[[], None]] | None = None) -> None:
    """Capture; after so many chunks of a backfill something happens."""
    steps = dict(after_chunk or {})
    chunks = 0

    def progress(_: object) -> None:
        nonlocal chunks
        chunks += 1
        steps.pop(chunks, lambda: None)()

    app.capture(until="caught up", timeout=60, on_progress=progress)
    assert not steps


@pytest.mark.parametrize("chunk", [1, 3])
def test_a_table_that_is_emptied_between_two_chunks(database: Any, app: hw.App, chunk: int) -> None:
    numbers = make_numbers(database, app)
    refilled = "INSERT INTO numbers VALUES (1, 1), (5, 5), (9, 9), (12, 12)"

    follow(app, {chunk: lambda: database.execute("TRUNCATE TABLE numbers", refilled)})
    database.execute("UPDATE numbers SET n = n + 1 WHERE id < 6")
    follow(app)

    same(shown(numbers), database.rows("numbers"))
    assert len(shown(numbers)) == 4


@pytest.mark.parametrize("default", ["DEFAULT 7", ""])
def test_a_column_that_comes_between_two_chunks(database: Any, app: hw.App, default: str) -> None:
    numbers = make_numbers(database, app)
    changes = [f"ALTER TABLE numbers ADD COLUMN extra INT {default}", "UPDATE numbers SET extra = id WHERE id > 8"]

    follow(app, {2: lambda: database.execute(*changes)})
    database.execute("INSERT INTO numbers VALUES (20, 0, 3)")
    follow(app)

    same(shown(numbers), database.rows("numbers"))
    assert {row["id"]: row["extra"] for row in shown(numbers)}[9] == 9


def test_what_comes_between_two_readings_of_a_table_is_not_in_the_log(database: Any, app: hw.App) -> None:
    """A limit: the history of a row has a gap there, and its end is right. The capture torture allows for it."""
    numbers = make_numbers(database, app)
    changes = [f"UPDATE numbers SET n = {n} WHERE id = 1" for n in (1, 2)] + ["DELETE FROM numbers WHERE id = 1"]

    follow(app, {2: lambda: database.execute("ALTER TABLE numbers ADD COLUMN extra INT", *changes)})
    database.execute("INSERT INTO numbers VALUES (1, 3, 3)", "UPDATE numbers SET n = 4 WHERE id = 1")
    follow(app)

    rows = numbers.rows(columns=["id", "n", "_deleted"])
    assert [None if row["_deleted"] else row["n"] for row in rows if row["id"] == 1] == [0, None, 3, 4]
    same(shown(numbers), database.rows("numbers"))


def test_a_crash_at_the_end_of_a_repeated_backfill_and_another_column(
    database: Any, app: hw.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = make_numbers(database, app)
    follow(app)
    database.execute("DELETE FROM numbers WHERE id = 4", "ALTER TABLE numbers ADD COLUMN first INT DEFAULT 7")
    change_table = CaptureState.change_table

    def dying(self: CaptureState, name: str, **values: Any) -> None:
        if values.get("phase") == CATCHING_UP:
            raise KilledError
        change_table(self, name, **values)

    monkeypatch.setattr(CaptureState, "change_table", dying)
    with pytest.raises(KilledError):
        follow(app)
    monkeypatch.setattr(CaptureState, "change_table", change_table)
    database.execute("ALTER TABLE numbers ADD COLUMN second INT DEFAULT 8", "DELETE FROM numbers WHERE id = 5")
    follow(app)

    same(shown(numbers), database.rows("numbers"))
    assert {row["second"] for row in shown(numbers)} == {8}


def test_an_empty_table_that_is_emptied_keeps_no_other_from_being_shown(database: Any, app: hw.App) -> None:
    numbers = make_numbers(database, app)
    database.execute("CREATE TABLE nothing (id INT PRIMARY KEY)")
    app.table("nothing", source=database.source("nothing"))
    follow(app)

    database.execute("INSERT INTO numbers VALUES (30, 0)", "TRUNCATE TABLE nothing")
    follow(app)

    last = markers_of(numbers).last()
    assert last is not None
    assert last.ends["numbers"] == numbers.end_offsets()[0]
    same(shown(numbers), database.rows("numbers"))
