"""``headwater searches``, from an app's file."""

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
app = hw.App("news", home={home!r})
articles = app.table("articles", "id BIGINT, title STRING, price DOUBLE", key="id")
watch = app.searches("watch", over=articles, text=["title"])
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "news.py").write_text(FILE.format(home=str(tmp_path / "home")))
    return str(tmp_path / "news.py")


def run(*words: str, status: int = 0, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, ["searches", *words], input=stdin)
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def as_json(*words: str, stdin: str | None = None) -> Any:
    return json.loads(run(*words, "--json", stdin=stdin))


def test_searches_are_put_listed_asked_and_removed(file: str) -> None:
    assert run("put", file, "watch", "s1", "rivers price:<20", "--owner", "ada", "--tag", "water").strip() == (
        'search "s1" is stored'
    )
    assert "every document is compared with it" in run("put", file, "watch", "s2", "NOT rivers", "--look-back")

    listed = as_json("list", file, "watch")
    assert [(each["id"], each["look_back"], each["tags"]) for each in listed] == [
        ("s1", False, ["water"]),
        ("s2", True, []),
    ]
    assert [each["id"] for each in as_json("list", file, "watch", "--tag", "water")] == ["s1"]
    document = '{"title": "Rivers", "price": 12}'
    assert [each["search"] for each in as_json("percolate", file, "watch", document)] == ["s1"]
    assert [each["search"] for each in as_json("percolate", file, "watch", stdin='{"title": "Lakes"}')] == ["s2"]
    run("remove", file, "watch", "s1", "s2")
    assert run("percolate", file, "watch", document).strip() == "no search matches"
    assert run("list", file, "watch").strip() == "no searches"


def test_what_is_wrong_is_said_with_its_place(file: str) -> None:
    said = run("put", file, "watch", "s1", "rivers AND price:[10 TO", status=2)

    assert "the range is not complete" in said
    assert "^^^" in said
    assert run("list", file, "watch").strip() == "no searches"
    assert "the document is not JSON" in run("percolate", file, "watch", "{", status=2)
    assert 'no searches "wach" were declared' in run("list", file, "wach", status=2)


def test_a_search_that_came_another_way_is_listed_as_broken(file: str) -> None:
    with app_of(Path(file)) as declared:
        declared.get_table("watch_searches").upsert([{"id": "odd", "query": "(rivers"}])

    assert "broken: a parenthesis is not closed" in run("list", file, "watch")
