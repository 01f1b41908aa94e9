"""Nexmark: q0 to q22 as views of one app over events and corrections, right after every tick."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from tests.workloads.loading import History, Loaded
from tests.workloads.nexmark import catalogue
from tests.workloads.nexmark.corrections import Stream
from tests.workloads.nexmark.events import TABLES, Events
from tests.workloads.oracle import Oracle

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EVENTS = (4_000, 500, 1, 1_500)  # tick by tick
TICKS = EVENTS * int(os.environ.get("HEADWATER_THOROUGH", "1"))
CORRECTIONS = 10
QUERIES = catalogue.queries()

pytestmark = pytest.mark.timeout(900)  # a minute or two, and many where other work takes the cores


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:  # noqa: ARG001
    oracle = Oracle(TABLES)
    # 20 ms between events: a window of ten seconds holds 500 of them.
    stream = Stream(oracle, Events(interval_us=20_000), side_inputs=2_000)
    ticks = (stream.tick(events, corrections=CORRECTIONS) for events in TICKS)

    with hw.App("nexmark", home=tmp_path_factory.mktemp("nexmark")) as app:
        return Loaded(app, oracle).play(QUERIES, ticks, for_duckdb=catalogue.for_duckdb())


@pytest.mark.parametrize("name", QUERIES)
def test_the_view_equals_the_query_after_every_tick(history: History, name: str) -> None:
    assert history.differences.get(name) is None


def test_the_stream_moved_every_answer(history: History) -> None:
    assert set(history.moves) == set(QUERIES)


@pytest.mark.parametrize("name", catalogue.REFUSED)
def test_what_is_no_function_of_its_input_is_refused(name: str, tmp_path: Path) -> None:
    with hw.App("nexmark", home=tmp_path) as app:
        Loaded(app, Oracle(TABLES))

        with pytest.raises(hw.errors.HeadwaterError, match="current_timestamp"):
            app.view(name, catalogue.refused()[name])
