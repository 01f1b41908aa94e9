"""Rows of an outbox become events of topics, once each and in the order of commits.

What it is: the outbox on every kind of database that can be captured.
Invariants: an event is in its topic when its transaction is in the log, and never twice.
Not here: the capture of the table (``test_conformance.py``).
Read next: ``capture/outbox.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.capture.outbox import Router

TABLE = (
    "CREATE TABLE outbox (id INT PRIMARY KEY, aggregate_type VARCHAR(20), aggregate_id VARCHAR(20),"
    " type VARCHAR(20), payload TEXT)"
)


def follow(app: hw.App) -> None:
    app.capture(until="caught up", timeout=60)


def declare(app: hw.App, database: Any) -> None:
    app.table("outbox", source=hw.capture.Outbox(database.source("outbox"), name="events.{}"))


def events(app: hw.App, topic: str) -> list[tuple[str, str, str]]:
    return [(row["aggregate_id"], row["type"], row["payload"]) for row in app.log.get_topic(topic).rows()]


def insert(number: int, topic: str) -> str:
    return f"INSERT INTO outbox VALUES ({number}, '{topic}', 'a{number}', 'made', '{{\"n\": {number}}}')"


def test_rows_become_events_in_the_order_of_commits(database: Any, app: hw.App) -> None:
    database.execute(TABLE, insert(1, "orders"))
    declare(app, database)
    follow(app)

    database.execute("BEGIN", insert(3, "orders"), insert(2, "users"), "COMMIT", "DELETE FROM outbox WHERE id = 3")
    database.execute("BEGIN", insert(9, "orders"), "ROLLBACK", insert(4, "orders"))
    follow(app)

    wanted = [(f"a{number}", "made", f'{{"n": {number}}}') for number in (1, 3, 4)]
    assert events(app, "events.orders") == wanted
    assert events(app, "events.users") == [("a2", "made", '{"n": 2}')]


def test_an_event_is_appended_once_over_restarts_and_crashes(
    database: Any, app: hw.App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(TABLE, insert(1, "orders"))
    declare(app, database)
    follow(app)
    database.execute(insert(2, "orders"), insert(3, "users"))

    append, calls = Router._append, []

    def dies(self: Router, name: str, found: Any) -> int:
        done = append(self, name, found)
        if done:
            calls.append(name)
            raise hw.errors.CaptureBlocked("the process ends here")
        return done

    with monkeypatch.context() as patched:
        patched.setattr(Router, "_append", dies)
        with pytest.raises(hw.errors.CaptureBlocked):
            follow(app)
    app.close()
    with hw.App("shop", home=tmp_path / "home") as again:
        declare(again, database)
        follow(again)
        follow(again)

        assert calls
        assert [event[0] for event in events(again, "events.orders")] == ["a1", "a2"]
        assert [event[0] for event in events(again, "events.users")] == ["a3"]


def test_a_column_that_is_not_there_is_named(database: Any, app: hw.App) -> None:
    database.execute("CREATE TABLE outbox (id INT PRIMARY KEY)", "INSERT INTO outbox VALUES (1)")
    declare(app, database)

    with pytest.raises(hw.errors.SourceRefused, match='no column "aggregate_type"'):
        follow(app)


def test_columns_of_metadata_are_that_of_the_events(database: Any, app: hw.App) -> None:
    database.execute(
        TABLE[:-1] + ", correlation_id VARCHAR(20), who VARCHAR(20))",
        insert(1, "orders")[:-1] + ", 'basket-7', 'anna')",
        insert(2, "orders")[:-1] + ", NULL, '')",
    )
    app.table("outbox", source=hw.capture.Outbox(database.source("outbox"), name="events.{}", actor="who"))
    follow(app)

    said = app.log.get_topic("events.orders").rows(columns=["_correlation_id", "_causation_id", "_actor"])
    assert [tuple(row.values()) for row in said] == [("basket-7", None, "anna"), (None, None, None)]
