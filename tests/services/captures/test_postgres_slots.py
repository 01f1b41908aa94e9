"""PostgreSQL's slots: whose they are, and what is said when one is gone, taken, or further on than the home.

What it is: a slot as it is made, found, lost and given back, with a real server.
Invariants: a slot of others is never touched; changes that a slot no longer has are an error with the way out.
Not here: types and tables (``test_postgres.py``).
Read next: ``capture/postgres/postgres_database.py``.
"""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.capture.capture_state import CaptureState
from headwater.capture.postgres import postgres_database as implementation
from headwater.testing.postgres_server import PostgresServer
from tests.services.captures.contents import same, shown
from tests.services.captures.databases import PostgresDatabase, drop_slot


@pytest.fixture
def database(postgres: PostgresDatabase) -> PostgresDatabase:
    return postgres


def follow(app: hw.App) -> None:
    app.capture(until="caught up", timeout=60)


def wait_for_a_reader(database: PostgresDatabase) -> None:
    readers = "SELECT 1 FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid"
    while not database.server.execute(readers):
        time.sleep(0.01)


def test_a_death_while_the_slot_is_made_leaves_nothing_in_the_way(
    database: PostgresDatabase, app: hw.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    table = app.table("t", source=database.source("t", slot="mine"))
    remember = CaptureState.remember

    def die(self: CaptureState, **facts: str) -> None:
        if "generation" in facts:  # the slot is there, and nothing says so
            raise ZeroDivisionError
        remember(self, **facts)

    with monkeypatch.context() as patched:
        patched.setattr(CaptureState, "remember", die)
        with pytest.raises(ZeroDivisionError):
            follow(app)
    assert database.slots() == 1

    follow(app)
    same(shown(table.topic), database.rows("t"))
    assert database.slots() == 1


def test_a_slot_of_somebody_else_is_left_alone(database: PostgresDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')")
    app.table("t", source=database.source("t", slot="theirs"))
    for _ in range(2):
        with pytest.raises(hw.errors.SourceRefused, match='slot "theirs" already, which does not belong to this home'):
            follow(app)
    assert database.slots() == 1


def test_a_slot_that_somebody_reads_is_never_taken(
    database: PostgresDatabase, app: hw.App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    app.table("t", source=database.source("t", slot="theirs"))
    with monkeypatch.context() as patched:  # an attempt of ours that was cut before it had made the slot
        patched.setattr(implementation.PostgresDatabase, "create", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            follow(app)
    with hw.App("other", home=tmp_path / "other") as other:
        other.table("t", source=database.source("t", slot="theirs"))
        reading = threading.Thread(target=other.capture)
        reading.start()
        try:
            wait_for_a_reader(database)
            with pytest.raises(
                hw.errors.SourceRefused, match='slot "theirs" already, which does not belong to this home'
            ):
                follow(app)
        finally:
            other.captures.stop()
            reading.join()
    assert database.slots() == 1


def test_caught_up_is_also_what_another_process_has_followed(
    database: PostgresDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with hw.App("shop", home=tmp_path / "home") as app, hw.App("shop", home=tmp_path / "home") as other:
        for each in (app, other):
            table = each.table("t", source=database.source("t"))
        reading = threading.Thread(target=app.capture)
        reading.start()
        try:
            wait_for_a_reader(database)
            for number in range(2, 5):
                database.execute(f"INSERT INTO t VALUES ({number})")
                follow(other)
                same(shown(table.topic), database.rows("t"))
        finally:
            app.captures.stop()
            reading.join()
        follow(other)
    assert sum("is read by another process" in message for message in caplog.messages) <= 3  # once in each run


def test_a_home_that_went_back_to_a_backup_says_so_and_reads_anew(database: PostgresDatabase, tmp_path: Path) -> None:
    def follow_in(home: Path, restart: bool = False) -> None:
        with hw.App("shop", home=home) as app:
            table = app.table("t", source=database.source("t", slot="mine"))
            if restart:
                app.captures.restart(app.log)
            follow(app)
            same(shown(table.topic), database.rows("t"))

    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int)", "INSERT INTO t VALUES (1)")
    follow_in(tmp_path / "home")
    database.execute("INSERT INTO t VALUES (2)", "INSERT INTO other SELECT * FROM generate_series(1, 1000)")
    follow_in(tmp_path / "home")
    shutil.copytree(tmp_path / "home", tmp_path / "moved")
    follow_in(tmp_path / "moved")  # nothing was missed
    shutil.copytree(tmp_path / "moved", tmp_path / "backup")
    database.execute("INSERT INTO t VALUES (3)")
    follow_in(tmp_path / "moved")

    with pytest.raises(hw.errors.CaptureLost, match='slot "mine" is further on than this home has followed it'):
        follow_in(tmp_path / "backup")
    follow_in(tmp_path / "backup", restart=True)


def test_a_slot_that_somebody_removed_is_an_error_with_the_way_out(database: PostgresDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    table = app.table("t", source=database.source("t", slot="mine"))
    follow(app)
    drop_slot(database.server, "mine")
    database.execute("DELETE FROM t WHERE id = 1")

    with pytest.raises(hw.errors.CaptureLost) as caught:
        follow(app)
    app.captures.restart(app.log)
    follow(app)

    assert caught.value.message == 'the replication slot "mine" no longer exists'
    same(shown(table.topic), database.rows("t"))


def test_a_slot_that_the_server_gave_up_is_an_error_with_the_way_out(tmp_path: Any) -> None:
    with PostgresServer(max_slot_wal_keep_size="1MB") as server, hw.App("shop", home=tmp_path / "home") as app:
        server.execute("CREATE TABLE t (id int PRIMARY KEY, x text)")
        table = app.table("t", source=hw.capture.Postgres(server.dsn, table="t", slot="mine"))
        follow(app)
        for number in range(3):  # three segments of the log, and nobody reads them
            server.execute(f"INSERT INTO t VALUES ({number}, 'x')")
            server.execute("SELECT pg_switch_wal()")
        server.execute("CHECKPOINT")

        with pytest.raises(hw.errors.CaptureLost) as caught:
            follow(app)
        app.captures.restart(app.log)
        follow(app)

        assert 'the replication slot "mine" was invalidated' in caught.value.message
        assert "headwater capture restart" in (caught.value.hint or "")
        assert len(shown(table.topic)) == 3


def test_a_server_without_a_free_slot_is_told_so(app: hw.App) -> None:
    with PostgresServer(max_replication_slots="1") as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        server.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')")
        app.table("t", source=hw.capture.Postgres(server.dsn, table="t"))

        with pytest.raises(hw.errors.SourceRefused, match="all replication slots of the database are in use") as caught:
            follow(app)

    assert "max_replication_slots" in (caught.value.hint or "")


def test_a_slot_of_another_home_is_left_alone(database: PostgresDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')")
    app.table("t", source=database.source("t", slot="theirs"))

    with pytest.raises(hw.errors.SourceRefused, match='has a replication slot "theirs" already'):
        follow(app)

    assert database.slots() == 1
