"""Attached stores in a query: answers, limits, rights, and what is said when one of them does not play along.

What it is: real servers and files, each asked through the app or by itself.
Invariants: no error shows a password; each names the store and what to do.
Not here: that push-down changes nothing (``test_push_down.py``).
Read next: ``federation/stores.py``.
"""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidQuery, StoreRefused, StoreUnavailable, TooManyRows
from headwater.federation.attachments import Attachment
from headwater.federation.store import StoreRequest
from headwater.federation.stores import opened
from headwater.testing.mariadb_server import MariadbServer
from headwater.testing.postgres_server import PostgresServer
from tests.services.federation.test_push_down import TABLES
from tests.unit.command_line import CommandLine


def rows(app: hw.App, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = app.sql(sql).to_pylist()
    return found


def fetched(attachment: Attachment, *parts: str) -> pa.Table:
    with opened(attachment) as store:
        shape = store.describe(parts)
        return store.fetch(StoreRequest(shape, shape.columns, None, 1000)).table


def test_one_query_reads_our_table_and_every_kind_of_store(shop: hw.App) -> None:
    joins = " ".join(f"JOIN {table} t{number} ON t{number}.id = o.k" for number, table in enumerate(TABLES.values()))

    found = rows(
        shop, f"SELECT o.k, t0.id AS pg, t5.id AS delta FROM own o {joins} WHERE o.k BETWEEN 1 AND 3 ORDER BY 1"
    )

    assert found == [{"k": k, "pg": k, "delta": k} for k in (1, 2, 3)]


def test_a_table_may_be_named_in_every_way_that_sql_has(shop: hw.App) -> None:
    (one,) = rows(
        shop,
        "WITH few AS (SELECT * FROM pg.odd WHERE id < 3) "
        "SELECT count(*) AS n, max(few.id) AS top, (SELECT min(odd.id) FROM LITE.odd) AS low FROM few "
        "WHERE few.id IN (SELECT pg.public.odd.id FROM pg.public.odd) AND EXISTS (SELECT 1 FROM maria.shop.odd)",
    )

    assert one == {"n": 3, "top": 2, "low": 0}


def test_a_query_that_needs_no_column_counts_rows(shop: hw.App) -> None:
    for table in TABLES.values():
        assert rows(shop, f"SELECT count(*) AS n FROM {table}") == [{"n": 150}]


def test_a_limit_is_all_that_is_fetched(shop: hw.App) -> None:
    reply = shop.sql_reply("SELECT name, id FROM pg.odd LIMIT 3")

    assert (reply.table.num_rows, reply.fetched[0].rows) == (3, 3)


def test_an_unknown_store_or_table_is_named(shop: hw.App) -> None:
    with pytest.raises(InvalidQuery, match='no store "pgg" is attached') as unattached:
        shop.sql("SELECT * FROM pgg.public.odd")
    with pytest.raises(StoreRefused, match=r'store "pg" has no table public\.od') as unknown:
        shop.sql("SELECT * FROM pg.public.od")
    with pytest.raises(InvalidQuery, match="the query cannot be run"):
        shop.sql("SELECT nothing FROM pg.odd")

    assert 'Did you mean "pg"?' in str(unattached.value.hint)
    assert unknown.value.hint == 'Did you mean "public.odd"?'


def test_more_rows_than_allowed_are_refused_with_the_statement(shop: hw.App, postgres: PostgresServer) -> None:
    shop.attach("small", postgres.dsn, rows_max=10)

    with pytest.raises(TooManyRows) as caught:
        shop.sql("SELECT name FROM small.odd")

    assert caught.value.detail == 'It was asked: SELECT "name" FROM "odd" LIMIT 11'
    assert len(rows(shop, "SELECT id FROM small.odd WHERE id < 10")) == 10


def test_values_come_as_a_capture_would_bring_them(postgres: PostgresServer, mariadb: MariadbServer) -> None:
    postgres.execute("DROP TABLE IF EXISTS kinds")
    postgres.execute(
        "CREATE TABLE kinds AS SELECT 1.50::numeric(6,2) AS price, 1.5::numeric AS loose, '{1,NULL}'::int[] AS list, "
        "'infinity'::timestamptz AS never, '2024-01-01 12:00+02'::timestamptz AS at, '\\x01ff'::bytea AS bytes, "
        "'{\"a\": 1}'::jsonb AS doc, 'x'::char(3) AS padded"
    )
    mariadb.execute(
        "CREATE OR REPLACE TABLE shop.kinds AS SELECT CAST(18446744073709551615 AS UNSIGNED) AS large, "
        "TIME'12:30:00' AS clock, JSON_OBJECT('a', 1) AS doc, UUID() AS own, 0.1e0 AS score"
    )

    (row,) = fetched(Attachment.declared("pg", postgres.dsn), "public", "kinds").to_pylist()
    (other,) = fetched(Attachment.declared("m", mariadb.dsn), "shop", "kinds").to_pylist()

    assert row == {
        "price": Decimal("1.50"),
        "loose": "1.5",
        "list": [1, None],
        "never": None,
        "at": dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC),
        "bytes": b"\x01\xff",
        "doc": '{"a": 1}',
        "padded": "x  ",
    }
    assert (other["large"], other["clock"], json.loads(other["doc"])) == (Decimal(2**64 - 1), "12:30:00", {"a": 1})
    assert len(other["own"]) == 36


