"""The benchmark of windows: its events are as promised, its answers are right, its bars point the right way."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from bench.report import Measurement
from bench.time import events as data
from bench.time.events import Answer, Events
from bench.time.peers import flink_program, runs
from bench.time.scale import OURS, RATE, Scale, bars


def slow_answer(rows: list[dict]) -> Answer:
    """The slow and obvious way."""
    found: Answer = {}
    for row in rows:
        key = (row["at"] - row["at"] % 60_000, row["country"])
        amount, events = found.get(key, (0.0, 0))
        found[key] = (amount + row["amount"], events + 1)
    return found


def rows_of(table: pa.Table) -> list[dict]:
    """Its rows, with the time in milliseconds."""
    rows = table.to_pylist()
    return [{**row, "at": round(row["at"].timestamp() * 1000)} for row in rows]


def as_table(answer: Answer) -> pa.Table:
    """An answer as a view shows it."""
    minutes = pa.array([minute for minute, _ in answer]).cast(pa.timestamp("ms", tz="UTC"))
    return pa.table(
        {
            "minute": minutes.cast(pa.timestamp("us", tz="UTC")),
            "country": [country for _, country in answer],
            "amount": [amount for amount, _ in answer.values()],
            "events": [events for _, events in answer.values()],
        }
    )


def test_one_event_in_twenty_is_late_and_none_by_more_than_the_lateness() -> None:
    rows = rows_of(Events(120_000).table)

    late_ms = [data.START_MS + row["event_id"] - row["at"] for row in rows]

    assert 0.045 < sum(late > 0 for late in late_ms) / len(rows) < 0.055
    assert min(late_ms) == 0
    assert 0.99 * data.LATE_MS_MAX < max(late_ms) <= data.LATE_MS_MAX
    assert {row["country"] for row in rows} == set(data.COUNTRIES)


def test_a_smaller_run_has_the_first_of_the_same_events() -> None:
    few, many = Events(60_000), Events(120_000)

    assert few.table == many.table.slice(0, 60_000)
    assert few.table != Events(60_000, seed=12).table


def test_the_answer_is_that_of_the_slow_and_obvious_way() -> None:
    events = Events(100_001)

    assert events.answer() == slow_answer(rows_of(events.table))


def test_the_final_answer_has_the_minutes_that_are_over() -> None:
    events = Events(150_000)  # the watermark is at 149.999 s, less 30

    final = events.final_answer()

    assert {minute - data.START_MS for minute, _ in final} == {-60_000, 0}
    assert final.items() <= events.answer().items()


@pytest.mark.parametrize("count", [7, 1_003])
def test_the_files_hold_every_event_once_in_both_formats(tmp_path: Path, count: int) -> None:
    events = Events(count)

    data.write_parquet(events, tmp_path / "parquet")
    data.write_json(events, tmp_path / "json")

    pieces = [pyarrow.parquet.read_table(path) for path in sorted((tmp_path / "parquet").iterdir())]
    lines = [line for path in sorted((tmp_path / "json").iterdir()) for line in path.read_text().splitlines()]
    assert len(pieces) == data.FILES
    assert pa.concat_tables(pieces) == events.table
    assert [json.loads(line) for line in lines] == rows_of(events.table)


def test_a_served_table_is_read_as_an_answer() -> None:
    answer = Events(1_000).answer()

    assert data.answer_of(as_table(answer)) == answer


def test_a_group_that_comes_twice_is_no_answer() -> None:
    table = as_table({(data.START_MS, "AA"): (1.0, 1)})

    with pytest.raises(AssertionError, match="AA has the minute 00:00 twice"):
        data.answer_of(pa.concat_tables([table, table]))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, "2 of 2 groups differ, AA at 00:00 first; 0 of 5 events are counted"),
        ({(0, "AA"): (1.0, 2)}, "1 of 2 groups differ, AB at 00:01 first; 2 of 5 events are counted"),
        ({(0, "AA"): (1.25, 2), (60_000, "AB"): (2.0, 3)}, "1 of 2 groups differ, AA at 00:00 first; 5 of 5"),
        ({(0, "AA"): (1.0, 2), (60_000, "AB"): (2.0, 3), (0, "ZZ"): (0.5, 1)}, "ZZ at 00:00 first; 6 of 5"),
    ],
)
def test_a_wrong_answer_is_told_with_how_much_of_it_is_missing(found: Answer, said: str) -> None:
    expected = {(0, "AA"): (1.0, 2), (60_000, "AB"): (2.0, 3)}

    assert said in (data.difference(found, expected) or "")
    assert data.difference(dict(expected), expected) is None
    with pytest.raises(AssertionError, match="wrong answer"):
        data.check(found, expected)


def test_what_flink_prints_is_folded_into_its_last_state() -> None:
    text = (
        b"1> +I[2026-01-01T00:00, AA, 12.5, 3]\n"
        b"2> +I[1767225660000, AB, 1.0E7, 1]\n"
        b"2> -U[1767225660000, AB, 1.0E7, 1]\n"
        b"2> +U[1767225660000, AB, 2.5, 2]\n"
    )

    assert flink_program.folded(text) == [[data.START_MS, "AA", 12.5, 3], [data.START_MS + 60_000, "AB", 2.5, 2]]


def test_each_run_of_a_peer_reads_the_same_files_under_names_of_its_own(tmp_path: Path) -> None:
    data.write_json(Events(100), tmp_path / "json")

    runs.give(tmp_path / "json", tmp_path / "run-3", "3")

    given = sorted((tmp_path / "run-3").iterdir())
    assert len(given) == data.FILES
    assert all(path.name.startswith("3-events-") for path in given)
    assert b"".join(path.read_bytes() for path in given) == b"".join(
        path.read_bytes() for path in sorted((tmp_path / "json").iterdir())
    )


def rates(**rates: float) -> list[Measurement]:
    """Our rate and the others', as the parts report them."""
    titles = {"ours": OURS, "parquet": "streaming: Parquet", "one": "flink: one", "two": "flink: two"}
    return [Measurement(titles[name], rate, RATE) for name, rate in rates.items()]


def test_a_bar_is_held_against_the_best_of_a_peers_variants() -> None:
    lines = bars(rates(ours=60.0, one=2.0, two=4.0), ["own", "flink"])

    assert [(line.value, line.unit, line.bar, line.holds) for line in lines] == [(15.0, "x flink: two", 20.0, False)]


def test_a_bar_without_its_peer_or_without_us_does_not_hold() -> None:
    without_peer = bars([*rates(ours=60.0), Measurement("flink: one, peak memory", 1.0, "GB")], ["own", "flink"])
    without_us = bars(rates(parquet=1.0), ["own", "streaming"])

    assert [(line.value, line.holds) for line in [*without_peer, *without_us]] == [(None, False)] * 3


def test_a_bar_is_asked_only_when_both_of_its_parts_ran() -> None:
    found = rates(ours=60.0, parquet=20.0, one=1.0)

    assert [line.holds for line in bars(found, ["own", "streaming"])] == [True, False]  # there was no JSON
    assert bars(found, ["streaming", "flink"]) == []


def test_the_peers_outside_spark_never_get_more_events_than_spark() -> None:
    assert Scale().with_events(200_000).peer_events == 200_000
    assert Scale().with_events(5_000_000).peer_events == Scale().peer_events
