"""Stored searches over HTTP: a real server without an engine; the test's own process ticks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headwater.app import App
from headwater.app_file import app_of
from tests.services.server.processes import ServerProcess

FILE = Path(__file__).parent / "news_app.py"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("searches") / "home"


@pytest.fixture(scope="module")
def app(home: Path) -> Iterator[App]:
    os.environ["SERVED_SHOP_HOME"] = str(home)
    with app_of(FILE) as app:
        yield app


@pytest.fixture(scope="module")
def server(home: Path, app: App) -> Iterator[ServerProcess]:
    app.tick()
    server = ServerProcess(home, app=FILE)
    yield server
    server.stop()


def test_a_search_is_put_listed_asked_and_removed(server: ServerProcess) -> None:
    where = "/v1/searches/watch"
    put = server.ask("PUT", f"{where}/s1", json={"query": "rivers price:<20", "owner": "ada", "tags": ["water"]})
    open_ = server.ask("PUT", f"{where}/s2", json={"query": "NOT rivers"})

    assert put["id"] == "s1"
    assert put["cost"] is None
    assert open_["cost"].startswith("every document is compared with it")
    assert [each["id"] for each in server.get(f"{where}?owner=ada")["searches"]] == ["s1"]
    assert server.get(f"{where}?tag=fire") == {"searches": [], "count": 0}
    assert server.get(f"{where}/s1")["query"] == "rivers price:<20"
    assert server.get("/v1/searches")["searches"][0]["over"] == "articles"
    document = {"title": "Rivers", "price": 12.5, "at": "2026-01-31T10:00:00Z"}
    assert [each["search"] for each in server.post(f"{where}/percolate", document)["matches"]] == ["s1"]
    assert server.post(f"{where}/percolate?tag=fire", document)["matches"] == []
    server.ask("DELETE", f"{where}/s1")
    assert server.post(f"{where}/percolate", document)["matches"] == []
    assert server.get(f"{where}/s1", 404)["error"]["code"] == "unknown_row"
    assert server.get("/v1/searches/wach", 404)["error"]["code"] == "unknown_view"


def test_what_cannot_be_read_is_refused_and_nothing_is_written(server: ServerProcess) -> None:
    where = "/v1/searches/watch"

    refused = server.ask("PUT", f"{where}/bad", 400, json={"query": "rivers AND ("})["error"]

    assert refused["code"] == "invalid_query"
    assert (refused["data"]["position"], refused["data"]["search"]) == (11, "bad")
    assert server.get(f"{where}/bad", 404)
    assert server.post(f"{where}/percolate", {"titel": "a"}, 400)["error"]["message"].startswith(
        "the documents have no"
    )
    assert server.post(f"{where}/percolate", {"price": "much"}, 400)["error"]["code"] == "row_refused"
    assert server.post(f"{where}/percolate", ["a"], 400)["error"]["message"] == "the body is no JSON object"


def test_a_subscriber_of_one_search_is_told_of_its_matches_alone(server: ServerProcess, app: App) -> None:
    watch, articles = app.get_searches("watch"), app.get_table("articles")
    watch.put_all([{"id": "mine", "query": "danube"}, {"id": "other", "query": "danube OR rhine"}])
    articles.upsert([{"id": 1, "title": "The Danube"}])
    app.tick()
    told = []
    url = f"{server.address}/v1/searches/watch/mine/subscribe"
    with httpx.stream("GET", url, timeout=60) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                said = json.loads(line.removeprefix("data: "))
                told.append(said)
                if said["type"] == "snapshot":
                    articles.upsert([{"id": 2, "title": "The Rhine"}, {"id": 3, "title": "Danube"}])
                    articles.delete([{"id": 1}])
                    app.tick()
                if said["type"] == "changes":
                    break

    assert [row["document"] for row in told[0]["rows"]] == [1]
    changed = {(row["_change_type"], row["search"], row["document"]) for row in told[-1]["changes"]}
    assert changed == {("insert", "mine", 3), ("delete", "mine", 1)}
