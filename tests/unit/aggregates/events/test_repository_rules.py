"""The rules that Rails Event Store asks of every repository of events, over ours.

What it is: its 110 examples by number, as tables of our own: writes by expected version, reads, the rest one by one.
A stream into which events are linked is a tag here; the id of an event is the id of its request.
Invariants: every number is in one of the tables or in ``WITHOUT``, with the reason why it has no counterpart.
Not here: conditions over processes (``tests/crash/test_conditions_survive_kill.py``).
Read next: ``event_store.py``.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.aggregates import Event, EventStore, EventType, Query, RecordedEvent
from headwater.errors import AppendConflict, InvalidDeclaration, RequestConflict, RowRefused, VersionConflict
from headwater.log.home import Log
from headwater.log.schema.event_metadata import Metadata
from headwater.testing import ManualClock

TYPES = [EventType.declared(name, "n BIGINT, raw BINARY") for name in ("one", "two", "three")]
WITHOUT = {
    "a stream that was deleted: events are never removed": [34, 35],
    "an event that is changed afterwards: it is not; an upcaster changes what is read": [79, 80, 81],
    "linking an event that does not exist: a tag is written with its event": [62],
}


def open_store(log: Log) -> EventStore:
    return EventStore(log, "events", TYPES)


@pytest.fixture
def store(log: Log) -> EventStore:
    return open_store(log)


def noted(*numbers: int, tags: tuple[str, ...] = ()) -> list[Event]:
    return [Event("one", {"n": n}, tags) for n in numbers]


def numbers_of(events: Any) -> list[int]:
    return [event.data["n"] for event in events]


# Writes: a stream, how many events, and what is expected of it: "none", "any", "auto", or the version that was seen

SAME, OTHER = "same", "other"
WRITES: list[tuple[str, list[int], list[int], list[tuple[str, int, Any, bool]]]] = [
    ("the first event of a stream", [4], [5], [(SAME, 1, "none", True)]),
    ("the first events of a stream", [6], [7], [(SAME, 2, "none", True)]),
    ("the version that was seen", [8], [9], [(SAME, 2, "none", True), (SAME, 1, 2, True)]),
    ("a version that has moved", [10], [11], [(SAME, 2, "none", True), (SAME, 1, 1, False)]),
    (
        "a stream that must be new",
        [12],
        [13],
        [(SAME, 2, "none", True), (SAME, 1, "none", False), (OTHER, 1, "none", True)],
    ),
    ("no expectation", [14], [15], [(SAME, 1, "any", True), (SAME, 1, "any", True), (SAME, 2, "any", True)]),
    ("the version of now", [16], [17], [(OTHER, 2, "none", True), (SAME, 1, "auto", True), (SAME, 1, 1, True)]),
    ("the version of now begins at nothing", [18], [19], [(SAME, 1, "auto", True), (SAME, 1, "none", False)]),
    ("the version of now, one after the other", [20], [21], [(SAME, 1, "auto", True)] * 2 + [(SAME, 2, "auto", True)]),
    ("the version of now, then one that was seen", [22], [23], [(SAME, 1, "auto", True), (SAME, 1, 1, True)]),
    ("a version that was seen, then that of now", [24], [25], [(SAME, 1, "none", True), (SAME, 1, "auto", True)]),
]


def write(store: EventStore, by: str, stream: str, count: int, expected: Any) -> bool:
    """Append to a stream, or events with a tag that is the stream; False when the expectation is not met."""
    begin = store.head
    fresh = noted(*range(begin, begin + count), tags=(stream,) if by == "tag" else ())
    try:
        if by == "stream":
            version = None if expected in ("any", "auto") else 0 if expected == "none" else expected
            store.append(fresh, stream=stream, expected=version)
            return True
        if expected == "any":
            store.append(fresh)
            return True
        found = store.read(Query(tags=stream))
        seen = 0 if expected == "none" else len(found) if expected == "auto" else expected
        after = found.events[seen - 1].position if seen else 0
        store.append(fresh, fail_if=Query(tags=stream), after=after)
    except (VersionConflict, AppendConflict):
        return False
    return True


@pytest.mark.parametrize("by", ["stream", "tag"])
@pytest.mark.parametrize(("what", "steps"), [(what, steps) for what, _, _, steps in WRITES], ids=[w[0] for w in WRITES])
def test_writes(store: EventStore, by: str, what: str, steps: list[tuple[str, int, Any, bool]]) -> None:
    lengths = {SAME: 0, OTHER: 0}

    for stream, count, expected, accepted in steps:
        assert write(store, by, stream, count, expected) is accepted, what
        lengths[stream] += count * accepted

    for stream, length in lengths.items():
        found = store.read(stream=stream) if by == "stream" else store.read(Query(tags=stream))
        assert len(found) == length
        if by == "stream":
            assert [event.version for event in found] == list(range(1, length + 1))
    assert store.head == sum(lengths.values())


@pytest.mark.parametrize("by", ["stream", "tag"])
@pytest.mark.parametrize("expected", ["any", "auto"])
def test_writers_at_once(tmp_path: Path, by: str, expected: str) -> None:
    # Theirs lets appends without an expectation through in any order, and fails some with the version of now. Ours
    # writes all of both: an append to a stream is tried again; of those with a tag some are refused.
    with Log(tmp_path / "home") as log:
        store, refused = open_store(log), []

        def work() -> None:
            for _ in range(30):
                if not write(store, by, SAME, 1, expected):
                    refused.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        found = store.read(stream=SAME) if by == "stream" else store.read(Query(tags=SAME))
        assert len(found) == 120 - len(refused)
        if by == "stream":
            assert [event.version for event in found] == list(range(1, 121))
        elif expected == "any":
            assert not refused


AT_ONCE = [26, 27, 28, 29]


# Reads: of ten events, the odd ones in stream "odd", the even ones in "even"; each third has the tag "third"

READS: list[tuple[str, list[int], dict[str, Any], list[int]]] = [
    ("a stream that is not there", [1, 47], {"stream": "none"}, []),
    ("everything, in order", [54, 60, 63, 103, 105], {}, list(range(1, 11))),
    ("a stream", [30, 52, 106], {"stream": "odd"}, [1, 3, 5, 7, 9]),
    ("a tag", [53, 104], {"query": Query(tags="third")}, [3, 6, 9]),
    ("the first so many", [50, 69], {"limit": 3}, [1, 2, 3]),
    ("the first so many of a stream", [], {"stream": "even", "limit": 2}, [2, 4]),
    ("the first so many of a tag", [51], {"query": Query(tags="third"), "limit": 2}, [3, 6]),
    ("those after a position", [73], {"after": 7}, [8, 9, 10]),
    ("so many after a position", [71], {"after": 2, "limit": 4}, [3, 4, 5, 6]),
    ("of a stream, those after a position", [56], {"stream": "even", "after": 4}, [6, 8, 10]),
    ("of a stream, those after a position of another one", [75, 76], {"stream": "even", "after": 5}, [6, 8, 10]),
    ("those after the end", [77, 78], {"after": 99}, []),
    ("a type", [84], {"query": Query(types="two")}, [2, 5, 8]),
    ("several types", [], {"query": Query(types=["two", "three"])}, [2, 3, 5, 6, 8, 9]),
    ("a type that no event has", [], {"query": Query(types="four")}, []),
    ("a type within a stream", [85], {"stream": "odd", "query": Query(types="two")}, [5]),
    ("a tag within a stream", [43, 44, 45, 46], {"stream": "odd", "query": Query(tags="third")}, [3, 9]),
]


@pytest.fixture
def ten(store: EventStore) -> EventStore:
    for n in range(1, 11):
        kind = ("three", "one", "two")[n % 3]
        event = Event(kind, {"n": n}, ["third"] if n % 3 == 0 else [])
        store.append([event], stream="odd" if n % 2 else "even", request_id=f"event-{n}")
    return store


@pytest.mark.parametrize(
    ("options", "expected"), [(options, found) for _, _, options, found in READS], ids=[row[0] for row in READS]
)
def test_reads(ten: EventStore, log: Log, options: dict[str, Any], expected: list[int]) -> None:
    for reader in (ten, open_store(log)):
        found = reader.read(**options)

        assert numbers_of(found) == expected
        whole = reader.read(**{**options, "limit": None})
        assert len(found) == len(expected)
        assert found.head == (10 if len(found) == len(whole) else found.events[-1].position)
        assert numbers_of(reversed(found.events)) == expected[::-1]  # there is no reading backward: a list is reversed


@pytest.mark.parametrize("size", [1, 3, 10, 200])
@pytest.mark.parametrize("options", [{}, {"stream": "odd"}, {"query": Query(tags="third")}])
def test_reads_in_lots(ten: EventStore, size: int, options: dict[str, Any]) -> None:
    lots: list[list[int]] = []
    after = 0
    while found := ten.read(after=after, limit=size, **options).events:
        lots.append(numbers_of(found))
        after = found[-1].position

    assert [n for lot in lots for n in lot] == numbers_of(ten.read(**options))
    assert all(len(lot) == size for lot in lots[:-1])


LOTS = [65, 66, 67, 68, 70, 72, 102]


# The others, one by one

Rule = Callable[[EventStore], None]
RULES: list[tuple[str, list[int], Rule]] = []


def rule(what: str, *examples: int) -> Callable[[Rule], Rule]:
    def entered(check: Rule) -> Rule:
        RULES.append((what, list(examples), check))
        return check

    return entered


def with_request(store: EventStore, request: str, stream: str | None = None) -> list[RecordedEvent]:
    return [event for event in store.read(stream=stream) if event.request_id == request]


@rule("an append answers with its place", 2, 3, 41)
def _(store: EventStore) -> None:
    answer = store.append(noted(1, 2), stream="a")
    assert (answer.position, answer.version, str(answer.token)) == (2, 2, "events:0=2")


@rule("data and metadata come back as they were given", 31, 32, 33)
def _(store: EventStore) -> None:
    store.append(noted(7, tags=("flow",)), stream="a", metadata=Metadata(correlation_id="c", causation_id="d"))
    for found in (store.read(stream="a"), store.read(Query(tags="flow"))):
        assert found.events[0].data == {"n": 7, "raw": None}
        assert found.events[0].metadata == Metadata(correlation_id="c", causation_id="d")


@rule("bytes come back as they were given", 64)
def _(store: EventStore) -> None:
    store.append([Event("one", {"n": 1, "raw": b"\xb0\x00"})])
    assert store.read().events[0].data["raw"] == b"\xb0\x00"


@rule("whether an event is there, and in which streams", 36, 39, 42, 82, 83)
def _(store: EventStore) -> None:
    store.append(noted(1, tags=("flow",)), stream="a", request_id="e-1")
    assert [(event.stream, list(event.tags)) for event in with_request(store, "e-1")] == [("a", ["flow"])]
    assert with_request(store, "e-2") == []
    assert with_request(store, "e-1", stream="b") == []


@rule("the place of an event in its stream", 37, 38, 40)
def _(store: EventStore) -> None:
    store.append(noted(1, 2, tags=("flow",)), stream="a")
    store.append(noted(3, tags=("flow",)))
    assert [event.version for event in store.read(stream="a")] == [1, 2]
    assert [event.version for event in store.read(Query(tags="flow"))] == [1, 2, None]


@rule("the last event of a stream", 48, 49, 74)
def _(store: EventStore) -> None:
    assert store.read(stream="a").events == []
    store.append(noted(1, 2, tags=("flow",)), stream="a")
    store.append(noted(3), stream="b")
    assert numbers_of(store.read(stream="a").events[-1:]) == [2]
    assert numbers_of(store.read(Query(tags="flow")).events[-1:]) == [2]
    assert store.version("a") == 2


@rule("an event that is in several streams is one event", 55)
def _(store: EventStore) -> None:
    store.append(noted(1, 2, tags=("x", "y")), stream="a")
    assert numbers_of(store.read()) == numbers_of(store.read(Query(tags="x") | Query(tags="y"))) == [1, 2]


@rule("the same event is not written twice", 57, 58, 59)
def _(store: EventStore) -> None:
    store.append(noted(1), request_id="e-1")
    assert store.append(noted(1), request_id="e-1").repeated
    with pytest.raises(RequestConflict):
        store.append(noted(2), request_id="e-1")
    store.append(noted(3, tags=("flow", "flow")))
    assert numbers_of(store.read(Query(tags="flow"))) == [3]
    assert store.head == 2


@rule("nothing is written by an append that fails", 61)
def _(store: EventStore) -> None:
    store.append(noted(1), stream="a", expected=0)
    with pytest.raises(VersionConflict):
        store.append(noted(2), stream="a", expected=0, request_id="e-2")
    with pytest.raises(RowRefused):
        store.append([*noted(2), Event("one", {"n": "two"})], stream="a", request_id="e-2")
    assert with_request(store, "e-2") == []
    assert store.append(noted(2), stream="a", request_id="e-2").repeated is False


@rule("an append of nothing is refused", 100, 101)
def _(store: EventStore) -> None:
    with pytest.raises(InvalidDeclaration):
        store.append([], stream="a")
    assert store.head == 0


@pytest.mark.parametrize(
    ("what", "check"), [(what, check) for what, _, check in RULES], ids=[rule[0] for rule in RULES]
)
def test_rules(store: EventStore, what: str, check: Rule) -> None:
    assert what
    check(store)


# Time: an event has the time of its append, in microseconds

TIMES: list[tuple[str, list[int], Callable[[dt.datetime, dt.datetime], bool], list[int]]] = [
    ("older", [87, 92, 110], lambda at, then: at < then, [1, 2]),
    ("older or at it", [88, 89, 93], lambda at, then: at <= then, [1, 2, 3]),
    ("newer", [90, 94], lambda at, then: at > then, [4, 5]),
    ("newer or at it", [91, 95], lambda at, then: at >= then, [3, 4, 5]),
    ("within a range", [96, 97], lambda at, then: then <= at < then + dt.timedelta(hours=2), [3, 4]),
]


@pytest.mark.parametrize(("wanted", "expected"), [row[2:] for row in TIMES], ids=[row[0] for row in TIMES])
def test_times(
    store: EventStore, clock: ManualClock, wanted: Callable[[dt.datetime, dt.datetime], bool], expected: list[int]
) -> None:
    for n in range(1, 6):
        store.append(noted(n), stream="a")
        clock.advance(3600.000001)
    events = store.read(stream="a").events
    third = events[2].at

    assert [event.data["n"] for event in events if wanted(event.at, third)] == expected
    assert (third - events[0].at) == dt.timedelta(hours=2, microseconds=2)
    assert events == sorted(events, key=lambda event: event.at)  # the order of appends is that of their times
    assert store.topic.offsets_at(third) == {0: 2}  # where reading by time begins


OF_TIMES = [86, 98, 99, 107, 108, 109]  # precision; there is one time, and reading by it is reading in order


def test_every_example_is_in_a_table() -> None:
    covered = [n for _, by_stream, by_tag, _ in WRITES for n in (*by_stream, *by_tag)]
    covered += [n for _, numbers, _, _ in READS for n in numbers]
    covered += [n for _, numbers, _ in RULES for n in numbers]
    covered += [n for _, numbers, _, _ in TIMES for n in numbers]
    covered += [n for numbers in WITHOUT.values() for n in numbers]
    covered += [*AT_ONCE, *LOTS, *OF_TIMES]

    assert sorted(covered) == list(range(1, 111))
