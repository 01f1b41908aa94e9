"""A topic of Debezium's messages as a table, and a table's records as such messages.

What it is: messages as the connectors of PostgreSQL and MySQL write them, with and without schema.
Invariants: the table is what the messages say, each taken once.
Not here: databases (``test_conformance.py``).
Read next: ``docs/debezium.md``.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.capture.debezium.envelope import envelopes
from headwater.cli.main import app as command_line
from tests.services.captures.contents import records, shown

SCHEMA = "id BIGINT, name STRING, price DECIMAL(6,2), born DATE, seen TIMESTAMP, local TIMESTAMP_NTZ, raw BINARY"


def follow(app: hw.App) -> None:
    app.capture(until="caught up", timeout=30)


def message(op: str, before: Any = None, after: Any = None, schema: Any = None) -> dict[str, str]:
    plain = {
        "before": before,
        "after": after,
        "op": op,
        "ts_ms": 1_700_000_000_000,
        "source": {"connector": "postgresql", "table": "users", "lsn": 24023128},
    }
    return {"value": json.dumps(plain if schema is None else {"schema": schema, "payload": plain})}


def declared(app: hw.App, **options: Any) -> tuple[Any, Any]:
    topic = app.topic("dbz.users", "value STRING")
    source = hw.capture.Debezium(
        "dbz.users", schema=options.pop("schema", "id BIGINT, name STRING"), key="id", **options
    )
    return topic, app.table("users", source=source)


def plain(table: Any) -> list[tuple[Any, ...]]:
    return [(row["id"], row["name"], row["_deleted"]) for row in records(table.topic)]


def test_every_operation(app: hw.App) -> None:
    topic, users = declared(app)
    topic.append(
        [
            message("r", None, {"id": 1, "name": "Ada"}),
            message("c", None, {"id": 2, "name": "Bob"}),
            message("u", {"id": 2, "name": "Bob"}, {"id": 2, "name": "Rob"}),
            message("d", {"id": 1, "name": None}),
            {"value": None},  # the tombstone behind a delete
            message("m"),
            message("u", {"id": 2, "name": "Rob"}, {"id": 3, "name": "Rob"}),
        ]
    )
    follow(app)

    assert plain(users) == [
        (1, "Ada", False),
        (2, "Bob", False),
        (2, "Rob", False),
        (1, None, True),
        (2, None, True),
        (3, "Rob", False),
    ]
    topic.append([message("t"), message("c", None, {"id": 9, "name": "new"})])
    follow(app)
    assert shown(users.topic) == [{"id": 9, "name": "new"}]


def test_messages_are_taken_once_over_restarts(app: hw.App, tmp_path: Path) -> None:
    topic, _ = declared(app)
    topic.append([message("c", None, {"id": 1, "name": "Ada"})])
    follow(app)
    follow(app)
    app.close()

    with hw.App("shop", home=tmp_path / "home") as again:
        topic, users = declared(again)
        topic.append([message("c", None, {"id": 2, "name": "Bob"})])
        follow(again)

        assert plain(users) == [(1, "Ada", False), (2, "Bob", False)]


def test_after_a_restart_from_scratch_the_table_is_the_same(app: hw.App) -> None:
    topic, users = declared(app)
    topic.append([message("c", None, {"id": 1, "name": "Ada"}), message("c", None, {"id": 2, "name": "Bob"})])
    topic.append([message("d", {"id": 2})])
    follow(app)

    app.captures.restart(app.log)
    follow(app)

    assert shown(users.topic) == [{"id": 1, "name": "Ada"}]


def test_values_without_a_schema(app: hw.App) -> None:
    topic, users = declared(app, schema=SCHEMA)
    after = {
        "id": 1,
        "name": "ö",
        "price": "BTk=",
        "born": 20000,
        "seen": "2024-10-04T12:00:00.5+02:00",
        "local": 1_728_043_200_123_456,
        "raw": "aGk=",
    }
    topic.append([message("c", None, after), message("c", None, {**after, "id": 2, "price": "13.37"})])
    follow(app)

    for row in shown(users.topic):
        assert row["price"] == Decimal("13.37")
        assert row["born"] == dt.date(2024, 10, 4)
        assert row["seen"] == dt.datetime(2024, 10, 4, 10, 0, 0, 500_000, tzinfo=dt.UTC)
        assert row["local"] == dt.datetime(2024, 10, 4, 12, 0, 0, 123_456)
        assert row["raw"] == b"hi"


def test_a_schema_says_how_time_is_counted(app: hw.App) -> None:
    topic, users = declared(app, schema="id BIGINT, at TIMESTAMP_NTZ")
    fields = [{"field": "id", "type": "int64"}, {"field": "at", "type": "int64", "name": "io.debezium.time.Timestamp"}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    topic.append([message("c", None, {"id": 1, "at": 1_728_043_200_123}, schema)])
    follow(app)

    assert shown(users.topic)[0]["at"] == dt.datetime(2024, 10, 4, 12, 0, 0, 123_000)


def test_values_that_the_connector_left_out_are_kept(app: hw.App) -> None:
    topic, users = declared(app)
    large = "x" * 9000
    topic.append([message("c", None, {"id": 1, "name": large}), message("c", None, {"id": 2, "name": "short"})])
    follow(app)
    topic.append([message("u", None, {"id": 1, "name": "__debezium_unavailable_value"})])
    topic.append([message("u", None, {"id": 2, "name": "__debezium_unavailable_value"})])
    follow(app)

    assert [row["name"] for row in shown(users.topic)] == [large, "short"]


@pytest.mark.parametrize("text", ["no json", "[]", '{"id": 1}', '{"op": "c", "after": null}', '{"op": "d"}'])
def test_what_is_no_envelope_ends_the_capture(app: hw.App, text: str) -> None:
    topic, _ = declared(app)
    topic.append([{"value": text}])

    with pytest.raises(hw.errors.CaptureBlocked, match=r"dbz\.users@0 is not a message of Debezium"):
        follow(app)


def test_what_goes_out_comes_in_again(app: hw.App) -> None:
    first = app.table("first", SCHEMA, key="id")
    row = {
        "id": 1,
        "name": "ö",
        "price": Decimal("13.37"),
        "born": dt.date(2024, 10, 4),
        "seen": dt.datetime(2024, 10, 4, 10, tzinfo=dt.UTC),
        "local": dt.datetime(2024, 10, 4),
        "raw": b"hi",
    }
    first.upsert([row, {**row, "id": 2}])
    first.delete([{"id": 2}])

    topic, users = declared(app, schema=SCHEMA)
    topic.append([{"value": value} for _, _, value in envelopes(first.topic)])
    follow(app)

    assert shown(users.topic) == [row]


def test_the_command_writes_a_line_for_each_record(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        f"import headwater as hw\napp = hw.App('shop', home={str(tmp_path / 'home')!r})\n"
        "users = app.table('users', 'id BIGINT, name STRING', key='id')\n"
    )
    with hw.App("shop", home=tmp_path / "home") as app:
        users = app.table("users", "id BIGINT, name STRING", key="id")
        users.upsert([{"id": 1, "name": "Ada"}])
        users.delete([{"id": 1}])

    result = CliRunner().invoke(command_line, ["capture", "export", str(file), "users"])

    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["key"], line["value"]["op"]) for line in lines] == [({"id": 1}, "u"), ({"id": 1}, "d")]
    assert lines[0]["value"]["after"] == {"id": 1, "name": "Ada"}
    assert lines[1]["value"]["before"] == {"id": 1}
