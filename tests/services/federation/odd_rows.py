"""Rows that databases disagree about, and the same rows in every store.

What it is: ``rows`` makes a table of odd values from a seed; ``fill_…`` puts it into one store.
Invariants: each store gets every value that it can hold; what it cannot hold is null there.
Not here: the queries (``predicates.py``).
Read next: ``test_push_down.py``.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

NAMES = [
    None,
    "",
    " ",
    "a",
    "A",
    "a ",
    "ab",
    "aB",
    "AB",
    "abc",
    "ä",
    "Ä",
    "a\u0308",
    "ae",
    "ß",
    "ss",
    "SS",
    "Z",
    "z",
    "é",
    "e\u0301",
    "E",
    "İ",
    "i",
    "I",
    "ı",
    "10",
    "9",
    "%",
    "_",
    "a%",
    "a_b",
    "o'clock",
    '"quoted"',
    "line\nbreak",
    "tab\there",
    "back\\slash",
    "\U0001f600",
    "\ufffd",
    "naïve",
    "\u200b",
    "\u200ba",
    "null",
    "NULL",
    "Ａ",
    "１",
    "ﬁ",
    "fi",
]
WHOLE = [None, 0, 1, -1, 2, 7, 10, 100, 32767, -32768]
LARGE = [None, 0, 1, -1, 2**53, 2**53 + 1, 2**62, -(2**62), 2**63 - 1, -(2**63)]
PRICES = [
    None,
    *map(Decimal, ["0.00", "0.01", "-0.01", "1.00", "7.50", "9.99", "10.00", "-99999999.99", "99999999.99"]),
]
SCORES = [
    None,
    0.0,
    -0.0,
    0.1,
    0.2,
    0.30000000000000004,
    0.3,
    1.0,
    -1.5,
    1e308,
    5e-324,
    float(2**53),
    9.99,
    math.inf,
    -math.inf,
    math.nan,
]
DAYS = [
    None,
    *map(dt.date.fromisoformat, ["1000-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "2024-03-01", "9999-12-31"]),
]
MOMENTS = [
    None,
    dt.datetime(1970, 1, 2),
    dt.datetime(2024, 2, 29, 23, 59, 59, 999_999),
    dt.datetime(2024, 3, 1),
    dt.datetime(2024, 3, 31, 1, 30),
    dt.datetime(2024, 3, 31, 2, 30),
    dt.datetime(2024, 10, 27, 2, 30, 0, 500_000),
    dt.datetime(2037, 12, 31, 23, 59, 59),
]
TRUTHS = [None, True, False]
POOLS: dict[str, list[Any]] = {
    "small": WHOLE,
    "large": LARGE,
    "price": PRICES,
    "score": SCORES,
    "name": NAMES,
    "code": NAMES,
    "born": DAYS,
    "at": MOMENTS,
    "seen": MOMENTS,
    "active": TRUTHS,
}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int16()),
        ("large", pa.int64()),
        ("price", pa.decimal128(12, 2)),
        ("score", pa.float64()),
        ("name", pa.string()),
        ("code", pa.string()),
        ("born", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("seen", pa.timestamp("us")),
        ("active", pa.bool_()),
    ]
)
COLUMNS = ", ".join(f'"{name}"' for name in SCHEMA.names)


def rows(seed: int, many: int = 150) -> list[dict[str, Any]]:
    """Rows of values drawn from the pools, every name at least once."""
    dice = random.Random(seed)
    made = []
    for number in range(many):
        row = {name: dice.choice(pool) for name, pool in POOLS.items()}
        row |= {"id": number, "name": NAMES[number % len(NAMES)]}
        made.append({name: row[name] for name in SCHEMA.names})
    return made


def fill_postgres(server: Any, given: list[dict[str, Any]]) -> str:
    """``code`` is blank-padded, ``never`` is what our types cannot hold."""
    server.execute("DROP TABLE IF EXISTS odd")
    server.execute(
        'CREATE TABLE odd ("id" bigint, "small" smallint, "large" bigint, "price" numeric(12,2), "score" float8, '
        '"name" text, "code" char(12), "born" date, "at" timestamptz, "seen" timestamp, '
        '"active" boolean, "key" uuid DEFAULT gen_random_uuid(), "never" date DEFAULT \'infinity\')'
    )
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET timezone = 'UTC'")
        cursor.executemany(f"INSERT INTO odd ({COLUMNS}) VALUES ({', '.join(['%s'] * 11)})", [*map(_values, given)])
    return "public.odd"


def fill_mariadb(server: Any, given: list[dict[str, Any]]) -> str:
    """Texts have the server's own collation, which tells neither cases nor accents apart."""
    server.execute("CREATE DATABASE IF NOT EXISTS shop")
    server.execute("DROP TABLE IF EXISTS shop.odd")
    server.execute(
        "CREATE TABLE shop.odd (`id` bigint, `small` smallint, `large` bigint, `price` decimal(12,2), `score` double, "
        "`name` varchar(40), `code` char(12), `born` date, `at` timestamp(6) NULL, `seen` datetime(6), "
        "`active` boolean) CHARACTER SET utf8mb4"
    )
    options = {"database": "shop", "init_command": "SET time_zone = '+00:00'"}
    with server.connect(**options) as connection, connection.cursor() as cursor:
        finite = [{**row, "score": _finite(row["score"])} for row in given]
        cursor.executemany(f"INSERT INTO odd VALUES ({', '.join(['%s'] * 11)})", [*map(_values, finite)])
    return "odd"


def fill_sqlite(path: Path, given: list[dict[str, Any]]) -> str:
    """``code`` tells no cases apart, ``small`` has no declared type."""
    with sqlite3.connect(path) as db:
        db.execute(
            'CREATE TABLE odd ("id" INTEGER, "small", "large" BIGINT, "price" DECIMAL(12,2), "score" REAL, '
            '"name" TEXT, "code" VARCHAR(12) COLLATE NOCASE, "born" DATE, "at" TIMESTAMP, "seen" DATETIME, '
            '"active" BOOLEAN)'
        )
        db.executemany(
            f"INSERT INTO odd VALUES ({', '.join('?' * 11)})", [[*map(_plain, _values(row))] for row in given]
        )
    return "odd"


def fill_parquet(path: Path, given: list[dict[str, Any]]) -> None:
    """Row groups of ten rows, so that statistics rule some out."""
    pq.write_table(table(given), path, row_group_size=10)


def fill_csv(path: Path, given: list[dict[str, Any]]) -> None:
    """CSV as Arrow writes and reads it."""
    pyarrow.csv.write_csv(table(given).drop_columns(["at"]), path)


def fill_delta(path: Path, given: list[dict[str, Any]]) -> None:
    """Three commits, so three files with statistics of their own."""
    from deltalake import write_deltalake

    whole = table(given)
    third = len(given) // 3 + 1
    for start in range(0, len(given), third):
        write_deltalake(str(path), whole.slice(start, third), mode="append")


def table(given: list[dict[str, Any]]) -> pa.Table:
    """The rows as Arrow."""
    zoned = [{**row, "at": row["at"].replace(tzinfo=dt.UTC) if row["at"] else None} for row in given]
    return pa.Table.from_pylist(zoned, schema=SCHEMA)


def _values(row: dict[str, Any]) -> list[Any]:
    found = list(row.values())
    place = SCHEMA.names.index("at")
    if found[place] is not None:
        found[place] = found[place].replace(tzinfo=None)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, dt.date) else value


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
