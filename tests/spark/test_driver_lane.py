"""The driver lane beside Spark jobs: the same rows, the same errors, nothing left behind."""

from __future__ import annotations

import decimal
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import InvalidDeclaration
from headwater.views.spark.plans import lane_check
from headwater.views.spark.plans.arrow_leaves import LeafRows
from headwater.views.spark.plans.driver_lane import DriverLane, LaneInterrupted
from headwater.views.spark.plans.lane_check import VARIABLE, lane_of
from headwater.views.spark.plans.plan_cache import CachedQuery, PlanCache
from headwater.views.spark.plans.plan_record import PlanRecord
from headwater.views.spark.spark_session import start_session
from headwater.views.stages.view_sessions import BOTH, SMALL, ViewSessions
from tests.unit.weighted_rows import thorough

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

QUERIES = {
    "project": "SELECT a.i + 1 AS i, upper(a.s) AS s, a.d * 2 AS d, a.t, a.f / 3 AS f, a.l FROM _a a WHERE a.i % 2 = 0",
    "join and sums": "SELECT b.s, sum(a.i) AS n, sum(a.d) AS d, avg(a.f) AS f, max(a.t) AS t FROM _a a JOIN _b b "
    "ON a.i % 5 = b.i GROUP BY b.s",
    "outer joins": "SELECT a.i, b.s, c.s AS more FROM _a a LEFT JOIN _b b ON a.i = b.i FULL JOIN _b c ON b.i = c.i",
    "semi and anti": "SELECT a.* FROM _a a LEFT SEMI JOIN _b b ON a.s = b.s LEFT ANTI JOIN _b c ON a.i = c.i",
    "window": "SELECT s, i, row_number() OVER (PARTITION BY s ORDER BY i, t) AS n, lag(i) OVER (PARTITION BY s "
    "ORDER BY i, t) AS before FROM _a",
    "distinct and sort": "SELECT DISTINCT s, i FROM _a ORDER BY s DESC, i LIMIT 7",
    "explode and collect": "SELECT s, sort_array(collect_list(e)) AS l FROM (SELECT s, explode(l) AS e FROM _a) "
    "GROUP BY s",
    "union": "SELECT s, count(DISTINCT i) AS n, sum(d) AS m FROM (SELECT s, i, d FROM _a UNION ALL SELECT s, i, d "
    "FROM _b) GROUP BY s",
    "no rows": "SELECT a.s, count(*) AS n FROM _a a JOIN _b b ON a.i = b.i WHERE 1 = 0 GROUP BY a.s",
    "nested": "SELECT named_struct('s', s, 'l', l) AS r, map(coalesce(s, ''), i) AS m, array(f, NULL) AS fs FROM _a",
}


def rows(random: np.random.Generator, count: int) -> pa.Table:
    """Rows of many types, with nulls, special numbers and texts beyond ASCII."""

    def some(values: list[Any], arrow: pa.DataType) -> pa.Array:
        return pa.array([values[at] for at in random.integers(0, len(values), count)], arrow)

    return pa.table(
        {
            "i": some([None, *range(-3, 9)], pa.int64()),
            "s": some([None, "", "a", "Ä", "日本", "a b"], pa.string()),
            "d": some([None, *(decimal.Decimal(n) / 4 for n in range(-3, 5))], pa.decimal128(12, 2)),
            "f": some([None, 0.0, -0.0, 1.5, float("nan"), float("inf"), -1e300], pa.float64()),
            "t": some([None, 0, 1, 86_400_000_000, -62_135_596_800_000_000], pa.timestamp("us", tz="UTC")),
            "l": some([None, [], [1], [1, None, 3]], pa.list_(pa.int32())),
        }
    )


@pytest.fixture(scope="module")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    return ViewSessions(spark, tmp_path_factory.mktemp("lane") / "view").small


@pytest.fixture
def lane(small: SparkSession, monkeypatch: pytest.MonkeyPatch) -> DriverLane:
    monkeypatch.setenv(VARIABLE, "on")
    found = lane_of(small)
    assert found is not None
    return found


def asked(cache: PlanCache, sql: str, **tables: pa.Table) -> pa.Table:
    return cache.collect(CachedQuery(sql), {name: LeafRows(table) for name, table in tables.items()})


def as_text(table: pa.Table) -> list[str]:
    """The rows, sorted, each as text: equal exactly when every bit that can be seen is."""
    return sorted(repr(row) for row in table.to_pylist())


