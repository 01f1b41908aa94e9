"""What only PostgreSQL has: its types, tables without a key, TOAST, and what it refuses.

What it is: each type as it is backfilled and as it is streamed; REPLICA IDENTITY; errors in whole sentences.
Invariants: backfill and stream give the identical value.
Not here: what every database must give (``test_conformance.py``); slots (``test_postgres_slots.py``).
Read next: ``capture/postgres/postgres_types.py``.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import psycopg
import pytest

import headwater as hw
from headwater.capture import table_follower
from headwater.capture.large_values import LargeValues
from headwater.capture.postgres import postgres_database
from headwater.log.schema.ddl import spark_type
from headwater.testing.postgres_server import PostgresServer
from tests.services.captures.contents import every_marker, markers_of, records, same, shown
from tests.services.captures.databases import PostgresDatabase

UTC = dt.UTC
# The type, what is written, the log's type, what is read.
TYPES: list[tuple[str, str, str, Any]] = [
    ("boolean", "true", "BOOLEAN", True),
    ("smallint", "-32768", "SMALLINT", -32768),
    ("integer", "2147483647", "INT", 2147483647),
    ("bigint", "-9223372036854775808", "BIGINT", -9223372036854775808),
    ("oid", "4294967295", "BIGINT", 4294967295),
    ("real", "1.1", "FLOAT", pytest.approx(1.1)),
    ("double precision", "0.1", "DOUBLE", 0.1),
    ("double precision", "'-Infinity'", "DOUBLE", float("-inf")),
    ("double precision", "'NaN'", "DOUBLE", pytest.approx(float("nan"), nan_ok=True)),
    ("numeric(12,3)", "-123456789.125", "DECIMAL(12,3)", Decimal("-123456789.125")),
    ("numeric(38,0)", "9" * 38, "DECIMAL(38,0)", Decimal("9" * 38)),
    ("numeric(12,3)", "'NaN'", "DECIMAL(12,3)", None),
    ("numeric(50,3)", "1.5", "STRING", "1.500"),
    ("numeric", "'NaN'", "STRING", "NaN"),
    ("numeric", "12345678901234567890.123456789", "STRING", "12345678901234567890.123456789"),
    ("text", "'äöü \"quoted\", and\nnewline, \\ back'", "STRING", 'äöü "quoted", and\nnewline, \\ back'),
    ("text", "''", "STRING", ""),
    ("varchar(10)", "'x'", "STRING", "x"),
    ("char(4)", "'x'", "STRING", "x   "),
    ("bytea", "'\\x00ff10'", "BINARY", b"\x00\xff\x10"),
    ("bytea", "''", "BINARY", b""),
    ("date", "'2026-02-28'", "DATE", dt.date(2026, 2, 28)),
    ("date", "'infinity'", "DATE", None),
    ("date", "'0044-03-15 BC'", "DATE", None),
    ("timestamp", "'2026-01-02 03:04:05.000006'", "TIMESTAMP_NTZ", dt.datetime(2026, 1, 2, 3, 4, 5, 6)),
    ("timestamp", "'12026-01-02 03:04:05'", "TIMESTAMP_NTZ", None),
    ("timestamptz", "'2026-01-02 03:04:05+02'", "TIMESTAMP", dt.datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
    ("timestamptz", "'-infinity'", "TIMESTAMP", None),
    ("timestamptz", "'9999-12-31 23:59:59.999999+00'", "TIMESTAMP", dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    ("timestamptz", "'10000-01-01 00:00:00+00'", "TIMESTAMP", None),
    ("timestamptz", "'0001-01-01 00:00:00+00'", "TIMESTAMP", dt.datetime(1, 1, 1, tzinfo=UTC)),
    ("timestamptz", "'0001-12-31 23:59:59+00 BC'", "TIMESTAMP", None),
    ("timestamp", "'infinity'", "TIMESTAMP_NTZ", None),
    ("timestamp(0)", "'2026-01-02 03:04:05.6'", "TIMESTAMP_NTZ", dt.datetime(2026, 1, 2, 3, 4, 6)),
    ("moment", "'2026-01-02 03:04:05+02'", "TIMESTAMP", dt.datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
    ("time", "'23:59:59.5'", "STRING", "23:59:59.5"),
    ("interval", "'1 day 2 hours'", "STRING", "P1DT2H"),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "STRING", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("json", """'{"b": 1,  "a": [1]}'""", "STRING", '{"b": 1,  "a": [1]}'),
    ("jsonb", """'{"b": 1,  "a": [1]}'""", "STRING", '{"a": [1], "b": 1}'),
    ("inet", "'10.0.0.1/8'", "STRING", "10.0.0.1/8"),
    ("int4range", "'[1,5)'", "STRING", "[1,5)"),
    ("mood", "'happy'", "STRING", "happy"),
    ("positive", "7", "INT", 7),
    ("pair", "ROW(1, 'a')", "STRING", "(1,a)"),
    ("integer[]", "ARRAY[1, NULL, 3]", "ARRAY<INT>", [1, None, 3]),
    ("integer[]", "'{}'", "ARRAY<INT>", []),
    ("integer[]", "ARRAY[ARRAY[1, 2], ARRAY[3, 4]]", "ARRAY<INT>", None),
    ("text[]", """ARRAY['a"b', NULL, 'NULL', 'c,d', '']""", "ARRAY<STRING>", ['a"b', None, "NULL", "c,d", ""]),
    ("numeric(5,2)[]", "ARRAY[1.5]", "ARRAY<DECIMAL(5,2)>", [Decimal("1.50")]),
    (
        "timestamptz[]",
        "ARRAY['2026-01-01 00:00:00+00'::timestamptz]",
        "ARRAY<TIMESTAMP>",
        [dt.datetime(2026, 1, 1, tzinfo=UTC)],
    ),
]


@pytest.fixture
def database(postgres: PostgresDatabase) -> PostgresDatabase:
    return postgres


def follow(app: hw.App) -> None:
    app.capture(until="caught up", timeout=60)


def test_every_type_is_the_same_from_backfill_and_stream(database: PostgresDatabase, app: hw.App) -> None:
    database.execute(
        "CREATE TYPE mood AS ENUM ('happy', 'sad')",
        "CREATE DOMAIN positive AS integer CHECK (VALUE > 0)",
        "CREATE DOMAIN moment AS timestamptz",
        "CREATE TYPE pair AS (a int, b text)",
        f"CREATE TABLE kinds (id int PRIMARY KEY, {', '.join(f'c{n} {kind[0]}' for n, kind in enumerate(TYPES))})",
    )
    values = ", ".join(kind[1] for kind in TYPES)
    nulls = ", ".join("NULL" for _ in TYPES)
    database.execute(f"INSERT INTO kinds VALUES (1, {values})", f"INSERT INTO kinds VALUES (2, {nulls})")
    kinds = app.table("kinds", source=database.source("kinds"))

    follow(app)
    database.execute(f"INSERT INTO kinds VALUES (3, {values})", f"INSERT INTO kinds VALUES (4, {nulls})")
    follow(app)

    rows = {row["id"]: row for row in shown(kinds.topic)}
    for number, (kind, text, ours, wanted) in enumerate(TYPES):
        name = f"c{number}"
        assert spark_type(kinds.schema.field(name).type) == ours, kind
        assert rows[1][name] == wanted, f"{kind} {text} from the backfill"
        assert rows[3][name] == wanted, f"{kind} {text} from the stream"
        assert rows[2][name] is None
        assert rows[4][name] is None
    lost = [kind for kind in TYPES if kind[3] is None]
    assert app.captures.describe(app.log)[0].values_lost == 2 * len(lost)


def test_a_table_without_a_key_is_a_bag(database: PostgresDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE lines (line text, n int)", "ALTER TABLE lines REPLICA IDENTITY FULL")
    database.execute("INSERT INTO lines VALUES ('a', 1), ('a', 1), ('b', NULL)")
    lines = app.table("lines", source=database.source("lines"))
    follow(app)

    database.execute("INSERT INTO lines VALUES ('a', 1)", "UPDATE lines SET n = 5 WHERE line = 'b'")
    database.execute("DELETE FROM lines WHERE ctid = (SELECT min(ctid) FROM lines WHERE line = 'a')")
    follow(app)
    same(shown(lines.topic), database.rows("lines"))
    database.execute("TRUNCATE lines", "INSERT INTO lines VALUES ('z', 1)")
    follow(app)

    same(shown(lines.topic), database.rows("lines"))
    assert lines.is_multiset


def test_a_bag_that_is_read_anew_has_no_row_twice(database: PostgresDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE lines (line text)", "ALTER TABLE lines REPLICA IDENTITY FULL")
    database.execute("INSERT INTO lines VALUES ('a'), ('a'), ('b')")
    lines = app.table("lines", source=database.source("lines"))
    follow(app)

    app.captures.restart(app.log)
    database.execute("DELETE FROM lines WHERE line = 'b'")
    follow(app)

    same(shown(lines.topic), database.rows("lines"))


def test_replica_identity_full_with_a_key_stays_keyed(database: PostgresDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, body text, n int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    body = "".join(chr(97 + place * place % 26) for place in range(20_000))
    database.execute("ALTER TABLE t ALTER body SET STORAGE EXTERNAL", f"INSERT INTO t VALUES (1, '{body}', 0)")
    table = app.table("t", source=database.source("t"))
    follow(app)

    database.execute("UPDATE t SET n = 1", "UPDATE t SET id = 2", "UPDATE t SET n = 2", "DELETE FROM t")
    follow(app)

    rows = [(row["id"], row["body"] == body, row["n"], row["_deleted"]) for row in records(table.topic)]
    assert rows == [
        (1, True, 0, False),
        (1, True, 1, False),
        (1, False, None, True),
        (2, True, 1, False),
        (2, True, 2, False),
        (2, False, None, True),
    ]


def test_a_large_value_that_was_forgotten_is_found_in_the_topic(database: PostgresDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, body text, n int)")
    database.execute("ALTER TABLE t ALTER body SET STORAGE EXTERNAL", "INSERT INTO t VALUES (1, repeat('x', 9000), 0)")
    table = app.table("t", source=database.source("t"))
    follow(app)
    for capture in app.captures.made(app.log):
        capture.state._do(("DELETE FROM large", ()))
        capture.close()

    database.execute("UPDATE t SET n = 1")
    follow(app)

    same(shown(table.topic), database.rows("t"))


def test_a_large_value_that_was_appended_and_not_stored_is_found_in_the_topic(
    database: PostgresDatabase, app: hw.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, body text, n int)")
    database.execute("ALTER TABLE t ALTER body SET STORAGE EXTERNAL", "INSERT INTO t VALUES (1, repeat('x', 9000), 0)")
    table = app.table("t", source=database.source("t"))
    follow(app)

    def die(_: LargeValues) -> None:
        raise RuntimeError("killed between the rows and the marker")

    database.execute("UPDATE t SET body = repeat('y', 9000)")
    with monkeypatch.context() as patched:
        patched.setattr(LargeValues, "save", die)
        with pytest.raises(RuntimeError):
            follow(app)
    for capture in app.captures.made(app.log):
        capture.close()
    database.execute("UPDATE t SET n = 1")  # does not send the body
    follow(app)

    same(shown(table.topic), database.rows("t"))


def test_a_transaction_that_is_too_large_is_appended_in_parts(
    database: PostgresDatabase, app: hw.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_follower, "PART_ROWS", 100)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE TABLE u (id int PRIMARY KEY, n int)")
    t, u = (app.table(name, source=database.source(name)) for name in ("t", "u"))
    follow(app)

    database.execute("INSERT INTO u VALUES (1, 1)")
    database.execute("BEGIN", "INSERT INTO t SELECT g, 0 FROM generate_series(1, 1050) g", "DELETE FROM u", "COMMIT")
    follow(app)

    same(shown(t.topic), database.rows("t"))
    same(shown(u.topic), [])
    ends = [(marker.ends.get("t"), marker.ends.get("u")) for marker in every_marker(markers_of(t.topic))]
    assert {end for end, _ in ends} == {0, 1050}
    assert (1050, 1) not in ends


def test_a_quiet_table_does_not_keep_the_log_of_a_busy_one(database: PostgresDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE quiet (id int PRIMARY KEY)", "CREATE TABLE busy (id serial PRIMARY KEY, x text)")
    app.table("quiet", source=database.source("quiet"))
    follow(app)

    database.execute("INSERT INTO busy (x) SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
    kept = []
    for _ in range(10):  # the server lets go at the checkpoint after one that a capture has passed, or the one after
        follow(app)
        database.execute("CHECKPOINT")
        (about,) = app.captures.describe(app.log)
        kept.append(about.lag_bytes or 0)
        if kept[-1] < 4 << 20:
            break

    assert kept[-1] < 4 << 20, kept


def test_chunks_are_read_at_snapshots_of_their_own(
    database: PostgresDatabase, app: hw.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "CHUNK_ROWS", 10)
    database.execute("CREATE TABLE t (id uuid PRIMARY KEY, n int)")
    database.execute("INSERT INTO t SELECT gen_random_uuid(), g FROM generate_series(1, 95) g")
    table = app.table("t", source=database.source("t"))
    reported: list[int] = []

    app.capture(until="caught up", timeout=60, on_progress=lambda progress: reported.append(progress.rows_done))

    assert len(reported) == 10
    assert max(reported) == 95
    same([{**row} for row in shown(table.topic)], [{**row, "id": str(row["id"])} for row in database.rows("t")])


@pytest.mark.parametrize(
    ("prepare", "table", "message", "hint"),
    [
        ("SELECT 1", "nothere", "the database has no table public.nothere", "Known: none yet."),
        ("CREATE TABLE users (i int)", "user", "the database has no table public.user", 'Did you mean "public.users"?'),
        (
            "CREATE TABLE t (id int)",
            "t",
            "public.t has no primary key",
            "ALTER TABLE public.t ADD PRIMARY KEY (…); or, to capture it as rows without a key: "
            "ALTER TABLE public.t REPLICA IDENTITY FULL;",
        ),
        (
            "CREATE VIEW v AS SELECT 1 AS id",
            "v",
            "public.v is not an ordinary table",
            "Capture its underlying tables, each by its name.",
        ),
    ],
)
def test_a_table_that_cannot_be_captured_is_refused(
    database: PostgresDatabase, app: hw.App, prepare: str, table: str, message: str, hint: str
) -> None:
    database.execute(prepare)

    with pytest.raises(hw.errors.SourceRefused) as caught:
        app.table("x", source=database.source(table))

    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_server_without_logical_decoding_is_told_so(app: hw.App) -> None:
    with PostgresServer(wal_level="replica") as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        app.table("t", source=hw.capture.Postgres(server.dsn, table="t"))

        with pytest.raises(hw.errors.SourceRefused, match="the database's wal_level is replica"):
            follow(app)


def test_a_wrong_password_and_a_wrong_database_are_told_and_not_tried_again(
    database: PostgresDatabase, app: hw.App
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")

    with pytest.raises(hw.errors.SourceRefused, match="refused the login"):
        app.table("t", source=hw.capture.Postgres(database.dsn.replace("postgres@", "nobody_here@"), table="t"))
    with pytest.raises(hw.errors.SourceRefused, match="there is no such database"):
        app.table("t", source=hw.capture.Postgres(database.dsn.replace(database.name, "nothere"), table="t"))


def test_a_user_with_just_the_rights_that_the_docs_name_can_capture(database: PostgresDatabase, app: hw.App) -> None:
    database.execute(
        "DROP ROLE IF EXISTS modest",
        "CREATE ROLE modest LOGIN REPLICATION",
        "CREATE TABLE t (id int PRIMARY KEY)",
        "ALTER TABLE t OWNER TO modest",
        f"GRANT CREATE ON DATABASE {database.name} TO modest",
        "INSERT INTO t VALUES (1)",
    )
    table = app.table("t", source=hw.capture.Postgres(database.dsn.replace("postgres@", "modest@"), table="t"))

    follow(app)
    database.execute("INSERT INTO t VALUES (2)")
    follow(app)

    same(shown(table.topic), database.rows("t"))
    app.captures.drop(app.log)
    assert database.left_behind() == 0
    database.execute("DROP OWNED BY modest", "DROP ROLE modest")


def test_a_user_without_rights_is_told_which(database: PostgresDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("DROP ROLE IF EXISTS poor", "CREATE ROLE poor LOGIN", "GRANT SELECT ON t TO poor")
    app.table("t", source=hw.capture.Postgres(database.dsn.replace("postgres@", "poor@"), table="t"))

    with pytest.raises(hw.errors.SourceRefused) as caught:
        follow(app)

    assert "lacks a right" in caught.value.message
    database.execute("DROP OWNED BY poor", "DROP ROLE poor")


def test_a_database_that_is_away_is_told_once_and_tried_again(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    with PostgresServer() as server, hw.App("shop", home=tmp_path / "home") as app:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        app.table("t", source=hw.capture.Postgres(server.dsn, table="t"))
        follow(app)

        server.stop()
        app.capture(timeout=1.0)
        server.start()
        server.execute("INSERT INTO t VALUES (1)")
        follow(app)

        assert app.get_table("t").topic.end_offsets() == {0: 1}
    assert sum("trying again" in record.message for record in caplog.records) == 1


def test_a_capture_that_does_not_catch_up_in_time_says_so(tmp_path: Any) -> None:
    with PostgresServer() as server, hw.App("shop", home=tmp_path / "home") as app:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        app.table("t", source=hw.capture.Postgres(server.dsn, table="t"))
        follow(app)
        server.stop()

        with pytest.raises(hw.errors.TimedOut, match=r"has not caught up within 0\.5 s"):
            app.capture(until="caught up", timeout=0.5)
        server.start()
        follow(app)


def test_a_key_that_changed_is_told(database: PostgresDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, other int NOT NULL UNIQUE)", "INSERT INTO t VALUES (1, 1)")
    app.table("t", source=database.source("t"))
    follow(app)

    database.execute("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (other)")
    database.execute("UPDATE t SET id = 5")

    with pytest.raises(hw.errors.CaptureBlocked, match=r"the key of public\.t was id and is now other"):
        follow(app)


def test_the_dsn_is_not_shown() -> None:
    source = hw.capture.Postgres("postgresql://me:secret@db.example.com/shop", table="users")

    assert "secret" not in repr(source)
    assert psycopg.__version__
