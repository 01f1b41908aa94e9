"""``headwater claim``, ``headwater process`` and ``headwater service``, from an app's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.app_file import app_of
from headwater.cli.main import app

FILE = """
import headwater as hw
from tests.unit.aggregates.processes.transfer_bank import declare
app = hw.App("bank", home={home!r})
accounts, transfer = declare(app)
names = app.claims("username")
@app.service("double", request="n BIGINT", reply="twice BIGINT")
def double(request):
    return {{"twice": 2 * request["n"]}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "bank.py").write_text(FILE.format(home=str(tmp_path / "home")))
    return str(tmp_path / "bank.py")


def run(*words: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def as_json(*words: str, status: int = 0) -> Any:
    return json.loads(run(*words, "--json", status=status))


def test_claims_are_taken_shown_transferred_and_released(file: str) -> None:
    where = (file, "username", "ada")

    assert run("claim", "show", *where) == '"ada" is free\n'
    made = as_json("claim", "take", *where, "--owner", "u-7", "--request-id", "s-1")
    taken = as_json("claim", "take", *where, "--owner", "u-9", status=2)
    run("claim", "transfer", *where, "--owner", "u-7", "--claim", "s-1", "--to", "u-9", "--request-id", "g-1")

    assert (made["owner"], made["id"]) == ("u-7", "s-1")
    assert (taken["code"], taken["data"]["owner"]) == ("rejected", "u-7")
    assert as_json("claim", "show", *where) == {"value": "ada", "owner": "u-9", "id": "g-1"}
    assert run("claim", "release", *where, "--owner", "u-9", "--claim", "g-1") == '"ada" is free\n'


def test_a_request_is_made_run_and_shown(file: str) -> None:
    run("process", "request", file, "transfer", "source=7", "target=9", "cents=5", "--request-id", "t-1")
    data = '{"source": "7", "target": "9", "cents": 5}'
    again = as_json("process", "request", file, "transfer", "--data", data, "--request-id", "t-1")
    assert (again["status"], again["repeated"], again["request"]["source"]) == ("running", True, "7")

    assert as_json("process", "run", file) == {"transfer": 1, "double": 0}

    found = as_json("process", "show", file, "transfer", "t-1")
    assert (found["status"], found["reason"]) == ("failed", "no funds")
    shown = run("process", "show", file, "transfer", "t-1")
    assert "no funds" in shown
    assert "withdraw" in shown
    assert "no funds" in run("process", "ls", file, "transfer", "--status", "failed")
    assert as_json("process", "ls", file)[0]["failed"] == 1
    refused = as_json("process", "retry", file, "transfer", "t-1", status=2)
    assert refused["message"] == "it is failed, not stuck"
    waited = as_json("process", "request", file, "transfer", "cents=x", "source=1", "target=2", status=2)
    assert waited["code"] == "row_refused"


def test_a_service_is_listed_and_asked(file: str) -> None:
    [listed] = as_json("service", "ls", file)
    assert (listed["service"], listed["request"], listed["by"]) == ("double", "n BIGINT", "function")
    nobody = as_json("service", "ask", file, "double", "n=4", "--timeout", "50ms", status=4)
    assert nobody["code"] == "timed_out"

    with app_of(Path(file)) as served, served.answering["double"]:
        assert run("service", "ask", file, "double", "n=4", "--timeout", "30s") == '{"twice": 8}\n'
        said = as_json("service", "ask", file, "double", "--data", '{"n": 5}', "--timeout", "30s")
    assert (said["status"], said["reply"]) == ("done", {"twice": 10})
