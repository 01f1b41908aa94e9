"""Log traces: a topic's own rows, looked up without a copy of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.home import Log
from headwater.log.topic import Topic
from headwater.views import thresholds
from headwater.views.state import log_trace
from headwater.views.state.log_trace import LogTrace, spans


def clicks(log: Log, count: int) -> Topic:
    topic = log.topic("clicks", "user_id BIGINT, page STRING", partitions=2)
    for number in range(count):
        topic.append([{"user_id": number % 3, "page": f"p{number}"}])
    return topic


def pages(trace: LogTrace, user: int) -> list[str]:
    found = trace.lookup(["user_id"], pa.table({"id": pa.array([user], pa.int32())}), ["page"])
    return sorted(found.column("page").to_pylist())


def expected(topic: Topic, trace: LogTrace, user: int) -> list[str]:
    rows = topic.rows(trace.start, stop=trace.stop, partitions=list(trace.stop))
    return sorted(row["page"] for row in rows if row["user_id"] == user)


@given(st.integers(0, 5_000_000), st.integers(0, 5_000_000))
def test_spans_cover_a_range_without_gap_or_overlap(one: int, other: int):
    start, stop = sorted((one, other))

    cut = spans(3, start, stop)

    assert [span.start for span in cut[:1]] == [start][: len(cut)]
    assert [span.stop for span in cut[-1:]] == [stop][: len(cut)]
    assert all(before.stop == after.start for before, after in pairwise(cut))
    assert sum(span.stop - span.start for span in cut) == stop - start


@given(st.integers(0, 5_000_000), st.integers(1, 100_000))
def test_spans_stay_the_same_while_the_log_grows(stop: int, more: int):
    before, after = spans(0, 0, stop), spans(0, 0, stop + more)

    kept = [span for span in before if span in after]

    # Only spans at the end are replaced by larger ones, and the large ones never.
    assert before[: len(kept)] == kept
    assert [span for span in before if span.stop - span.start == log_trace.SPAN_ROWS[0]] == [
        span for span in kept if span.stop - span.start == log_trace.SPAN_ROWS[0]
    ]


def test_rows_of_the_range_are_found(log: Log, tmp_path: Path):
    topic = clicks(log, 30)
    start, stop = {0: 2, 1: 0}, {0: 15, 1: 12}

    trace = LogTrace(topic, start, stop, folder=tmp_path)

    assert trace.rows == 25
    assert pages(trace, 1) == expected(topic, trace, 1)


def test_rows_behind_the_range_are_found_once_it_is_moved(log: Log, tmp_path: Path):
    topic = clicks(log, 30)
    trace = LogTrace(topic, {0: 0, 1: 0}, {0: 5, 1: 5}, folder=tmp_path)
    before = pages(trace, 0)

    later = trace.with_range({0: 15, 1: 15})

    assert pages(later, 0) == expected(topic, later, 0)
    assert pages(trace, 0) == before


def test_large_spans_are_found_again_after_a_restart(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "state"
    monkeypatch.setattr(thresholds, "ARRANGEMENT_FILE_ROWS_MIN", 4)
    monkeypatch.setattr(log_trace, "SPAN_ROWS", (8, 4))
    topic = clicks(log, 30)
    pages(LogTrace(topic, {0: 0, 1: 0}, {0: 9, 1: 9}, folder=folder), 1)
    first = {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.arrow")}

    trace = LogTrace(topic, {0: 0, 1: 0}, {0: 14, 1: 15}, folder=folder)

    assert pages(trace, 1) == expected(topic, trace, 1)
    again = {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.arrow")}
    assert first.items() <= again.items()
    assert len(first) == 2


def test_pruning_leaves_the_spans_of_this_range(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "state"
    monkeypatch.setattr(thresholds, "ARRANGEMENT_FILE_ROWS_MIN", 2)
    monkeypatch.setattr(log_trace, "SPAN_ROWS", (8, 4))
    topic = clicks(log, 30)
    first = LogTrace(topic, {0: 0, 1: 0}, {0: 7, 1: 7}, folder=folder)
    pages(first, 1)
    later = first.with_range({0: 12, 1: 12})
    found = pages(later, 1)

    later.prune()

    names = {path.stem.rsplit("-", 1)[0] for path in folder.rglob("*.arrow")}
    assert names == {"0-0-8", "0-8-12", "1-0-8", "1-8-12"}
    assert pages(later, 1) == found


def test_offsets_can_be_looked_up_too(log: Log, tmp_path: Path):
    trace = LogTrace(clicks(log, 6), {0: 0, 1: 0}, {0: 3, 1: 3}, folder=tmp_path)

    found = trace.lookup(["_offset"], pa.table({"offset": [1]}), ["_partition", "_offset"])

    assert sorted(found.to_pylist(), key=lambda row: row["_partition"]) == [
        {"_partition": 0, "_offset": 1, "_weight": 1},
        {"_partition": 1, "_offset": 1, "_weight": 1},
    ]


def test_a_column_that_was_added_to_the_topic_can_be_looked_up(log: Log, tmp_path: Path):
    topic = clicks(log, 6)
    trace = LogTrace(topic, {0: 0, 1: 0}, {0: 3, 1: 3}, folder=tmp_path)
    pages(trace, 1)
    topic = log.topic("clicks", "user_id BIGINT, page STRING, country STRING")
    topic.append([{"user_id": 1, "page": "new", "country": "DE"}])

    later = LogTrace(topic, trace.start, topic.end_offsets(), folder=tmp_path)

    found = later.lookup(["country"], pa.table({"c": ["DE"]}), ["page"])
    assert found.to_pylist() == [{"page": "new", "_weight": 1}]
    assert pages(later, 1) == expected(topic, later, 1)
