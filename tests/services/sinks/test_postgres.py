"""PostgreSQL: what is special about it: what users made around the table, and what it refuses."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import pytest

from headwater.log.home import Log
from headwater.sinks import Postgres
from headwater.sinks.runner.sink_status import SinkState, SinkStatus
from headwater.sinks.runner.sink_task import SinkTask
from tests.services.sinks.places import Servers
from tests.services.sinks.synthetic import SyntheticView


@pytest.fixture
def schema(servers: Servers) -> str:
    name = f"s{uuid.uuid4().hex[:8]}"
    with psycopg.connect(servers.postgres.dsn, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {name}")
    return name


def ask(servers: Servers, sql: str) -> list[Any]:
    with psycopg.connect(servers.postgres.dsn, autocommit=True) as db:
        cursor = db.execute(sql)
        return cursor.fetchall() if cursor.description else []


def follower_of(view: SyntheticView, servers: Servers, schema: str, log: Log, **settings: Any) -> SinkTask:
    return SinkTask("copy", "users", "app", Postgres(servers.postgres.dsn, schema=schema, **settings), view, log)


def refusal(status: SinkStatus) -> str:
    assert status.state is SinkState.STOPPED
    assert status.error is not None
    return str(status.error["message"])


def users() -> SyntheticView:
    view = SyntheticView("id BIGINT, name STRING")
    view.change([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    return view


def test_a_view_of_the_users_own_over_the_table_survives_an_added_column(
    servers: Servers, schema: str, log: Log
) -> None:
    view = users()
    task = follower_of(view, servers, schema, log)
    task.catch_up()
    ask(servers, f"CREATE VIEW {schema}.names AS SELECT name FROM {schema}.users")

    view.reset("id BIGINT, name STRING, age INT")
    view.change([{"id": 1, "name": "Ada", "age": 36}])
    task.catch_up()
    task.close()

    assert ask(servers, f"TABLE {schema}.names") == [("Ada",)]
    assert ask(servers, f"SELECT id, name, age FROM {schema}.users") == [(1, "Ada", 36)]


def test_the_key_is_the_primary_key_until_a_key_is_null(servers: Servers, schema: str, log: Log) -> None:
    view = users()
    task = follower_of(view, servers, schema, log)
    task.catch_up()
    constraint = f"SELECT contype FROM pg_constraint WHERE conrelid = '{schema}.users'::regclass AND contype = 'p'"
    before = ask(servers, constraint)

    view.change([{"id": None, "name": "nobody"}])
    view.change([{"id": None, "name": "somebody"}])
    task.catch_up()
    task.close()

    assert (before, ask(servers, constraint)) == ([("p",)], [])
    assert ask(servers, f"SELECT name FROM {schema}.users WHERE id IS NULL") == [("somebody",)]


def test_a_table_that_somebody_else_made_is_never_touched(servers: Servers, schema: str, log: Log) -> None:
    ask(servers, f"CREATE TABLE {schema}.users (id bigint)")
    ask(servers, f"INSERT INTO {schema}.users VALUES (7)")

    status = follower_of(users(), servers, schema, log).catch_up()

    assert refusal(status) == f'table "{schema}"."users" exists, and Headwater did not make it'
    assert ask(servers, f"TABLE {schema}.users") == [(7,)]


def test_two_sinks_cannot_have_one_table(servers: Servers, schema: str, log: Log) -> None:
    follower_of(users(), servers, schema, log).catch_up()

    other = SinkTask("other", "users", "app", Postgres(servers.postgres.dsn, schema=schema), users(), log)

    assert refusal(other.catch_up()).endswith("and it belongs to sink app/users/copy")


def test_a_nul_in_a_text_is_refused_or_replaced_as_declared(servers: Servers, schema: str, log: Log) -> None:
    view = users()
    view.change([{"id": 3, "name": "a\0b"}])

    refused = follower_of(view, servers, schema, log).catch_up()
    follower_of(view, servers, schema, log, nul="?").catch_up()

    assert refusal(refused) == 'a text in column "name" has a NUL character, which PostgreSQL cannot hold'
    assert ask(servers, f"SELECT name FROM {schema}.users WHERE id = 3") == [("a?b",)]


def test_a_table_that_was_dropped_is_filled_anew(servers: Servers, schema: str, log: Log) -> None:
    view = users()
    task = follower_of(view, servers, schema, log)
    task.catch_up()

    ask(servers, f"DROP TABLE {schema}.users")
    view.change([{"id": 3, "name": "Eve"}])
    status = task.catch_up()
    task.close()

    assert status.state is SinkState.FOLLOWING
    assert ask(servers, f"SELECT count(*) FROM {schema}.users") == [(3,)]


def test_a_bag_whose_rows_somebody_deleted_is_filled_anew(servers: Servers, schema: str, log: Log) -> None:
    view = SyntheticView("name STRING", key=())
    view.change([{"name": "Ada"}, {"name": "Ada"}, {"name": "Bob"}])
    task = follower_of(view, servers, schema, log)
    task.catch_up()

    ask(servers, f"DELETE FROM {schema}.users WHERE name = 'Bob'")
    view.change(remove=[{"name": "Bob"}, {"name": "Ada"}])
    status = task.catch_up()
    task.close()

    assert status.state is SinkState.FOLLOWING
    assert ask(servers, f"SELECT name FROM {schema}.users") == [("Ada",)]


def test_missing_rights_stop_the_sink_with_what_the_server_said(servers: Servers, schema: str, log: Log) -> None:
    ask(servers, f"CREATE ROLE r_{schema} LOGIN")
    dsn = servers.postgres.dsn.replace("postgres@", f"r_{schema}@")

    status = SinkTask("copy", "users", "app", Postgres(dsn, schema=schema), users(), log).catch_up()

    assert "permission denied" in refusal(status)
