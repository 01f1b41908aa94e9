"""Doors of inlets: what does not pass is nowhere in the home."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

import pytest

import headwater as hw
from headwater.capture.door import Door
from headwater.errors import InvalidDeclaration, RowRefused
from headwater.inlets.dead_messages import DeadMessage, DeadMessages
from headwater.inlets.message_door import MessageDoor
from tests.unit.inlets.test_webhook import post

SECRET = "0123456789abcdef-secret"
SCHEMA = "id STRING, email STRING, card STRING, note STRING, size INT"


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.setenv("DOOR_SECRET", SECRET)
    with hw.App("shop", home=tmp_path / "home") as app:
        yield app


def bytes_of(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file())


def test_a_webhook_keeps_what_passes_its_door(app):
    topic = app.topic("hooks", SCHEMA)
    declared = hw.inlets.Webhook(topic, path="/hooks", id_column="id").taking(
        columns=["id", "email", "card", "size"], mask={"card": "redact"}, hash=["email"], hash_key="env:DOOR_SECRET"
    )
    row = {"id": "a", "email": "marker@x.org", "card": "marker-card", "note": "marker", "more": "marker", "size": 3}
    with app.inlet("hooks", declared) as inlet:
        answers = [post(inlet, json.dumps(each)).status for each in (row, row, [{**row, "id": "b"}, {"id": "c"}])]
        refused = post(inlet, json.dumps({**row, "id": "d", "size": "marker"})).status

    hashed = hmac.new(SECRET.encode(), b"marker@x.org", hashlib.sha256).hexdigest()
    kept = {"id": "a", "email": hashed, "card": "***", "note": None, "size": 3}
    nothing = {"id": "c", "email": None, "card": None, "note": None, "size": None}
    assert (answers, refused) == ([202, 200, 202], 400)
    assert list(topic.rows()) == [kept, {**kept, "id": "b"}, nothing]
    assert b"marker" not in bytes_of(app.log.home)
    assert hashed.encode() in bytes_of(app.log.home)


def test_a_dead_letter_says_nothing_of_the_message(app):
    dead = DeadMessages(app.log, "orders")
    dead.sealed = True
    error = RowRefused('row 0, column "size": "marker" is of type str')

    dead.bury([DeadMessage(b"marker", error, id="a", headers={"x": "marker"}, metadata=hw.Metadata(actor="marker"))])

    (row,) = app.get_topic("orders.dead").rows()
    assert (row["code"], row["message_id"], row["body"], row["headers"]) == ("row_refused", "a", b"", {})
    assert b"marker" not in bytes_of(app.log.home)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "this inlet leaves nothing out"),
        ({"columns": ["key", "mail"]}, 'columns names "mail", which is not a column of strict'),
        ({"columns": ["key", "id"]}, 'column "size" of "strict" cannot be left out: it is never null'),
        ({"columns": ["id", "size"]}, 'the key column "key" of strict cannot be left out'),
        ({"hash": ["size"]}, 'column "size" of "strict" cannot be hashed: a hash is a text'),
        ({"mask": {"id": "redact"}}, 'column "id" has the ids of messages, and they are kept as they are'),
    ],
)
def test_wrong_doors_are_refused(app, given, message):
    topic = app.topic("strict", "key STRING, id STRING, size INT NOT NULL", key="key")
    door = Door.declared(given.get("columns"), given.get("mask"), given.get("hash", []), "env:DOOR_SECRET")

    with pytest.raises(InvalidDeclaration) as refused:
        MessageDoor(door, app.log, topic, id_column="id")

    assert refused.value.message == message


def test_an_inlet_of_samples_has_no_door(app):
    with pytest.raises(InvalidDeclaration, match="has no door"):
        app.inlet("metrics", hw.inlets.StatsD("samples", port=0).taking(columns=["name"]))


def test_a_column_that_the_topic_got_later_is_not_taken(app):
    topic = app.topic("hooks", "id STRING")
    door = MessageDoor(Door.declared(["id"], None, [], None), app.log, topic)
    grown = app.topic("hooks", "id STRING, late STRING")

    kept = door.batch(grown.json_batch([{"id": "a", "late": "marker"}]))

    assert kept.to_pylist() == [{"id": "a", "late": None}]
