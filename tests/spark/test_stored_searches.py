"""Stored searches through an app: the view of the matches equals brute force after every tick."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import headwater as hw
from headwater.errors import InvalidDeclaration
from headwater.searches.index_file import index_path
from headwater.searches.query_index import QueryReader
from headwater.views import thresholds
from headwater.views.state.manifest import Manifests
from headwater.views.state.remote.store_manifests import StoreManifests
from tests.every_byte import places_with
from tests.workloads.stored_searches import SCHEMA, TEXT, World

pytestmark = pytest.mark.usefixtures("spark")

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
LARGE = {
    "TASK_ROWS_MAX": 0,
    "LOCAL_ROWS_MAX": 0,
    "LOOKUP_KEYS_MAX": 0,
    "SETTLED_ROWS_MAX": 0,
    "CONSOLIDATED_ROWS_MAX": 0,
    "KEPT_SEARCHES_MIN": 1,
}
BRIEF = "id BIGINT, title STRING, price BIGINT"


def found(app: hw.App) -> list[tuple[str, int]]:
    return sorted((row["search"], row["document"]) for row in app.get_view("watch").rows())


@pytest.mark.parametrize("way", ["small", "large"])
def test_the_matches_are_those_of_brute_force_after_every_tick(way: str, tmp_path: Path) -> None:
    for seed in range((2 if way == "small" else 1) * THOROUGH):
        world = World(random.Random(seed))
        with (
            patch.dict(vars(thresholds), LARGE if way == "large" else {}),
            hw.App("news", home=tmp_path / f"{way}{seed}") as app,
        ):
            articles = app.table("articles", SCHEMA, key="id")
            watch = app.searches("watch", over=articles, text=TEXT)
            for tick in range(10 if way == "small" else 4):
                world.change(articles, watch)
                app.tick()
                assert found(app) == world.matches(), (seed, tick)
            if seed == 0:
                assert all(each.equal for each in app.verify())
                assert app.rebuild("watch").changes == {"watch": 0}


def test_a_tick_that_was_not_committed_leaves_no_trace_in_the_index(tmp_path: Path) -> None:
    world = World(random.Random(7))
    with hw.App("news", home=tmp_path) as app:
        articles = app.table("articles", SCHEMA, key="id")
        watch = app.searches("watch", over=articles, text=TEXT)
        world.change(articles, watch)
        app.tick()
        for round_ in range(6 * THOROUGH):
            world.change(articles, watch)
            if round_ % 2:
                with (
                    patch.object(Manifests, "commit", side_effect=OSError("no such luck")),
                    patch.object(StoreManifests, "commit", side_effect=OSError("no such luck")),
                    pytest.raises(OSError, match="no such luck"),
                ):
                    app.tick()
                if round_ % 4 == 1:
                    world.change(articles, watch)
            app.tick()
            assert found(app) == world.matches(), round_


def test_another_process_goes_on_where_the_first_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def declared(home: Path) -> tuple[hw.App, Any, Any]:
        app = hw.App("news", home=home)
        articles = app.table("articles", SCHEMA, key="id")
        return app, articles, app.searches("watch", over=articles, text=TEXT)

    monkeypatch.setattr(thresholds, "KEPT_SEARCHES_MIN", 1)
    world, kept = World(random.Random(3)), index_path(tmp_path / "views" / "news", "watch")
    for number in range(4):
        app, articles, watch = declared(tmp_path)
        if number == 2:
            whole = kept.read_bytes()
            kept.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        caplog.clear()
        assert len(watch.find()) == len(world.searches)  # this one too reads what the process before has kept
        assert ("made anew" in caplog.text) == (number == 2)
        for _ in range(2):
            world.send(articles, watch)
            app.tick()
            assert found(app) == world.matches()
        app.close()


def test_a_start_reads_the_queries_that_changed_since_the_index_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "KEPT_SEARCHES_MIN", 40)
    read: list[str] = []

    def counted(self: QueryReader, query: str, of: Any = QueryReader._read) -> Any:
        read.append(query)
        return of(self, query)

    def declared() -> tuple[hw.App, Any, Any]:
        app = hw.App("news", home=tmp_path)
        articles = app.table("articles", BRIEF, key="id")
        return app, articles, app.searches("watch", over=articles, text="title")

    app, articles, watch = declared()
    watch.put_all([{"id": f"s{n}", "query": f"word{n}"} for n in range(50)])
    app.tick()
    watch.put_all([{"id": f"s{n}", "query": f"other{n}"} for n in range(3)])
    app.tick()
    app.close()
    monkeypatch.setattr(QueryReader, "_read", counted)

    app, articles, watch = declared()
    articles.upsert([{"id": 1, "title": "word2 other2 word40", "price": 1}])
    app.tick()

    assert found(app) == [("s2", 1), ("s40", 1)]
    assert sorted(read) == ["other0", "other1", "other2"]
    app.close()


def test_an_erased_person_is_not_in_the_kept_index_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "KEPT_SEARCHES_MIN", 1)
    with hw.App("news", home=tmp_path) as app:
        articles = app.table("articles", BRIEF, key="id")
        watch = app.searches("watch", over=articles, text="title")
        app.table(
            "watch_searches",
            "id STRING NOT NULL, query STRING, owner STRING, tags ARRAY<STRING>, look_back BOOLEAN",
            key="id",
            privacy={"owner": hw.Personal("user_id"), "query": hw.Personal("user_id", by="owner")},
        )
        watch.put("s1", "quixotically", owner="ada")
        watch.put("s2", "lake", owner="ben")
        app.tick()
        assert places_with(tmp_path, "quixotically") != []

        app.erase(user_id="ada", markers=["quixotically"])
        assert places_with(tmp_path / "views" / "news" / "searches", "quixotically") == []
        articles.upsert([{"id": 1, "title": "Quixotically by the lake", "price": 1}])
        app.tick()

        assert found(app) == [("s2", 1)]


def test_a_search_that_cannot_be_read_is_shown_and_stops_no_tick(tmp_path: Path) -> None:
    with hw.App("news", home=tmp_path) as app:
        articles = app.table("articles", BRIEF, key="id")
        watch = app.searches("watch", over=articles, text=["title"])
        watch.put("good", "rivers")
        app.get_table("watch_searches").upsert([{"id": "bad", "query": "(rivers"}, {"id": "none"}])
        articles.upsert([{"id": 1, "title": "Rivers", "price": 1}])
        app.tick()

        assert found(app) == [("good", 1)]
        problems = {row["search"]: row["problem"] for row in app.get_view("watch_status").rows()}
        assert problems["good"] is None
        assert problems["bad"].startswith("a parenthesis is not closed\n  (rivers\n  ^")
        assert problems["none"].startswith("the query is empty")
        watch.put("bad", "rivers", look_back=True)
        app.tick()
        assert found(app) == [("bad", 1), ("good", 1)]
        assert {row["problem"] for row in app.get_view("watch_status").rows() if row["search"] == "bad"} == {None}


def test_documents_of_a_topic_without_a_key_are_named_by_their_place(tmp_path: Path) -> None:
    with hw.App("news", home=tmp_path) as app:
        posts = app.topic("posts", "title STRING", partitions=2)
        watch = app.searches("watch", over=posts, text="title")
        posts.append([{"title": "old rivers"}])
        watch.put("now", "rivers")
        watch.put("ever", "rivers", look_back=True)
        app.tick()
        posts.append([{"title": "new rivers"}, {"title": "lakes"}])
        app.tick()

        rows = {(row["search"], row["partition"], row["offset"]) for row in app.get_view("watch").rows()}
        assert {search for search, *_ in rows} == {"now", "ever"}
        assert len(rows) == 3
        places = {(batch.partition, batch.first_offset): batch.data.to_pylist() for batch in posts.read("earliest")}
        assert sum(map(len, places.values())) == 3
        watch.remove("ever")
        app.tick()
        assert [row["search"] for row in app.get_view("watch").rows()] == ["now"]
        assert app.get_view("watch").verify().equal


def test_documents_of_a_view_follow_the_view(tmp_path: Path) -> None:
    with hw.App("news", home=tmp_path) as app:
        articles = app.table("articles", BRIEF, key="id")
        prices = app.table("prices", "id BIGINT, price BIGINT", key="id")
        app.view("priced", "SELECT a.id, a.title, p.price FROM articles a JOIN prices p ON p.id = a.id")
        watch = app.searches("watch", over="priced", text=["title"], key="id")
        app.view("loud", "SELECT search, count(*) AS documents FROM watch GROUP BY search")
        articles.upsert([{"id": 1, "title": "Rivers", "price": 0}, {"id": 2, "title": "Lakes", "price": 0}])
        prices.upsert([{"id": 1, "price": 5}, {"id": 2, "price": 50}])
        watch.put("cheap", "price:<10")
        watch.put("rivers", "rivers")
        app.tick()
        assert found(app) == [("cheap", 1), ("rivers", 1)]

        prices.upsert([{"id": 2, "price": 9}, {"id": 1, "price": 10}])
        app.tick()
        assert found(app) == [("cheap", 2), ("rivers", 1)]
        assert {row["search"]: row["documents"] for row in app.get_view("loud").rows()} == {"cheap": 1, "rivers": 1}
        assert all(each.equal for each in app.verify())


def test_a_match_is_explained_by_its_document_and_its_search(tmp_path: Path) -> None:
    with hw.App("news", home=tmp_path) as app:
        articles = app.table("articles", BRIEF, key="id")
        watch = app.searches("watch", over=articles, text=["title"])
        watch.put_all([{"id": "rivers", "query": "rivers"}, {"id": "lakes", "query": "lakes"}])
        articles.upsert([{"id": number, "title": "rivers and lakes", "price": 1} for number in range(3)])
        app.tick()

        why = app.get_view("watch").why(search="lakes", document=1)

        places = {(event.topic, event.row["id"]) for event in why.events}
        assert places == {("articles", 1), ("watch_searches", "lakes")}
        status = app.get_view("watch_status").why(search="rivers")
        assert {(event.topic, event.row["id"]) for event in status.events} == {("watch_searches", "rivers")}


def test_documents_with_several_keys_keep_the_names_of_these(tmp_path: Path) -> None:
    with hw.App("news", home=tmp_path) as app:
        pages = app.table("pages", "site STRING, page BIGINT, title STRING", key=["site", "page"])
        watch = app.searches("watch", over=pages, text=["title"])
        watch.put("rivers", "rivers")
        pages.upsert([{"site": "a", "page": 1, "title": "rivers"}, {"site": "b", "page": 1, "title": "rivers"}])
        app.tick()
        pages.upsert([{"site": "a", "page": 1, "title": "lakes"}])
        app.tick()

        rows = [{**row, "score": 0} for row in app.get_view("watch").rows()]
        assert rows == [{"search": "rivers", "site": "b", "page": 1, "score": 0}]


def test_sinks_and_the_change_feed_follow_the_matches(tmp_path: Path) -> None:
    with hw.App("news", home=tmp_path / "home") as app:
        articles = app.table("articles", BRIEF, key="id")
        watch = app.searches("watch", over=articles, text=["title"])
        app.view("mine", "SELECT document, score FROM watch WHERE search = 'lakes'")
        app.sink("mine", hw.sinks.SQLite(tmp_path / "mine.db"))
        app.sink("watch", hw.sinks.SQLite(tmp_path / "copy.db"))
        watch.put_all([{"id": "rivers", "query": "rivers"}, {"id": "lakes", "query": "lakes"}])
        articles.upsert([{"id": 1, "title": "rivers", "price": 1}, {"id": 2, "title": "lakes", "price": 1}])
        first = app.tick()
        articles.upsert([{"id": 1, "title": "lakes", "price": 1}])
        app.tick()

        with sqlite3.connect(tmp_path / "copy.db") as copy:
            assert sorted(copy.execute("SELECT search, document FROM watch")) == [("lakes", 1), ("lakes", 2)]
        with sqlite3.connect(tmp_path / "mine.db") as copy:
            assert sorted(copy.execute("SELECT document FROM mine")) == [(1,), (2,)]
        (changed,) = app.get_view("watch").changes(from_tick=first.tick + 1)
        assert {(row["_change_type"], row["search"]) for row in changed.to_pylist()} == {
            ("delete", "rivers"),
            ("insert", "lakes"),
        }


def test_equal_documents_of_a_multiset_match_as_often_as_they_are_there(tmp_path: Path) -> None:
    with hw.App("news", home=tmp_path) as app:
        posts = app.table("posts", "author STRING, title STRING")
        watch = app.searches("watch", over=posts, text=["title"], key="author")
        watch.put("rivers", "rivers")
        posts.insert([{"author": "ada", "title": "rivers"}, {"author": "ada", "title": "rivers"}])
        posts.insert([{"author": "ada", "title": "lakes"}])
        app.tick()
        assert [row["document"] for row in app.get_view("watch").rows()] == ["ada", "ada"]

        posts.delete([{"author": "ada", "title": "rivers"}])
        app.tick()
        assert [row["document"] for row in app.get_view("watch").rows()] == ["ada"]
        assert app.get_view("watch").verify().equal


def test_what_makes_no_sense_is_refused_when_it_is_declared(tmp_path: Path) -> None:
    with hw.App("news", home=tmp_path) as app:
        app.table("articles", BRIEF, key="id")
        app.table("posts", "author STRING, title STRING")
        for arguments, message in (
            ({"over": "article", "text": ["title"]}, 'there is no topic, table or view "article"'),
            ({"over": "articles", "text": ["titel"]}, 'the documents have no column "titel"'),
            ({"over": "articles", "text": ["price"]}, 'column "price" is BIGINT'),
            ({"over": "articles", "text": ["title"], "tokenizer": "french"}, 'there is no tokenizer "french"'),
            ({"over": "posts", "text": ["title"]}, '"posts" has no key, so a document has no name'),
        ):
            with pytest.raises(InvalidDeclaration, match=r'^searches "watch" \(.*\): ') as refused:
                app.searches("watch", **arguments)
            assert message in str(refused.value)
        assert app.views == []
        assert "watch_searches" not in app.log.topic_names()


def test_searches_that_changed_while_the_view_was_paused_count_when_it_goes_on(tmp_path: Path) -> None:
    with hw.App("news", home=tmp_path, on_error="pause") as app:
        articles = app.table("articles", BRIEF, key="id")
        app.view("shares", "SELECT id, title, 100 / price AS share FROM articles")
        watch = app.searches("watch", over="shares", text=["title"], key="id")
        watch.put("rivers", "rivers")
        articles.upsert([{"id": 1, "title": "Rivers", "price": 1}, {"id": 2, "title": "Lakes", "price": 5}])
        app.tick()
        watch.put("dear", "share:>50")
        app.tick()
        assert found(app) == [("dear", 1), ("rivers", 1)]

        articles.upsert([{"id": 3, "title": "Rivers", "price": 0}])
        assert set(app.tick().paused) == {"shares", "watch", "watch_status"}
        watch.put("lakes", "lakes")
        watch.remove("rivers")
        articles.upsert([{"id": 4, "title": "More lakes", "price": 4}])
        app.tick()
        assert found(app) == [("dear", 1), ("rivers", 1)]
        articles.upsert([{"id": 3, "title": "Rivers", "price": 2}])
        app.tick()
        app.get_view("shares").resume()

        assert found(app) == [("dear", 1), ("lakes", 2), ("lakes", 4)]
        watch.put("cheap", "share:<50")
        articles.upsert([{"id": 5, "title": "Lakes", "price": 2}])
        app.tick()
        assert found(app) == [("cheap", 2), ("cheap", 4), ("dear", 1), ("lakes", 2), ("lakes", 4), ("lakes", 5)]
        assert all(each.equal for each in app.verify())
