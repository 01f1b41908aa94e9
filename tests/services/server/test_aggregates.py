"""Aggregates over HTTP: commands, states, histories; and commands that hang, leave or die.

What it is: a real server without an engine, whose commands run in processes beside it.
Invariants: whatever a command does, the server answers the next request.
Not here: deciding (``tests/unit/aggregates``).
Read next: ``src/headwater/server/commands/command_workers.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.services.server.processes import ServerProcess
from tests.waiting import eventually

APP = Path(__file__).parent / "bank_app.py"


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("bank") / "home", "--command-timeout", "4s", app=APP)
    yield server
    server.stop()


def workers(server: ServerProcess) -> list[int]:
    """The processes that run commands."""
    found = subprocess.run(["pgrep", "-P", str(server.process.pid), "-f", "command_worker"], capture_output=True)
    return [int(word) for word in found.stdout.split()]


def test_a_command_is_answered_with_events_version_and_token_and_its_repetition_with_the_same(
    bank: ServerProcess,
) -> None:
    headers = {"Idempotency-Key": "r-1", "Headwater-Actor": "anna", "Headwater-Correlation-Id": "basket-7"}

    first = bank.post("/v1/aggregates/account/7/deposit", {"cents": 10}, headers=headers)
    again = bank.post("/v1/aggregates/account/7/deposit", {"cents": 10}, headers=headers)
    other = bank.post("/v1/aggregates/account/7/deposit", {"cents": 11}, headers=headers, status=409)

    assert (first["version"], first["repeated"]) == (1, False)
    assert (again["version"], again["repeated"], again["token"]) == (1, True, first["token"])
    assert other["error"]["code"] == "request_conflict"
    (event,) = bank.get("/v1/aggregates/account/7/history")["events"]
    assert (event["type"], event["data"], event["actor"]) == ("deposited", {"cents": 10, "by": "anna"}, "anna")
    assert (event["correlation_id"], event["request_id"]) == ("basket-7", "r-1")
    assert event["command"] == {"name": "deposit", "arguments": {"cents": 10}}


def test_a_rejected_command_is_422_with_the_data_of_its_rule(bank: ServerProcess) -> None:
    bank.post("/v1/aggregates/account/poor/deposit", {"cents": 5})

    refused = bank.post("/v1/aggregates/account/poor/withdraw", {"cents": 9}, status=422)["error"]

    assert (refused["code"], refused["message"], refused["data"]) == ("rejected", "no funds", {"missing": 4})
    last = bank.get("/v1/aggregates/account/poor/history")["events"][-1]
    assert (last["version"], last["rejected"]) == (None, {"reason": "no funds", "data": {"missing": 4}})
    kind = bank.get("/v1/aggregates/account", params={"prefix": "poor", "newest": 1})
    assert kind["page"] == [{"id": "poor", "version": 1}]
    assert [each["type"] for each in kind["newest"]] == ["rejected"]


def test_another_version_than_the_expected_one_is_409(bank: ServerProcess) -> None:
    path = "/v1/aggregates/account/versioned"
    answer = bank.http.post(f"{path}/deposit", json={"cents": 5}, headers={"If-Match": '"0"'})

    late = bank.post(f"{path}/deposit", {"cents": 5}, status=409, headers={"If-Match": '"0"'})
    also = bank.post(f"{path}/deposit?expected=0", {"cents": 5}, status=409)
    wrong = bank.post(f"{path}/deposit", {"cents": 5}, status=400, headers={"If-Match": "*"})

    assert answer.headers["ETag"] == '"1"'
    assert late["error"]["code"] == also["error"]["code"] == "version_conflict"
    assert also["error"]["message"] == 'account "versioned" has version 1; expected was 0'
    assert wrong["error"]["message"] == "If-Match cannot be '*'"
    assert bank.post(f"{path}/deposit?expected=1", {"cents": 5})["version"] == 2


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("account/7/depsit", {}, 404, 'aggregate "account" has no command "depsit"'),
        ("acount/7/deposit", {}, 404, 'no aggregate "acount" was declared'),
        ("account/7/deposit", {"cents": "5"}, 400, "argument \"cents\" cannot be '5'"),
        ("account/7/deposit", {"cent": 5}, 400, 'command "deposit" has no argument "cent"'),
        ("account/7/deposit", [5], 400, "the body is no JSON object"),
        ("account/7/agree", {"rate": "1", "since": "soon"}, 400, "argument \"since\" cannot be 'soon'"),
        (
            "account/7/divide",
            {"by": 0},
            500,
            'command "divide" of account "7" raised ZeroDivisionError: integer division or modulo by zero',
        ),
        ("account/7/tentative/99/confirm", None, 422, "there is no tentative event 99 to be confirmed"),
        ("account/7/tentative/99/forget", None, 400, 'a tentative event cannot be "forget"'),
    ],
)
def test_a_wrong_request_says_what_is_wrong(
    bank: ServerProcess, path: str, body: object, status: int, message: str
) -> None:
    assert bank.post(f"/v1/aggregates/{path}", body, status=status)["error"]["message"] == message


def test_a_state_is_answered_now_and_as_of_a_version(bank: ServerProcess) -> None:
    path = "/v1/aggregates/account/state"
    bank.post(f"{path}/deposit", {"cents": 5})
    bank.post(f"{path}/agree", {"rate": "1.2500", "since": "2026-01-31"})

    now, before = bank.get(path), bank.get(path, params={"version": 1})

    assert (now["version"], now["state"]) == (2, {"cents": 5, "rate": "1.2500", "by": None, "since": "2026-01-31"})
    assert (before["version"], before["state"]["rate"]) == (1, "0")
    assert bank.get("/v1/aggregates/account/nobody", status=404)["error"]["message"] == 'there is no account "nobody"'


def test_a_tentative_event_is_settled_and_its_history_says_what_became_of_it(bank: ServerProcess) -> None:
    path = "/v1/aggregates/account/held"
    bank.post(f"{path}/deposit", {"cents": 5})
    first, second, _ = (bank.post(f"{path}/reserve", {"cents": 1})["version"] for _ in range(3))

    bank.post(f"{path}/tentative/{first}/confirm")
    bank.post(f"{path}/tentative/{second}/cancel")

    events = bank.get(f"{path}/history")["events"]
    became = [each["tentative"]["became"] for each in events if each["tentative"]]
    assert became == ["confirmed", "cancelled", "pending"]
    assert bank.get(path)["state"]["cents"] == 3
    page = bank.get(f"{path}/history", params={"limit": 2, "before": events[3]["position"]})
    assert [each["tentative"]["became"] for each in page["events"]] == ["confirmed", "cancelled"]


def test_a_command_that_hangs_is_ended_and_the_next_one_is_answered(bank: ServerProcess, tmp_path: Path) -> None:
    path = "/v1/aggregates/account/hung"
    keyed = {"Idempotency-Key": "h-1"}

    lost = bank.post(f"{path}/hang", {"until": str(tmp_path / "now")}, status=503, headers=keyed)["error"]
    (tmp_path / "now").touch()
    again = bank.post(f"{path}/hang", {"until": str(tmp_path / "now")}, headers=keyed)

    assert lost["code"] == "commit_unsure"
    assert lost["message"] == 'command "hang" to account "hung" took longer than 4 s'
    assert lost["hint"] == "Send it again with the same Idempotency-Key: a repetition gives the first answer."
    assert (again["version"], again["repeated"]) == (1, False)  # the first one was ended before it was written


def test_a_command_that_leaves_or_a_killed_process_does_not_end_the_server(bank: ServerProcess) -> None:
    quit = bank.post("/v1/aggregates/account/left/quit", status=500)["error"]
    left = bank.post("/v1/aggregates/account/left/leave", status=503)["error"]
    for pid in eventually(lambda: workers(bank)):
        os.kill(pid, signal.SIGKILL)
    after = bank.post("/v1/aggregates/account/left/deposit", {"cents": 5})

    assert (quit["code"], "raised SystemExit: 7" in quit["message"]) == ("command_failed", True)
    assert left["message"] == 'command "leave" to account "left" ended its process'
    assert left["hint"] == "Look at the history before you send it again; with an Idempotency-Key that is not needed."
    assert after["version"] == 1


def test_commands_at_the_same_time_each_have_a_version(bank: ServerProcess) -> None:
    def deposit(number: int) -> int:
        path = f"/v1/aggregates/account/busy-{number % 3}/deposit"
        return int(bank.post(path, {"cents": 1}, headers={"Idempotency-Key": f"b-{number}"})["version"])

    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(deposit, range(90)))

    assert sorted(versions) == sorted(list(range(1, 31)) * 3)
    assert [bank.get(f"/v1/aggregates/account/busy-{each}")["state"]["cents"] for each in range(3)] == [30, 30, 30]


def test_the_list_and_the_counts_are_told(bank: ServerProcess) -> None:
    bank.post("/v1/aggregates/account/counted/deposit", {"cents": 1})

    (listed,) = bank.get("/v1/aggregates")["aggregates"]
    counted = bank.get("/v1/status")["aggregates"][0]
    metrics = bank.http.get("/metrics").text

    assert (listed["name"], listed["kind"], listed["declared"]) == ("account", "aggregate", True)
    assert {"name": "cents", "type": "int", "required": True} in listed["commands"][0]["arguments"]
    assert listed["types"]["deposited"] >= 1
    assert counted["name"] == "account"
    assert counted["commands"]["accepted"] >= 1
    assert 'headwater_commands_total{aggregate="account",outcome="accepted"}' in metrics
    assert "headwater_command_seconds_sum" in metrics


def test_sending_needs_the_scope_produce_and_looking_the_scope_query(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    made = {
        scope: subprocess.run(
            [*(sys.executable, "-m", "headwater.cli.main", "key", "add"), scope, "--scope", scope, "--key-file", keys],
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
        ).stdout.split()[-1]
        for scope in ("produce", "query")
    }
    server = ServerProcess(tmp_path / "home", "--key-file", str(keys), app=APP)
    sends, looks = ({"Authorization": f"Bearer {made[scope]}"} for scope in ("produce", "query"))
    try:
        path = "/v1/aggregates/account/7"
        server.post(f"{path}/deposit", {"cents": 5}, headers=sends)
        server.get(path, headers=looks)
        server.get(f"{path}/history", headers=looks)

        assert server.post(f"{path}/deposit", {"cents": 5}, headers=looks, status=403)["error"]["code"] == "forbidden"
        assert server.get(path, headers=sends, status=403)["error"]["code"] == "forbidden"
        assert server.get(path, status=401)["error"]["code"] == "unauthenticated"
    finally:
        server.stop()
