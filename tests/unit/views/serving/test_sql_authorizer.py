"""What a query of the serving store may name: views and plain functions, and nothing of SQLite's or ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headwater.errors import AnswerTooLarge, HeadwaterError, InvalidQuery, Misuse, TimedOut
from headwater.views.serving.serving_queries import Bounds
from headwater.views.serving.serving_store import ServingStore


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingStore]:
    with ServingStore(tmp_path_factory.mktemp("gate") / "serving.sqlite") as store:
        store.declare("sums", [("id", "BIGINT"), ("tags", "ARRAY<STRING>")], ["id"])
        store.declare("Bag of", [("word", "STRING")])
        store.apply(
            1,
            1,
            {},
            {
                "sums": pa.table({"id": [1, 2], "tags": [["a", "b"], []], "_weight": [1, 1]}),
                "Bag of": pa.table({"word": ["x"], "_weight": [2]}),
            },
        )
        yield store


READS = {
    "SELECT count(*) AS n FROM sums": 2,
    "SELECT count(*) AS n FROM SUMS AS s JOIN sums AS t USING (id)": 2,
    'SELECT count(*) AS n FROM "bag of"': 2,
    "WITH a AS (SELECT id FROM sums) SELECT sum(id) AS n FROM a": 3,
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 5) SELECT count(*) AS n FROM c": 5,
    "SELECT count(*) AS n FROM sums, json_each(sums.tags)": 2,
    "SELECT count(value) AS n FROM json_tree('[1, [2]]') WHERE type <> 'array'": 2,
    "SELECT max(rank) AS n FROM (SELECT row_number() OVER (ORDER BY id) AS rank FROM sums)": 2,
    "SELECT length(printf('%05d', 7)) AS n": 5,
    'SELECT id AS n FROM sums WHERE id = (SELECT min(id) FROM sums) AND EXISTS (SELECT 1 FROM "Bag of")': 1,
    "SELECT sqlite_master.id AS n FROM sums AS sqlite_master ORDER BY 1 DESC LIMIT 1": 2,
    "VALUES (7)": 7,
}


@pytest.mark.parametrize("sql", READS)
def test_what_reads_views_is_answered(store: ServingStore, sql: str) -> None:
    assert store.query(sql).column(0).to_pylist() == [READS[sql]]


REFUSED = [
    "SELECT fts3_tokenizer('simple')",
    "SELECT fts3_tokenizer('simple', x'4141414141414141')",
    "SELECT token FROM fts3tokenize WHERE input = 'a'",
    "SELECT count(*) FROM fts3tokenize",
    "SELECT load_extension('x')",
    "SELECT randomblob(1000000000)",
    "SELECT sqlite_version()",
    "SELECT sqlite_source_id()",
    "SELECT sqlite_compileoption_get(1)",
    "SELECT sqlite_log(1, 'x')",
    "SELECT last_insert_rowid()",
    "SELECT changes()",
    "SELECT * FROM sqlite_master",
    "SELECT count(*) FROM sqlite_master",
    "SELECT 1 FROM sqlite_schema",
    "SELECT * FROM sqlite_temp_master",
    "SELECT frontier FROM _headwater_progress",
    "SELECT count(*) FROM _headwater_tables",
    "SELECT * FROM _headwater_probe",
    'SELECT id FROM "sums@1"',
    'WITH sums AS (SELECT _hash FROM "Bag of@2") SELECT * FROM sums',
    'SELECT _hash FROM "Bag of"',
    "SELECT name FROM pragma_table_info('sums')",
    "SELECT count(*) FROM pragma_database_list",
    "SELECT * FROM dbstat",
    "SELECT count(*) FROM dbstat",
    "SELECT * FROM sqlite_stmt",
    "SELECT rtreenode(2, x'00')",
    "SELECT rowid FROM sums",
    "SELECT (SELECT tick FROM _headwater_progress) FROM sums",
    "SELECT id FROM sums WHERE id IN sqlite_master",
    "SELECT max(1) FILTER (WHERE sqlite_version() > '') FROM sums",
    "PRAGMA query_only = OFF",
    "PRAGMA schema_version",
    "BEGIN",
    "ATTACH ':memory:' AS x",
    "CREATE TEMP TABLE x (y)",
    "CREATE VIRTUAL TABLE temp.x USING fts5(y)",
    "CREATE TEMP VIEW _headwater_probe AS SELECT 1",
    "EXPLAIN SELECT 1",
    "SELECT * FROM _headwater_tables WHERE state = ?",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_reaches_further_is_refused_and_told_nothing_of_the_inside(store: ServingStore, sql: str) -> None:
    with pytest.raises((InvalidQuery, Misuse)) as told:
        store.query(sql, ["live"] if "?" in sql else [])

    assert "0x" not in str(told.value)
    assert str(store.path) not in str(told.value)
    assert store.query("SELECT count(*) AS n FROM sums").to_pylist() == [{"n": 2}], "the next one is answered"


def test_every_function_that_this_sqlite_has_is_allowed_or_refused_by_name(store: ServingStore) -> None:
    listed = {name for (name,) in sqlite3.connect(":memory:").execute("SELECT name FROM pragma_function_list")}
    reaching_out = {name for name in listed if name.startswith(("fts", "sqlite_", "rtree", "load_", "geopoly"))}
    calls = [f'"{name}"({", ".join("1" * count)})' for name in sorted(reaching_out) for count in range(4)]

    for call in calls:
        with pytest.raises(HeadwaterError):
            store.query(f"SELECT {call}")


def test_an_answer_of_too_many_bytes_is_given_up_and_says_what_to_do(store: ServingStore) -> None:
    many = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n, printf('%.*c', 1000, 'x') FROM c"

    with pytest.raises(AnswerTooLarge) as told:
        store.asked(many, (), Bounds(None, 1 << 20, 60))
    with pytest.raises(AnswerTooLarge) as long:
        store.asked("SELECT zeroblob(2000000)", (), Bounds(None, 1 << 20, 60))

    assert told.value.message == "the answer has more than 1 MiB"
    assert {"(LIMIT),", "--query-mib."} <= set(str(told.value.hint).split())
    assert long.value.message == "the query makes a value of more than 1 MiB"
    tick, table = store.asked(many, (), Bounds(5, 1 << 20, 60))
    assert (tick, table.num_rows) == (1, 5)


def test_a_query_is_ended_in_time(store: ServingStore) -> None:
    endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"

    with pytest.raises(TimedOut):
        store.asked(endless, (), Bounds(10, 1 << 20, 0.1))
