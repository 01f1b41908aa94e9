"""The demo's stopwatch misses no commit, whoever is quicker: the word of it, or the capture."""

from __future__ import annotations

from pathlib import Path

from headwater.demo.freshness_probe import FreshnessProbe
from headwater.log.home import Log


def test_a_commit_is_timed_when_the_views_have_it(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        orders = log.topic("orders", "id BIGINT", key="id")
        watch = FreshnessProbe(orders)

        watch.committed([1], at_us=1_000)
        orders.append([{"id": 1}])
        watch.look(reached=0, now_us=5_000)
        assert watch.waiting == 1
        watch.look(reached=1, now_us=21_000)

        assert (watch.waiting, watch.took) == (0, [(1_000, 20_000)])
        assert watch.percentiles(steady=True) == {"p50": 20, "p95": 20, "samples": 1}


def test_a_commit_that_was_captured_before_it_was_told_is_timed_too(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        orders = log.topic("orders", "id BIGINT", key="id")
        watch = FreshnessProbe(orders)

        orders.append([{"id": 1}])
        watch.look(reached=1, now_us=2_000)
        watch.committed([1], at_us=1_000)
        assert watch.waiting == 1
        watch.look(reached=1, now_us=3_000)

        assert (watch.waiting, watch.took) == (0, [(1_000, 2_000)])


def test_what_met_a_dead_engine_is_told_apart(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        watch = FreshnessProbe(log.topic("orders", "id BIGINT", key="id"))
        watch.took = [(0, 10_000), (50_000, 90_000)]
        watch.away = [(60_000, 120_000)]

        assert watch.percentiles(steady=True)["samples"] == 1
        assert watch.percentiles(steady=False)["samples"] == 2
