"""What a newcomer meets: init, completion, help by purpose, and how quickly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.aggregates import Rejected
from headwater.cli.app_argument import app_of
from headwater.cli.main import PANELS, app
from headwater.log.home import Log
from headwater.views.state.manifest import Manifest, Manifests
from tests.unit.command_line import SOURCE

runner = CliRunner()
# Importing these takes longer than all that --help needs.
HEAVY = {"pyarrow", "numpy", "pandas", "pyspark", "sqlglot", "rich.table"}


def test_init_writes_an_app_that_declares_a_topic_a_table_and_a_view(tmp_path: Path) -> None:
    written = runner.invoke(app, ["init", str(tmp_path / "new" / "shop"), "--json"])

    with app_of(tmp_path / "new" / "shop" / "app.py") as declared:
        assert [topic.name for topic in declared.log.topics()] == ["customers", "orders"]
        assert [view.name for view in declared.views] == ["revenue"]
    assert [Path(path).name for path in json.loads(written.stdout)["written"]] == ["app.py", "README.md"]
    assert len((tmp_path / "new" / "shop" / "README.md").read_text().splitlines()) == 4


def test_the_template_accounts_takes_and_rejects_commands(tmp_path: Path) -> None:
    runner.invoke(app, ["init", str(tmp_path / "bank"), "--template", "accounts"], catch_exceptions=False)

    with app_of(tmp_path / "bank" / "app.py") as declared:
        accounts = declared.get_aggregate("account")
        accounts.send("anna", "deposit", cents=500)
        with pytest.raises(Rejected, match="no funds"):
            accounts.send("anna", "withdraw", cents=900)
        assert accounts.get("anna").cents == 500
        assert [view.name for view in declared.views] == ["balances"]


def test_a_template_that_is_not_there_is_told(tmp_path: Path) -> None:
    result = runner.invoke(app, ["init", str(tmp_path / "bank"), "--template", "bank"])

    assert result.exit_code == 2
    assert 'there is no template "bank"' in result.stderr
    assert "shop and accounts" in result.stderr
    assert not (tmp_path / "bank").exists()


@pytest.mark.parametrize("name", ["app.py", "README.md"])
def test_init_overwrites_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")

    result = runner.invoke(app, ["init", str(tmp_path)])

    assert result.exit_code == 2
    assert f"{name} is there already" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    plain = runner.invoke(app, ["completion", shell])
    programs = runner.invoke(app, ["completion", shell, "--json"])

    assert "_HEADWATER_COMPLETE" in plain.stdout
    assert json.loads(programs.stdout)["script"].strip() == plain.stdout.strip()


def test_completion_is_installed_for_the_shell_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    installed = runner.invoke(app, ["completion", "install", "--json"])
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    refused = runner.invoke(app, ["completion", "install"])

    path = Path(json.loads(installed.stdout)["installed"])
    assert path.is_relative_to(tmp_path)
    assert "_HEADWATER_COMPLETE" in path.read_text()
    assert refused.exit_code == 2


def completed(*words: str, home: Path) -> list[str]:
    """What bash is offered behind these words."""
    environment = {
        **os.environ,
        "_HEADWATER_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["headwater", *words]),
        "COMP_CWORD": str(len(words)),
        "PYTHONPATH": str(SOURCE),
        "HEADWATER_HOME": str(home),
    }
    ran = subprocess.run(
        [sys.executable, "-m", "headwater.cli.main"], env=environment, capture_output=True, text=True, check=False
    )
    return ran.stdout.split()


def test_verbs_and_the_names_of_a_home_are_completed(tmp_path: Path) -> None:
    about: Any = {"fingerprint": "f1", "created_tick": 1}
    views = dict.fromkeys(("revenue", "returns", "total"), about)
    with Log(tmp_path) as log:
        for name in ("orders", "organs", "users"):
            log.topic(name, "id BIGINT")
        manifests = Manifests(log.catalog, "shop")
        manifests.commit(Manifest(tick=1, epoch=manifests.take_over(), views=views))

    assert completed("topic", "ta", home=tmp_path) == ["tail"]
    assert completed("topic", "tail", "or", home=tmp_path) == ["orders", "organs"]
    assert completed("view", "changes", "re", home=tmp_path) == ["returns", "revenue"]
    assert completed("topic", "tail", "or", home=tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_help_is_grouped_by_purpose() -> None:
    shown = runner.invoke(app, ["--help"]).stdout

    places = [shown.find(f"─ {panel} ─") for panel in PANELS]
    assert -1 not in places
    assert places == sorted(places)
    assert "─ Commands ─" not in shown, "a command has no rich_help_panel"


def test_the_command_line_imports_nothing_heavy_before_it_knows_what_to_do() -> None:
    code = "import sys, json, headwater.cli.main; print(json.dumps(sorted(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}

    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert HEAVY & set(json.loads(run.stdout)) == set()
