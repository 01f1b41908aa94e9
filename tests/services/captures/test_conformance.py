"""What every captured database must give: the conformance suite.

What it is: each test is one promise of ``docs/capture.md``, in SQL that all of them understand.
Invariants: what is in the log at the last marker is what the database holds, row for row.
Not here: what only one database has (``test_postgres.py``); crashes (``tests/crash/test_capture_torture.py``).
Read next: ``contents.py``.
"""

from __future__ import annotations

import random
import string
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.capture.backfill import Backfill
from headwater.capture.capture import Capture
from headwater.capture.mysql import mysql_database
from headwater.capture.postgres import postgres_database
from tests.services.captures.contents import every_marker, markers_of, records, same, shown, state


def follow(app: hw.App) -> None:
    app.capture(until="caught up", timeout=60)


def make_users(database: Any, rows: int = 3) -> None:
    database.execute("CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR(100), age INT)")
    for number in range(1, rows + 1):
        database.execute(f"INSERT INTO users VALUES ({number}, 'user {number}', {20 + number})")


def test_columns_and_key_come_from_the_database(database: Any, app: hw.App) -> None:
    make_users(database)

    users = app.table("users", source=database.source("users"))

    assert repr(users) == "Table(users, id BIGINT NOT NULL, name STRING, age INT, key=id)"


def test_rows_that_were_there_are_backfilled(database: Any, app: hw.App) -> None:
    make_users(database)
    users = app.table("users", source=database.source("users"))

    follow(app)

    same(shown(users.topic), database.rows("users"))
    assert users.topic.end_offsets() == {0: 3}


def test_changes_follow_in_the_order_of_commits(database: Any, app: hw.App) -> None:
    make_users(database)
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute("INSERT INTO users VALUES (4, 'Ada', 36)", "UPDATE users SET age = 37 WHERE id = 4")
    database.execute("DELETE FROM users WHERE id = 1", "UPDATE users SET name = NULL WHERE id = 2")
    follow(app)

    changes = [(row["id"], row["name"], row["age"], row["_deleted"]) for row in records(users.topic)[3:]]
    assert changes == [(4, "Ada", 36, False), (4, "Ada", 37, False), (1, None, None, True), (2, None, 22, False)]
    same(shown(users.topic), database.rows("users"))


def test_a_changed_key_is_a_delete_and_an_insert(database: Any, app: hw.App) -> None:
    make_users(database, 1)
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute("UPDATE users SET id = 100 WHERE id = 1")
    follow(app)

    changes = [(row["id"], row["name"], row["_deleted"]) for row in records(users.topic)[1:]]
    assert changes == [(1, None, True), (100, "user 1", False)]


def test_what_was_rolled_back_is_never_seen(database: Any, app: hw.App) -> None:
    make_users(database, 1)
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute("BEGIN", "INSERT INTO users VALUES (7, 'never', 1)", "ROLLBACK")
    database.execute("BEGIN", "INSERT INTO users VALUES (8, 'kept', 1)", "COMMIT")
    follow(app)

    assert [row["id"] for row in records(users.topic)] == [1, 8]


def test_an_emptied_table_is_empty(database: Any, app: hw.App) -> None:
    make_users(database)
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute("INSERT INTO users VALUES (9, 'x', 1)", "TRUNCATE TABLE users")
    database.execute("INSERT INTO users VALUES (3, 'again', 1)")
    follow(app)

    same(shown(users.topic), database.rows("users"))
    gone = [row["id"] for row in records(users.topic) if row["_deleted"]]
    assert sorted(gone) == [1, 2, 3, 9]


def test_large_values_that_an_update_leaves_alone_are_kept(database: Any, app: hw.App) -> None:
    database.execute("CREATE TABLE docs (id INT PRIMARY KEY, body TEXT, likes INT)")
    chance = random.Random(5)  # so that they cannot be compressed to fit into the row
    bodies = {number: "".join(chance.choices(string.ascii_letters, k=30_000)) for number in (1, 2)}
    database.execute(f"INSERT INTO docs VALUES (1, '{bodies[1]}', 0)")
    docs = app.table("docs", source=database.source("docs"))
    follow(app)

    database.execute(f"INSERT INTO docs VALUES (2, '{bodies[2]}', 0)")
    database.execute("UPDATE docs SET likes = likes + 1", "UPDATE docs SET id = 10 WHERE id = 1")
    follow(app)
    database.execute("UPDATE docs SET likes = 5 WHERE id = 10")
    follow(app)

    same(shown(docs.topic), database.rows("docs"))
    assert all(row["_deleted"] or row["body"] in bodies.values() for row in records(docs.topic))


