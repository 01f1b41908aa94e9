"""Search: the index answers, from Python and from the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.errors import InvalidQuery, Unavailable
from headwater.log.home import Log
from headwater.sinks import Search
from headwater.sinks.runner.sink_status import SinkState
from headwater.sinks.runner.sink_task import SinkTask
from tests.services.sinks.synthetic import SyntheticView

ARTICLES = [
    {"id": 1, "title": "Breakfast in Paris", "body": "Coffee and croissants", "tags": ["food"], "language": "en"},
    {"id": 2, "title": "Supper", "body": "No breakfast today", "tags": ["food", "night"], "language": "en"},
    {"id": 3, "title": "Frühstück", "body": None, "tags": None, "language": "de"},
]


@pytest.fixture
def articles() -> SyntheticView:
    view = SyntheticView("id BIGINT, title STRING, body STRING, tags ARRAY<STRING>, language STRING")
    view.change(ARTICLES)
    return view


def index_of(folder: Path) -> Search:
    return Search(folder / "index", text=["title", "body", "tags"], terms=["language"])


def ids(found: list[dict[str, object]]) -> list[object]:
    return [row["id"] for row in found]


def test_words_are_found_in_all_text_columns_and_terms_as_they_are(
    articles: SyntheticView, tmp_path: Path, log: Log
) -> None:
    index = index_of(tmp_path)
    task = SinkTask("copy", "articles", "app", index, articles, log)
    task.catch_up()

    assert sorted(map(str, ids(index.search("breakfast")))) == ["1", "2"]
    assert ids(index.search("breakfast -coffee")) == [2]
    assert ids(index.search("title:breakfast")) == [1]
    assert ids(index.search('"no breakfast"')) == [2]
    assert ids(index.search("night")) == [2]
    assert ids(index.search("language:de")) == [3]
    assert len(index.search("food", limit=1)) == 1
    assert sorted(map(str, ids(index.search("*")))) == ["1", "2", "3"]  # all rows, and not the progress
    assert len(index.search("*", limit=3)) == 3
    (found,) = index.search("croissants")
    assert {name: found[name] for name in ARTICLES[0]} == ARTICLES[0]
    assert found["_score"] > 0

    articles.change(add=[{**ARTICLES[0], "title": "Lunch"}], remove=[ARTICLES[1]])
    task.catch_up()
    assert ids(index.search("breakfast")) == []
    assert ids(index.search("lunch")) == [1]


def test_other_columns_to_search_in_ask_for_a_new_index(articles: SyntheticView, tmp_path: Path, log: Log) -> None:
    SinkTask("copy", "articles", "app", index_of(tmp_path), articles, log).catch_up()
    narrow = Search(tmp_path / "index", text=["title"])

    status = SinkTask("copy", "articles", "app", narrow, articles, log).catch_up()

    assert status.state is SinkState.FOLLOWING
    assert ids(narrow.search("breakfast")) == [1]


def test_what_cannot_be_searched_is_told(articles: SyntheticView, tmp_path: Path, log: Log) -> None:
    with pytest.raises(Unavailable, match="no index"):
        index_of(tmp_path).search("breakfast")
    SinkTask("copy", "articles", "app", index_of(tmp_path), articles, log).catch_up()
    with pytest.raises(InvalidQuery):
        index_of(tmp_path).search("nothing:here")
    status = SinkTask("b", "articles", "app", Search(tmp_path / "b", text=["summary"]), articles, log).catch_up()
    assert status.error is not None
    assert status.error["message"] == 'view "articles" has no column "summary" to search in'


def test_the_command_line_searches_too(articles: SyntheticView, tmp_path: Path, log: Log) -> None:
    SinkTask("copy", "articles", "app", index_of(tmp_path), articles, log).catch_up()

    found = CliRunner().invoke(app, ["search", str(tmp_path / "index"), "breakfast", "--json"])
    nothing = CliRunner().invoke(app, ["search", str(tmp_path / "index"), "dinner"])

    assert sorted(row["id"] for row in json.loads(found.stdout)) == [1, 2]
    assert nothing.stdout.strip() == "nothing found"


def test_what_a_commit_left_that_was_cut_is_not_in_the_way(articles: SyntheticView, tmp_path: Path, log: Log) -> None:
    index, before = index_of(tmp_path), tmp_path / "before"
    SinkTask("copy", "articles", "app", index, articles, log).catch_up()
    shutil.copytree(tmp_path / "index", before)
    articles.change(remove=[ARTICLES[1]])
    assert SinkTask("copy", "articles", "app", index, articles, log).catch_up().state is SinkState.FOLLOWING
    # All files of the commit are there, and the last step, which makes them count, has not been made.
    cut = [path for path in (tmp_path / "index").glob("index-*/*") if path.name != "meta.json"]
    assert any(path.suffix == ".del" for path in cut)
    for path in cut:
        shutil.copy(path, before / path.parent.name)
    shutil.rmtree(tmp_path / "index")
    before.rename(tmp_path / "index")

    status = SinkTask("copy", "articles", "app", index, articles, log).catch_up()

    assert status.state is SinkState.FOLLOWING, status.error
    assert sorted(map(str, ids(index.search("*")))) == ["1", "3"]
