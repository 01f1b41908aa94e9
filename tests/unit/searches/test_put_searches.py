"""Putting searches: all or none, and what a malformed one leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import InvalidQuery


def test_of_several_searches_with_a_malformed_one_none_is_put(tmp_path: Path) -> None:
    with hw.App("news", home=tmp_path) as app:
        watch = app.searches("watch", over=app.topic("articles", "title STRING, price BIGINT"), text="title")
        watch.put("there", "lakes")

        with pytest.raises(InvalidQuery) as refused:
            watch.put_all([{"id": "s1", "query": "rivers"}, {"id": "s2", "query": "rivers price:[10 TO"}])

        assert refused.value.data["search"] == "s2"
        assert str(refused.value).splitlines()[:3] == [
            "the range is not complete",
            "  rivers price:[10 TO",
            "               ^^^",
        ]
        assert [each.id for each in watch.find()] == ["there"]
        assert watch.table.topic.end_offsets() == {0: 1}


def test_a_malformed_search_does_not_take_the_place_of_the_one_that_is_there(tmp_path: Path) -> None:
    with hw.App("news", home=tmp_path) as app:
        watch = app.searches("watch", over=app.topic("articles", "title STRING"), text="title")
        watch.put("s1", "lakes", owner="ada")

        with pytest.raises(InvalidQuery):
            watch.put("s1", "(lakes", owner="ben")

        assert [(each.query, each.owner) for each in watch.find()] == [("lakes", "ada")]
        assert watch.percolate({"title": "Lakes"}) == [{"search": "s1", "score": pytest.approx(1 / 2.2)}]
