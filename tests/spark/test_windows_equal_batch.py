"""Windows, joins bounded in time and analytics on Spark: whatever comes, in any order, the view is the batch query.

What it is: one app with a view of each sort over a keyed table, a bag and a topic; random inserts, updates, deletes and
late rows in random ticks; a restart in between. After every tick some views, and after the last one all of them, are
compared with the user's own SQL, which Spark runs over the tables; then ``verify`` computes them from the log.
Invariants: rows are compared as bags, doubles to rounding; sketches by what they estimate, which is exact for so few
values. The seed is in the test's name. ``HEADWATER_THOROUGH=n`` tries n times as many.
Not here: random queries (``test_views_equal_batch.py``); the same on DuckDB (``tests/compiler/test_time_windows.py``).
Read next: ``docs/windows.md``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from random import Random
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.views import thresholds
from headwater.views.compiler.plan import Relation
from tests.compiler.comparing import bag_difference
from tests.compiler.schemas import VALUES, Change, Row, Tables
from tests.compiler.test_time_windows import TABLES
from tests.seeds import seed
from tests.spark.test_views_equal_batch import WAYS, declare, put

THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))
COMPARED = 2  # views after a tick that is not the last

NEAR = "b.k = a.k AND b.at BETWEEN a.at - INTERVAL 5 MINUTES AND a.at"
WINDOWS = {
    "tumbling": """SELECT window.start AS s, k, count(*) AS n, sum(x) AS x FROM r
        GROUP BY window(at, '5 minutes'), k HAVING count(*) < 9""",
    "hopping": """SELECT window.start AS s, window.end AS e, avg(x) AS x, min(w) AS w FROM r
        GROUP BY window(at, '10 minutes', '5 minutes')""",
    "sessions": """SELECT session_window AS v, k, count(*) AS n, max(x) AS x, sort_array(collect_set(w)) AS ws FROM r
        GROUP BY session_window(at, '5 minutes'), k""",
    "sessions_by_gap": """SELECT session_window.start AS s, session_window.end AS e, w, count(DISTINCT x) AS xs
        FROM s GROUP BY session_window(at, CASE WHEN x > 1 THEN '5 minutes' ELSE '1 minute' END), w
        HAVING session_window.end > TIMESTAMP'2000-01-01'""",
    "sessions_of_all": "SELECT session_window.end AS e, count(*) AS n FROM t GROUP BY session_window(at, '4 minutes')",
    "quarters": """SELECT window(window_time(v), '15 minutes') AS quarter, sum(n) AS n FROM (
        SELECT session_window AS v, k, count(*) AS n FROM t GROUP BY session_window(at, '5 minutes'), k)
        GROUP BY window(window_time(v), '15 minutes')""",
    "days": """SELECT window(five, '1 day').start AS day, max(n) AS n FROM (
        SELECT window(at, '5 minutes') AS five, count(*) AS n FROM s GROUP BY window(at, '5 minutes'))
        GROUP BY window(five, '1 day')""",
    "sliding": """SELECT id, k, at, sum(x) OVER (PARTITION BY k ORDER BY at
        RANGE BETWEEN INTERVAL 5 MINUTES PRECEDING AND CURRENT ROW) AS x FROM r""",
}
JOINS = {
    "inner_within": f"SELECT a.id, b.x FROM r a JOIN s b ON {NEAR}",
    "left_within": f"SELECT a.id, b.w FROM r a LEFT JOIN s b ON {NEAR}",
    "full_within": f"SELECT a.id, b.w FROM r a FULL JOIN s b ON {NEAR}",
    "semi_within": f"SELECT a.id FROM r a LEFT SEMI JOIN t b ON {NEAR}",
    "anti_within": f"SELECT a.id FROM r a LEFT ANTI JOIN t b ON {NEAR}",
    "some_within": f"SELECT a.id FROM r a WHERE EXISTS (SELECT 1 FROM s b WHERE {NEAR} AND b.x > 0)",
    "none_within": f"SELECT a.id FROM r a WHERE NOT EXISTS (SELECT 1 FROM s b WHERE {NEAR})",
    "each_other": f"SELECT a.id, b.id AS other FROM r a JOIN r b ON {NEAR} AND a.id <> b.id",
    "rate": """SELECT window.start AS s, count(*) AS searches, count(c.at) AS clicked, count(c.at) / count(*) AS rate
        FROM r LEFT JOIN (SELECT k, at, max(x) AS x FROM s GROUP BY k, at) c
        ON c.k = r.k AND c.at BETWEEN r.at AND r.at + INTERVAL 5 MINUTES GROUP BY window(r.at, '10 minutes')""",
}
BY_WINDOW = "SELECT window.start AS s, k, count(*) AS n FROM r GROUP BY window(at, '5 minutes'), k"
ANALYTICS = {
    "moving": f"""SELECT s, k, avg(n) OVER (PARTITION BY k ORDER BY s ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS n,
        n - lag(n) OVER (PARTITION BY k ORDER BY s) AS more FROM ({BY_WINDOW})""",
    "hitters": """SELECT s, w, n FROM (SELECT s, w, n, row_number() OVER (PARTITION BY s ORDER BY n DESC, w) AS place
        FROM (SELECT window.start AS s, w, count(*) AS n FROM s GROUP BY window(at, '1 hour'), w)) WHERE place < 3""",
    "percentiles": """SELECT window.start AS s, percentile(x, 0.5) AS p, percentile_approx(x, 0.5) AS a, median(x) AS m,
        percentile_cont(0.9) WITHIN GROUP (ORDER BY x) AS c, approx_count_distinct(x) AS d,
        transform(approx_top_k(x, 2), t -> t.count) AS top FROM r GROUP BY window(at, '10 minutes')""",
    "sketches": """SELECT window.start AS s, hll_sketch_agg(x) AS hll, theta_sketch_agg(x) AS theta,
        kll_sketch_agg_bigint(x) AS kll, approx_top_k_accumulate(w) AS top,
        count_min_sketch(x, 0.1D, 0.9D, 7) AS counts, bitmap_construct_agg(bitmap_bit_position(abs(x))) AS bits
        FROM r GROUP BY window(at, '5 minutes')""",
    "estimates": """SELECT window.start AS s, hll_sketch_estimate(hll_union_agg(hll)) AS hll,
        theta_sketch_estimate(theta_union_agg(theta)) AS theta, kll_sketch_get_n_bigint(kll_merge_agg_bigint(kll)) AS n,
        CASE WHEN kll_sketch_get_n_bigint(kll_merge_agg_bigint(kll)) > 0  -- an empty one has no quantile
             THEN kll_sketch_get_quantile_bigint(kll_merge_agg_bigint(kll), 0.5D) END AS half,
        transform(approx_top_k_estimate(approx_top_k_combine(top), 2), t -> t.count) AS top,
        bitmap_count(bitmap_or_agg(bits)) AS bits FROM sketches GROUP BY window(s, '1 day')""",
}
# What a view of sketches is held against: the sketches' own bytes depend on the order of rows.
INSTEAD = {
    "sketches": "SELECT s, hll_sketch_estimate(hll) AS hll, theta_sketch_estimate(theta) AS theta, "
    "kll_sketch_get_n_bigint(kll) AS n, approx_top_k_estimate(top, 1)[0].count AS top, counts, bits FROM ({})"
}


@pytest.mark.parametrize("views", [WINDOWS, JOINS, ANALYTICS], ids=["windows", "joins", "analytics"])
@pytest.mark.parametrize("case", range(THOROUGH))  # no seed in the name: tests that run side by side have equal ones
def test_a_view_by_time_is_the_batch_query(spark: SparkSession, views: Mapping[str, str], case: int) -> None:
    assert spark is not None
    chosen = seed(case)
    print(f"case {case}, seed {chosen}")
    random = Random(chosen)
    happening = random_ticks(random)
    restart = random.randrange(1, len(happening))
    home = tempfile.mkdtemp()

    with patch.dict(vars(thresholds), random.choice(WAYS)):
        with app_of(home, views) as app:
            for tick in happening[:restart]:
                take(app, tick)
                compare(app, {name: views[name] for name in random.sample(list(views), COMPARED)})
        with app_of(home, views) as app:
            for tick in happening[restart:]:
                take(app, tick)
            compare(app, views)
            different = [each for each in app.verify() if not each.equal]

    assert different == []


def random_ticks(random: Random) -> list[list[Change]]:
    """Ticks that put rows, of any time, and take some away."""
    model = Tables(TABLES)
    happening: list[list[Change]] = []
    for size in random.choices([0, 5, 15, 40], k=3):
        happening.append([])
        for _ in range(size):
            table = random.choice(TABLES)
            there = model.content[table.name]
            leaves = bool(there) and not table.append_only and random.random() < 0.3
            row = random.choice(there) if leaves else random_row(random, table)
            happening[-1].append(Change(table.name, row, insert=not leaves))
            model.apply(happening[-1][-1:])
    return happening


def random_row(random: Random, table: Relation) -> Row:
    return tuple(
        random.randrange(12) if column.name in table.key else random.choice([*VALUES[str(column.type)], None])
        for column in table.columns
    )


def app_of(home: str, views: Mapping[str, str]) -> hw.App:
    app = hw.App("by-time", home=home)
    for table in TABLES:
        declare(app, table)
    for name, sql in views.items():
        app.view(name, sql)
    return app


def take(app: hw.App, tick: list[Change]) -> None:
    tables = {table.name: table for table in TABLES}
    for change in tick:
        made = app.get_topic(change.table) if tables[change.table].append_only else app.get_table(change.table)
        put(made, change, tables[change.table])
    app.tick()


def compare(app: hw.App, views: Mapping[str, str]) -> None:
    for name, sql in views.items():
        shown = INSTEAD.get(name, "SELECT * FROM ({})")
        found = [tuple(row.values()) for row in app.sql(shown.format(f"SELECT * FROM {name}")).to_pylist()]
        expected = [tuple(row.values()) for row in app.sql(shown.format(sql)).to_pylist()]

        difference = bag_difference(found, expected)
        assert not difference, f"{name}:\n{difference}"
