"""The benchmark of patterns: its payments are as promised, its searches by hand are right, its bars are asked."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

from bench import watch_bench
from bench.report import Measurement
from bench.watch import payments as data
from bench.watch.pattern_scale import PROCESSOR_RATE, RATE, PatternScale, bars
from bench.watch.payments import PATTERNS, Pattern, Payments


def fits(name: str, amounts: list[float]) -> bool:
    """Whether the payments from the first of a match to its last, all of them, are one: straight from the pattern."""
    kinds = "".join("s" if each < data.SMALL else "b" if each >= data.BIG else "o" for each in amounts)
    smalls = len(kinds) - len(kinds.lstrip("s"))
    if len(kinds) < 2 or kinds[0] != "s" or kinds[-1] != "b":
        return False
    if name == "later":
        return "b" not in kinds[1:-1]
    others = kinds[smalls:-1]
    adjacent = len(others) > 0 and set(others) == {"o"}
    if name == "tried":
        return smalls >= 2 and adjacent
    return smalls == 1 and adjacent and amounts[-1] >= data.TIMES * amounts[0]


def all_pairs(payments: Payments, name: str) -> list[tuple[int, int]]:
    """The matches by trying every pair of payments of a card, the first beginning first."""
    found = []
    card, amount, at_ms = payments.columns
    for one in range(payments.cards):
        own, used = np.flatnonzero(card == one), -1
        for first, last in combinations(range(len(own)), 2):
            within = at_ms[own[last]] - at_ms[own[first]] <= data.WITHIN_MS
            if first > used and within and fits(name, amount[own[first : last + 1]].tolist()):
                found.append((int(own[first]), int(own[last])))
                used = last
    return found


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda each: each.name)
def test_the_search_by_hand_finds_what_all_pairs_give(pattern: Pattern) -> None:
    payments = Payments(4_000, cards=20)

    found = payments.matches(pattern, 4_000)

    assert len(found) >= 3
    assert found.tolist() == data.in_order(all_pairs(payments, pattern.name)).tolist()


def test_a_card_pays_about_every_seventy_seconds_and_never_ten_minutes_after_itself() -> None:
    for cards in (10_000, 7_000, 400, 40, 1):
        step_ms = Payments(1, cards=cards).step_ms
        assert data.WITHIN_MS % step_ms != 0
        assert data.PAUSE_MS // cards <= step_ms <= 2 * data.PAUSE_MS // cards


def test_the_files_hold_every_payment_once_and_each_is_in_the_order_of_time(tmp_path: Path) -> None:
    payments = Payments(1_003, cards=2)

    data.write_csv(payments, 1_001, tmp_path / "csv", 2)

    options = pyarrow.csv.ReadOptions(column_names=["payment_id", "card", "amount", "ms"])
    pieces = [pyarrow.csv.read_csv(path, options) for path in sorted((tmp_path / "csv").iterdir())]
    numbers = [piece["payment_id"].to_pylist() for piece in pieces]
    assert [sorted(each) for each in numbers] == numbers
    assert sorted(numbers[0] + numbers[1]) == list(range(1_001))
    assert pieces[1]["ms"].to_pylist() == payments.columns[2][:1_001][1::2].tolist()


def test_a_match_that_comes_twice_is_wrong() -> None:
    once, twice = data.in_order([(1, 2)]), data.in_order([(1, 2), (1, 2)])

    assert data.difference(once, once) is None
    assert "some of them twice" in (data.difference(twice, once) or "")


def test_each_pattern_is_held_against_flink_by_the_clock_and_by_processor_time() -> None:
    found = [
        Measurement(f"{side}: {each.title}", rate, unit)
        for side, rate in (("own", 9.0), ("flink", 4.0))
        for each in PATTERNS[:2]
        for unit in (RATE, PROCESSOR_RATE)
    ]

    lines = bars(found, ["own", "flink"])

    assert [(line.value, line.bar, line.holds) for line in lines] == [(2.25, 3.0, False)] * 4 + [(None, 3.0, False)] * 2
    assert bars(found, ["own"]) == []


def test_the_ticks_come_on_top_of_the_catch_up() -> None:
    assert PatternScale(1_000, ticks=((10, 3), (100, 2))).every == 1_230


def test_a_benchmark_that_is_not_there_is_told_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["watch_bench", "dreams"])

    with pytest.raises(SystemExit, match="2"):
        watch_bench.main()

    assert "no benchmark dreams; there are patterns, sketches, searches" in capsys.readouterr().err
