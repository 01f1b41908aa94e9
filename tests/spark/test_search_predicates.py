"""SQL predicates of stored searches: Spark is the judge of what each says of each document.

What it is: random predicates, whose texts are spelled in every way that SQL has (escapes, raw texts, both quotation
marks), asked of random documents by the index of searches and by one query of Spark.
Invariants: the same documents are found; where the index refuses a predicate, it says why and nothing is compared.
Documents have the values that Spark reads in the same spellings, so that many are equal.
Not here: words and phrases (``tests/unit/searches/test_duel.py``), ticks (``test_stored_searches.py``).
Read next: ``src/headwater/searches/sql_predicate.py``.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headwater.errors import InvalidQuery
from headwater.log.schema.ddl import parse_ddl
from headwater.searches.query_index import QueryIndex, StoredSearch
from headwater.searches.search_columns import SearchColumns
from tests.unit.weighted_rows import thorough

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = parse_ddl(
    "id BIGINT, country STRING, tags ARRAY<STRING>, price BIGINT, small TINYINT, weight DOUBLE, cost DECIMAL(9,2), "
    "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, sold BOOLEAN"
)
PIECES = ["a", "B", "é", "😀", " ", "''", r"\'", r"\"", r"\\", r"\n", r"\t", r"\0", r"\b", r"\Z", r"\q", r"\%", r"\_"]
PIECES += [r"\u00e9", r"\U0001F600", r"\ud83d\ude00", r"\u12", r"\101", r"\08", r"\177", r"\378", r"\x41", "\n", '""']
LIKED = ["a", "B", "é", "''", r"\'", r"\n", r"\u00e9", r"\101", r"\%", r"\_", r"\\\\", r"\\%", r"\\_"]
NUMBERS = ["0", "1", "-1", "2", "2.5", "3.0", "1.10", ".5", "-0.0", "127", "300", "9007199254740993", "1e0", "25e-1"]
DAYS = ["2026-01-01", "2026-01-02", "2026-02-28"]
MOMENTS = [
    *DAYS,
    "2026-01-01T10:30",
    "2026-01-01 10:30:00",
    "2026-01-02T00:00:00.123456",
    "2026-01-02 00:00:00.1234567",
]
ZONED = ["2026-01-01T10:30:00Z", "2026-01-01 12:30:00+02:00"]


def text(chance: random.Random, pieces: list[str] = PIECES, end: str = "") -> str:
    """A text between quotes."""
    if chance.random() < 0.2:
        raw = ["a", r"a\%", r"\\", *([] if pieces is LIKED else [r"a\n"])]  # LIKE has an escape of its own
        return chance.choice(["r'{}'", 'R"{}"']).format(chance.choice(raw) + end)
    quote = chance.choice("'''\"")
    body = "".join(chance.choices(pieces, k=chance.randint(0, 3)))
    return quote + body.replace("''" if quote == '"' else '""', "") + end + quote


def literal(chance: random.Random, column: str, texts: list[str]) -> str:
    if chance.random() < 0.05:
        return "NULL"
    if column == "country":
        return chance.choice(texts)
    if column == "day":
        return chance.choice(["'{}'", '"{}"', "DATE '{}'"]).format(chance.choice(DAYS))
    if column in ("at", "local"):
        typed = chance.choice(["", "TIMESTAMP ", "timestamp"])
        zoned = ZONED if typed or column == "at" else []
        return f"{typed}'{chance.choice(MOMENTS + zoned)}'" if chance.random() < 0.8 else f"DATE'{chance.choice(DAYS)}'"
    return chance.choice(NUMBERS)


def predicate(chance: random.Random, texts: list[str], depth: int = 2) -> str:
    if depth and chance.random() < 0.5:
        parts = [f"({predicate(chance, texts, depth - 1)})" for _ in range(2)]
        return chance.choice([f"NOT {parts[0]}", " AND ".join(parts), " OR ".join(parts)])
    column = chance.choice(["country", "country", "price", "small", "weight", "cost", "day", "at", "local"])
    one, other, third = (literal(chance, column, texts) for _ in range(3))
    no = chance.choice(["", "NOT "])
    sign = chance.choice(["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
    return chance.choice(
        [
            f"{column} {sign} {one}",
            f"{one} {sign} {column}",
            f"{column} {no}IN ({one}, {other}, {third})",
            f"{column} {no}BETWEEN {one} AND {other}",
            f"{column} IS {no}NULL",
            f"country {no}LIKE {text(chance, LIKED, chance.choice(['', '%', '%%']))}",
            f"{no}array_contains(tags, {chance.choice(texts)})",
            f"{no}sold",
            f"sold {sign} {chance.choice(['TRUE', 'false'])}",
        ]
    )


def document(chance: random.Random, number: int, values: list[str]) -> dict[str, Any]:
    day = dt.date.fromisoformat(chance.choice(DAYS))
    moment = dt.datetime(day.year, day.month, day.day, *chance.choice([(0, 0), (10, 30), (0, 0, 0, 123456)]))
    row = {
        "country": chance.choice(values),
        "tags": [chance.choice([*values, None]) for _ in range(chance.randint(0, 2))],
        "price": chance.choice([0, 1, 2, 3, 300, 9007199254740993]),
        "small": chance.choice([0, 1, 127]),
        "weight": chance.choice([0.0, -0.0, 1.0, 1.1, 2.5, float("nan"), float("inf")]),
        "cost": chance.choice([Decimal("0.00"), Decimal("1.10"), Decimal("2.50"), Decimal("-1.00")]),
        "day": day,
        "at": moment.replace(tzinfo=dt.UTC),
        "local": moment,
        "sold": chance.random() < 0.5,
    }
    return {"id": number, **{name: None if chance.random() < 0.1 else value for name, value in row.items()}}


@pytest.mark.parametrize("seed", range(thorough(2)))
def test_a_predicate_finds_what_spark_finds(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    texts = [text(chance) for _ in range(30)]
    values = list(spark.sql(f"SELECT {', '.join(f'{each} AS t{n}' for n, each in enumerate(texts))}").collect()[0])
    likes = [value + "x" for value in values[:5]]
    rows = pa.Table.from_pylist([document(chance, n, [*values, *likes]) for n in range(40)], SCHEMA)
    index, asked, refused = QueryIndex(SearchColumns(SCHEMA, [])), list[str](), list[str]()
    for _ in range(80):
        said = predicate(chance, texts)
        try:
            index.reader.read(f"sql: {said}")
        except InvalidQuery as error:
            refused.append(f"{said}: {error.message}")
            continue
        index.put(StoredSearch(str(len(asked)), f"sql: {said}"))
        asked.append(said)

    found = index.match(rows)
    pairs = {(int(d), int(index.search(int(s)).id)) for d, s in zip(found.documents, found.slots, strict=True)}

    judged = spark.createDataFrame(rows).selectExpr("id", *(f"({said}) AS p{n}" for n, said in enumerate(asked)))
    wanted = {(row["id"], n) for row in judged.collect() for n in range(len(asked)) if row[f"p{n}"] is True}
    wrong = [(asked[n], rows.slice(d, 1).to_pylist()[0], (d, n) in wanted) for d, n in sorted(pairs ^ wanted)]
    assert wrong == []
    assert [each for each in refused if "a number without an exponent was expected" not in each] == []
    assert len(wanted) > len(asked)
