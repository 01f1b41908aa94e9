"""A text of which Spark makes a moment of the day is refused, wherever it becomes a time.

What it is: views with 'today' and its like in casts that nobody wrote.
Invariants: refused before anything runs; a text that stays a text, or that means one moment for ever, is none of them.
Not here: casts that are written (``tests/compiler/test_functions.py``).
Read next: ``src/headwater/views/spark/special_times.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import InvalidView

OF_THE_DAY = (
    "dt = 'today'",
    "to_date('today') IS NULL",
    "date(' NOW ') > dt",
    "date_add('tomorrow', 1) = dt",
    "timestamp('now') > ts",
    "CAST(lower('YESTERDAY') AS DATE) = dt",
    "EXISTS (SELECT 1 FROM u WHERE u.dt = 'today')",
    "ts BETWEEN 'yesterday' AND 'tomorrow'",
)
OF_NO_DAY = ("s = 'today'", "concat('now', s) <> 'tomorrow'", "to_date('epoch') = dt AND s <> 'now'")


@pytest.mark.usefixtures("spark")
def test_a_text_that_becomes_a_moment_of_the_day_is_refused(tmp_path: Path) -> None:
    refused = []
    for number, condition in enumerate(OF_THE_DAY):
        with app_over_times(tmp_path / str(number)) as app:
            app.view("v", f"SELECT id FROM t WHERE {condition}")

            with pytest.raises(InvalidView, match="time of day") as caught:
                app.tick()

            refused.append(caught.value.data["column"])

    assert all(column > 20 for column in refused)


@pytest.mark.usefixtures("spark")
def test_a_text_that_stays_a_text_is_not(tmp_path: Path) -> None:
    with app_over_times(tmp_path) as app:
        for number, condition in enumerate(OF_NO_DAY):
            app.view(f"v{number}", f"SELECT id FROM t WHERE {condition}")

        app.get_table("t").insert([{"id": 1, "s": "today"}])
        app.tick()

        assert len(list(app.get_view("v0").rows())) == 1


def app_over_times(home: Path) -> hw.App:
    app = hw.App("times", home=home)
    app.table("t", "id BIGINT, s STRING, dt DATE, ts TIMESTAMP")
    app.table("u", "dt DATE")
    return app
