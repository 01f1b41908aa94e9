"""What a stranger may ask Spark: one SELECT, and nothing that reaches out of it."""

from __future__ import annotations

import pytest

from headwater.errors import InvalidQuery
from headwater.views.serving.query_admission import admitted

READS = [
    "SELECT 1",
    "VALUES (1)",
    "SELECT a FROM t UNION SELECT b FROM u",
    "WITH a AS (SELECT 1) SELECT * FROM a",
    "SELECT * FROM a JOIN b USING (id)",
    "SELECT transform(array(1, 2), x -> x + 1)",
    "SELECT 'reflect(1)' AS reflect",
    "SELECT \"using 'cat'\" AS x -- DROP TABLE a",
    "SELECT country FROM orders ORDER BY 1 LIMIT 3",
    "SELECT count(*) FROM orders GROUP BY window(at, '1 hour')",
]
NOT_READS = [
    "",
    ";",
    "DROP TABLE a",
    "SELECT 1; SELECT 2",
    "SET a = 1",
    "ADD JAR 'x'",
    "SHOW TABLES",
    "EXPLAIN SELECT 1",
    "INSERT INTO a SELECT 1",
    "WITH x AS (INSERT INTO a SELECT 1) SELECT 1",
    "CREATE VIEW x AS SELECT 1",
    "SELECT reflect('java.lang.System', 'exit', 0)",
    "SELECT `Java_Method` ('a', 'b')",
    "SELECT try_reflect/**/('a', 'b')",
    "SELECT TRANSFORM(a) USING 'cat' FROM t",
    "SELECT * FROM (SELECT TRANSFORM(a) USING 'cat' FROM t)",
    "FROM t MAP a USING 'cat'",
    "FROM t SELECT TRANSFORM(a) USING r'cat'",
    "SELECT 1) UNION ALL (SELECT 2",
    "SELECT 1 /* /* */",
    "SELECT /*+",
    "SELECT * FROM identifier ('t')",
    "SELECT " + "(" * 5000 + "1" + ")" * 5000,
]


@pytest.mark.parametrize("sql", READS)
def test_a_read_is_let_through(sql: str) -> None:
    admitted(sql)


@pytest.mark.parametrize("sql", NOT_READS, ids=[sql[:40] for sql in NOT_READS])
def test_what_is_no_read_is_refused(sql: str) -> None:
    with pytest.raises(InvalidQuery):
        admitted(sql)
