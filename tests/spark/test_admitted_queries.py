"""A query from elsewhere reaches nothing but the relations that are shown to it, however it is written.

What it is: queries that mean harm, by the two checks that the server's query engine makes, over a home with a masked
column; then random mixings of comments, quotes and escapes around a call of Java.
Invariants: the oracle of the random ones is Java: a system property that the call would have set. The same texts, given
to Spark as they are, do set it.
Not here: the same by HTTP (``tests/services/server/test_hostile_spark.py``); texts that our own parser refuses
(``tests/unit/views/serving/test_query_admission.py``).
Read next: ``src/headwater/views/serving/query_admission.py``.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater.errors import InvalidQuery
from headwater.views.privacy.hidden_columns import HiddenColumns
from headwater.views.serving.query_admission import admitted, check_reading

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    Ask = Callable[[str], list[dict[str, Any]]]

CALL = 'reflect("java.lang.System", "setProperty", "headwater.canary", "sings")'

SECRET = "marker@x.org"
TEXTS = 150 * int(os.environ.get("HEADWATER_THOROUGH", "1"))


@pytest.fixture(scope="module")
def ask(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """A query of one who may not see the mails."""
    del spark  # it ticks
    with hw.App("shop", home=tmp_path_factory.mktemp("admitted")) as app:
        users = app.table("users", "id BIGINT, email STRING, country STRING", key="id")
        app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        users.upsert([{"id": 1, "email": SECRET, "country": "DE"}])
        app.tick()

        def answer(sql: str) -> list[dict[str, Any]]:
            contents = app._runtime.contents()
            contents.admits = True
            contents.hidden = {"users": HiddenColumns(frozenset({"email"}), frozenset({"id", "country"}))}
            return contents.reply(admitted(f"SELECT * FROM (\n{admitted(sql)}\n) LIMIT 10")).table.to_pylist()

        yield answer


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT id, email FROM Users -- of all", [{"id": 1, "email": None}]),
        ("FROM users |> SELECT id", [{"id": 1}]),
        ("SELECT /*+ BROADCAST(u) */ u.users FROM countries u", [{"users": 1}]),
        ("WITH users AS (SELECT 5 AS id) SELECT * FROM users", [{"id": 5}]),
        ("SELECT 1 /* one /* and */ a half */ AS x;", [{"x": 1}]),
        ("SELECT `using` FROM (SELECT 1 AS `using`)", [{"using": 1}]),
        (
            "SELECT r'\\d' AS a, 'it''s' AS b, 'a\\'b' AS c, \"q\" AS d, 'e' 'f' AS e",
            [{"a": "\\d", "b": "it's", "c": "a'b", "d": "q", "e": "ef"}],
        ),
        ("SELECT '-- no' AS a, '/* nor' AS `b -- c`", [{"a": "-- no", "b -- c": "/* nor"}]),
        # Spark would put values of this process there.
        ("SELECT '${env:HOME} ${system:user.home}' AS a", [{"a": "${env:HOME} ${system:user.home}"}]),
        ("SELECT count(*) AS n FROM users WHERE email IS NOT NULL", [{"n": 0}]),
        ("SELECT * FROM VALUES (1) AS t(a) JOIN range(1) ON a = id + 1", [{"a": 1, "id": 0}]),
    ],
)
def test_a_query_is_what_its_words_say(ask: Ask, sql: str, rows: list[dict[str, Any]]) -> None:
    assert ask(sql) == rows


# Spark, given these as they are, calls Java; our words say that the call is in a text or in a comment.
OTHERWISE = [
    f"SELECT 1 AS a, -- \\\n'\n{CALL} AS b -- '",
    f"SELECT /* /*+ */ {CALL} AS b, -- */\n1 AS a",
    f"SELECT 1 /*+ x */ AS a, 'b\\' , {CALL} AS c -- '",
]
HOSTILE = [
    f"SELECT /* /* */ 1 AS x -- */ , {CALL}\n",
    f"SELECT 1 AS a -- \\\n, {CALL} AS b",
    f"SELECT r'\\', {CALL}, ' AS c",
    f"SELECT `builtin`.`{CALL[:7]}`{CALL[7:]}",
    "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getProperty', 'user.home')",
    "SELECT * FROM IDENTIFIER('us' || 'ers')",
    "SELECT * FROM _every",
    "SELECT u.*, e.email FROM users u, _every e",
    "SELECT * FROM global_temp.users",
    "SELECT * FROM spark_catalog.default.users",
    "SELECT * FROM text.`{secret}`",
    "SELECT * FROM binaryFile.`{secret}`",
    "SELECT /* /* */ 1 AS x -- */ FROM text.`{secret}`\n",
    "SELECT * FROM headwater.`users`",
    "SELECT from_xml('<a><b>1</b></a>', 'b INT', map('rowValidationXSDPath', '{secret}'))",
    "SELECT schema_of_xml('<a><b>1</b></a>', map('rowValidationXSDPath', '{secret}'))",
    "SELECT from_avro(x'00', '\"int\"', map('avroSchemaUrl', '{secret}'))",
    "SELECT from_protobuf(x'00', 'A', '{secret}')",
    "SELECT input_file_name() FROM users",
    "SELECT _metadata.file_path FROM users",
    "SELECT * FROM python_worker_logs()",
    "SELECT * FROM users LATERAL VIEW reflect('java.lang.System', 'getProperty', 'user.home') t AS x",
    "SELECT TRANSFORM (id) USING 'cat {secret}' AS (x) FROM users",
    "FROM users MAP id USING 'cat {secret}' AS x",
    "SELECT 1; CREATE TEMPORARY VIEW left AS SELECT 1",
    "CREATE TEMPORARY VIEW left AS SELECT * FROM users",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "DECLARE x INT",
    "BEGIN SELECT 1; END",
    "SET spark.sql.runSQLOnFiles = true",
    "ADD JAR '{secret}'",
    "USE default",
    "RESET",
    "SELECT 1) UNION ALL (SELECT 2",
]


@pytest.mark.parametrize("sql", HOSTILE)
def test_what_reaches_out_of_a_query_is_refused_and_tells_nothing(ask: Ask, tmp_path: Path, sql: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("it is a secret")

    with pytest.raises(InvalidQuery) as refused:
        ask(sql.replace("{secret}", str(secret)))

    assert not [each for each in (SECRET, "it is a secret") if each in str(refused.value)]


@pytest.mark.parametrize("sql", OTHERWISE)
def test_what_spark_would_read_otherwise_is_read_as_we_do(spark: SparkSession, ask: Ask, sql: str) -> None:
    assert spark._jvm is not None

    (row,) = ask(sql)

    assert row["a"] == 1
    assert spark._jvm.java.lang.System.getProperty("headwater.canary") is None


PIECES = [
    *["/*", "*/", "/* c */", "/*+", "--", "-- \\\n", "\n", " ", "\\", "\\\\", "\\u0027", "\r", "\u00a0"],
    *["'", "''", "\\'", '"', '""', "`", "``", "r'", 'R"', "x", "'a'", '"a"', "`a`", ", 2", "${spark.app.name}", ";"],
    *[f", {CALL} AS b", f"' , {CALL} AS b -- '", f"*/ , {CALL} AS b /*", f"\n, {CALL} AS b -- "],
    *["/* /*+ */", "-- */\n", f", -- \\\n'\n{CALL} AS b -- '"],
]


def test_whatever_stands_between_quotes_and_comments_spark_is_given_no_call_of_java(
    spark: SparkSession, ask: Ask
) -> None:
    assert spark._jvm is not None
    java, chance, sang, answered = spark._jvm.java.lang.System, random.Random(20261119), 0, 0
    for _ in range(TEXTS):
        sql = "SELECT 1 AS a " + "".join(chance.choices(PIECES, k=chance.randint(1, 7)))

        with contextlib.suppress(InvalidQuery):
            answered += bool(ask(sql))
        assert java.getProperty("headwater.canary") is None, sql

        try:
            spark.sql(sql).collect()
        except Exception:  # most are no SQL at all
            continue
        sang += java.clearProperty("headwater.canary") is not None

    assert sang > TEXTS // 50
    assert answered > TEXTS // 50


def test_a_text_that_spark_cuts_into_other_words_is_refused(spark: SparkSession) -> None:
    for sql in ("SELECT 1 -- \\\n, 2", "SELECT 1 /* /* */ */", "SELECT '${x}' /**/"):
        with pytest.raises(InvalidQuery, match="read in two ways"):
            check_reading(spark, sql)
