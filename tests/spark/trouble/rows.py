"""Rows: the tables that the calls are made over, and what three ticks do to them.

What it is: two tables of the same columns, one for each type that a topic can hold: ``t`` with a key, ``g`` a bag.
Column ``r`` numbers the contents: rows of the same ``r`` are equal in all columns but ``id``, so that a query can name
the contents on which a call raises, whatever id they have at the moment.
Invariants: every column has nulls, duplicates and its odd values; the same rows each time.
Not here: the rows of the implicit casts (``casts.py``) and of the constructs (``constructs.py``).
Read next: ``trial.py``.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
UTC = dt.UTC

COLUMNS: dict[str, str] = {
    "id": "BIGINT",
    "r": "INT",
    "k": "INT",
    "b": "TINYINT",
    "h": "SMALLINT",
    "i": "INT",
    "n": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "c": "DECIMAL(10,2)",
    "e": "DECIMAL(38,18)",
    "s": "STRING",
    "w": "STRING",
    "j": "STRING",
    "x": "BINARY",
    "o": "BOOLEAN",
    "dt": "DATE",
    "ts": "TIMESTAMP",
    "nt": "TIMESTAMP_NTZ",
    "ai": "ARRAY<INT>",
    "aw": "ARRAY<STRING>",
    "ad": "ARRAY<DOUBLE>",
    "af": "ARRAY<FLOAT>",
    "m": "MAP<STRING, INT>",
    "st": "STRUCT<A: INT, b: STRING>",
    "ast": "ARRAY<STRUCT<Key: STRING, v: INT>>",
}
SCHEMA = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())

NAN, INFINITY = float("nan"), float("inf")
VALUES: dict[str, Sequence[Any]] = {
    "b": [0, 1, -1, 7, 127, -128, None],
    "h": [0, 1, -3, 12, 32767, -32768, None],
    "i": [0, 1, 2, 3, -1, -7, 10, 1000, 2147483647, -2147483648, None],
    "n": [0, 1, 2, -5, 86400, 9007199254740993, 1700000000, -9223372036854775808, 9223372036854775807, None],
    "f": [0.0, 1.0, -1.5, 0.1, 1e10, NAN, INFINITY, None],
    "d": [0.0, -0.0, 1.0, 0.5, -2.5, 0.1, 1000.0, 3.5, 1e300, NAN, INFINITY, -INFINITY, None],
    "c": [Decimal("0.00"), Decimal("1.00"), Decimal("-2.50"), Decimal("3.55"), Decimal("99999999.99"), None],
    "e": [Decimal("0"), Decimal("1.5"), Decimal("-0.000000000000000001"), Decimal("12345678901234567890.5"), None],
    "s": [
        "",
        " ",
        "a",
        "A",
        "abc",
        "O'Brien",
        'say "hi"',
        "back\\slash",
        "grüße",
        "日本語",
        "😀 e\u0301",
        "a,b;c",
        "100-200",
        "Spark SQL",
        "%_",
        "a\tb\nc",
        "l'été",
        None,
    ],
    "w": [
        "1",
        "01",
        " 1",
        "1.0",
        "1e0",
        "-7",
        "42",
        "2016-12-31",
        "2016-12-31 00:12:00",
        "true",
        "yes",
        "12345.67",
        "P1D",
        None,
    ],
    "j": [
        '{"a":1,"b":"x"}',
        '{"A":2}',
        '{"a":{"b":[1,2,3]}}',
        "[1,2]",
        '"t"',
        "null",
        '{"a":null,"O\'k":true}',
        "",
        None,
    ],
    "x": [b"", b"a", b"\x00\xff", b"Spark", "grüße".encode(), None],
    "o": [True, False, None],
    "dt": [
        dt.date(2016, 2, 29),
        dt.date(2024, 12, 31),
        dt.date(1, 1, 1),
        dt.date(9999, 12, 31),
        dt.date(1970, 1, 1),
        dt.date(1582, 10, 15),
        dt.date(2016, 7, 30),
        None,
    ],
    "ts": [
        dt.datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
        dt.datetime(2024, 10, 27, 0, 59, 59, 999999, tzinfo=UTC),
        dt.datetime(1, 1, 1, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        dt.datetime(1970, 1, 1, tzinfo=UTC),
        dt.datetime(2016, 12, 31, 0, 12, tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
        None,
    ],
    "nt": [
        dt.datetime(2024, 3, 31, 2, 30),
        dt.datetime(1, 1, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59),
        dt.datetime(2016, 12, 31, 0, 12),
        dt.datetime(2016, 12, 31),
        None,
    ],
    "ai": [[], [1], [1, 2, 3], [3, None, -1, 3], [0, 2147483647], None],
    "aw": [[], [""], ["a", "b", "a"], ["O'Brien", None], ["1", "01"], None],
    "ad": [[], [1.0, 2.0, 3.0], [NAN, None, 0.5], [-1.0, 0.0, 2.0], None],
    "af": [[1.0, 2.0, 3.0], [0.5, -1.0, 2.0], [0.0, 0.0, 1.0], None],
    "m": [[], [("a", 1)], [("a", 1), ("b", None)], [("O'k", -7), ("A", 2), ("a", 3)], None],
    "st": [{"A": 1, "b": "x"}, {"A": None, "b": "O'Brien"}, {"A": -7, "b": None}, None],
    "ast": [[], [{"Key": "a", "v": 1}], [{"Key": "b", "v": None}, {"Key": "O'k", "v": 2}], None],
}
CONTENTS, TAME = 26, 7
TAME_VALUES = {"i": 4, "w": 2, "dt": 2, "ts": 2, "nt": 1, "s": 6, "j": 3, "d": 5, "af": 3}


def contents() -> list[Row]:
    """The contents, by ``r``: every value of every column occurs, in combinations that chance chose once.

    Tame values, which stand first, come together: a call that raises on others has rows on which it does not.
    """
    choice = random.Random(14)
    columns = {}
    for name, values in VALUES.items():
        tame = choice.choices(values[: TAME_VALUES.get(name, 3)], k=TAME)
        others = [*values, *choice.choices(values, k=CONTENTS)][: CONTENTS - TAME]
        choice.shuffle(others)
        columns[name] = [*tame, *others]
    return [
        {"r": number, "k": number % 4 if number % 9 else None, **{name: columns[name][number] for name in VALUES}}
        for number in range(CONTENTS)
    ]


@dataclass(frozen=True)
class Tick:
    """What happens to the tables before a tick: rows that go and rows that come, by table."""

    deleted: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    inserted: Mapping[str, Sequence[Row]] = field(default_factory=dict)


@dataclass(frozen=True)
class TableOf:
    """A table's schema and key; no key: a bag. A keyed table's row comes over the one that has its key.

    ``events``: a topic without a key, to which rows are only added.
    """

    schema: str
    key: tuple[str, ...] = ()
    events: bool = False


@dataclass(frozen=True)
class Scenario:
    """Tables, and what ticks do to them."""

    tables: Mapping[str, TableOf]
    ticks: Sequence[Tick]

    def bags(self) -> list[dict[str, list[Row]]]:
        """The rows of each table after each tick."""
        now: dict[str, list[Row]] = {name: [] for name in self.tables}
        after = []
        for tick in self.ticks:
            for name, rows in tick.deleted.items():
                for row in rows:
                    now[name].remove(self._found(name, row, now[name]))
            for name, rows in tick.inserted.items():
                for row in rows:
                    if self.tables[name].key:
                        now[name] = [old for old in now[name] if not self._same_key(name, old, row)]
                    now[name] = [*now[name], row]
            after.append({name: list(rows) for name, rows in now.items()})
        return after

    def _found(self, name: str, row: Row, rows: Sequence[Row]) -> Row:
        if self.tables[name].key:
            return next(old for old in rows if self._same_key(name, old, row))
        return next(old for old in rows if old is row or repr(old) == repr(row))

    def _same_key(self, name: str, one: Row, other: Row) -> bool:
        return all(one[column] == other[column] for column in self.tables[name].key)


def typed_rows() -> Scenario:
    """Every type: rows come, some go while others come, some change and some go."""
    every = contents()

    def numbered(ids: Sequence[int], numbers: Sequence[int]) -> list[Row]:
        return [{"id": id, **every[number]} for id, number in zip(ids, numbers, strict=True)]

    first = numbered(range(16), range(16))
    second = numbered(range(16, 28), [*range(16, 26), 3, 5])
    changed = numbered([1, 4, 17, 20], [9, 25, 2, 11])
    gone = [first[0], first[7], first[8]]
    last = [first[2], first[12], second[0]]
    # A bag's row that changes is one that goes and one that comes; its last rows are there twice.
    replaced = [first[1], first[4], second[1], second[4]]
    return Scenario(
        {"t": TableOf(SCHEMA, ("id",)), "g": TableOf(SCHEMA)},
        [
            Tick({}, {"t": first, "g": first}),
            Tick({"t": gone, "g": gone}, {"t": second, "g": [*second, *first[9:12]]}),
            Tick({"t": last, "g": [*replaced, *last, first[10]]}, {"t": changed, "g": changed}),
        ],
    )
