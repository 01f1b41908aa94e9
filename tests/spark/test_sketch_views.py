"""Views of sketches on Spark: over rows that only come, a sketch is kept and a tick's rows are added to it.

What it is: an app with views of every sketch over topics, random rows in ticks of every size, a restart; after each
tick what the sketches say beside the exact answer, which Python counts from the rows.
Invariants: exact where the sketch is (bitmaps, counts of few values), else within the error that the sketch states,
times a factor that chance does not reach in years of runs. ``HEADWATER_THOROUGH=n`` tries n times as many.
Not here: which aggregates accumulate, and their SQL (``tests/compiler/test_sketches.py``); sketches of rows that leave
(``test_windows_equal_batch.py``).
Read next: ``src/headwater/views/compiler/algebra/sketches.py``.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random, SystemRandom
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.views import thresholds
from tests.spark.test_views_equal_batch import WAYS

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
SCHEMA = "k STRING, x BIGINT, d DOUBLE, w STRING, at TIMESTAMP"
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
QUANTILES = (0.01, 0.25, 0.5, 0.9)

# Standard errors that the sketches state at their default sizes, and how many of them are allowed.
HLL_ERROR, THETA_ERROR = 1.04 / math.sqrt(2**12), 1 / math.sqrt(2**12)
DEVIATIONS = 5
KLL_RANK_ERROR = 0.0133  # of k = 200, at a confidence of 99 %
TRACKED = 64

SKETCHES = f"""
SELECT k, count(*) AS n, sum(d) AS total,
    hll_sketch_agg(x) AS hll, hll_sketch_agg(w, 10) FILTER (WHERE x > 100) AS some_hll,
    theta_sketch_agg(x) AS theta, tuple_sketch_agg_double(w, d) AS tuples,
    kll_sketch_agg_bigint(x) AS kll, kll_sketch_agg_double(d, 400) FILTER (WHERE x % 2 = 0) AS even,
    approx_top_k_accumulate(w, {TRACKED}) AS top, approx_top_k(w, 3) FILTER (WHERE x % 3 = 0) AS thirds,
    bitmap_construct_agg(bitmap_bit_position(x % 30000 + 1)) AS bits
FROM events GROUP BY k
"""
ASKED = """
SELECT k, n, total, hll_sketch_estimate(hll) AS hll, hll_sketch_estimate(some_hll) AS some_hll,
    theta_sketch_estimate(theta) AS theta, tuple_sketch_estimate_double(tuples) AS tuples,
    tuple_sketch_summary_double(tuples) AS summary, kll_sketch_get_n_bigint(kll) AS kll_n,
    kll_sketch_get_quantile_bigint(kll, array({quantiles})) AS kll, kll_sketch_get_n_double(even) AS even_n,
    kll_sketch_get_quantile_double(even, 0.5D) AS even, approx_top_k_estimate(top, 20) AS top, thirds,
    bitmap_count(bits) AS bits
FROM kept
""".format(quantiles=", ".join(f"{part}D" for part in QUANTILES))
OF_ALL = """
SELECT hll_sketch_estimate(hll_sketch_agg(x)) AS different, kll_sketch_get_n_bigint(kll_sketch_agg_bigint(x)) AS n,
    bitmap_count(bitmap_construct_agg(bitmap_bit_position(x % 30000 + 1))) AS bits, approx_top_k(w, 2, 100) AS top
FROM events WHERE x IS NOT NULL
"""

Row = dict[str, Any]


def random_rows(random: Random, count: int) -> list[Row]:
    """Rows of three groups, the first of which has most; values are equal now and then, and some are null."""
    rows = [
        {
            "k": random.choice("aaaaabbc"),
            "x": None if random.random() < 0.02 else random.randrange(40_000),
            "d": random.gauss(0, 1),
            "w": None if random.random() < 0.05 else f"w{int(random.paretovariate(0.7)) % 5000}",
            "at": NOON + dt.timedelta(seconds=random.randrange(7200)),
        }
        for _ in range(count)
    ]
    for group, row in zip("abc", rows, strict=False):  # of an empty sketch Spark gives no quantile, but an error
        row |= {"k": group, "x": 2 * random.randrange(20_000)}
    return rows


def assert_near(found: float, exact: float, error: float) -> None:
    assert abs(found - exact) <= max(1, DEVIATIONS * error * exact), (found, exact)


def assert_quantile(value: float, part: float, values: Iterable[float], error: float = KLL_RANK_ERROR) -> None:
    """The value's rank is near the part that was asked for: that is what a quantile sketch promises."""
    ordered = sorted(values)
    low, high = bisect_left(ordered, value) / len(ordered), bisect_right(ordered, value) / len(ordered)
    assert low - 2 * error <= part <= high + 2 * error, (value, part, low, high)


