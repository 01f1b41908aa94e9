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
from headwater.errors import InvalidDeclaration, InvalidView, NotYetCovered


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
