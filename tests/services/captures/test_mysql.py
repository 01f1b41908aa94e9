"""What only MariaDB and MySQL have: types, statements in the binlog, positions, and what is refused.

What it is: tests with a MariaDB of their own kind of trouble.
Invariants: a value is the same by backfill and by stream.
Not here: what every database must give (``test_conformance.py``).
Read next: ``docs/mysql.md``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.capture.mysql import mysql_database
from headwater.capture.mysql.binlog_position import Binlog
from headwater.testing.mariadb_server import MariadbServer
from tests.services.captures.contents import markers_of, records, same, shown
from tests.services.captures.databases import MariadbDatabase


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariadbServer]:
    with MariadbServer() as running:
        yield running


@pytest.fixture
def database(mariadb: MariadbServer) -> Iterator[MariadbDatabase]:
    made = MariadbDatabase(mariadb)
    yield made
    made.drop()


def follow(app: hw.App) -> None:
    app.capture(until="caught up", timeout=60)


TYPES = {
    # type: (the log's type, what is written, what is read)
    "YEAR": ("SMALLINT", "2155", 2155),
    "TINYINT": ("TINYINT", "-128", -128),
    "TINYINT UNSIGNED": ("SMALLINT", "255", 255),
    "SMALLINT": ("SMALLINT", "-32768", -32768),
    "SMALLINT UNSIGNED": ("INT", "65535", 65535),
    "MEDIUMINT": ("INT", "-8388608", -8388608),
    "MEDIUMINT UNSIGNED": ("INT", "16777215", 16777215),
    "INT": ("INT", "-2147483648", -2147483648),
    "INT UNSIGNED": ("BIGINT", "4294967295", 4294967295),
    "BIGINT": ("BIGINT", "-9223372036854775808", -(2**63)),
    "BIGINT UNSIGNED": ("DECIMAL(20,0)", "18446744073709551615", Decimal(2**64 - 1)),
    "FLOAT": ("FLOAT", "0.1", 0.10000000149011612),
    "DOUBLE": ("DOUBLE", "0.1", 0.1),
    "DECIMAL(12,2)": ("DECIMAL(12,2)", "-1234567890.05", Decimal("-1234567890.05")),
    "DECIMAL(38,10)": ("DECIMAL(38,10)", "0.0000000001", Decimal("0.0000000001")),
    "DECIMAL(60,3)": ("STRING", "-" + "9" * 57 + ".125", "-" + "9" * 57 + ".125"),
    "BIT(1)": ("BIGINT", "b'1'", 1),
    "BIT(20)": ("BIGINT", "b'10000000000000000001'", 524289),
    "BIT(64)": ("DECIMAL(20,0)", "18446744073709551615", Decimal(2**64 - 1)),
    "DATE": ("DATE", "'9999-12-31'", dt.date(9999, 12, 31)),
    "DATETIME": ("TIMESTAMP_NTZ", "'1000-01-01 00:00:00'", dt.datetime(1000, 1, 1)),
    "DATETIME(6)": ("TIMESTAMP_NTZ", "'2026-01-02 03:04:05.123456'", dt.datetime(2026, 1, 2, 3, 4, 5, 123456)),
    "DATETIME(3)": ("TIMESTAMP_NTZ", "'2026-01-02 03:04:05.120'", dt.datetime(2026, 1, 2, 3, 4, 5, 120000)),
    "TIMESTAMP(2) NULL": (
        "TIMESTAMP",
        "'2026-03-29 02:30:00.05'",
        dt.datetime(2026, 3, 29, 2, 30, 0, 50000, tzinfo=dt.UTC),
    ),
    "TIME": ("STRING", "'-838:59:59'", "-838:59:59"),
    "TIME(1)": ("STRING", "'-00:00:00.5'", "-00:00:00.5"),
    "TIME(4)": ("STRING", "'-12:34:56.7891'", "-12:34:56.7891"),
    "TIME(6)": ("STRING", "'12:34:56.000001'", "12:34:56.000001"),
    "YEAR(4) NULL": ("SMALLINT", "0", 0),
    "CHAR(5)": ("STRING", "'ab '", "ab"),
    "VARCHAR(300)": ("STRING", "'naïve ☃ 𝄞'", "naïve ☃ 𝄞"),
    "VARCHAR(50) CHARACTER SET latin1": ("STRING", "'Åé€'", "Åé€"),
    "CHAR(10) CHARACTER SET ucs2": ("STRING", "'Åé'", "Åé"),
    "TEXT CHARACTER SET cp1251": ("STRING", "'Привет'", "Привет"),
    "LONGTEXT": ("STRING", "repeat('x', 70000)", "x" * 70000),
    "BINARY(4)": ("BINARY", "x'0100'", b"\x01\0\0\0"),
    "VARBINARY(300)": ("BINARY", "x'00FF00'", b"\0\xff\0"),
    "BLOB": ("BINARY", "x'FFFE00'", b"\xff\xfe\0"),
    "ENUM('a','b''c')": ("STRING", "'b''c'", "b'c"),
    "SET('x','y','z')": ("STRING", "'z,x'", "x,z"),
    "JSON": ("STRING", "'{\"a\": [1, null]}'", '{"a": [1, null]}'),
    "INT UNSIGNED ZEROFILL": ("BIGINT", "7", 7),  # behind all others: each sign is where it belongs
    "POINT": (
        "BINARY",
        "ST_GeomFromText('POINT(1 2)')",
        bytes.fromhex("000000000101000000000000000000F03F0000000000000040"),
    ),
}


def test_a_value_is_the_same_by_backfill_and_by_stream(database: MariadbDatabase, app: hw.App) -> None:
    columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(TYPES))
    values = ", ".join(written for _, written, _ in TYPES.values())
    nulls = ", ".join("NULL" for _ in TYPES)
    database.execute(f"CREATE TABLE kinds (id INT PRIMARY KEY, {columns})")
    database.execute("SET sql_mode = ''", f"INSERT INTO kinds VALUES (1, {values}), (2, {nulls})")
    kinds = app.table("kinds", source=database.source("kinds"))
    follow(app)

    database.execute(f"INSERT INTO kinds VALUES (3, {values}), (4, {nulls})")
    follow(app)

    rows = {row["id"]: list(row.values())[1:-1] for row in records(kinds.topic)}
    for place, (kind, (_, _, wanted)) in enumerate(TYPES.items()):
        assert (kind, rows[1][place]) == (kind, wanted)
        assert (kind, rows[3][place]) == (kind, wanted)
    assert set(rows[2]) == set(rows[4]) == {None}
    declared = dict(zip([f"c{place}" for place in range(len(TYPES))], TYPES.values(), strict=True))
    described = repr(kinds)
    for name, (log_type, _, _) in declared.items():
        assert f"{name} {log_type}" in described


def test_dates_that_are_none_become_null_and_are_counted(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE odd (id INT PRIMARY KEY, d DATE, t DATETIME, s TIMESTAMP NULL)")
    database.execute("SET sql_mode = ''")
    row = "'0000-00-00', '2024-00-10 00:00:00', '0000-00-00 00:00:00'"
    database.execute(f"INSERT INTO odd VALUES (1, {row})")
    odd = app.table("odd", source=database.source("odd"))
    follow(app)

    database.execute(f"INSERT INTO odd VALUES (2, {row})")
    follow(app)

    assert [(row["d"], row["t"], row["s"]) for row in records(odd.topic)] == [(None, None, None)] * 2
    (table,) = app.captures.describe(app.log)
    assert table.values_lost == 6


def test_generated_columns_are_left_out(database: MariadbDatabase, app: hw.App) -> None:
    database.execute(
        "CREATE TABLE sums (id INT PRIMARY KEY, a INT, twice INT AS (a * 2) VIRTUAL, b INT,"
        " more INT AS (a + b) STORED, z VARCHAR(9))"
    )
    database.execute("INSERT INTO sums (id, a, b, z) VALUES (1, 2, 3, 'x')")
    sums = app.table("sums", source=database.source("sums"))
    follow(app)

    database.execute("UPDATE sums SET a = 5, z = 'y'")
    follow(app)

    assert shown(sums.topic) == [{"id": 1, "a": 5, "b": 3, "z": "y"}]


def test_a_table_without_a_key_is_a_bag(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE words (word VARCHAR(20), n INT)", "INSERT INTO words VALUES ('a', 1), ('a', 1)")
    words = app.table("words", source=database.source("words"))
    follow(app)

    database.execute("UPDATE words SET n = 2 LIMIT 1", "INSERT INTO words VALUES ('b', 1)")
    follow(app)

    same(shown(words.topic), database.rows("words"))


def test_a_key_of_several_columns(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE seats (b VARCHAR(5), a INT, n INT, PRIMARY KEY (a, b))")
    database.execute("INSERT INTO seats VALUES ('x', 1, 1), ('y', 1, 2)")
    seats = app.table("seats", source=database.source("seats"))
    follow(app)

    database.execute("UPDATE seats SET n = 9 WHERE b = 'x'", "UPDATE seats SET b = 'z' WHERE b = 'y'")
    follow(app)

    assert seats.topic.settings.key == ("a", "b")
    same(shown(seats.topic), database.rows("seats"))


def test_rows_written_compressed_are_read(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE docs (id INT PRIMARY KEY, body TEXT)")
    docs = app.table("docs", source=database.source("docs"))
    follow(app)
    database.server.execute("SET GLOBAL log_bin_compress = ON")
    try:
        database.execute("INSERT INTO docs VALUES (1, repeat('long ', 200)), (2, repeat('x', 500))")
        database.execute("UPDATE docs SET body = concat(body, '!')", "DELETE FROM docs WHERE id = 2")
    finally:
        database.server.execute("SET GLOBAL log_bin_compress = OFF")
    follow(app)

    same(shown(docs.topic), database.rows("docs"))


def test_columns_are_those_of_the_moment_not_of_today(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(9), age INT)")
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute("INSERT INTO users VALUES (1, 'Ada', 36)")
    database.execute("ALTER TABLE users ADD COLUMN city VARCHAR(9) FIRST")
    database.execute("INSERT INTO users VALUES ('Rome', 2, 'Bo', 40)")
    follow(app)
    database.execute("INSERT INTO users VALUES ('Oslo', 3, 'Cy', 50)", "ALTER TABLE users DROP COLUMN name")
    database.execute("INSERT INTO users VALUES ('Bonn', 4, 60)")
    follow(app)

    plain = [(row["id"], row["name"], row["age"], row.get("city")) for row in records(users.topic)]
    assert plain == [(1, "Ada", 36, None), (2, "Bo", 40, "Rome"), (3, "Cy", 50, "Oslo"), (4, None, 60, "Bonn")]


def test_a_statement_with_a_setting_of_its_own_is_read_too(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)", "INSERT INTO users VALUES (1), (2)")
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute("SET STATEMENT lock_wait_timeout = 9 FOR TRUNCATE TABLE users", "INSERT INTO users VALUES (7)")
    follow(app)

    same(shown(users.topic), database.rows("users"))


def test_a_dropped_table_is_empty_and_may_come_again(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)", "INSERT INTO users VALUES (1), (2)")
    database.execute("CREATE TABLE users_old (id INT PRIMARY KEY)")
    users = app.table("users", source=database.source("users"))
    follow(app)

    database.execute("TRUNCATE users_old", "DROP TABLE users", "CREATE TABLE users (id INT PRIMARY KEY)")
    database.execute("INSERT INTO users VALUES (7)")
    follow(app)

    assert [(row["id"], row["_deleted"]) for row in records(users.topic)] == [
        (1, False),
        (2, False),
        (1, True),
        (2, True),
        (7, False),
    ]


# What is refused


def refused(app: hw.App, match: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=match):
        follow(app)


def test_a_statement_in_place_of_rows_ends_the_capture(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY, n INT)")
    app.table("users", source=database.source("users"))
    follow(app)

    database.execute("SET binlog_format = 'STATEMENT'", "INSERT INTO users VALUES (1, 1)")

    refused(app, "binlog_format=STATEMENT", hw.errors.CaptureBlocked)


def test_an_xa_transaction_ends_the_capture(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)")
    app.table("users", source=database.source("users"))
    follow(app)

    database.execute("XA START 'x'", "INSERT INTO users VALUES (1)", "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'")

    refused(app, "XA transaction", hw.errors.CaptureBlocked)


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("binlog_row_metadata", "MINIMAL", "FULL"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_format", "MIXED", "ROW"),
    ],
)
def test_settings_that_capture_needs(database: MariadbDatabase, app: hw.App, name: str, wrong: str, right: str) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)")
    app.table("users", source=database.source("users"))
    database.server.execute(f"SET GLOBAL {name} = {wrong}")
    try:
        refused(app, f"{name} is {wrong}, and capture needs {right}", hw.errors.SourceRefused)
    finally:
        database.server.execute(f"SET GLOBAL {name} = {right}")


def test_what_cannot_be_captured_is_said_at_once(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE old (id INT PRIMARY KEY) ENGINE = MyISAM", "CREATE TABLE ids (id UUID PRIMARY KEY)")

    for table, match in (("old", "kept by MyISAM"), ("ids", "type uuid"), ("olf", "no table")):
        with pytest.raises(hw.errors.SourceRefused, match=match):
            app.table(table, source=database.source(table))


def test_a_wrong_password_is_refused_and_not_shown(database: MariadbDatabase, app: hw.App) -> None:
    dsn = database.dsn.replace("root@", "root:secret@")

    with pytest.raises(hw.errors.SourceRefused) as caught:
        app.table("users", source=hw.capture.MySQL(dsn, table="users"))

    assert "secret" not in f"{caught.value} {caught.value.detail} {caught.value.hint}"


def test_purged_binlog_is_a_lost_capture_and_restart_the_way_out(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)", "INSERT INTO users VALUES (1)")
    users = app.table("users", source=database.source("users"))
    follow(app)
    database.execute("INSERT INTO users VALUES (2)", "FLUSH BINARY LOGS", "DELETE FROM users WHERE id = 1")
    last = database.server.execute("SHOW MASTER STATUS")[0][0]
    database.cut_connections()
    for _ in range(10_000):  # a file is kept while the thread of a reader that has gone is still there
        database.server.execute(f"PURGE BINARY LOGS TO '{last}'")
        if database.server.execute("SHOW BINARY LOGS")[0][0] == last:
            break

    refused(app, "has removed binlog that the capture needs", hw.errors.CaptureLost)
    app.captures.restart(app.log)
    follow(app)

    same(shown(users.topic), database.rows("users"))


# Positions


def test_a_marker_names_the_gtid_and_where_it_is(database: MariadbDatabase, app: hw.App) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)")
    users = app.table("users", source=database.source("users"))
    follow(app)
    database.execute("INSERT INTO users VALUES (1)")
    ((gtid,),) = database.server.execute("SELECT @@gtid_binlog_pos")
    follow(app)

    last = markers_of(users.topic).last()
    assert last is not None
    assert last.position.startswith(f"{gtid} binlog.0000")
    assert last.number == int(gtid.rpartition("-")[2]) + 1


def test_a_position_is_found_without_what_the_marker_notes(
    database: MariadbDatabase, app: hw.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)")
    users = app.table("users", source=database.source("users"))
    follow(app)
    database.execute("INSERT INTO users VALUES (1)")
    follow(app)
    database.execute("FLUSH BINARY LOGS", "INSERT INTO users VALUES (2)", "FLUSH BINARY LOGS")

    begin = Binlog.begin
    monkeypatch.setattr(Binlog, "begin", lambda self, at, marker, **_: begin(self, at, marker, trust=False))
    follow(app)

    assert [row["id"] for row in records(users.topic)] == [1, 2]


def test_a_snapshot_sees_exactly_what_is_before_its_position(database: MariadbDatabase) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY)", "INSERT INTO users VALUES (1)")
    for positions in ("gtid", "file"):
        server = mysql_database.MySQLDatabase(database.dsn, "x", positions)
        shape = server.describe(f"{database.name}.users")
        (chunk,) = server.chunks(shape)

        database.execute(f"INSERT INTO users VALUES ({2 if positions == 'gtid' else 4})")
        before = server.reach()
        read = server.read(shape, chunk)
        database.execute(f"INSERT INTO users VALUES ({3 if positions == 'gtid' else 5})")

        assert read.reach == before < server.reach()
        seen = [value for texts in read.batches for value in texts.columns[0].to_pylist()]
        assert seen == ([b"1", b"2"] if positions == "gtid" else [b"1", b"2", b"3", b"4"])
        server.close()


def test_a_replica_that_took_over_is_followed_on(tmp_path: Path, app: hw.App) -> None:
    """Both servers have one history; the capture's address is the one that moves."""
    with MariadbServer() as first, MariadbServer(server_id="2", log_slave_updates="ON") as second:
        first.execute("CREATE DATABASE shop")
        first.execute("CREATE TABLE shop.users (id INT PRIMARY KEY)")
        first.execute("INSERT INTO shop.users VALUES (1)")
        second.execute("RESET MASTER")
        second.execute(
            "CHANGE MASTER TO master_host = '127.0.0.1', master_port = %s, master_user = 'root',"
            " master_use_gtid = slave_pos",
            (first.port,),
        )
        second.execute("START SLAVE")
        app.table("users", source=_at(first))
        follow(app)
        first.execute("INSERT INTO shop.users VALUES (2)")
        follow(app)
        first.execute("INSERT INTO shop.users VALUES (3)")
        ((gtid,),) = first.execute("SELECT @@gtid_binlog_pos")
        assert second.execute("SELECT MASTER_GTID_WAIT(%s, 30)", (gtid,)) == [(0,)]
        first.stop(immediate=True)
        second.execute("STOP SLAVE")
        second.execute("INSERT INTO shop.users VALUES (4)")
        app.close()

        with hw.App("shop", home=tmp_path / "home") as again:
            users = again.table("users", source=_at(second))
            follow(again)

            assert [row["id"] for row in records(users.topic)] == [1, 2, 3, 4]


@pytest.mark.parametrize(("more", "match"), [(0, "the binlog ends at"), (9, "where the capture has seen")])
def test_a_server_with_another_history_is_not_followed(tmp_path: Path, app: hw.App, more: int, match: str) -> None:
    with MariadbServer() as first, MariadbServer(server_id="2") as second:
        for server, rows in ((first, 4), (second, more)):
            server.execute("CREATE DATABASE shop")
            server.execute("CREATE TABLE shop.users (id INT PRIMARY KEY)")
            for number in range(rows):
                server.execute("INSERT INTO shop.users VALUES (%s)", (number,))
        app.table("users", source=_at(first))
        follow(app)
        first.execute("INSERT INTO shop.users VALUES (100)")
        follow(app)
        app.close()

        with hw.App("shop", home=tmp_path / "home") as again:
            users = again.table("users", source=_at(second))
            with pytest.raises(hw.errors.CaptureLost, match=match):
                follow(again)
            again.captures.restart(again.log)
            follow(again)

            assert sorted(row["id"] for row in shown(users.topic)) == list(range(more))


def _at(server: MariadbServer) -> Any:
    return hw.capture.MySQL(f"mysql://root@127.0.0.1:{server.port}/shop", table="users", name="users")