def assert_top(found: Iterable[Mapping[str, Any]], words: Counter[str | None], error: int) -> None:
    for each in found:
        assert abs(each["count"] - words[each["item"]]) <= error, (each, words[each["item"]])


def check_group(found: Row, rows: list[Row]) -> None:
    numbers = [row["x"] for row in rows if row["x"] is not None]
    even = [row["d"] for row in rows if row["x"] is not None and row["x"] % 2 == 0]
    words = Counter(row["w"] for row in rows)
    known = {row["w"] for row in rows if row["w"] is not None}

    assert found["n"] == len(rows)
    assert math.isclose(found["total"], math.fsum(row["d"] for row in rows), abs_tol=1e-9)
    assert_near(found["hll"], len(set(numbers)), HLL_ERROR)
    some = {row["w"] for row in rows if row["w"] is not None and (row["x"] or 0) > 100}
    assert_near(found["some_hll"], len(some), 2 * HLL_ERROR)  # a quarter of the size
    assert_near(found["theta"], len(set(numbers)), THETA_ERROR)
    assert_near(found["tuples"], len(known), THETA_ERROR)
    summary = math.fsum(row["d"] for row in rows if row["w"] is not None)
    if len(known) < 4000:  # fewer than it holds: nothing is estimated
        assert found["tuples"] == len(known)
        assert math.isclose(found["summary"], summary, abs_tol=1e-6)
    assert found["bits"] == len({number % 30_000 for number in numbers})
    assert found["kll_n"] == len(numbers)
    for part, value in zip(QUANTILES, found["kll"], strict=True):
        assert_quantile(value, part, numbers)
    assert found["even_n"] == len(even)
    assert_quantile(found["even"], 0.5, even)
    assert_top(found["top"], words, math.ceil(3.5 * len(rows) / TRACKED))
    thirds = Counter(row["w"] for row in rows if row["x"] is not None and row["x"] % 3 == 0)
    assert [each["count"] for each in found["thirds"]] == [count for _, count in thirds.most_common(3)]
    assert_top(found["thirds"], thirds, 0)


@pytest.mark.parametrize("case", range(THOROUGH))
def test_kept_sketches_say_what_is_so(spark: SparkSession, tmp_path: Path, case: int) -> None:
    assert spark is not None
    seed = SystemRandom().randrange(2**32)
    print(f"case {case}, seed {seed}")
    random = Random(seed)
    sizes = random.sample([40, 300, 2_000, 8_000], k=4)
    rows: list[Row] = []

    with patch.dict(vars(thresholds), random.choice(WAYS)):
        for some in (sizes[:2], sizes[2:]):
            with app_of(tmp_path) as app:
                for size in some:
                    came = random_rows(random, size)
                    rows += came
                    app.get_topic("events").append(came)
                    app.tick()
                    check(app, rows)
                different = [each for each in app.verify() if not each.equal]

    assert different == []


def check(app: hw.App, rows: list[Row]) -> None:
    asked = {row["k"]: row for row in app.get_view("asked").to_arrow().to_pylist()}
    assert set(asked) == {row["k"] for row in rows}
    for group, found in asked.items():
        check_group(found, [row for row in rows if row["k"] == group])
    check_all(app.get_view("of_all").to_arrow().to_pylist(), rows)


def app_of(home: Path) -> hw.App:
    app = hw.App("sketches", home=home)
    app.topic("events", SCHEMA, event_time="at", partitions=2)
    app.view("kept", SKETCHES)
    app.view("asked", ASKED)
    app.view("of_all", OF_ALL)
    return app


