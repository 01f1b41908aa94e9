"""Views that judge rows by event time, beside a model: any order, any batching, updates, deletes, restarts."""

from __future__ import annotations

import os
from random import Random
from unittest.mock import patch

import pytest

import headwater as hw
from headwater.log.home import Log
from headwater.testing import ManualClock
from headwater.views import thresholds
from tests.spark.test_views_equal_batch import WAYS
from tests.spark.timed_model import Model, moment

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
SCHEMA = "id BIGINT, country STRING, amount INT, at TIMESTAMP"
LATENESS, IDLE = 20, 100
HORIZON = 180

SUMS = (
    "SELECT window.start AS start, country, sum(amount) AS total, count(*) AS n FROM clicks "
    "GROUP BY window(at, '{size} seconds'{hop}), country"
)
MOST = (
    "SELECT window.start AS start, country, max(amount) AS most FROM clicks GROUP BY window(at, '60 seconds'), country"
)
SESSIONS = (
    "SELECT session_window.start AS start, country, sum(amount) AS total, count(*) AS n FROM clicks "
    "GROUP BY session_window(at, '45 seconds'), country"
)
TUMBLING, HOPPING = SUMS.format(size=60, hop=""), SUMS.format(size=60, hop=", '20 seconds'")

# name: SQL, what it declares, and as the model knows it: horizon, hop, final
VIEWS = {
    "plain": (TUMBLING, {}, None, 60, False),
    "dropping": (TUMBLING, {"late": "drop"}, 0, 60, False),
    "bounded": (HOPPING, {"horizon": HORIZON}, HORIZON, 20, False),
    "final": (TUMBLING, {"emit": "final"}, 0, 60, True),
    "corrected": (HOPPING, {"emit": "final", "horizon": "3 minutes"}, HORIZON, 20, True),
    "most": (MOST, {"horizon": HORIZON}, HORIZON, 60, False),
    "most_final": (MOST, {"emit": "final"}, 0, 60, True),
    "sessions": (SESSIONS, {"emit": "final"}, 0, 45, True),
    "kept_sessions": (SESSIONS, {"horizon": HORIZON}, HORIZON, 45, False),
}
# Each way of reading, and each way of declaring, with rows that only come and with rows that change and go.
NAMES = {
    False: ["plain", "dropping", "corrected", "most", "sessions", "kept_sessions"],
    True: ["dropping", "bounded", "final", "most_final", "sessions", "kept_sessions"],
}


class Run:
    """An app over one topic, beside its model."""

    def __init__(self, home, *, keyed: bool, names: list[str]) -> None:
        self.home, self.names, self.keyed = home, names, keyed
        self.clock = ManualClock()
        self.model = Model(LATENESS, IDLE, keyed)
        self.open()

    def open(self) -> None:
        self.app = hw.App("timed", home=self.home)
        self.app._log = Log(self.home, clock=self.clock, maintenance_interval=None)
        self.clicks = self.app.topic(
            "clicks",
            SCHEMA,
            key="id" if self.keyed else None,
            event_time="at",
            partitions=2,
            lateness=LATENESS,
            idle=IDLE,
        )
        self.producers = {name: self.clicks.producer(name) for name in ("a", "b")}
        for name in self.names:
            sql, declared, *_ = VIEWS[name]
            self.app.view(name, sql, **declared)

    def restart(self) -> None:
        self.app.close()
        self.open()

    def append(self, producer: str, rows) -> None:
        given = [{"id": i, "country": c, "amount": x, "at": moment(t)} for i, c, x, t in rows]
        (self.producers[producer] if producer else self.clicks).append(given)
        self.model.append(producer, rows)

    def tick(self) -> None:
        self.app.tick()
        self.model.tick(sorted({VIEWS[name][2] for name in self.names}, key=str))

    def check(self) -> None:
        for name in self.names:
            sql, _, horizon, hop, final = VIEWS[name]
            expected = {}
            if "session" in name:
                windows = self.model.sessions(horizon, hop, final=final)
            else:
                windows = self.model.windows(horizon, 60, hop, final=final)
            for (start, country), amounts in windows.items():
                what = {"most": max(amounts)} if "most" in sql else {"total": sum(amounts), "n": len(amounts)}
                expected[moment(start), country] = what
            rows = self.app.sql(f"SELECT * FROM {name}").to_pylist()
            found = {(row.pop("start"), row.pop("country")): row for row in rows}
            assert len(found) == len(rows)
            assert found == expected, name


def play(run: Run, random: Random, ticks: int) -> None:
    """Random rows, mostly in order, some late by any amount; heartbeats, silences, deletes, restarts."""
    second, number = 0, 0
    for turn in range(ticks):
        second += random.choice([5, 30, 60, 200])
        run.clock.advance(random.choice([1, 20, 70]))
        run.model.now = run.clock.monotonic()
        for producer in random.sample(["", "a", "b"], random.randint(1, 3)):
            rows = []
            for _ in range(random.randint(1, 4)):
                late = random.choice([0, 0, 10, 50, 150, 400, 2000])
                number += 1
                key = random.randint(0, 9) if run.keyed else number
                rows.append((key, random.choice("xy"), random.randint(-5, 5), max(0, second - late)))
            run.append(producer, rows)
        if run.keyed and random.random() < 0.4:
            key = random.randint(0, 9)
            run.clicks.delete([{"id": key}])
            run.model.delete(key)
        if random.random() < 0.2:
            producer = random.choice(["", "a"])
            (run.producers[producer] if producer else run.clicks).heartbeat(moment(second))
            run.model.beat(producer, second)
        run.tick()
        if turn == ticks // 2:
            run.restart()
        if turn % 3 == 2 or turn == ticks - 1:
            run.check()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", range(THOROUGH))
@pytest.mark.parametrize("keyed", [False, True])
def test_timed_views_take_what_comes_in_time(tmp_path, keyed, seed):
    # Few rows, middling, many: with the first seed the ways that other tests do not take.
    way = WAYS[(seed + (1 if keyed else 2)) % len(WAYS)]
    print(f"keyed={keyed} seed={seed} way={way}")
    # A key's row may move from one window to another: then what is in time is still as the model says.
    run = Run(tmp_path / "home", keyed=keyed, names=NAMES[keyed])

    with patch.dict(vars(thresholds), way):
        play(run, Random(seed), ticks=5)

    late = {(row["topic"], row["producer"]): row["rows"] for row in run.app.get_view("dropping").late_rows()}
    assert late == {("clicks", who): rows for who, rows in run.model.late[0].items() if rows}
    side = run.app.log.get_topic("dropping.late").end_offsets()
    assert sum(side.values()) == sum(run.model.late[0].values())
    assert [found.view for found in run.app.verify() if not found.equal] == []
    run.app.close()
