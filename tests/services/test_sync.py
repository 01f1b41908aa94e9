"""``headwater sync``: a database and its copy, through Ctrl-C, ``kill -9`` and changes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.sinks import Parquet
from headwater.testing.mariadb_server import MariadbServer
from headwater.testing.postgres_server import PostgresServer

pytestmark = pytest.mark.timeout(300)
ROWS = 60_000


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        running.execute("CREATE TABLE users (id bigint PRIMARY KEY, name text, score float8, at timestamptz)")
        running.execute("CREATE TABLE notes (body text)")
        running.execute("ALTER TABLE notes REPLICA IDENTITY FULL")
        yield running


@pytest.fixture
def filled(server: PostgresServer) -> PostgresServer:
    server.execute("TRUNCATE users, notes")
    server.execute(f"INSERT INTO users SELECT n, 'user ' || n, n / 2.0, now() FROM generate_series(1, {ROWS}) n")
    server.execute("INSERT INTO notes VALUES ('same'), ('same'), (NULL)")
    return server


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "headwater.cli.main", "sync", *words]


def sync(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), cwd=folder, capture_output=True, text=True, errors="replace", timeout=200)


def begun(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*words, "--json"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def until(process: subprocess.Popen[str], state: str) -> None:
    """Read its reports until a table is in a state."""
    assert process.stdout is not None
    for line in process.stdout:
        if any(table["state"] == state for table in json.loads(line)):
            return
    raise AssertionError(process.stderr and process.stderr.read())


def copied(path: Path) -> tuple[list, list]:
    with sqlite3.connect(path) as db:
        users = db.execute("SELECT id, name, score FROM users ORDER BY id").fetchall()
        return users, db.execute("SELECT body FROM notes ORDER BY body").fetchall()


def source(server: PostgresServer) -> tuple[list, list]:
    users = server.execute("SELECT id, name, score FROM users ORDER BY id")
    return users, server.execute("SELECT body FROM notes ORDER BY body NULLS FIRST")


def test_a_copy_that_is_stopped_and_killed_goes_on_and_is_the_source(filled: PostgresServer, tmp_path: Path) -> None:
    words = (filled.dsn, "--tables", "users,notes", "--to", "sqlite:copy.db")
    stopped = begun(tmp_path, *words)
    until(stopped, "backfill")
    stopped.send_signal(signal.SIGINT)
    told = stopped.communicate(timeout=60)
    killed = begun(tmp_path, *words)
    until(killed, "following")
    filled.execute("UPDATE users SET name = 'changed' WHERE id % 3 = 0")
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    filled.execute("DELETE FROM users WHERE id % 5 = 0")
    filled.execute("UPDATE users SET id = id + 1000000 WHERE id < 100")
    filled.execute("DELETE FROM notes WHERE ctid IN (SELECT min(ctid) FROM notes WHERE body = 'same')")

    done = sync(tmp_path, *words, "--once")

    assert stopped.returncode == 0, told
    assert done.returncode == 0, done.stderr
    assert copied(tmp_path / "copy.db") == source(filled)
    assert "following" in done.stderr

    forgotten = sync(tmp_path, *words, "--forget")
    assert forgotten.returncode == 0, forgotten.stderr
    assert filled.execute("SELECT slot_name FROM pg_replication_slots") == []
    assert filled.execute("SELECT pubname FROM pg_publication") == []
    assert copied(tmp_path / "copy.db") == source(filled)


def test_rows_that_leave_are_found_for_files_that_need_them_whole(filled: PostgresServer, tmp_path: Path) -> None:
    words = (filled.dsn, "--to", "parquet:copies", "--once")  # all tables
    first = sync(tmp_path, *words)
    filled.execute("UPDATE users SET name = NULL WHERE id = 7")
    filled.execute("DELETE FROM users WHERE id > 100")
    second = sync(tmp_path, *words)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    table = Parquet(tmp_path / "copies" / "users").read()
    rows = sorted((row["id"], row["name"], row["score"]) for row in table.to_pylist())
    assert rows == source(filled)[0]
    assert sync(tmp_path, filled.dsn, "--to", "parquet:copies", "--forget").returncode == 0


def test_a_mariadb_is_copied_too(tmp_path: Path) -> None:
    with MariadbServer() as maria:
        maria.execute("CREATE DATABASE shop")
        address = maria.dsn.rpartition("/")[0] + "/shop"
        maria.execute("CREATE TABLE shop.users (id bigint PRIMARY KEY, name varchar(50))")
        maria.execute("INSERT INTO shop.users VALUES (1, 'Ada'), (2, NULL), (3, 'Grace')")
        first = sync(tmp_path, address, "--to", "sqlite:copy.db", "--once")
        maria.execute("DELETE FROM shop.users WHERE id = 1")
        maria.execute("UPDATE shop.users SET name = 'Bob' WHERE id = 2")
        second = sync(tmp_path, address, "--to", "sqlite:copy.db", "--once")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    with sqlite3.connect(tmp_path / "copy.db") as db:
        assert db.execute("SELECT id, name FROM users ORDER BY id").fetchall() == [(2, "Bob"), (3, "Grace")]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["oracle://x", "--to", "sqlite:a.db"], "is not a database that can be captured"),
        (["{dsn}", "--to", "sqlit:a.db"], "is not a place to copy to"),
        (["{dsn}", "--to", "sqlite:a.db", "--tables", "userz"], 'Did you mean "public.users"?'),
        (["{dsn}", "--to", "sqlite:a.db", "--forget"], "no log of this copy"),
        (["postgresql://nobody:secret@127.0.0.1:1/x", "--to", "sqlite:a.db"], "127.0.0.1"),
    ],
)
def test_a_mistake_is_told_with_the_way_out(
    server: PostgresServer, tmp_path: Path, words: list[str], sentence: str
) -> None:
    done = sync(tmp_path, *(word.format(dsn=server.dsn) for word in words))

    assert done.returncode not in (0, 1)
    assert sentence in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
