"""The entry point: homes, errors, exit statuses, help."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from headwater import __version__
from headwater.cli.log import topic_commands
from headwater.cli.main import _with_one_noun, app
from headwater.errors import Backpressure, Conflict, CorruptSegment, HeadwaterError, RowRefused
from headwater.log.home import Log

runner = CliRunner()


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
    else:
        for name, child in children.items():
            yield from leaves(child, (*path, name))


VERBS = list(leaves(get_command(app)))


@pytest.mark.parametrize(("path", "command"), VERBS, ids=[" ".join(path) for path, _ in VERBS])
def test_every_verb_has_json_and_an_example(path: tuple[str, ...], command: Any) -> None:
    result = runner.invoke(app, [*path, "--help"])

    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert f"headwater {' '.join(path)}" in result.stdout.split("Usage:")[1].split("\n", 1)[1]
    assert command.help


def test_the_home_may_stand_before_or_after_the_verb_or_in_the_environment(tmp_path: Path) -> None:
    for name in ("before", "after", "environment"):
        with Log(tmp_path / name) as log:
            log.topic(name, "x INT")

    before = runner.invoke(app, ["--home", str(tmp_path / "before"), "topic", "ls", "--json"])
    after = runner.invoke(
        app, ["--home", str(tmp_path / "before"), "topic", "ls", "--json", "--home", str(tmp_path / "after")]
    )
    environment = runner.invoke(app, ["topic", "ls", "--json"], env={"HEADWATER_HOME": str(tmp_path / "environment")})

    names = [json.loads(result.stdout)[0]["name"] for result in (before, after, environment)]
    assert names == ["before", "after", "environment"]


def test_a_reading_verb_makes_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_HOME", raising=False)

    result = runner.invoke(app, ["topic", "ls"])

    assert result.exit_code == 2
    assert result.stderr.startswith("error: no Headwater home at headwater-data")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RowRefused("a row", row=1), 2),
        (Conflict("somebody was faster"), 3),
        (Backpressure("too full"), 4),
        (CorruptSegment("broken", file="x"), 5),
        (HeadwaterError("something"), 1),
    ],
)
def test_an_error_becomes_its_status_and_its_document(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: HeadwaterError, status: int
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(topic_commands, "opened_log", fail)
    result = runner.invoke(app, ["topic", "ls", "--json", "--home", str(tmp_path)])

    assert result.exit_code == status
    assert json.loads(result.stderr) == error.to_dict()
    assert result.stdout == ""


def test_an_error_for_people_has_three_parts_and_no_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise Conflict("it is taken [by x]", detail="By another.", hint="Wait.")

    monkeypatch.setattr(topic_commands, "opened_log", fail)
    result = runner.invoke(app, ["topic", "ls", "--home", str(tmp_path)])

    assert result.stderr == "error: it is taken [by x]\n  By another.\n  hint: Wait.\n"


def test_a_bug_shows_its_trace_and_asks_to_be_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(topic_commands, "opened_log", fail)
    result = runner.invoke(app, ["topic", "ls", "--home", str(tmp_path)])
    document = json.loads(runner.invoke(app, ["topic", "ls", "--json", "--home", str(tmp_path)]).stderr)

    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "Please report it" in result.stderr
    assert "ZeroDivisionError" in document["detail"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["topic", "lst"], "no such command 'lst'"),
        (["topic", "ls", "--jsno"], "no such option: --jsno"),
        (["topic", "describe"], "missing argument 'NAME'"),
        (["topic", "tail", "t", "-n", "many"], "invalid value for"),
    ],
)
def test_a_mistyped_call_is_misuse(words: list[str], message: str) -> None:
    people = runner.invoke(app, words)
    programs = runner.invoke(app, [*words, "--json"])

    assert (people.exit_code, programs.exit_code) == (2, 2)
    assert people.stderr.lower().startswith(f"error: {message}".lower())
    assert json.loads(programs.stderr)["code"] == "misuse"


def test_the_version_is_the_package_s() -> None:
    assert runner.invoke(app, ["--version"]).stdout == f"headwater {__version__}\n"


def test_the_command_line_is_there_where_no_command_is_on_the_path() -> None:
    told = subprocess.run([sys.executable, "-m", "headwater", "--version"], capture_output=True, text=True, check=True)

    assert told.stdout == f"headwater {__version__}\n"


def test_a_noun_alone_is_as_it_is_among_all() -> None:
    def shown(command: Any) -> Any:
        verbs = {name: shown(each) for name, each in getattr(command, "commands", {}).items()}
        options = [(each.name, each.opts, each.secondary_opts, getattr(each, "help", "")) for each in command.params]
        return options, command.help, verbs

    options, help_text, nouns = shown(get_command(app))

    for name, noun in nouns.items():
        assert shown(get_command(_with_one_noun(name))) == (options, help_text, {name: noun})
    assert _with_one_noun("--json") is app
