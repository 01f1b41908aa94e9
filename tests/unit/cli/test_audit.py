"""``headwater audit``: what was changed is told, and a proof is verified without the home."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.log.home import Log
from headwater.log.maintenance.audit_trail import AuditEntry, note_audit
from tests.unit.command_line import CommandLine


@pytest.fixture
def headwater(tmp_path: Path) -> CommandLine:
    with Log(tmp_path / "home") as log:
        topic = log.topic("orders", "id BIGINT, name STRING", proof=True, partitions=2, key="id")
        topic.append([{"id": n, "name": f"n{n}"} for n in range(20)])
        log.topic("plain", "id BIGINT")
    return CommandLine(tmp_path / "home")


def without_home(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_a_row_is_proven_to_somebody_without_the_home(headwater: CommandLine, tmp_path: Path) -> None:
    assert headwater.json("audit", "checkpoint") == []
    noted = headwater.json("audit", "checkpoint", "--seal")
    assert [(each["topic"], each["partition"]) for each in noted] == [("orders", 0), ("orders", 1)]
    root, proof = noted[1]["root"], tmp_path / "proof.json"
    headwater("audit", "prove", "orders", "2", "--partition", "1", "--out", str(proof))

    held = without_home("audit", "check-proof", str(proof), "--root", root)
    wrong = without_home("audit", "check-proof", str(proof), "--root", noted[0]["root"], "--json")

    assert held.exit_code == 0
    assert held.stdout.startswith("holds: orders[1]@2 is in the tree")
    assert '"name":"n' in held.stdout
    assert (wrong.exit_code, json.loads(wrong.stdout)["ok"]) == (5, False)


def test_growth_is_shown_since_a_checkpoint_that_was_noted(headwater: CommandLine, tmp_path: Path) -> None:
    before = headwater.json("audit", "checkpoint", "--seal")[0]
    with Log(headwater.home) as log:
        log.get_topic("orders").append([{"id": n, "name": "more"} for n in range(20)])
    after = headwater.json("audit", "checkpoint", "orders", "--seal")[0]
    (tmp_path / "growth.json").write_text(headwater("audit", "prove", "orders", "--since", str(before["size"])).stdout)

    words = ["audit", "check-proof", str(tmp_path / "growth.json"), "--root", after["root"], "--old-root"]

    assert without_home(*words, before["root"]).exit_code == 0
    assert without_home(*words, after["root"]).exit_code == 5


def test_verify_names_the_place_and_leaves_with_5(headwater: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "noted.json").write_text(headwater("audit", "checkpoint", "--seal", "--json").stdout)
    sound = headwater("audit", "verify", "--noted", str(tmp_path / "noted.json"))
    assert sound.exit_code == 0
    assert "the 2 checkpoints that were noted are in its history" in sound.stdout
    (path,) = (headwater.home / "topics").glob("*-orders/0/*.parquet")
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)

    found = headwater("audit", "verify", "orders")

    assert found.exit_code == 5
    assert f"file: orders[0]@0: the file's bytes are not those that were written ({path})" in found.stdout
    assert headwater("audit", "verify", "orders", "--json").exit_code == 5


def test_mistakes_are_told_in_words(headwater: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text("{")
    (tmp_path / "list.json").write_text("{}")

    def told(*words: str) -> str:
        return str(headwater.error("audit", *words)["message"])

    assert told("verify", "plain") == 'topic "plain" keeps no proofs'
    assert told("verify", "--noted", str(tmp_path / "odd.json")).endswith("is no JSON")
    assert told("verify", "--noted", str(tmp_path / "list.json")).endswith("is no list of checkpoints")
    assert told("prove", "orders") == "a proof is of a row or of growth"
    assert told("prove", "orders", "0", "--partition", "2") == 'topic "orders" has no partition 2'
    assert told("prove", "orders", "0").startswith("no checkpoint of topic")
    assert "there is no file" in without_home("audit", "check-proof", str(tmp_path / "none"), "--root", "00").stderr


def test_the_trail_is_listed_by_key_view_and_time(headwater: CommandLine) -> None:
    assert headwater.json("audit", "ls") == []
    headwater("audit", "begin")
    headwater("backup", "create", "--to", str(headwater.home.parent / "backups"))
    with Log(headwater.home) as log:
        note_audit(log, AuditEntry("read", "support", "People", ["mail"], 3, "rows"))

    every = headwater.json("audit", "ls")

    assert [(each["action"], each["relation"], each["rows"]) for each in every] == [
        ("backup", None, 20),
        ("read", "People", 3),
    ]
    assert every[0]["who"].startswith("local:")
    assert headwater.json("audit", "ls", "--who", "support", "--view", "people") == every[1:]
    assert headwater.json("audit", "ls", "--since", "2000-01-01T00:00Z") == every
    assert headwater.json("audit", "ls", "--since", "2100-01-01T00:00Z") == []
    assert headwater.error("audit", "ls", "--since", "17")["message"] == "'17' is no time"
    assert "mail" in headwater("audit", "ls").stdout