def test_an_added_column_is_added_here_too(database: Any, app: hw.App) -> None:
    make_users(database, 1)
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute("ALTER TABLE users ADD COLUMN email VARCHAR(50)")
    database.execute("INSERT INTO users VALUES (2, 'b', 1, 'b@example.com')")
    follow(app)

    same(shown(users.topic), database.rows("users"))


@pytest.mark.parametrize(
    ("who", "what"),
    [
        pytest.param(Backfill, "run", id="and the capture does not know it yet"),
        pytest.param(Capture, "_route", id="while the stream is being opened without it"),
    ],
)
def test_a_table_whose_backfill_ends_just_now_is_followed(
    database: Any, app: hw.App, monkeypatch: pytest.MonkeyPatch, who: type, what: str
) -> None:
    does = getattr(who, what)

    def tarrying(self: Any) -> None:
        does(self)
        time.sleep(0.5)

    monkeypatch.setattr(who, what, tarrying)
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)", "CREATE TABLE other (id INT PRIMARY KEY)")
    database.execute("INSERT INTO users VALUES (1)")
    users, _ = (app.table(name, source=database.source(name)) for name in ("users", "other"))
    follow(app)

    database.execute("ALTER TABLE users ADD COLUMN points INT NOT NULL DEFAULT 7")
    follow(app)

    same(shown(users.topic), [{"id": 1, "points": 7}])


def test_a_column_that_came_with_a_default_has_it_in_old_rows_too(database: Any, app: hw.App) -> None:
    database.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20))", "CREATE TABLE other (id INT PRIMARY KEY)"
    )
    database.execute("INSERT INTO users VALUES (1, 'ann'), (2, 'bob'), (3, 'cat')")
    users, other = (app.table(name, source=database.source(name)) for name in ("users", "other"))
    follow(app)

    database.execute("ALTER TABLE users ADD COLUMN points INT NOT NULL DEFAULT 7")
    database.execute(
        "INSERT INTO other VALUES (1)", "UPDATE users SET points = 8 WHERE id = 2", "DELETE FROM users WHERE id = 3"
    )
    follow(app)
    while_running = shown(users.topic)
    database.execute("ALTER TABLE users ADD COLUMN level INT DEFAULT 1")  # nobody reads now, and no row changes
    follow(app)

    same(while_running, [{"id": 1, "name": "ann", "points": 7}, {"id": 2, "name": "bob", "points": 8}])
    same(shown(users.topic), database.rows("users"))
    same(shown(other.topic), database.rows("other"))
    assert {row["level"] for row in shown(users.topic)} == {1}


def test_a_renamed_column_has_its_values_under_the_new_name(database: Any, app: hw.App) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20))")
    database.execute("INSERT INTO users VALUES (1, 'ann'), (2, 'bob')")
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute("ALTER TABLE users RENAME COLUMN name TO called")
    database.execute("UPDATE users SET called = 'bo' WHERE id = 2")
    follow(app)

    same(shown(users.topic), [{**row, "name": None} for row in database.rows("users")])


def test_a_column_without_a_default_needs_no_reading(database: Any, app: hw.App) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)", "INSERT INTO users VALUES (1), (2)")
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute("ALTER TABLE users ADD COLUMN points INT")
    database.execute("UPDATE users SET points = 8 WHERE id = 2")
    follow(app)

    assert users.topic.end_offsets() == {0: 3}
    same(shown(users.topic), database.rows("users"))


TEXT_KEYS = [
    "",
    "1",
    "10",
    "9",
    "A",
    "Z",
    "a",
    "b'c",
    'b"d',
    "ä",
    "é",
    "ß",
    "z",
    "\u4e2d",
    "\U0001f600",
    "é2",
    "-5",
    "a b",
    "a  x",
    "0",
]