@pytest.mark.parametrize("sql", QUERIES.values(), ids=list(QUERIES))
@pytest.mark.usefixtures("lane")
def test_the_lane_gives_what_a_job_gives(small: SparkSession, monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    by_lane, by_job = PlanCache(small), PlanCache(small)
    random = np.random.default_rng(7)
    for count in [40, 0, 1, *random.integers(0, 200, thorough(3))]:
        tables = {"_a": rows(random, count), "_b": rows(random, count // 4)}
        monkeypatch.setenv(VARIABLE, "on")
        found = asked(by_lane, sql, **tables)
        monkeypatch.setenv(VARIABLE, "off")
        right = asked(by_job, sql, **tables)

        assert found.schema == right.schema
        assert as_text(found) == as_text(right)
    assert by_lane.in_lane > 0
    assert by_job.in_lane == 0


ERRORS = {
    "overflow": ("SELECT i + 9223372036854775807 AS x FROM _a", "ARITHMETIC_OVERFLOW"),
    "division": ("SELECT 1 / i AS x FROM _a", "DIVIDE_BY_ZERO"),
    "cast": ("SELECT CAST(s AS INT) AS x FROM _a", "CAST_INVALID_INPUT"),
    "raised": ("SELECT raise_error(s) AS x FROM _a", "USER_RAISED_EXCEPTION"),
}


@pytest.mark.parametrize(("sql", "error_class"), ERRORS.values(), ids=list(ERRORS))
@pytest.mark.usefixtures("lane")
def test_an_error_is_that_of_a_job_and_the_next_run_is_right(
    small: SparkSession, monkeypatch: pytest.MonkeyPatch, sql: str, error_class: str
) -> None:
    from pyspark.errors import PySparkException

    cache = PlanCache(small)
    bad = pa.table({"i": pa.array([1, 0, None], pa.int64()), "s": ["1", "no", None]})
    good = pa.table({"i": pa.array([None], pa.int64()), "s": pa.array([None], pa.string())})
    if error_class != "USER_RAISED_EXCEPTION":
        assert asked(cache, sql, _a=good).to_pylist() == [{"x": None}]

    with pytest.raises(PySparkException) as found:
        asked(cache, sql, _a=bad)
    monkeypatch.setenv(VARIABLE, "off")
    with pytest.raises(PySparkException) as right:
        asked(PlanCache(small), sql, _a=bad)

    assert type(found.value) is type(right.value)
    assert found.value.getCondition() == right.value.getCondition() == error_class
    monkeypatch.setenv(VARIABLE, "on")
    if error_class != "USER_RAISED_EXCEPTION":
        assert asked(cache, sql, _a=good).to_pylist() == [{"x": None}]


def test_many_runs_leave_neither_memory_nor_threads(small: SparkSession, lane: DriverLane) -> None:
    cache, jvm = PlanCache(small), lane.jvm
    random = np.random.default_rng(1)
    tables = {"_a": rows(random, 50), "_b": rows(random, 20)}
    names = ("join and sums", "window", "distinct and sort")
    for name in names:
        asked(cache, QUERIES[name], **tables)
    bean = jvm.java.lang.management.ManagementFactory
    here = threading.active_count()

    def threads() -> Counter[str]:
        found = jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
        return Counter(re.sub(r"\d+", "N", str(each.getName())) for each in found)

    threads_before = threads()

    def heap() -> int:
        jvm.System.gc()
        return int(bean.getMemoryMXBean().getHeapMemoryUsage().getUsed())

    before = heap()
    for number in range(thorough(300)):
        asked(cache, QUERIES[names[number % 3]], **tables)

    assert cache.in_lane == thorough(300) + 3
    assert lane.memory_used() == 0
    assert heap() - before < 32 << 20
    more = threads() - threads_before  # Spark cleans up after jobs of other tests, with pools of its own
    assert {name: n for name, n in more.items() if n > 2 and not name.startswith("block-manager")} == {}
    assert threading.active_count() <= here


def test_threads_with_a_plan_each_do_not_disturb_one_another(small: SparkSession, lane: DriverLane) -> None:
    random = np.random.default_rng(3)
    given = [(rows(random, 60), rows(random, 20)) for _ in range(4)]
    right = [as_text(asked(PlanCache(small), QUERIES["join and sums"], _a=a, _b=b)) for a, b in given]
    caches = [PlanCache(small.newSession()) for _ in given]
    for cache, (a, b) in zip(caches, given, strict=True):  # planned one after the other
        for name, value in {**BOTH, **SMALL}.items():
            cache.spark.conf.set(name, value)
        asked(cache, QUERIES["join and sums"], _a=a, _b=b)

    def ask(place: int) -> bool:
        a, b = given[place]
        answers = (as_text(asked(caches[place], QUERIES["join and sums"], _a=a, _b=b)) for _ in range(20))
        return all(answer == right[place] for answer in answers)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [True] * 4
    assert lane.memory_used() == 0


def test_a_run_that_is_interrupted_ends_and_the_next_one_is_right(small: SparkSession, lane: DriverLane) -> None:
    cache = PlanCache(small)
    sql = "SELECT count(*) AS n FROM _a a JOIN _b b ON a.k = b.k AND a.i < b.i"
    few = {"_a": pa.table({"k": [1], "i": [0]}), "_b": pa.table({"k": [1, 1], "i": [1, 2]})}
    assert asked(cache, sql, **few).to_pylist() == [{"n": 2}]
    zeros = pa.array(np.zeros(100_000, np.int64))
    many = {"_a": pa.table({"k": zeros, "i": zeros}), "_b": pa.table({"k": zeros[:20_000], "i": zeros[:20_000]})}
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            asked(cache, sql, **many)  # 2 * 10^9 pairs
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not lane.under_way() and thread.is_alive():
        thread.join(0.01)
    while thread.is_alive():
        lane.interrupt()
        thread.join(0.1)

    assert isinstance(ended[0], LaneInterrupted)
    assert asked(cache, sql, **few).to_pylist() == [{"n": 2}]
    assert lane.memory_used() == 0


@pytest.mark.usefixtures("lane")
def test_a_plan_that_the_lane_cannot_run_becomes_a_job(
    small: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache, table = PlanCache(small), pa.table({"i": [1, 2]})
    sql = "SELECT sum(i) AS n FROM _a"
    assert asked(cache, sql, _a=table).to_pylist() == [{"n": 3}]

    def fail(*_: object) -> None:
        raise RuntimeError("not known here")

    monkeypatch.setattr(DriverLane, "run", fail)
    assert asked(cache, sql, _a=table).to_pylist() == [{"n": 3}]
    monkeypatch.undo()

    assert asked(cache, sql, _a=pa.table({"i": [5]})).to_pylist() == [{"n": 5}]
    assert cache.in_lane == 1  # the first one
    assert "not known here" in caplog.text


@pytest.mark.usefixtures("lane")
@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES.keys())
def test_a_plan_made_ahead_by_another_process_answers_the_first_question(
    small: SparkSession, tmp_path: Path, sql: str
) -> None:
    random = np.random.default_rng(thorough(1))
    given = {"_a": rows(random, 40), **({"_b": rows(random, 7)} if "_b" in sql else {})}
    first, second = PlanCache(small), PlanCache(small)
    answer = asked(first, sql, **given)
    PlanRecord(tmp_path / "plans.json", "4.3.0").save({"v": first})

    made = [second.plan_ahead(key) for key in PlanRecord(tmp_path / "plans.json", "4.3.0").read()["v"]]
    again = asked(second, sql, **given)

    assert (made, second.reused, second.made) == ([True], 1, 1)
    assert as_text(again) == as_text(answer)


def test_a_spark_that_fails_the_trial_runs_jobs(
    small: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lane_check, "TRIAL", "SELECT 1 AS x")
    monkeypatch.setattr(lane_check, "_lanes", {})
    monkeypatch.setenv(VARIABLE, "auto")

    assert lane_of(small) is None
    assert "failed its trial" in caplog.text
    assert asked(PlanCache(small), "SELECT sum(i) AS n FROM _a", _a=pa.table({"i": [1, 2]})).to_pylist() == [{"n": 3}]

    monkeypatch.setattr(lane_check, "_lanes", {})
    monkeypatch.setenv(VARIABLE, "on")
    with pytest.raises(AssertionError):
        lane_of(small)
    monkeypatch.setenv(VARIABLE, "of")
    for asks in (partial(lane_of, small), partial(start_session, "never started", {})):
        with pytest.raises(InvalidDeclaration, match="HEADWATER_LANE"):
            asks()
