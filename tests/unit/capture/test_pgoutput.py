"""pgoutput messages, as bytes: what goes in comes out, in columns."""

from __future__ import annotations

import random
import struct

from headwater.capture.postgres import pgoutput
from headwater.capture.postgres.pgoutput import Tuples, after_tuple, values_of


def tuple_of(values: list[bytes | str | None]) -> bytes:
    """A tuple as the server sends it; the text "unchanged" stands for a large value that it did not."""
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, str):
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack(">I", len(value)) + value)
    return b"".join(parts)


def test_rows_of_any_lengths_come_back_as_columns() -> None:
    chance = random.Random(1)
    lengths = (0, 1, 7, 300, 70_000)
    rows = [
        [None if chance.random() < 0.3 else bytes(chance.choices(b"abcdef", k=chance.choice(lengths))) for _ in "xyz"]
        for _ in range(50)
    ]
    tuples = Tuples()

    for row in rows:
        tuples.add(memoryview(b"w" * 25 + tuple_of(list(row))), 25)

    for number, column in enumerate(tuples.columns(3)):
        assert column.values.to_pylist() == [None if row[number] is None else row[number].decode() for row in rows]
        assert column.unchanged is None


def test_a_value_that_was_not_sent_is_told_from_null() -> None:
    tuples = Tuples()
    tuples.add(memoryview(tuple_of([b"1", "unchanged", None])), 0)
    tuples.add(memoryview(tuple_of([b"2", b"there", None])), 0)

    _, second, third = tuples.columns(3)

    assert second.unchanged is not None
    assert second.unchanged.tolist() == [True, False]
    assert third.unchanged is None


def test_a_tuple_is_walked_to_its_end() -> None:
    data = memoryview(b"xx" + tuple_of([b"1", None, "unchanged", b"end"]) + b"N")

    assert data[after_tuple(data, 2)] == ord("N")
    assert values_of(data, 2) == [b"1", None, None, b"end"]


def test_a_relation_names_its_columns_types_and_key() -> None:
    columns = b"\x01id\x00" + struct.pack(">Ii", 20, -1) + b"\x00name\x00" + struct.pack(">Ii", 25, -1)
    message = b"R" + struct.pack(">I", 16385) + b"public\x00users\x00d" + struct.pack(">H", 2) + columns

    relation = pgoutput.relation_of(memoryview(message))

    assert (relation.number, relation.schema, relation.name, relation.identity) == (16385, "public", "users", "d")
    assert [(each.name, each.type_number, each.in_key) for each in relation.columns] == [
        ("id", 20, True),
        ("name", 25, False),
    ]


def test_a_truncate_names_its_tables() -> None:
    message = b"T" + struct.pack(">IBII", 2, 0, 7, 9)

    assert pgoutput.truncate_of(memoryview(message)).relations == (7, 9)


def test_rows_are_split_where_asked() -> None:
    tuples = Tuples()
    for number in range(5):
        tuples.add(memoryview(tuple_of([str(number).encode()])), 0)

    first, rest = tuples.split(2)

    assert first.columns(1)[0].values.to_pylist() == ["0", "1"]
    assert rest.columns(1)[0].values.to_pylist() == ["2", "3", "4"]
    assert first.bytes + rest.bytes == tuples.bytes
