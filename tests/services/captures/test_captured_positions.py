"""Positions of a captured database as what readers wait for: one's own write is in the view.

What it is: ``hw.lsn`` on a real PostgreSQL and ``hw.gtid`` on a real MariaDB, with the capture run by hand.
Invariants: a position is found when every change before it is in the log, and not earlier; one that concerns no
captured table is found too.
Not here: the markers themselves (``test_conformance.py``).
Read next: ``capture/captured_position.py``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.capture.captured_position import CapturedPosition
from headwater.errors import Misuse, NotYetCovered
from tests.short_lived import SHORT_LIVED

pytestmark = pytest.mark.parametrize("server", ["postgres", "mariadb"], indirect=True)


def written(database: Any, *statements: str, capture: str | None = None) -> CapturedPosition:
    """Execute and commit; the position that the database itself gives for it."""
    connection = database.connect()
    try:
        with getattr(connection, "connection", connection).cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            cursor.execute("COMMIT")
            cursor.execute("SELECT pg_current_wal_lsn()" if is_postgres(database) else "SELECT @@last_gtid")
            ((text,),) = cursor.fetchall()
    finally:
        connection.close()
    return (hw.lsn if is_postgres(database) else hw.gtid)(str(text), capture=capture)


def is_postgres(database: Any) -> bool:
    return bool(database.server.kind == "postgres")


def users(app: hw.App, database: Any) -> Any:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20))", "CREATE TABLE other (id INT)")
    return app.table("users", source=database.source("users"))


def follow(app: hw.App) -> None:
    app.capture(until="caught up", timeout=60)


def test_a_position_is_found_when_its_rows_are_in_the_log(database: Any, app: hw.App) -> None:
    table = users(app, database)
    follow(app)
    first = written(database, "INSERT INTO users VALUES (1, 'Ada')")
    before = first.found(app.log)
    follow(app)
    later = written(database, "INSERT INTO users VALUES (2, 'Bob')")

    assert before is None
    assert first.found(app.log) == hw.Token({"users": table.topic.end_offsets()})
    assert later.found(app.log) is None
    follow(app)
    assert later.token(app.log, 10) == hw.Token({"users": {0: 2}})
    assert first.found(app.log) == hw.Token({"users": {0: 1}})


def test_a_position_of_another_table_is_found_too(database: Any, app: hw.App) -> None:
    users(app, database)
    written(database, "INSERT INTO users VALUES (1, 'Ada')")
    follow(app)
    elsewhere = written(database, "INSERT INTO other VALUES (1)")
    follow(app)

    assert elsewhere.found(app.log) == hw.Token({"users": {0: 1}})


def test_a_view_has_ones_own_write(database: Any, tmp_path: Path) -> None:
    os.environ.update(SHORT_LIVED)
    with hw.App("shop", home=tmp_path / "spark-home", spark={"spark.master": "local[2]"}) as app:
        users(app, database)
        names = app.view("names", "SELECT name, count(*) AS users FROM users GROUP BY name")
        app.start()
        for number in range(1, 4):
            position = written(database, f"INSERT INTO users VALUES ({number}, 'Ada')")

            assert list(names.rows(at_least=position, timeout="60 seconds")) == [{"name": "Ada", "users": number}]


def test_what_is_not_reached_in_time_is_told(database: Any, app: hw.App) -> None:
    users(app, database)
    follow(app)
    position = written(database, "INSERT INTO users VALUES (1, 'Ada')")

    with pytest.raises(NotYetCovered, match=f'capture ".*" has not reached {position.text} after 0.01 s'):
        position.token(app.log, 0.01)


def test_a_home_without_such_a_capture_says_so(database: Any, app: hw.App) -> None:
    other = hw.gtid("0-1-42") if is_postgres(database) else hw.lsn("0/16B3748")
    with pytest.raises(Misuse, match=r"^no capture follows a .* into this home, so .* means nothing here"):
        other.found(app.log)
    users(app, database)
    follow(app)

    with pytest.raises(Misuse, match=r"^no capture follows a .* into this home, so .* means nothing here"):
        other.found(app.log)
    with pytest.raises(Misuse, match=r'^no capture "nobody" follows a '):
        written(database, "INSERT INTO users VALUES (1, 'Ada')", capture="nobody").found(app.log)


def test_of_two_captures_one_must_be_named(database: Any, app: hw.App) -> None:
    table = users(app, database)
    follow(app)
    with hw.App("mirror", home=app.log.home) as second:
        second.table("copied", source=database.source("users"))
        follow(second)
        position = written(database, "INSERT INTO users VALUES (1, 'Ada')")
        follow(app)

        with pytest.raises(Misuse, match="could be a position of several captures: ") as error:
            position.found(app.log)
        name = table.topic.settings.captured_by
        assert f"{name}" in error.value.message
        assert CapturedPosition.parse(f"{position}@{name}").found(app.log) == hw.Token({"users": {0: 1}})
