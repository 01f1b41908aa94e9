"""Merging: which runs become one, and what it costs over the years."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.views.state.delta import Delta
from headwater.views.state.merge import FAN, RunMerge, due
from headwater.views.state.run import Run, RunFile
from headwater.views.state.trace import Trace
from tests.unit.weighted_rows import thorough, weighted_table

SCHEMA = pa.schema([("id", pa.int64())])


def run(rows: int, *, positive: bool = True, number: int = 0) -> Run:
    """A run as the policy sees it: nothing reads its file."""
    name = f"{number}-{rows}"
    return Run(name, (RunFile(f"{name}.parquet", rows, 0),), rows, number, number, 1 if positive else -1, 1)


def trace(*runs: Run) -> Trace:
    return Trace(Path("nowhere"), SCHEMA, runs)


def merged(*runs: Run) -> list[int]:
    merge = due(trace(*runs))
    return [one.rows for one in merge.runs] if merge else []


def test_a_few_small_runs_are_left_alone():
    assert merged(*(run(10) for _ in range(FAN - 1))) == []


def test_eight_small_runs_become_one():
    assert merged(run(1_000_000), *(run(10) for _ in range(FAN))) == [10] * FAN


def test_runs_of_a_higher_tier_are_merged_when_there_are_eight_of_them():
    assert merged(run(10_000_000), *(run(70_000) for _ in range(FAN - 1)), run(20_000)) == [70_000] * (FAN - 1) + [
        20_000
    ]


def test_a_large_run_is_not_rewritten_for_a_few_rows():
    assert merged(run(100_000), *(run(1, positive=False) for _ in range(FAN - 1))) == []
    assert merged(run(100_000), *(run(1, positive=False) for _ in range(FAN))) == [1] * FAN


def test_large_positive_runs_stay_as_they_are():
    assert merged(*(run(2_000_000) for _ in range(2 * FAN))) == []


def test_runs_that_take_rows_away_are_merged_when_they_are_half_of_the_others():
    assert merged(run(1_000_000), run(499_999, positive=False)) == []
    assert merged(run(1_000_000), run(500_000, positive=False)) == [1_000_000, 500_000]


def test_a_tail_that_takes_nothing_away_need_not_be_merged_with_the_oldest_run():
    assert merged(run(1_000_000), run(900_000)) == []


def test_a_small_oldest_run_does_not_call_for_merging_large_ones():
    assert merged(run(10), run(10_000_000), run(1_000, positive=False)) == []


def test_a_small_pile_is_merged_whole():
    runs = [run(40), *(run(10, positive=False) for _ in range(FAN))]

    assert merged(*runs) == [one.rows for one in runs]


def test_a_merge_from_the_oldest_run_on_is_positive(tmp_path: Path):
    content = Trace(tmp_path, SCHEMA)
    for tick, weight in enumerate([2, -1]):
        changes = Delta.local(weighted_table(SCHEMA, [({"id": 1}, weight), ({"id": 2}, 1)]))
        content = content.with_run(content.write(changes, tick=tick, epoch=1))

    _, new = RunMerge(content, content.runs).run()

    assert new is not None
    assert (new.positive, new.rows, new.first_tick, new.last_tick) == (True, 2, 0, 1)


def test_what_cancels_out_leaves_no_run(tmp_path: Path):
    content = Trace(tmp_path, SCHEMA)
    for tick, weight in enumerate([1, -1]):
        changes = Delta.local(weighted_table(SCHEMA, [({"id": 1}, weight)]))
        content = content.with_run(content.write(changes, tick=tick, epoch=1))

    replaced, new = RunMerge(content, content.runs).run()

    assert new is None
    assert content.with_merge(replaced, new).runs == ()


@settings(max_examples=thorough(30), deadline=None)
@given(st.lists(st.integers(1_000, 200_000), min_size=50, max_size=400), st.floats(0.0, 1.0))
def test_a_changed_row_is_rewritten_a_bounded_number_of_times(sizes: list[int], negative: float):
    runs: list[Run] = [run(1_000_000)]
    rewritten = 0
    for number, rows in enumerate(sizes, start=1):
        runs.append(run(rows, positive=number / len(sizes) > negative, number=number))
        while (merge := due(trace(*runs))) is not None:
            rewritten += merge.rows
            first = runs.index(merge.runs[0])
            positive = first == 0 or all(one.positive for one in merge.runs)
            runs[first : first + len(merge.runs)] = [run(merge.rows, positive=positive, number=number)]

    # The worst case: nothing ever cancels out. Once for each factor of eight, and three times for the oldest run.
    factors = math.ceil(math.log(sum(sizes) / min(sizes), FAN)) + 1
    assert rewritten <= (factors + 3) * sum(sizes) + 1_000_000
    assert len(runs) <= FAN * (factors + 1) + sum(sizes) // 1_000_000


def test_ticks_of_one_row_cost_little_and_leave_few_runs():
    ticks, runs, rewritten, most = thorough(2_000), [run(100_000)], 0, 0
    for number in range(1, ticks + 1):
        runs.append(run(1, positive=False, number=number))
        while (merge := due(trace(*runs))) is not None:
            rewritten += merge.rows
            first = runs.index(merge.runs[0])
            runs[first : first + len(merge.runs)] = [run(merge.rows, positive=first == 0, number=number)]
        most = max(most, len(runs))

    assert rewritten <= 5 * ticks * math.log(ticks, FAN)  # and never the large run
    assert most <= 4 * FAN
