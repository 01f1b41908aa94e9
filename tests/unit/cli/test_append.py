"""``headwater topic append``: formats, line numbers, and going on after a refusal."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.log.home import Log
from tests.unit.command_line import CommandLine

NEW_YEAR = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = [{"id": n, "name": f"n,{n}", "at": NEW_YEAR + dt.timedelta(seconds=n)} for n in range(25)]


@pytest.fixture
def headwater(tmp_path: Path) -> CommandLine:
    command = CommandLine(tmp_path / "home")
    command(
        "topic",
        "create",
        "t",
        "--schema",
        "id BIGINT NOT NULL, name STRING, at TIMESTAMP",
        "--key",
        "id",
        "--partitions",
        "2",
    )
    return command


def stored(headwater: CommandLine) -> list[dict[str, Any]]:
    with Log(headwater.home) as log:
        return sorted(log.get_topic("t").rows(columns=["id", "name", "at"]), key=lambda row: row["id"])


def json_lines(rows: list[dict[str, Any]] = ROWS) -> str:
    return "".join(json.dumps({**row, "at": row["at"].isoformat()}) + "\n" for row in rows)


def csv(rows: list[dict[str, Any]] = ROWS) -> str:
    return "id,name,at\n" + "".join(f'{row["id"]},"{row["name"]}",{row["at"].isoformat()}\n' for row in rows)


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=7)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", json_lines().encode()),
        ("rows.jsonl.gz", gzip.compress(json_lines().encode())),
        ("rows.csv", csv().encode()),
        ("rows.csv.gz", gzip.compress(csv().encode())),
        ("rows.parquet", parquet()),
    ],
)
def test_a_file_is_appended_whole(headwater: CommandLine, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)

    appended = headwater.json("topic", "append", "t", str(tmp_path / name), "--batch-rows", "10")

    assert (appended["rows"], appended["portions"]) == (25, 3)
    assert stored(headwater) == ROWS


@pytest.mark.parametrize(
    ("file_format", "content"), [("jsonl", json_lines().encode()), ("csv", csv().encode()), ("parquet", parquet())]
)
def test_stdin_is_appended_whole(headwater: CommandLine, file_format: str, content: bytes) -> None:
    appended = headwater.json("topic", "append", "t", "-", "--format", file_format, stdin=content)

    assert appended["rows"] == 25
    assert stored(headwater) == ROWS


def test_people_are_told_how_many_rows(headwater: CommandLine) -> None:
    result = headwater("topic", "append", "t", stdin=json_lines())

    assert result.stdout.startswith('appended 25 rows to "t" in ')


def test_an_empty_input_is_no_error(headwater: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "nothing.csv").write_text("")

    assert headwater.json("topic", "append", "t", stdin="")["rows"] == 0
    assert headwater.json("topic", "append", "t", str(tmp_path / "nothing.csv"))["rows"] == 0


def test_a_refused_line_is_named_by_its_number_in_the_file(headwater: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = json_lines().splitlines()
    lines[17] = '{"id": "seventeen"}'
    path.write_text("\n\n" + "\n".join(lines))

    error = headwater.error("topic", "append", "t", str(path), "--batch-rows", "10")

    assert error["message"].startswith('line 20 of rows.jsonl, column "id": ')
    assert error["detail"] == "Before it, 10 rows were written; nothing of this batch was."
    assert "from line 13 on" in error["hint"]
    assert (error["code"], error["exit_status"]) == ("row_refused", 2)
    assert error["data"]["line"] == 20
    assert error["data"]["rows_written"] == 10
    assert len(stored(headwater)) == 10


def test_a_refused_row_of_a_csv_is_named_by_its_number(headwater: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    lines = csv().splitlines()
    lines[18] = "seventeen,x,2026-01-01"
    path.write_text("\n".join(lines))

    error = headwater.error("topic", "append", "t", str(path), "--batch-rows", "10")

    assert error["message"] == "row 18 of rows.csv, column \"id\": 'seventeen' is not a BIGINT"
    assert error["data"]["rows_written"] == 10


def test_a_null_where_none_may_be_is_named_in_parquet_too(headwater: CommandLine, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3, None, 5]}), tmp_path / "rows.parquet")

    error = headwater.error("topic", "append", "t", str(tmp_path / "rows.parquet"), "--batch-rows", "2")

    assert error["message"].startswith('row 4 of rows.parquet, column "id": ')


@pytest.mark.parametrize("written_before", [0, 1])
def test_with_a_producer_a_second_run_writes_only_the_rest(
    headwater: CommandLine, tmp_path: Path, written_before: int
) -> None:
    path = tmp_path / "rows.csv"
    if written_before:
        path.write_text(csv().replace("17,", "seventeen,", 1))
        headwater.error("topic", "append", "t", str(path), "--batch-rows", "10", "--producer", "import")
    path.write_text(csv())

    first = headwater.json("topic", "append", "t", str(path), "--batch-rows", "10", "--producer", "import")
    second = headwater.json("topic", "append", "t", str(path), "--batch-rows", "10", "--producer", "import")

    assert (first["rows"], first["skipped_rows"]) == (25 - 10 * written_before, 10 * written_before)
    assert (second["rows"], second["skipped_rows"]) == (0, 25)
    assert stored(headwater) == ROWS


def test_an_empty_csv_field_is_null_and_a_quoted_one_is_empty(headwater: CommandLine) -> None:
    headwater.json("topic", "append", "t", "--format", "csv", stdin='id,name\n1,\n2,""\n3,"a\nb"\n')

    assert [row["name"] for row in stored(headwater)] == [None, "", "a\nb"]


def test_a_malformed_csv_is_refused(headwater: CommandLine) -> None:
    error = headwater.error("topic", "append", "t", "--format", "csv", stdin="id,name\n1,a,b\n")

    assert "Expected 2 columns, got 3" in error["message"]
    assert error["exit_status"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rows.xlsx",), "the format of rows.xlsx is unknown"),
        (("missing.csv",), "missing.csv cannot be read: No such file or directory"),
        (("-", "--format", "xml"), "unknown format 'xml'"),
    ],
)
def test_an_input_that_cannot_be_read_is_misuse(headwater: CommandLine, words: tuple[str, ...], message: str) -> None:
    error = headwater.error("topic", "append", "t", *words)

    assert (error["message"], error["exit_status"]) == (message, 2)


def test_something_else_than_parquet_is_told(headwater: CommandLine) -> None:
    error = headwater.error("topic", "append", "t", "--format", "parquet", stdin=b"no magic here")

    assert error["message"].startswith("not a readable Parquet file")