def test_a_value_that_does_not_fit_its_declaration_is_an_error(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as db:
        db.execute("CREATE TABLE t (id INTEGER, day DATE)")
        db.execute("INSERT INTO t VALUES (1, 'yesterday')")

    with pytest.raises(StoreRefused, match=r'lite\.t holds a value in column "day" that is no DATE'):
        fetched(Attachment.declared("lite", str(tmp_path / "x.db")), "t")


def test_stores_are_only_read(postgres: PostgresServer, mariadb: MariadbServer, tmp_path: Path) -> None:
    postgres.execute(
        "CREATE OR REPLACE FUNCTION sneaky() RETURNS int LANGUAGE sql AS 'CREATE TABLE x (y int); SELECT 1'"
    )
    postgres.execute("CREATE OR REPLACE VIEW writes AS SELECT sneaky() AS n")
    mariadb.execute("CREATE OR REPLACE TABLE shop.taken (n INT) ENGINE = InnoDB")
    sqlite3.connect(tmp_path / "x.db").execute("CREATE TABLE t (id INTEGER)")

    with pytest.raises(StoreRefused, match="refuses") as caught:
        fetched(Attachment.declared("pg", postgres.dsn), "writes")
    with opened(Attachment.declared("m", mariadb.dsn)) as store, pytest.raises(StoreRefused):
        store._ask("INSERT INTO shop.taken VALUES (1)")  # type: ignore[attr-defined]
    with opened(Attachment.declared("l", str(tmp_path / "x.db"))) as store, pytest.raises(StoreRefused):
        store._ask("INSERT INTO t VALUES (1)")  # type: ignore[attr-defined]

    assert "read-only transaction" in str(caught.value.detail)


def test_a_store_that_takes_too_long_is_given_up(
    postgres: PostgresServer, mariadb: MariadbServer, tmp_path: Path
) -> None:
    postgres.execute("CREATE OR REPLACE VIEW slow AS SELECT pg_sleep(60)::text AS n")
    mariadb.execute(
        "CREATE OR REPLACE VIEW shop.slow AS SELECT count(*) AS n FROM shop.seq_1_to_100000 a, shop.seq_1_to_100000 b, "
        "shop.seq_1_to_100000 c WHERE a.seq + b.seq + c.seq = 7"
    )
    sqlite3.connect(tmp_path / "x.db").execute(
        "CREATE VIEW slow AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) AS m FROM n"
    )

    for url, table in (
        (postgres.dsn, "slow"),
        (mariadb.dsn.replace("/mysql", "/shop"), "slow"),
        (f"sqlite:{tmp_path}/x.db", "slow"),
    ):
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0.2 s"):
            fetched(Attachment.declared("far", url, timeout=0.2), table)


def test_a_store_that_is_away_or_closed_to_us_is_told_without_its_password(
    postgres: PostgresServer, mariadb: MariadbServer, tmp_path: Path
) -> None:
    mariadb.execute("CREATE OR REPLACE USER ann@'127.0.0.1' IDENTIFIED BY 'right'")
    closed = [
        ("postgresql://ann:secret@127.0.0.1:1/crm", StoreUnavailable),
        ("mysql://ann:secret@127.0.0.1:1/crm", StoreUnavailable),
        (f"mysql://ann:secret@127.0.0.1:{mariadb.port}/shop", StoreRefused),
        (f"postgresql://nobody:secret@127.0.0.1:{postgres.port}/nowhere", StoreRefused),
        (f"sqlite:{tmp_path}/none.db", StoreUnavailable),
        (f"parquet:{tmp_path}/none.parquet", StoreUnavailable),
    ]

    for url, kind in closed:
        with pytest.raises(kind) as caught:
            opened(Attachment.declared("crm", url))
        assert "crm" in caught.value.message
        assert caught.value.hint
        assert "secret" not in json.dumps(caught.value.to_dict())


def test_files_that_are_not_what_they_are_called_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("a,b\n1,2\n")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3\n")

    for name in ("x.parquet", "x.csv"):
        with pytest.raises(StoreRefused, match='store "x" cannot be read as'):
            fetched(Attachment.declared("x", str(tmp_path / name)))


def test_the_command_line_shows_what_was_asked(shop: hw.App) -> None:
    shop.view("labels", "SELECT label, count(*) AS n FROM own GROUP BY label")
    shop.tick()
    headwater = CommandLine(Path(shop.home))
    sql = (
        "SELECT l.label, m.name FROM labels l JOIN maria.odd m ON m.id = l.n WHERE m.large > 5 AND lower(m.name) = 'a'"
    )

    explained = headwater.json("query", sql, "--explain")
    told = headwater("query", sql, "--explain", "--no-push-down")
    plain = headwater("query", "SELECT count(*) AS n FROM labels")
    without_spark = headwater.error("query", "SELECT * FROM maria.odd")

    (report,) = explained["fetched"]
    assert report["statement"] == "SELECT `id`, `large`, `name` FROM `odd` WHERE `large` > 5 LIMIT 2000001"
    assert report["asked"] == ["`m`.`large` > 5"]
    assert report["kept"][0]["condition"] == "lower(`m`.`name`) = 'a'"
    assert report["rows"] < 150
    assert "150 rows" in told.stdout
    assert plain.stdout.split() == ["n", "3"]
    assert without_spark["hint"] == "maria is an attached store, which Spark reads: add --spark."