def check_all(found: list[Row], rows: list[Row]) -> None:
    (one,) = found
    numbers = [row["x"] for row in rows if row["x"] is not None]
    words = Counter(row["w"] for row in rows if row["x"] is not None)

    assert_near(one["different"], len(set(numbers)), HLL_ERROR)
    assert one["n"] == len(numbers)
    assert one["bits"] == len({number % 30_000 for number in numbers})
    assert_top(one["top"], words, math.ceil(3.5 * len(numbers) / 100))


HOURLY = """
SELECT window.start AS hour, hll_sketch_agg(x) AS users, kll_sketch_agg_bigint(x) AS kll,
    bitmap_construct_agg(bitmap_bit_position(x)) AS bits, approx_top_k_accumulate(w) AS top
FROM events GROUP BY window(at, '1 hour')
"""
COUNTED = "SELECT window.start AS hour, approx_count_distinct(x) AS users FROM events GROUP BY window(at, '1 hour')"
HOURS = """
SELECT hour, hll_sketch_estimate(users) AS users, kll_sketch_get_n_bigint(kll) AS n, bitmap_count(bits) AS bits,
    approx_top_k_estimate(top, 1)[0].count AS most FROM {}
"""


def test_sketches_of_hours_are_kept_with_every_timing(spark: SparkSession, tmp_path: Path) -> None:
    assert spark is not None
    declared: dict[str, dict[str, str]] = {
        "plain": {},
        "dropping": {"late": "drop"},
        "bounded": {"horizon": "1 hour"},
        "final": {"emit": "final"},
    }

    with hw.App("hours", home=tmp_path) as app:
        events = app.topic("events", SCHEMA, event_time="at", lateness="5 minutes")
        for name, timing in declared.items():
            app.view(name, HOURLY, **timing)
            app.view(f"{name}_hours", HOURS.format(name))
        app.view("counted", COUNTED, horizon="1 hour")
        app.view("counted_final", COUNTED, emit="final")
        for minutes, users in (([0, 10, 50], [1, 2, 1]), ([40, 70, 75], [3, 1, 4]), ([5, 140], [9, 1]), ([20], [8])):
            rows = [at_minute(*each) for each in zip(minutes, users, strict=True)]
            events.append(rows)
            app.tick()
        different = [each for each in app.verify() if not each.equal]
        hours = {name: shown(app, f"{name}_hours") for name in declared}
        counted = {
            name: {(row["hour"] - NOON) // dt.timedelta(hours=1): row["users"] for row in app.get_view(name).rows()}
            for name in ("counted", "counted_final")
        }
        kinds = {stage.kind.value for name in declared for stage in app.get_view(name).plan.stages}

    assert different == []
    assert kinds == {"accumulating", "linear"}
    first, second, third = (0, 1, 2)
    assert hours["plain"] == {first: (5, 6, 5, 2), second: (2, 2, 2, 1), third: (1, 1, 1, 1)}
    # The watermark was at 12:45 and 13:10 when minute 40 and minute 5 came, and at 14:15 when minute 20 did.
    assert hours["dropping"] == {first: (2, 3, 2, 2), second: (2, 2, 2, 1), third: (1, 1, 1, 1)}
    assert hours["bounded"] == {first: (3, 4, 3, 2), second: (2, 2, 2, 1), third: (1, 1, 1, 1)}
    assert hours["final"] == {first: (2, 3, 2, 2), second: (2, 2, 2, 1)}
    assert counted == {"counted": {first: 3, second: 2, third: 1}, "counted_final": {first: 2, second: 2}}


def at_minute(minute: int, user: int) -> Row:
    return {"k": "a", "x": user, "d": 0.0, "w": f"w{user}", "at": NOON + dt.timedelta(minutes=minute)}


def shown(app: hw.App, view: str) -> dict[int, tuple[int, ...]]:
    rows = app.get_view(view).to_arrow().to_pylist()
    return {
        (row["hour"] - NOON) // dt.timedelta(hours=1): (row["users"], row["n"], row["bits"], row["most"])
        for row in rows
    }


def test_a_row_that_is_there_twice_counts_twice_in_a_kept_sketch(spark: SparkSession, tmp_path: Path) -> None:
    assert spark is not None
    sql = """SELECT e.k, kll_sketch_get_n_bigint(kll_sketch_agg_bigint(e.x)) AS n, count(*) AS rows,
        tuple_sketch_summary_double(tuple_sketch_agg_double(e.w, e.d)) AS d, approx_top_k(e.w, 1)[0].count AS most
        FROM events e JOIN marks m ON e.k = m.k GROUP BY e.k"""

    with hw.App("twice", home=tmp_path) as app:
        events, marks = app.topic("events", SCHEMA), app.topic("marks", "k STRING")
        view = app.view("sketches", sql)
        marks.append([{"k": "a"}] * 3)
        app.tick()
        events.append([{"k": "a", "x": 7, "d": 0.5, "w": "w", "at": None}] * 2)
        app.tick()
        first = view.to_arrow().to_pylist()
        marks.append([{"k": "a"}])
        app.tick()
        second = view.to_arrow().to_pylist()

    assert [stage.kind.value for stage in view.plan.stages] == ["accumulating"]
    assert first == [{"k": "a", "n": 6, "most": 6, "d": 3.0, "rows": 6}]
    assert second == [{"k": "a", "n": 8, "most": 8, "d": 4.0, "rows": 8}]


def test_sketches_that_are_rows_are_united(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(3)
    sql = """SELECT hll_sketch_estimate(hll_union_agg(hll)) AS hll, bitmap_count(bitmap_or_agg(bits)) AS bits,
        theta_sketch_estimate(theta_union_agg(theta)) AS theta, kll_sketch_get_n_bigint(kll_merge_agg_bigint(kll)) AS n,
        kll_sketch_get_quantile_bigint(kll_merge_agg_bigint(kll), 0.5D) AS half FROM parts WHERE k > 0"""
    make = """SELECT hll_sketch_agg(x, 14) AS hll, theta_sketch_agg(x) AS theta, kll_sketch_agg_bigint(x, 400) AS kll,
        bitmap_construct_agg(bitmap_bit_position(x + 1)) AS bits FROM VALUES {} AS t(x)"""
    numbers: list[int] = []

    with hw.App("parts", home=tmp_path) as app:
        parts = app.topic("parts", "k INT, hll BINARY, theta BINARY, kll BINARY, bits BINARY")
        united = app.view("united", sql)
        for tick in range(3):
            some = [random.randrange(30_000) for _ in range(2_000)]
            numbers += some
            (made,) = spark.sql(make.format(", ".join(f"({number}L)" for number in some))).toArrow().to_pylist()
            # A sketch that is null is none, and its size is not that of the others.
            parts.append([{"k": 1, "hll": None, "theta": None, "kll": None, "bits": None}])
            parts.append([{"k": 1, **made}])
            app.tick()
            (found,) = united.to_arrow().to_pylist()

            assert_near(found["hll"], len(set(numbers)), HLL_ERROR / 2)
            assert_near(found["theta"], len(set(numbers)), THETA_ERROR)
            assert (found["n"], found["bits"]) == (len(numbers), len(set(numbers))), tick
            assert_quantile(found["half"], 0.5, numbers)

    assert [stage.kind.value for stage in united.plan.stages] == ["accumulating"]


REGISTERS = """
SELECT k, approx_count_distinct(x) AS x, approx_count_distinct(CAST(x AS DECIMAL(25, 3)), 0.1) AS m,
    approx_count_distinct(w) FILTER (WHERE x % 3 = 0) AS w, approx_count_distinct(at) AS at, count(*) AS n, avg(x) AS a
FROM events GROUP BY k
"""


def test_approx_count_distinct_is_sparks_over_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    assert spark is not None
    random = Random(11)
    of_all = "SELECT approx_count_distinct(x) AS x FROM events"

    with hw.App("registers", home=tmp_path) as app:
        events = app.topic("events", SCHEMA, partitions=2)
        views = {app.view("by_group", REGISTERS): REGISTERS, app.view("of_all", of_all): of_all}
        for size in (0, 7, 6_000, 500):
            events.append(random_rows(random, size))
            app.tick()
            for view, sql in views.items():
                assert sorted(map(repr, view.rows())) == sorted(map(repr, app.sql(sql).to_pylist())), (view.name, size)
        different = [each for each in app.verify() if not each.equal]

    assert different == []
