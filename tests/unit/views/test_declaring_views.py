"""Declaring views needs no Spark, and what makes no sense is told in a sentence.

What it is: an app, its declarations, and what it says of those that it refuses.
Invariants: a view that was refused is not there afterwards.
Not here: the compiler's own refusals (``tests/compiler``).
Read next: ``app.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import (
    DeclarationConflict,
    InvalidDeclaration,
    InvalidView,
    NotYetCovered,
    UnknownSink,
    UnknownTopic,
    UnknownView,
)
from headwater.views.view import View


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hw.App]:
    with hw.App("shop", home=tmp_path) as app:
        app.table("users", "id BIGINT, country STRING", key="id")
        yield app


def unchanged(*frames: Any) -> Any:
    return frames[0]


def test_a_view_cannot_read_itself(app: hw.App) -> None:
    with pytest.raises(InvalidView) as caught:
        app.view("daily", "SELECT id FROM Daily")

    assert caught.value.message.endswith("a view cannot read itself (line 1, column 16)")
    assert "Read what it is made from" in str(caught.value)
    assert app.views == []


def test_a_view_may_name_a_part_of_its_query_after_itself(app: hw.App) -> None:
    view = app.view("daily", "WITH daily AS (SELECT id FROM users) SELECT id FROM daily")

    assert view.columns == ["id"]


def test_views_that_read_each_other_are_named(app: hw.App) -> None:
    with pytest.raises(InvalidView, match='no topic, table or view "weekly"') as first:
        app.view("daily", "SELECT id FROM weekly")
    with pytest.raises(InvalidView, match='no topic, table or view "monthly"'):
        app.view("weekly", "SELECT id FROM monthly")
    with pytest.raises(InvalidView) as last:
        app.view("monthly", "SELECT id FROM daily")

    assert first.value.hint == 'Declare "weekly" before this view.'
    assert (
        'these views read each other: "monthly" reads "daily", "daily" reads "weekly", "weekly" reads "monthly"'
        in last.value.message
    )
    assert "^^^^^" in str(last.value)


def test_functions_that_read_themselves_or_each_other_are_told_so_too(app: hw.App) -> None:
    with pytest.raises(InvalidDeclaration, match="a view cannot read itself"):
        app.view_function("daily", inputs=["daily"])(unchanged)
    with pytest.raises(InvalidDeclaration, match='there is no topic, table or view "weekly"'):
        app.view_function("daily", inputs=["users", "weekly"])(unchanged)
    with pytest.raises(InvalidView) as caught:
        app.view("weekly", "SELECT id FROM daily")

    assert 'these views read each other: "weekly" reads "daily", "daily" reads "weekly"' in caught.value.message


def test_a_view_that_is_declared_rightly_after_all_is_in_no_circle(app: hw.App) -> None:
    with pytest.raises(InvalidView):
        app.view("daily", "SELECT id FROM weekly")
    app.view("daily", "SELECT id FROM users")

    app.view("weekly", "SELECT id FROM daily")

    assert [view.name for view in app.views] == ["daily", "weekly"]


def test_before_the_first_tick_the_views_have_reached_nothing(app: hw.App) -> None:
    token = app.get_table("users").upsert([{"id": 1, "country": "DE"}])

    with pytest.raises(NotYetCovered) as caught:
        app._runtime.covering(token, 0.0)

    assert caught.value.detail == "They are at tick 0: nothing yet."


def test_what_was_declared_is_found_and_what_was_not_is_guessed(app: hw.App) -> None:
    app.topic("clicks", "url STRING")
    view = app.view("daily", "SELECT id FROM users")
    app.sink(view, hw.sinks.SQLite("copy.db"))
    app.inlet("hooks", hw.inlets.Webhook(app.get_topic("clicks"), path="/hooks"))

    found = app.get_topic("clicks"), app.get_table("users"), app.get_view("daily"), app.get_sink("daily")

    assert [each.name for each in (*found, app.get_inlet("hooks"))] == [
        "clicks",
        "users",
        "daily",
        "daily.sqlite",
        "hooks",
    ]
    for find, name, error, near in [
        (app.get_topic, "click", UnknownTopic, "clicks"),
        (app.get_table, "user", UnknownTopic, "users"),
        (app.get_view, "dayly", UnknownView, "daily"),
        (app.get_sink, "daily.sqlit", UnknownSink, "daily.sqlite"),
        (app.get_inlet, "hook", InvalidDeclaration, "hooks"),
    ]:
        with pytest.raises(error) as refused:
            find(name)
        assert refused.value.hint == f'Did you mean "{near}"?'


def test_a_topic_is_no_table_and_tables_alone_are_suggested_for_one(app: hw.App) -> None:
    app.topic("clicks", "url STRING")

    with pytest.raises(DeclarationConflict, match='"clicks" is a topic without a key, not a table'):
        app.get_table("clicks")
    with pytest.raises(UnknownTopic) as refused:
        app.get_table("click")
    assert refused.value.hint is not None
    assert "clicks" not in refused.value.hint


def test_declaring_needs_what_it_declares(app: hw.App) -> None:
    with pytest.raises(InvalidDeclaration, match='table "orders" has neither columns nor a source') as refused:
        app.table("orders")
    assert refused.value.hint == 'To find one that exists: app.get_table("orders").'
    source = hw.capture.Debezium("changes", schema="id BIGINT", key="id")
    with pytest.raises(InvalidDeclaration, match='table "orders" has a source, so its columns are not declared'):
        app.table("orders", "id BIGINT", source=source)
    for declare in (app.topic, app.view, app.sink, app.inlet):
        with pytest.raises(TypeError):
            declare("name")  # type: ignore[call-arg]


def test_a_view_by_function_is_the_decorated_name(app: hw.App) -> None:
    @app.view_function(inputs=["users"], by="id")
    def latest(users: Any) -> Any:
        return users

    assert isinstance(latest, View)
    assert (latest.name, latest.plan, app.get_view("latest").declared.by) == ("latest", None, ("id",))
    assert latest.declared.location.startswith("tests/unit/views/test_declaring_views.py:")
    assert [view.name for view in app.views] == ["latest"]


def test_what_a_file_leaves_open_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADWATER_LOG", "kafka://broker:9092?prefix=shop.")
    monkeypatch.setenv("HEADWATER_STATE", "s3://lake/shop")
    monkeypatch.setenv("HEADWATER_SERVE", "postgresql://reader@db/shop")

    told, own = hw.App("a", home=tmp_path / "a"), hw.App("b", home=tmp_path / "b", state=f"file://{tmp_path}/state")

    assert told.log_address == "kafka://broker:9092?prefix=shop."
    assert str(told.state) == "s3://lake/shop"
    assert str(told.serving) == "postgresql://reader@db/shop"
    assert str(own.state) == f"file://{tmp_path}/state"
