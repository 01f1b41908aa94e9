"""In a notebook, apps, views, topics and tables show themselves: escaped, without Spark, and whatever the home is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.notebook import ROWS_MAX, NotebookCard

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hw.App]:
    with hw.App("shop", home=tmp_path / "home") as app:
        users = app.table("users", "id BIGINT, country STRING", key="id")
        app.topic("clicks", "url STRING, at TIMESTAMP", event_time="at", partitions=2)
        app.table("basket", "fruit STRING")
        app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        users.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "FR"}])
        yield app


def test_each_shows_its_name_columns_and_counts_and_starts_no_spark(app: hw.App) -> None:
    shown = [
        app._repr_html_(),
        app.get_view("countries")._repr_html_(),
        app.get_topic("clicks")._repr_html_(),
        app.get_table("users")._repr_html_(),
        app.get_table("basket")._repr_html_(),
    ]

    words = [
        ["App shop", "users", "clicks", "basket", "countries", ">table<", ">view<"],
        ["View countries", "country", "users", "not computed yet", "test_notebook.py:"],
        ["Topic clicks", "url", "STRING", "TIMESTAMP", "event time", ">2<"],
        ["Table users", "BIGINT", "NOT NULL", ">2<", ">id<"],
        ["Table basket", "fruit", "a multiset"],
    ]
    for html, wanted in zip(shown, words, strict=True):
        assert [word for word in wanted if word not in html] == []
        assert html.count("<table>") == html.count("</table>") > 0
    assert "_weight" not in shown[4]
    assert app._runtime.running_spark is None


def test_an_app_that_was_not_opened_is_shown_and_makes_no_home(tmp_path: Path) -> None:
    app = hw.App("shop", home=tmp_path / "home")

    assert "not open" in app._repr_html_()
    assert not (tmp_path / "home").exists()


def test_after_close_showing_opens_nothing_again(app: hw.App, tmp_path: Path) -> None:
    view = app.get_view("countries")
    app.close()
    shutil.rmtree(tmp_path / "home")

    assert "not open" in app._repr_html_()
    assert "not open" in view._repr_html_()
    assert not (tmp_path / "home").exists()


def test_everything_is_escaped(tmp_path: Path) -> None:
    app = hw.App("shop", home=tmp_path / HOSTILE.replace("/", ""))
    topic = app.topic("odd", f"`{HOSTILE}` STRING")

    for html in (app._repr_html_(), topic._repr_html_(), NotebookCard(HOSTILE, [(HOSTILE, HOSTILE)]).html()):
        assert "<script" not in html
        assert "&lt;script" in html
    app.close()


def test_a_home_that_is_gone_or_closed_is_told_and_nothing_is_raised(app: hw.App, tmp_path: Path) -> None:
    view, topic, table = app.get_view("countries"), app.get_topic("clicks"), app.get_table("users")
    log = app.log
    shutil.rmtree(tmp_path / "home")
    log.catalog.close()

    for thing in (app, view, topic, table):
        assert thing._repr_html_().startswith("<div><b>")
    log.close()
    for thing in (topic, table):
        assert "was closed" in thing._repr_html_()


def test_a_long_table_is_cut() -> None:
    html = NotebookCard("many", [], ["n"], [[number] for number in range(ROWS_MAX + 3)]).html()

    assert "… and 3 more" in html
    assert html.count("<tr>") == ROWS_MAX + 2
