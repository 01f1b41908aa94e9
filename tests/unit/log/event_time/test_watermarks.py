"""Watermarks: what follows from the rows and heartbeats of each producer."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidDeclaration, Misuse
from headwater.log.event_time.producer_progress import ProducerProgress, merge_progress, progress_of
from headwater.log.event_time.watermarks import Watermark
from headwater.log.home import Log
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.topic_settings import TopicSettings
from headwater.testing import ManualClock
from tests.unit.weighted_rows import thorough

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
TIMED = TopicSettings(event_time="at", lateness_ms=1_000, idle_ms=10_000)
SECOND = 1_000_000


def at(seconds: float) -> dict[str, dt.datetime]:
    return {"at": NOON + dt.timedelta(seconds=seconds)}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def log(tmp_path, clock):
    with Log(tmp_path, clock=clock, maintenance_interval=None) as opened:
        yield opened


def told(topic) -> dict[str, str]:
    return {row["producer"]: row["watermark"] for row in topic.watermark()["producers"]}


def test_the_slowest_active_producer_decides(log):
    topic = log.topic("clicks", "at TIMESTAMP", event_time="at", lateness="5 seconds")
    with topic.producer("slow") as slow, topic.producer("fast") as fast:
        slow.append([at(60), at(30)])
        fast.append([at(3600)])

    assert topic.watermark()["watermark"] == "2026-01-01T12:00:55.000Z"
    assert told(topic) == {"slow": "2026-01-01T12:00:55.000Z", "fast": "2026-01-01T12:59:55.000Z"}


def test_a_silent_producer_is_not_waited_for_after_its_time_out(log, clock):
    topic = log.topic("clicks", "at TIMESTAMP", event_time="at", idle="10 seconds")
    with topic.producer("silent") as silent, topic.producer("busy") as busy:
        silent.append([at(0)])
        clock.advance(10)
        busy.append([at(100)])
        before = topic.watermark()["watermark"]
        clock.advance(1)
        busy.append([at(101)])

    assert before == "2026-01-01T12:00:00.000Z"
    assert topic.watermark()["watermark"] == "2026-01-01T12:01:41.000Z"
    assert [row["producer"] for row in topic.watermark()["producers"] if row["idle"]] == ["silent"]


def test_a_topic_whose_producers_are_all_idle_says_so_and_stays_where_it_was():
    there = Watermark().moved({1: ProducerProgress(50 * SECOND, seen_us=0)}, now_us=0, settings=TIMED)

    later = there.moved({}, now_us=11 * SECOND, settings=TIMED)

    assert (later.at_us, later.idle) == (49 * SECOND, True)


def test_a_heartbeat_moves_a_producer_that_has_nothing_to_say(log):
    topic = log.topic("clicks", "at TIMESTAMP", event_time="at", idle=None)
    with topic.producer("quiet") as quiet, topic.producer("busy") as busy:
        quiet.append([at(0)])
        busy.append([at(100)])
        quiet.heartbeat(NOON + dt.timedelta(seconds=90))

    assert topic.watermark()["watermark"] == "2026-01-01T12:01:30.000Z"


def test_a_watermark_never_goes_back():
    there = Watermark().moved({1: ProducerProgress(50 * SECOND, seen_us=0)}, now_us=0, settings=TIMED)

    joined = there.moved({2: ProducerProgress(10 * SECOND, seen_us=1)}, now_us=1, settings=TIMED)

    assert joined.at_us == there.at_us == 49 * SECOND
    assert joined.producers[2].newest_us == 10 * SECOND


def test_a_producer_that_was_never_timed_holds_the_topic_back():
    none = Watermark().moved(
        {1: ProducerProgress(50 * SECOND, seen_us=0), 2: ProducerProgress(seen_us=0)}, now_us=0, settings=TIMED
    )

    assert none.at_us is None


def test_only_so_many_producers_are_remembered(monkeypatch):
    monkeypatch.setattr("headwater.log.event_time.watermarks.PRODUCERS_MAX", 3)

    many = Watermark().moved({n: ProducerProgress(n, seen_us=n) for n in range(9)}, now_us=9, settings=TIMED)

    assert sorted(many.producers) == [6, 7, 8]


rows = st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.integers(0, 1000)), min_size=1, max_size=30)


@settings(max_examples=thorough(20), deadline=None)
@given(appends=st.lists(rows, min_size=1, max_size=6), cut=st.integers(0, 200), sealed=st.integers(0, 6))
def test_paces_are_exact_for_any_range_and_any_form_of_the_segments(tmp_path_factory, appends, cut, sealed):
    clock = ManualClock()
    with Log(tmp_path_factory.mktemp("home"), clock=clock, maintenance_interval=None) as log:
        topic = log.topic("clicks", "at TIMESTAMP", event_time="at", segment_bytes_max=1)
        expected: list[tuple[str, int, int]] = []
        producers = {name: topic.producer(name) for name in ("a", "b")}
        for number, lot in enumerate(appends):
            clock.advance(1)
            for name, seconds in lot:
                (producers[name] if name else topic).append([at(seconds)])
                expected.append((name, int(NOON.timestamp() + seconds) * SECOND, clock.now_us()))
            if number < sealed:
                seal_partition(topic, 0)
        cut = min(cut, len(expected))
        names = log.registry.producer_names(topic.id)

        for first, last in ((0, cut), (cut, len(expected)), (0, len(expected))):
            found = progress_of(topic, {0: first}, {0: last})
            mine = expected[first:last]
            assert {names.get(number, ""): (pace.newest_us, pace.seen_us) for number, pace in found.items()} == {
                name: (max(t for who, t, _ in mine if who == name), max(s for who, _, s in mine if who == name))
                for name in {who for who, _, _ in mine}
            }
        halves = merge_progress(progress_of(topic, {0: 0}, {0: cut}), progress_of(topic, {0: cut}, {0: len(expected)}))
        assert halves == progress_of(topic, {0: 0}, {0: len(expected)})


def test_a_topic_without_event_time_has_no_watermark(log):
    topic = log.topic("plain", "x INT")

    for call in (topic.watermark, lambda: topic.heartbeat(NOON)):
        with pytest.raises(Misuse) as refused:
            call()
        assert 'topic "plain" has no event time' in str(refused.value)


def test_wrong_settings_are_refused():
    with pytest.raises(InvalidDeclaration, match="lateness cannot be -1"):
        TopicSettings(event_time="at", lateness_ms=-1)
    with pytest.raises(InvalidDeclaration, match="idle cannot be 0"):
        TopicSettings(event_time="at", idle_ms=0)


def test_describe_shows_the_watermark(log):
    topic = log.topic("clicks", "at TIMESTAMP", event_time="at")
    topic.append([at(7)])

    assert topic.describe()["event_time"]["watermark"] == "2026-01-01T12:00:07.000Z"
