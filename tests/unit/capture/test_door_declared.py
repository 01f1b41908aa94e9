"""Doors of captures: what is refused, and what becomes of values."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headwater as hw
from headwater.capture.database import SourceColumn, SourceTable
from headwater.capture.door import Door, at_door, secret_of
from headwater.capture.postgres.postgres_types import to_arrow
from headwater.capture.text_rows import TextRows
from headwater.errors import InvalidDeclaration

SECRET = "0123456789abcdef-secret"
COLUMNS = {"id": pa.int64(), "mail": pa.string(), "raw": pa.binary(), "price": pa.decimal128(9, 2), "at": pa.float64()}
TABLE = SourceTable("public.t", tuple(SourceColumn(name, kind, to_arrow, 1) for name, kind in COLUMNS.items()), ("id",))


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("DOOR_SECRET", SECRET)
    with hw.Log(tmp_path / "home") as log:
        yield log


def applied(log, columns=None, mask=None, hash=()):
    door = Door.declared(columns, mask, hash, "env:DOOR_SECRET")
    assert door is not None
    opened = door.opened(log)
    opened.check(TABLE, ["stored"])
    return opened.applied(TABLE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": ["mail"]}, 'the key column "id" of public.t cannot be left out'),
        ({"columns": ["id", "mial"]}, 'columns names "mial", which is not a column of public.t'),
        ({"mask": {"mial": "null"}}, 'mask names "mial", which is not a column of public.t'),
        ({"hash": ["mial"]}, 'hash names "mial", which is not a column of public.t'),
        ({"mask": {"id": "null"}}, 'the key column "id" of public.t cannot be masked'),
        ({"mask": {"price": "redact"}}, '"price" is DECIMAL(9,2) and cannot take mask="redact" before it is stored'),
        ({"mask": {"mail": "rot13"}}, "mask cannot be 'rot13'"),
        ({"hash": ["at"]}, '"at" is DOUBLE and cannot be hashed'),
        ({"hash": ["mail"], "mask": {"mail": "null"}}, '"mail" is masked and hashed'),
        ({"hash": "mail"}, "hash cannot be 'mail'"),
        ({"columns": ["id"], "hash": ["mail"]}, 'hash names "mail", which is not among columns'),
    ],
)
def test_wrong_doors_are_refused(log, given, message):
    with pytest.raises(InvalidDeclaration) as refused:
        applied(log, **given)

    assert refused.value.message == message


def test_a_column_that_the_topic_has_may_be_gone_from_the_table(log):
    assert applied(log, columns=["id", "stored"]).schema.names == ["id"]


def test_a_hash_needs_a_secret_that_is_there_and_long_enough(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SHORT", "short")
    (tmp_path / "key").write_text(f"{SECRET}\n")
    for wrong in ("env:SHORT", "env:NOT_THERE", f"file:{tmp_path}/missing", "plain text", "env:"):
        with pytest.raises(InvalidDeclaration):
            secret_of(wrong)
    with pytest.raises(InvalidDeclaration, match="hash needs a secret"):
        hw.capture.Postgres("postgresql://localhost/shop", table="users", hash=["email"])

    assert secret_of(f"file:{tmp_path}/key") == SECRET.encode()


def test_what_becomes_of_values(log):
    table = applied(log, columns=["id", "mail", "raw", "price"], mask={"mail": "redact"}, hash=["id", "raw", "price"])
    texts = [["7", None], ["a", None], ["\\x00ff", None], ["1.50", None], ["0.5", "1"]]
    rows = TextRows(
        [pa.array(column, pa.string()) for column in texts], np.zeros(2, bool), {1: np.array([False, True])}
    )

    kept = at_door(rows, table).columns

    def digest(value: bytes) -> str:
        return hmac.new(SECRET.encode(), value, hashlib.sha256).hexdigest()

    assert kept[0].to_pylist() == [digest(b"7"), None]
    assert kept[1].to_pylist() == ["***", "***"]  # the second was not sent again, and is not null
    assert (kept[2].to_pylist(), kept[3].to_pylist()) == ([digest(b"\x00\xff"), None], [digest(b"1.50"), None])
    assert kept[4].to_pylist() == [None, None]
    assert table.schema.types == [pa.string()] * 4
    assert table.key_places == (0,)
    assert table.hides_key


def test_a_masked_text_has_the_hash_that_readers_of_the_home_know(log):
    table = applied(log, mask={"mail": "hash", "raw": "null"})
    rows = TextRows([pa.array(["x"], pa.string())] * 5, np.zeros(1, bool))

    kept = at_door(rows, table)

    from headwater.log.schema.column_masks import ColumnMasks

    masks = ColumnMasks(log.local.catalog.mask_secret())
    assert kept.columns[1].to_pylist() == [masks.row({"mail": "x"}, {"mail": "hash"})["mail"]]
    assert kept.columns[2].to_pylist() == [None]


def test_another_secret_is_another_door_and_the_secret_is_not_told(log, monkeypatch):
    door = Door.declared(None, None, ["mail"], "env:DOOR_SECRET")
    assert door is not None
    first = door.opened(log).fingerprint
    monkeypatch.setenv("DOOR_SECRET", SECRET + "x")

    assert door.opened(log).fingerprint != first
    assert SECRET not in first
