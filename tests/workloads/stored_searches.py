"""Random stored searches and documents, and what each search means.

What it is: ``random_search`` gives a query's text and, made beside it and not from it, a function of a document's row
that says whether it matches; ``random_document`` gives rows that searches of the same small world often match;
``World`` sends both to an app and knows what matches.
Invariants: nothing here imports the package. Words are cut by a regular expression; SQL has three truth values.
Not here: comparing (``tests/unit/searches/test_duel.py``, ``tests/spark/test_stored_searches.py``).
Read next: those two.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
Matcher = Callable[[Row], bool]

SCHEMA = (
    "id BIGINT, title STRING, body STRING, notes ARRAY<STRING>, price BIGINT, weight DOUBLE, cost DECIMAL(9,2), "
    "country STRING, tags ARRAY<STRING>, day DATE, at TIMESTAMP, sold BOOLEAN"
)
TEXT = ("title", "body", "notes")
WORDS = ("river", "rivers", "run", "running", "Lake", "spark", "stream", "Ölfeld", "a1", "the", "log", "x")
COUNTRIES = ("DE", "AT", "D", "New York", "it's")
TAGS = ("red", "green", "redder")
DAYS = [dt.date(2026, 1, 1) + dt.timedelta(days=n) for n in range(6)]


def words(text: str | None) -> list[str]:
    """The words of a text, as they are compared."""
    return [] if text is None else [word.lower() for word in re.findall(r"[^\W_]+", text)]


def texts(row: Row, columns: tuple[str, ...]) -> list[list[str]]:
    """The words of each text of some columns."""
    found = []
    for column in columns:
        value = row[column]
        found += [words(each) for each in (value if isinstance(value, list) else [value])]
    return found


class World:
    """What is in the tables, and in which order it came."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.moment = 0
        self.documents: dict[int, tuple[int, Row]] = {}
        self.searches: dict[str, tuple[int, bool, Matcher]] = {}

    def now(self) -> int:
        self.moment += 1
        return self.moment

    def matches(self) -> list[tuple[str, int]]:
        """What matches, by brute force."""
        return sorted(
            (search, number)
            for search, (since, look_back, matcher) in self.searches.items()
            for number, (came, row) in self.documents.items()
            if (look_back or came > since) and matcher(row)
        )

    def send(self, articles: Any, watch: Any) -> None:
        """Change something for certain."""
        before = self.moment
        while self.moment == before:
            self.change(articles, watch)

    def change(self, articles: Any, watch: Any) -> None:
        """Some documents and searches come, change and go."""
        chance = self.chance
        for _ in range(chance.choice([0, 1, 8])):
            number = chance.randint(0, 25)
            if number in self.documents and chance.random() < 0.3:
                articles.delete([{"id": number}])
                del self.documents[number]
            else:
                row = random_document(chance, number)
                articles.upsert([row])
                self.documents[number] = self.now(), row
        for _ in range(chance.choice([0, 1, 6])):
            search = f"s{chance.randint(0, 25)}"
            if search in self.searches and chance.random() < 0.3:
                watch.remove(search)
                del self.searches[search]
            else:
                query, matcher = random_search(chance)
                look_back = chance.random() < 0.5
                watch.put(search, query, look_back=look_back)
                self.searches[search] = self.now(), look_back, matcher


