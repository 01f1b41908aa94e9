"""Claims, processes and services over HTTP.

What it is: a real server without an engine; the test's own process carries requests out and answers services.
Not here: their rules (``tests/unit/aggregates``). Read next: ``src/headwater/server/routes/process_routes.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.app import App
from headwater.app_file import app_of
from tests.services.server.processes import ServerProcess

FILE = Path(__file__).parent / "transfer_app.py"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes") / "home"


@pytest.fixture(scope="module")
def app(home: Path) -> Iterator[App]:
    os.environ["SERVED_SHOP_HOME"] = str(home)
    with app_of(FILE) as app:
        yield app


@pytest.fixture(scope="module")
def server(home: Path, app: App) -> Iterator[ServerProcess]:
    app.get_aggregate("account").send("a", "deposit", cents=100)
    server = ServerProcess(home, app=FILE)
    yield server
    server.stop()


def test_a_claim_is_taken_once_and_the_second_is_told_by_whom(server: ServerProcess) -> None:
    where, key = "/v1/claims/username/ada", {"Idempotency-Key": "s-1"}

    first = server.post(where, {"owner": "u-7"}, headers=key)
    again = server.post(where, {"owner": "u-7"}, headers=key)
    taken = server.post(where, {"owner": "u-9"}, 422)["error"]

    assert (first["owner"], first["id"], again["repeated"]) == ("u-7", "s-1", True)
    assert (taken["code"], taken["data"]) == ("rejected", {"value": "ada", "owner": "u-7"})
    assert server.get(where) == {"value": "ada", "owner": "u-7", "claim": "s-1"}
    given = server.post(f"{where}/release", {"owner": "u-7", "claim": "s-1", "to": "u-9"})
    server.post(f"{where}/release", {"owner": "u-7", "claim": "s-1"}, 422)
    assert server.post(f"{where}/release", {"owner": "u-9", "claim": given["id"]})["released"]
    assert server.get(where)["owner"] is None
    assert server.get("/v1/claims/usernam/ada", 404)["error"]["code"] == "unknown_aggregate"


def test_a_request_is_made_carried_out_and_looked_at(server: ServerProcess, app: App) -> None:
    asked = {"source": "a", "target": "b", "cents": 30}
    key = {"Idempotency-Key": "t-1", "Headwater-Actor": "anna"}

    made = server.post("/v1/processes/transfer", asked, headers=key)
    assert (made["status"], made["request_id"], made["repeated"]) == ("running", "t-1", False)
    assert server.get("/v1/processes")["processes"][0]["open"] == 1
    app.get_process("transfer").drain()

    again = server.post("/v1/processes/transfer", asked, headers=key)
    assert (again["status"], again["repeated"], again["result"]) == ("finished", True, {"moved": 30})
    assert [step["status"] for step in server.get("/v1/processes/transfer/t-1")["steps"]] == ["done", "done"]
    assert app.get_aggregate("account").history("b")[0].metadata.actor == "anna"  # type: ignore[union-attr]
    other = server.post("/v1/processes/transfer", {**asked, "cents": 31}, 409, headers=key)
    assert other["error"]["code"] == "request_conflict"


def test_a_request_that_is_stuck_is_found_and_tried_again(server: ServerProcess, app: App) -> None:
    accounts, transfer = app.get_aggregate("account"), app.get_process("transfer")
    accounts.send("c", "deposit", cents=5)
    server.post(
        "/v1/processes/transfer", {"source": "c", "target": "x", "cents": 5}, headers={"Idempotency-Key": "t-2"}
    )
    accounts.send("x", "close")
    accounts.send("c", "close")
    transfer.drain()

    [stuck] = server.get("/v1/processes/transfer", params={"status": "stuck"})["requests"]
    assert stuck["request_id"] == "t-2"
    accounts.send("c", "open")
    server.post("/v1/processes/transfer/t-2/retry")
    transfer.drain()
    assert server.get("/v1/processes/transfer/t-2?wait=5")["status"] == "failed"
    assert server.post("/v1/processes/transfer/t-2/retry", status=422)["error"]["code"] == "rejected"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/processes/transfr", {}, 404, "unknown_aggregate"),
        ("/v1/processes/transfer", {"cents": "many"}, 400, "row_refused"),
        ("/v1/processes/transfer", [], 400, "misuse"),
        ("/v1/services/triple", {}, 404, "unknown_aggregate"),
        ("/v1/services/double?timeout=0.05", {"n": 7}, 504, "timed_out"),
        ("/v1/claims/username/bob", {}, 400, None),
    ],
)
def test_what_makes_no_sense_has_its_status(
    server: ServerProcess, path: str, body: Any, status: int, code: str | None
) -> None:
    error = server.post(path, body, status)["error"]

    assert code is None or error["code"] == code


def test_a_service_answers_once(server: ServerProcess, app: App) -> None:
    with app.answering["double"]:
        first = server.post("/v1/services/double?timeout=30", {"n": 4}, headers={"Idempotency-Key": "q-1"})
        again = server.post("/v1/services/double?timeout=20", {"n": 4}, headers={"Idempotency-Key": "q-1"})
        rejected = server.post("/v1/services/double?timeout=30", {"n": -1}, 422)["error"]
        failed = server.post("/v1/services/double?timeout=30", {"n": 100}, 500)["error"]

    assert first == again == {"request_id": "q-1", "reply": {"twice": 8}}
    assert (rejected["message"], rejected["data"]) == ("too small", {"least": 0})
    assert (failed["code"], "ZeroDivisionError" in failed["message"]) == ("service_failed", True)
    assert server.get("/v1/services")["services"][0]["reply"] == ["twice"]
    assert server.get("/v1/processes/transfer/t-9", 404)["error"]["code"] == "unknown_request"
