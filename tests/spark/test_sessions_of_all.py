"""Sessions without another group: a change costs the sessions around it, and the answer is the batch query's.

What it is: one view of sessions over a keyed table and one over a topic, with a condition and a join below; random new
rows, late ones, changes of time and deletions; after every tick both are compared with the user's own SQL over the
tables. Then the rows that one tick reads.
Invariants: times lie so that sessions are lengthened, joined, divided and emptied, and rows are exactly a gap apart.
Not here: random queries (``tests/compiler/test_time_windows.py``), sessions by group (``test_windows_equal_batch.py``).
Read next: ``views/stages/bucket_runs.py``.
"""

from __future__ import annotations

import datetime as dt
import os
from random import Random
from unittest.mock import patch

import pytest

import headwater as hw
from headwater.views import thresholds
from tests.seeds import seed

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
GAP = 60
START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)  # buckets have numbers below and above zero
# Few buckets, and many, are looked up; many are scanned.
WAYS: list[dict[str, float]] = [{}, {"LOCAL_ROWS_MAX": 0, "LOOKUP_PART": 1.0}, {"LOOKUP_KEYS_MAX": 3}]
VIEWS = {
    "by_table": """SELECT session_window.start AS s, session_window.end AS e, count(*) AS n, sum(x) AS x,
        sort_array(collect_list(id)) AS ids FROM events WHERE x <> 3 GROUP BY session_window(at, '1 minute')""",
    "by_topic": """SELECT session_window AS v, count(*) AS n, max(k.name) AS name
        FROM clicks c JOIN kinds k ON k.x = c.x GROUP BY session_window(c.at, '60 seconds') HAVING count(*) > 1""",
}


def moment(random: Random) -> dt.datetime | None:
    seconds = random.choice([random.randrange(-3000, 3000), GAP * random.randrange(-50, 50)])
    return None if random.random() < 0.05 else START + dt.timedelta(seconds=seconds)


def shop(home) -> hw.App:
    app = hw.App("sessions", home=home)
    app.table("events", "id BIGINT, x INT, at TIMESTAMP", key="id")
    app.table("kinds", "x INT, name STRING", key="x")
    app.topic("clicks", "x INT, at TIMESTAMP")
    for name, sql in VIEWS.items():
        app.view(name, sql)
    return app


@pytest.mark.parametrize("case", range(THOROUGH))
def test_sessions_of_all_rows_are_the_batch_query(tmp_path, case):
    chosen = seed(case)
    print(f"case {case}, seed {chosen}")
    random = Random(chosen)

    with patch.dict(vars(thresholds), random.choice(WAYS)), shop(tmp_path / "home") as app:
        events, clicks, kinds = app.get_table("events"), app.get_topic("clicks"), app.get_table("kinds")
        kinds.upsert([{"x": x, "name": f"kind {x}"} for x in range(4)])
        for size in (40, 1, 3, 12):
            events.upsert(
                [{"id": random.randrange(60), "x": random.randrange(5), "at": moment(random)} for _ in range(size)]
            )
            events.delete([{"id": id} for id in {random.randrange(60) for _ in range(size // 2)}])
            clicks.append([{"x": random.randrange(5), "at": moment(random)} for _ in range(size)])
            if size == 12:
                kinds.upsert([{"x": 1, "name": "another"}])
            app.tick()

            for name, sql in VIEWS.items():
                found = sorted(map(repr, app.sql(f"SELECT * FROM {name}").to_pylist()))
                assert found == sorted(map(repr, app.sql(sql).to_pylist())), name
        assert [each.view for each in app.verify() if not each.equal] == []


def test_a_change_reads_the_rows_around_it(tmp_path):
    with patch.object(thresholds, "LOCAL_ROWS_MAX", 100), hw.App("sessions", home=tmp_path / "home") as app:
        clicks = app.topic("clicks", "x INT, at TIMESTAMP")
        app.view(
            "all", "SELECT session_window.start AS s, count(*) AS n FROM clicks GROUP BY session_window(at, '1 minute')"
        )
        # A hundred sessions of fifty rows, ten seconds apart.
        at = [START + dt.timedelta(seconds=3600 * session + 10 * n) for session in range(100) for n in range(50)]
        clicks.append([{"x": 1, "at": each} for each in at])
        app.tick()

        clicks.append([{"x": 2, "at": START + dt.timedelta(seconds=3600 * 7 + 495)}])
        report = app.tick()

        (progress,) = report.views
        assert progress.changes == 2
        assert progress.rows_read <= 60
        assert app.sql("SELECT n, count(*) AS sessions FROM all GROUP BY n ORDER BY n").to_pylist() == [
            {"n": 50, "sessions": 99},
            {"n": 51, "sessions": 1},
        ]
