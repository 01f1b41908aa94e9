"""A join of two streams that is bounded in time, with a horizon: what it shows stays, what it keeps goes."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

import headwater as hw
from headwater.views import thresholds
from tests.spark.test_views_equal_batch import WAYS
from tests.spark.timed_model import moment

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
HOUR = 3600
SQL = """
    SELECT s.id, s.at AS searched_at, c.at AS clicked_at FROM searches s
    LEFT JOIN clicks c ON c.search_id = s.id AND c.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR"""
HORIZON = 600

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(600)]


class Searching:
    """Two streams, and what a join of them with a horizon should show."""

    def __init__(self, home) -> None:
        self.home = home
        self.watermarks: dict[str, int] = {}
        self.watermark: int | None = None
        self.taken = {"searches": Counter(), "clicks": Counter()}
        self.dropped = {"searches": Counter(), "clicks": Counter()}
        self.waiting: dict[str, list[tuple[int, int]]] = {"searches": [], "clicks": []}
        self.open()

    def open(self) -> None:
        self.app = hw.App("search", home=self.home)
        self.topics = {
            "searches": self.app.topic("searches", "id BIGINT, at TIMESTAMP", event_time="at"),
            "clicks": self.app.topic("clicks", "search_id BIGINT, at TIMESTAMP", event_time="at"),
        }
        closes = "searched_at + INTERVAL 1 HOUR"
        self.app.view("corrected", SQL, horizon=HORIZON, closes=closes)
        self.app.view("final", SQL, emit="final", closes=closes)

    def append(self, topic: str, rows: list[tuple[int, int]]) -> None:
        key = "id" if topic == "searches" else "search_id"
        self.topics[topic].append([{key: number, "at": moment(second)} for number, second in rows])
        self.waiting[topic] += rows

    def tick(self) -> None:
        self.app.tick()
        for topic, rows in self.waiting.items():
            for row in rows:
                if self.watermark is None or row[1] >= self.watermark - HORIZON:
                    self.taken[topic][row] += 1
                if self.watermark is None or row[1] >= self.watermark:
                    self.dropped[topic][row] += 1  # what the view that drops has taken
                self.watermarks[topic] = max(self.watermarks.get(topic, row[1]), row[1])
            self.waiting[topic] = []
        if len(self.watermarks) == 2:
            self.watermark = max(self.watermark or 0, min(self.watermarks.values()))

    def expected(self, taken: dict[str, Counter], until: int | None = None) -> Counter:
        found: Counter = Counter()
        for (number, second), times in taken["searches"].items():
            if until is not None and second + HOUR >= until:  # a click at that very moment may still come
                continue
            met = [
                (click, count)
                for (of, click), count in taken["clicks"].items()
                if of == number and second <= click <= second + HOUR
            ]
            for click, count in met or [(None, 1)]:
                found[number, moment(second), None if click is None else moment(click)] += times * count
        return found

    def shown(self, view: str) -> Counter:
        rows = self.app.sql(f"SELECT * FROM {view}").to_pylist()
        return Counter((row["id"], row["searched_at"], row["clicked_at"]) for row in rows)


@pytest.mark.parametrize("seed", range(THOROUGH))
def test_a_bounded_join_shows_everything_and_keeps_what_it_needs(tmp_path, monkeypatch, seed):
    way = WAYS[seed % len(WAYS)]
    print(f"seed={seed} way={way}")
    random, run, second = Random(seed), Searching(tmp_path / "home"), 0
    for name, value in way.items():
        monkeypatch.setattr(thresholds, name, value)

    for turn in range(14):
        second += random.choice([60, 600, 1800])
        searches = [(random.randint(0, 20), max(0, second - random.choice([0, 0, 300, 5000]))) for _ in range(3)]
        clicks = [(random.randint(0, 20), max(0, second - random.choice([0, 60, 500, 4000]))) for _ in range(4)]
        run.append("searches", searches)
        run.append("clicks", clicks)
        run.tick()
        if turn == 6:
            run.app.close()
            run.open()
        if turn % 4 == 3 or turn == 13:
            assert run.shown("corrected") == run.expected(run.taken)
            assert run.shown("final") == run.expected(run.dropped, until=run.watermark)

    kept = run.app._runtime.engine.traces["corrected$in-time.clicks"].content()
    oldest = min(kept.column("at").to_pylist())
    # Let go in steps of a quarter of the reach, which is two hours here: the bound and the time to close.
    assert oldest >= moment(run.watermark - HORIZON - 2 * HOUR - HOUR)
    assert [found.view for found in run.app.verify() if not found.equal] == []
    assert run.app.rebuild("corrected").changes == {"corrected": 0}
    assert run.shown("corrected") == run.expected(run.taken)
    run.app.close()