def test_a_text_key_is_read_in_chunks_by_its_bytes(database: Any, app: hw.App, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (postgres_database, mysql_database):
        monkeypatch.setattr(module, "TEXT_CHUNK_ROWS", 3)
    binary = " COLLATE utf8mb4_bin" if database.kind != "postgres" else ""
    database.execute(f"CREATE TABLE t (id VARCHAR(20){binary} PRIMARY KEY, n INT)")
    for number, key in enumerate(TEXT_KEYS):
        quoted = key.replace("'", "''")
        database.execute(f"INSERT INTO t VALUES ('{quoted}', {number})")
    table = app.table("t", source=database.source("t"))
    reported: list[int] = []

    app.capture(until="caught up", timeout=60, on_progress=lambda progress: reported.append(progress.rows_done))
    database.execute("UPDATE t SET n = n + 100")
    follow(app)

    assert len(reported) == len(TEXT_KEYS) // 3 + 1
    same(shown(table.topic), database.rows("t"))
    (capture,) = app.captures.made(app.log)
    shape = capture.server.describe(database.source("t").table)
    chunks = capture.server.chunks(shape)
    for key in TEXT_KEYS:
        assert sum(capture.server.in_chunk(shape, chunk, key) for chunk in chunks) == 1
    capture.close()


def test_a_dropped_column_is_null_from_then_on(database: Any, app: hw.App) -> None:
    make_users(database, 1)
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute("ALTER TABLE users DROP COLUMN age")
    database.execute("INSERT INTO users VALUES (2, 'b')")
    follow(app)

    assert [(row["id"], row["age"]) for row in shown(users.topic)] == [(1, 21), (2, None)]


def test_a_widened_column_is_widened_here_too(database: Any, app: hw.App) -> None:
    make_users(database, 1)
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute(database.widen("users", "age", "BIGINT"))
    database.execute(f"INSERT INTO users VALUES (2, 'b', {2**40})")
    follow(app)

    same(shown(users.topic), database.rows("users"))


def test_a_table_added_later_is_filled_while_the_others_go_on(database: Any, app: hw.App) -> None:
    make_users(database)
    users = app.table("users", source=database.source("users"))
    follow(app)
    database.execute("CREATE TABLE orders (id INT PRIMARY KEY, amount INT)", "INSERT INTO orders VALUES (1, 10)")
    before = users.topic.end_offsets()

    orders = app.table("orders", source=database.source("orders"))
    database.execute("INSERT INTO users VALUES (50, 'meanwhile', 1)", "INSERT INTO orders VALUES (2, 20)")
    follow(app)
    database.execute("UPDATE orders SET amount = 11 WHERE id = 1")
    follow(app)

    same(shown(users.topic), database.rows("users"))
    same(shown(orders.topic), database.rows("orders"))
    assert users.topic.end_offsets() == {0: before[0] + 1}
    assert orders.topic.end_offsets() == {0: 3}


def test_a_restart_repeats_nothing(database: Any, app: hw.App, tmp_path: Path) -> None:
    make_users(database)
    app.table("users", source=database.source("users"))
    follow(app)
    database.execute("UPDATE users SET age = 1")
    follow(app)
    app.close()

    with hw.App("shop", home=tmp_path / "home") as again:
        users = again.table("users", source=database.source("users"))
        database.execute("UPDATE users SET age = 2 WHERE id = 1")
        follow(again)
        follow(again)

        assert users.topic.end_offsets() == {0: 7}
        same(shown(users.topic), database.rows("users"))


def test_a_backfill_under_writes_has_no_gap_and_no_overlap(database: Any, app: hw.App) -> None:
    database.execute("CREATE TABLE counters (id INT PRIMARY KEY, n INT)")
    database.execute("INSERT INTO counters VALUES " + ", ".join(f"({number}, 0)" for number in range(300)))
    counters = app.table("counters", source=database.source("counters"))
    stop, writer = threading.Event(), database.connect()

    def write() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            writer.execute(f"UPDATE counters SET n = n + 1 WHERE id = {turn % 300}")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        follow(app)
    finally:
        stop.set()
        thread.join()
        writer.close()
    follow(app)

    same(shown(counters.topic), database.rows("counters"))
    seen: dict[int, int] = {}
    for row in records(counters.topic):
        # Every step of a counter is there once: the backfill's value, then one more each time.
        assert row["id"] not in seen or row["n"] == seen[row["id"]] + 1
        seen[row["id"]] = row["n"]


def test_no_marker_shows_half_a_transaction(database: Any, app: hw.App) -> None:
    database.execute("CREATE TABLE credits (id INT PRIMARY KEY, amount INT)")
    database.execute("CREATE TABLE debits (id INT PRIMARY KEY, amount INT)")
    tables = [app.table(name, source=database.source(name)) for name in ("credits", "debits")]
    follow(app)
    stop, writer = threading.Event(), database.connect()

    def write() -> None:
        turn = 0
        while not stop.is_set() or turn < 20:
            turn += 1
            writer.execute("BEGIN")
            writer.execute(f"INSERT INTO credits VALUES ({turn}, {turn})")
            writer.execute(f"INSERT INTO debits VALUES ({turn}, {-turn})")
            writer.execute("COMMIT")

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(5):
        follow(app)
    stop.set()
    thread.join()
    writer.close()
    follow(app)

    both = [records(table.topic) for table in tables]
    for marker in every_marker(markers_of(tables[0].topic)):
        rows = [rows[: marker.ends.get(table.name, 0)] for table, rows in zip(tables, both, strict=True)]
        held = [state(table.topic, part) for table, part in zip(tables, rows, strict=True)]
        assert sum(row["amount"] for part in held for row in part) == 0
    assert len(both[0]) >= 20


def test_a_cut_connection_is_made_again(database: Any, app: hw.App) -> None:
    make_users(database)
    users = app.table("users", source=database.source("users"))
    follow(app)
    done = threading.Thread(target=lambda: app.capture(timeout=30))
    done.start()
    try:
        for turn in range(3):
            database.cut_connections()
            database.execute(f"UPDATE users SET age = {turn} WHERE id = 1")
            reached(users.topic, 4 + turn)
    finally:
        app.captures.stop()
        done.join()

    assert [row["age"] for row in records(users.topic)[3:]] == [0, 1, 2]


def reached(topic: Any, offset: int) -> None:
    assert topic.wait({0: offset - 1}, timeout=30)


def test_a_table_of_a_source_is_not_written_by_hand(database: Any, app: hw.App) -> None:
    make_users(database, 1)
    users = app.table("users", source=database.source("users"))

    with pytest.raises(hw.errors.Misuse, match='table "users" follows another database'):
        users.upsert([{"id": 5, "name": "x", "age": 1}])


def test_drop_leaves_nothing_in_the_database(database: Any, app: hw.App) -> None:
    make_users(database, 1)
    users = app.table("users", source=database.source("users"))
    follow(app)

    app.captures.drop(app.log)

    assert database.left_behind() == 0
    users.topic.refresh()
    assert users.topic.settings.captured_by is None


def test_after_a_restart_from_scratch_only_the_truth_is_left(database: Any, app: hw.App) -> None:
    make_users(database)
    users = app.table("users", source=database.source("users"))
    follow(app)

    app.captures.restart(app.log)
    database.execute("DELETE FROM users WHERE id = 2", "INSERT INTO users VALUES (8, 'new', 1)")
    follow(app)

    same(shown(users.topic), database.rows("users"))
    assert [row["id"] for row in records(users.topic) if row["_deleted"]] == [2]


def test_changes_from_before_a_new_column_do_not_have_the_table_read_again_and_again(
    database: Any, app: hw.App
) -> None:
    make_users(database)
    database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    users, other = (app.table(name, source=database.source(name)) for name in ("users", "other"))
    follow(app)

    for number in range(3):  # nobody reads now: all of it is streamed together, each with the columns of its time
        database.execute(
            f"UPDATE users SET age = {number} WHERE id = 1",
            f"ALTER TABLE users ADD COLUMN c{number} INT DEFAULT 1",
            f"UPDATE users SET c{number} = 2 WHERE id = 2",
            f"INSERT INTO other VALUES ({number})",
        )
    follow(app)
    once = users.topic.end_offsets()[0]
    database.execute("UPDATE users SET age = 50 WHERE id = 3")
    follow(app)

    same(shown(users.topic), database.rows("users"))
    same(shown(other.topic), database.rows("other"))
    assert once == 6  # read twice
    assert users.topic.end_offsets() == {0: 7}