def random_document(chance: random.Random, number: int) -> Row:
    """A document; now and then without a value."""

    def some(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    def text(most: int) -> str:
        return chance.choice([" ", ", ", "-"]).join(chance.choices(WORDS, k=chance.randint(0, most)))

    day = chance.choice(DAYS)
    return {
        "id": number,
        "title": some(text(4)),
        "body": some(text(12)),
        "notes": some([some(text(3)) for _ in range(chance.randint(0, 2))]),
        "price": some(chance.randint(0, 12)),
        "weight": some(chance.choice([0.0, -0.0, 1.5, 2.5, float("inf"), float("nan"), -3.25])),
        "cost": some(Decimal(chance.randint(0, 400)) / 100),
        "country": some(chance.choice(COUNTRIES)),
        "tags": some([some(chance.choice(TAGS)) for _ in range(chance.randint(0, 3))]),
        "day": some(day),
        "at": some(dt.datetime(day.year, day.month, day.day, chance.randint(0, 23), 30, tzinfo=dt.UTC)),
        "sold": some(chance.random() < 0.5),
    }


def random_search(chance: random.Random) -> tuple[str, Matcher]:
    """A query and what it means."""
    if chance.random() < 0.3:
        text, truth = _sql(chance, chance.randint(0, 3))
        return f"sql: {text}", lambda row: truth(row) is True
    return _query(chance, chance.randint(0, 3))


# The query language: two truth values


def _query(chance: random.Random, depth: int) -> tuple[str, Matcher]:
    if depth == 0 or chance.random() < 0.25:
        return chance.choice([_word, _word, _phrase, _prefix, _value, _value, _range, _range, _null])(chance)
    parts = [_query(chance, depth - 1) for _ in range(chance.choice([1, 2, 2, 3]))]
    matchers = [matcher for _, matcher in parts]
    kind = chance.random()
    if kind < 0.25:
        text, matcher = parts[0]
        return chance.choice(["NOT ({})", "-({})"]).format(text), lambda row: not matcher(row)
    inner = [f"({text})" if chance.random() < 0.8 or " " in text else text for text, _ in parts]
    if kind < 0.6:
        joined = chance.choice([" ", " AND "]).join(inner)
        return joined, lambda row: all(matcher(row) for matcher in matchers)
    return " OR ".join(inner), lambda row: any(matcher(row) for matcher in matchers)


def _columns(chance: random.Random) -> tuple[str, tuple[str, ...]]:
    column = chance.choice([None, *TEXT])
    return ("", TEXT) if column is None else (f"{column}:", (column,))


def _word(chance: random.Random) -> tuple[str, Matcher]:
    name, columns = _columns(chance)
    word = chance.choice(WORDS)
    return name + word, lambda row: any(word.lower() in each for each in texts(row, columns))


def _prefix(chance: random.Random) -> tuple[str, Matcher]:
    name, columns = _columns(chance)
    start = chance.choice(["r", "ri", "run", "l", "ö", "xx", "Riv"])
    return f"{name}{start}*", lambda row: any(
        word.startswith(start.lower()) for each in texts(row, columns) for word in each
    )


def _phrase(chance: random.Random) -> tuple[str, Matcher]:
    name, columns = _columns(chance)
    wanted = chance.choices(WORDS, k=chance.randint(2, 3))
    small = [word.lower() for word in wanted]
    text = chance.choice(['"{}"', '"{}"', "{}"]).format(chance.choice([" ", "-"]).join(wanted))
    if not text.startswith('"'):
        text = "-".join(wanted)  # one word to the parser, several to the analyser

    def matches(row: Row) -> bool:
        return any(each[at : at + len(small)] == small for each in texts(row, columns) for at in range(len(each)))

    return name + text, matches


def _value(chance: random.Random) -> tuple[str, Matcher]:
    column = chance.choice(["price", "weight", "cost", "country", "tags", "day", "at", "sold"])
    if column == "price":
        price = chance.randint(0, 12)
        return f"price:{price}", lambda row: row["price"] == price
    if column == "weight":
        return "weight:1.5", lambda row: row["weight"] == 1.5
    if column == "cost":
        cost = Decimal(chance.randint(0, 400)) / 100
        return f"cost:{cost}", lambda row: row["cost"] == cost
    if column == "country":
        if chance.random() < 0.3:
            return "country:D*", lambda row: row["country"] is not None and row["country"].startswith("D")
        country = chance.choice(COUNTRIES)
        return f'country:"{country}"', lambda row: row["country"] == country
    if column == "tags":
        if chance.random() < 0.3:
            return "tags:red*", lambda row: any(tag is not None and tag.startswith("red") for tag in row["tags"] or ())
        tag = chance.choice(TAGS)
        return f"tags:{tag}", lambda row: tag in (row["tags"] or ())
    day = chance.choice(DAYS)
    if column == "day":
        return f"day:{day}", lambda row: row["day"] == day
    if column == "at":
        return f"at:{day}", lambda row: row["at"] is not None and row["at"].date() == day
    sold = chance.random() < 0.5
    return f"sold:{str(sold).lower()}", lambda row: row["sold"] is sold


def _null(chance: random.Random) -> tuple[str, Matcher]:
    column = chance.choice(["title", "price", "tags", "at", "country"])
    return f"{column}:*", lambda row: row[column] is not None


def _range(chance: random.Random) -> tuple[str, Matcher]:
    column = chance.choice(["price", "price", "weight", "cost", "country", "day", "at"])
    one, other = sorted(_bound(chance, column) for _ in range(2))
    shown = [f'"{each}"' if column == "country" else _shown(each) for each in (one, other)]
    if chance.random() < 0.5:
        sign = chance.choice([">", ">=", "<", "<="])
        compare = COMPARED[sign]
        return f"{column}:{sign}{shown[0]}", lambda row: compare(_at(row, column), _order(one)) is True
    low, high = chance.choice("[{"), chance.choice("]}")
    above, below = COMPARED[">=" if low == "[" else ">"], COMPARED["<=" if high == "]" else "<"]
    return (
        f"{column}:{low}{shown[0]} TO {shown[1]}{high}",
        lambda row: above(_at(row, column), _order(one)) is True and below(_at(row, column), _order(other)) is True,
    )


def _bound(chance: random.Random, column: str) -> Any:
    if column == "price":
        return chance.choice([chance.randint(0, 12), Decimal("4.5")])
    if column == "weight":
        return chance.choice([-1.5, 0.0, 1.5, 2.0])
    if column == "cost":
        return Decimal(chance.randint(0, 400)) / 100
    if column == "country":
        return chance.choice(COUNTRIES)
    if column == "day":
        return chance.choice(DAYS)
    day = chance.choice(DAYS)
    return dt.datetime(day.year, day.month, day.day, chance.randint(0, 23), 30, tzinfo=dt.UTC)


def _shown(value: Any) -> str:
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def _order(value: Any) -> Any:
    """As Spark orders: NaN is the greatest."""
    return (1, 0) if isinstance(value, float) and value != value else (0, value)


def _at(row: Row, column: str) -> Any:
    return None if row[column] is None else _order(row[column])


COMPARED: dict[str, Callable[[Any, Any], bool | None]] = {
    "=": lambda one, other: None if one is None or other is None else one == other,
    "<>": lambda one, other: None if one is None or other is None else one != other,
    "<": lambda one, other: None if one is None or other is None else one < other,
    "<=": lambda one, other: None if one is None or other is None else one <= other,
    ">": lambda one, other: None if one is None or other is None else one > other,
    ">=": lambda one, other: None if one is None or other is None else one >= other,
}


# SQL: three truth values

Truth = Callable[[Row], bool | None]


def _not(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _sql(chance: random.Random, depth: int) -> tuple[str, Truth]:
    if depth == 0 or chance.random() < 0.2:
        return chance.choice([_compared, _compared, _in, _between, _is_null, _contains, _like])(chance)
    parts = [_sql(chance, depth - 1) for _ in range(2)]
    kind = chance.random()
    if kind < 0.3:
        text, truth = parts[0]
        return f"NOT ({text})", lambda row: _not(truth(row))
    truths = [truth for _, truth in parts]
    if kind < 0.65:

        def both(row: Row) -> bool | None:
            found = [truth(row) for truth in truths]
            return False if False in found else None if None in found else True

        return " AND ".join(f"({text})" for text, _ in parts), both

    def either(row: Row) -> bool | None:
        found = [truth(row) for truth in truths]
        return True if True in found else None if None in found else False

    return " OR ".join(f"({text})" for text, _ in parts), either


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str | dt.date):
        escaped = _shown(value) if isinstance(value, dt.date) else value.replace("'", "''")
        return f"'{escaped}'"
    return str(value)


def _sql_column(chance: random.Random) -> str:
    return chance.choice(["price", "weight", "cost", "country", "day", "at"])


def _compared(chance: random.Random) -> tuple[str, Truth]:
    column = _sql_column(chance)
    value = None if chance.random() < 0.05 else _bound(chance, column)
    sign = chance.choice(list(COMPARED))
    compare = COMPARED[sign]
    bound = None if value is None else _order(value)
    return f"{column} {sign} {_literal(value)}", lambda row: compare(_at(row, column), bound)


def _in(chance: random.Random) -> tuple[str, Truth]:
    column = _sql_column(chance)
    values = [_bound(chance, column) for _ in range(chance.randint(1, 3))]
    values += [None] if chance.random() < 0.15 else []

    def among(row: Row) -> bool | None:
        at = _at(row, column)
        if at is None:
            return None
        if any(value is not None and at == _order(value) for value in values):
            return True
        return None if None in values else False

    text = f"{column} {{}}IN ({', '.join(map(_literal, values))})"
    if chance.random() < 0.4:
        return text.format("NOT "), lambda row: _not(among(row))
    return text.format(""), among


def _between(chance: random.Random) -> tuple[str, Truth]:
    column = _sql_column(chance)
    one, other = _bound(chance, column), _bound(chance, column)

    def between(row: Row) -> bool | None:
        at = _at(row, column)
        return None if at is None else _order(one) <= at <= _order(other)

    text = f"{column} {{}}BETWEEN {_literal(one)} AND {_literal(other)}"
    if chance.random() < 0.4:
        return text.format("NOT "), lambda row: _not(between(row))
    return text.format(""), between


def _is_null(chance: random.Random) -> tuple[str, Truth]:
    column = chance.choice(["title", "price", "tags", "at", "country"])
    if chance.random() < 0.5:
        return f"{column} IS NULL", lambda row: row[column] is None
    return f"{column} IS NOT NULL", lambda row: row[column] is not None


def _contains(chance: random.Random) -> tuple[str, Truth]:
    tag = chance.choice(TAGS)

    def contains(row: Row) -> bool | None:
        if row["tags"] is None:
            return None
        return True if tag in row["tags"] else None if None in row["tags"] else False

    return f"array_contains(tags, '{tag}')", contains


def _like(chance: random.Random) -> tuple[str, Truth]:
    start = chance.choice(["D", "New", ""])
    text = chance.choice(["country LIKE", "country NOT LIKE"])

    def like(row: Row) -> bool | None:
        return None if row["country"] is None else row["country"].startswith(start)

    return f"{text} '{start}%'", like if "NOT" not in text else lambda row: _not(like(row))
