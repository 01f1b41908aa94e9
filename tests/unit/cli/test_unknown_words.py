"""Unknown nouns, verbs and options: what was meant is named, and what exists.

Invariants: every noun, verb and option of the command line is tried, misspelt in a way that a person would.
Not here: wrong values (the tests of each noun). Read next: ``src/headwater/cli/unknown_words.py``.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from headwater.cli.main import app

runner = CliRunner()


def places(command: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every group and every verb, with the root."""
    inner = getattr(command, "commands", {})
    return [(path, command), *(place for name, each in inner.items() for place in places(each, (*path, name)))]


PLACES = places(get_command(app))
IDS = [" ".join(("headwater", *path)) for path, _ in PLACES]


def refused(*words: str) -> tuple[str, str]:
    """What is said of a call: detail and hint."""
    result = runner.invoke(app, [*words, "--json"])
    assert (result.exit_code, result.stdout) == (2, "")
    said = json.loads(result.stderr)
    assert said["code"] == "misuse"
    return said["detail"], said["hint"]


def misspelt(word: str) -> str:
    """Two letters in the wrong order, or a letter twice where that is another word or too short a one."""
    return word[:-2] + word[-1] + word[-2] if len(word) > 3 and word[-1] != word[-2] else word + word[-1]


@pytest.mark.parametrize(("path", "command"), PLACES, ids=IDS)
def test_a_misspelt_word_is_answered_with_the_right_one_and_with_all_that_exist(
    path: tuple[str, ...], command: Any
) -> None:
    commands = getattr(command, "commands", {})
    options = [name for each in command.params for name in each.opts if name.startswith("--")]

    for right in commands:
        detail, hint = refused(*path, misspelt(right))
        assert right in hint.removesuffix("--help").split("?")[0].split()
        assert set(commands) <= set(detail.rstrip(".").replace(",", " ").split())
    for right in options:
        detail, hint = refused(*path, misspelt(right))
        assert right in hint.split("?")[0].split()
        assert set(options) <= set(detail.rstrip(".").replace(",", " ").split())


def test_a_verb_without_its_noun_is_answered_with_the_noun() -> None:
    assert "topic append" in refused("append", "orders")[1]
    assert "aggregate history" in refused("history")[1]


def test_what_is_like_nothing_is_answered_with_all_there_is() -> None:
    detail, hint = refused("topic", "qqqq")

    assert detail == "`headwater topic` has the verbs append, create, delete, describe, ls, tail."
    assert hint == "See: headwater topic --help"
