"""What does not pass a capture's door is nowhere in the home: left out, masked or hashed, from backfill and stream.

What it is: tables with markers in every column that is not to be kept, captured from every kind of database; then every
byte of the home is searched.
Invariants: what is kept is what the test computes itself from the database's rows. A value that is taken is found in
the bytes: so the search can find.
Not here: wrong declarations (``tests/unit/capture/test_door_declared.py``).
Read next: ``capture/door.py``; ``docs/privacy.md``.
"""

from __future__ import annotations

import hashlib
import hmac
import random
import string
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import InvalidDeclaration
from tests.services.captures.contents import records, same, shown
from tests.services.captures.databases import PostgresDatabase
from tests.services.captures.test_conformance import follow

SECRET = b"a secret of the test, long enough"


@pytest.fixture
def secret(tmp_path: Path) -> str:
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    return f"file:{tmp_path / 'secret'}"


def hashed(value: Any) -> str | None:
    return None if value is None else hmac.new(SECRET, str(value).encode(), hashlib.sha256).hexdigest()


def found_in(home: Path, *markers: bytes) -> set[bytes]:
    every = b"".join(path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file())
    return {marker for marker in markers if marker in every}


def test_nothing_of_what_stays_outside_is_in_the_home(database: Any, app: hw.App, secret: str) -> None:
    database.execute(
        "CREATE TABLE people (id BIGINT PRIMARY KEY, email TEXT, card TEXT, name VARCHAR(100), note TEXT, likes INT)"
    )
    chance = random.Random(5)  # so that large values cannot be compressed to fit into their row
    large = "".join(chance.choices(string.ascii_letters, k=6000))

    def put(number: int, when: str) -> str:
        texts = ", ".join(f"'marker-{column}-{when}-{number}{large}'" for column in ("email", "card"))
        columns = "(id, email, card, name, note, likes)"
        texts += f", 'marker-name-{when}', 'marker-note-{when}{large}'"
        return f"INSERT INTO people {columns} VALUES ({number}, {texts}, 1)"

    database.execute(put(1, "before"), put(2, "before"), "INSERT INTO people (id, likes) VALUES (3, 1)")
    source = database.source(
        "people",
        columns=["id", "email", "card", "name", "likes"],
        mask={"card": "redact", "name": "null"},
        hash=["email"],
        hash_key=secret,
    )
    people = app.table("people", source=source)
    follow(app)

    def expected() -> list[dict[str, Any]]:
        return [
            {
                "id": row["id"],
                "email": hashed(row["email"]),
                "card": None if row["card"] is None else "***",
                "name": None,
                "likes": row["likes"],
            }
            for row in database.rows("people")
        ]

    same(shown(people.topic), expected())
    # Large values that an update leaves alone are not sent again; the key moves; a column comes that was not named.
    database.execute(put(4, "after"), "UPDATE people SET likes = 2", "UPDATE people SET id = 9, likes = 3 WHERE id = 2")
    database.execute("UPDATE people SET email = 'marker-email-changed' WHERE id = 4", "DELETE FROM people WHERE id = 1")
    database.execute("ALTER TABLE people ADD COLUMN more VARCHAR(40) DEFAULT 'marker-more'")
    database.execute("INSERT INTO people (id, email, more) VALUES (7, 'marker-email-last', 'marker-more-7')")
    follow(app)
    same(shown(people.topic), expected())
    database.execute("TRUNCATE TABLE people", put(5, "again"))
    follow(app)

    same(shown(people.topic), expected())
    assert people.topic.schema.names == ["id", "email", "card", "name", "likes"]
    five = f"marker-email-again-5{large}"
    assert found_in(app.log.home, b"marker-", large[:40].encode(), hashed(five).encode()) == {hashed(five).encode()}  # type: ignore[union-attr]


def test_a_hashed_key_joins_and_follows_moves_deletes_and_truncates(database: Any, app: hw.App, secret: str) -> None:
    database.execute("CREATE TABLE users (email VARCHAR(100) PRIMARY KEY, country VARCHAR(9))")
    database.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, email VARCHAR(100))")
    for number in range(4):
        database.execute(f"INSERT INTO users VALUES ('marker-{number}', 'DE')")
        database.execute(f"INSERT INTO orders VALUES ({number + 400100}, 'marker-{number}')")
    users = app.table("users", source=database.source("users", hash=["email"], hash_key=secret))
    orders = app.table("orders", source=database.source("orders", hash=["email", "id"], hash_key=secret))
    # Two captures of one database have one name, and so one slot.
    follow(app)

    def expected(table: str) -> list[dict[str, Any]]:
        return [
            {name: hashed(value) if name in ("email", "id") else value for name, value in row.items()}
            for row in database.rows(table)
        ]

    same(shown(users.topic), expected("users"))
    same(shown(orders.topic), expected("orders"))
    database.execute(
        "UPDATE users SET email = 'marker-moved' WHERE email = 'marker-0'", "DELETE FROM users WHERE email = 'marker-1'"
    )
    database.execute("UPDATE users SET country = 'FR' WHERE email = 'marker-2'", "TRUNCATE TABLE orders")
    database.execute("INSERT INTO orders VALUES (400107, 'marker-2')")
    follow(app)

    same(shown(users.topic), expected("users"))
    same(shown(orders.topic), expected("orders"))
    assert shown(orders.topic)[0]["email"] in [row["email"] for row in shown(users.topic)]
    assert found_in(app.log.home, b"marker-", b"400100", b"400107") == set()


def test_another_door_reads_the_table_again(postgres: PostgresDatabase, tmp_path: Path, secret: str) -> None:
    postgres.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, email TEXT, city TEXT)")
    postgres.execute("INSERT INTO people VALUES (1, 'a@x.org', 'Rome'), (2, 'b@x.org', 'Oslo')")
    states = []
    for more in ({"columns": ["id", "email"]}, {"hash": ["email"], "hash_key": secret}, {"columns": ["id"]}):
        with hw.App("shop", home=tmp_path / "home") as app:
            people = app.table("people", source=postgres.source("people", **more))
            follow(app)
            states.append(sorted(shown(people.topic), key=lambda row: row["id"]))
            postgres.execute("UPDATE people SET city = 'Bern' WHERE id = 2")
            follow(app)
            count = people.topic.end_offsets()[0]
            follow(app)
            assert people.topic.end_offsets()[0] == count  # not again and again

    assert states[0] == [{"id": 1, "email": "a@x.org"}, {"id": 2, "email": "b@x.org"}]
    assert states[1] == [
        {"id": 1, "email": hashed("a@x.org"), "city": "Rome"},
        {"id": 2, "email": hashed("b@x.org"), "city": "Bern"},
    ]
    assert states[2] == [{"id": number, "email": None, "city": None} for number in (1, 2)]


def test_a_renamed_column_that_was_to_be_hashed_stops_the_capture(
    postgres: PostgresDatabase, app: hw.App, secret: str
) -> None:
    postgres.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, email TEXT)")
    people = app.table("people", source=postgres.source("people", hash=["email"], hash_key=secret))
    follow(app)
    postgres.execute("INSERT INTO people VALUES (1, 'x')", "ALTER TABLE people RENAME COLUMN email TO mail")
    postgres.execute("INSERT INTO people VALUES (2, 'marker-2')")

    with pytest.raises(InvalidDeclaration, match='hash names "email", which is not a column'):
        follow(app)

    assert [row["id"] for row in records(people.topic)] in ([], [1])
    assert found_in(app.log.home, b"marker-") == set()
