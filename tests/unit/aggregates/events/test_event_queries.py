"""Events by type and tag, beside a walk through a list."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.aggregates import Event, EventStore, EventType, Query, QueryItem
from headwater.aggregates.events import event_index
from headwater.errors import AppendConflict
from headwater.log.home import Log

TYPES = ("opened", "moved", "closed", "seen")
TAGS = [f"tag:{number}" for number in range(12)]
THOROUGH = int(os.environ.get("HEADWATER_THOROUGH", "1"))


def open_store(log: Log) -> EventStore:
    return EventStore(log, "events", [EventType.declared(name, "n BIGINT") for name in TYPES], segment_bytes_max=9_000)


def some_events(chance: random.Random, count: int, first: int) -> list[Event]:
    return [
        Event(chance.choice(TYPES), {"n": first + number}, chance.sample(TAGS, chance.choice([0, 1, 1, 2, 3])))
        for number in range(count)
    ]


def some_query(chance: random.Random) -> Query:
    items = [
        QueryItem(
            frozenset(chance.sample((*TYPES, "unknown"), chance.choice([0, 0, 1, 2]))),
            frozenset(chance.sample([*TAGS, "tag:none"], chance.choice([0, 1, 1, 2, 3]))),
        )
        for _ in range(chance.choice([1, 1, 2, 3]))
    ]
    return Query.any_of(items)


def walked(events: list[Event], query: Query, after: int, limit: int | None) -> list[int]:
    """The positions that match: one event after the other, by the rule as it is written down."""
    found = []
    for position, event in enumerate(events, start=1):
        for item in query.items:
            of_type = not item.types or event.type in item.types
            if position > after and of_type and all(tag in event.tags for tag in item.tags):
                found.append(position)
                break
    return found if limit is None else found[:limit]


@pytest.mark.parametrize("few", [event_index.FEW_OFFSETS, 0])
def test_reads_and_conditions_agree_with_a_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(event_index, "FEW_OFFSETS", few)
    chance = random.Random(few)
    written: list[Event] = []
    with Log(tmp_path / "home") as log, Log(tmp_path / "home") as elsewhere:
        stores = [open_store(log), open_store(elsewhere)]
        for step in range(60 * THOROUGH):
            writer = chance.choice(stores)
            query, after = some_query(chance), chance.choice([0, len(written), chance.randint(0, len(written))])
            events = some_events(chance, chance.choice([1, 1, 2, 9]), len(written))
            if walked(written, query, after, None):
                with pytest.raises(AppendConflict):
                    writer.append(events, fail_if=query, after=after)
                events = events if chance.random() < 0.5 else []
            if events:
                writer.append(events)
                written += events
            if step % 20 == 19:
                log.maintain()  # some segments get sealed
            if step % 15 == 14:
                stores.append(open_store(chance.choice([log, elsewhere])))  # a new index, from sealed and active ones
            for reader in chance.sample(stores, 2):
                query, limit = some_query(chance), chance.choice([None, None, 1, 5])
                after = chance.choice([0, chance.randint(0, len(written))])
                found = reader.read(query, after=after, limit=limit)
                assert [event.position for event in found] == walked(written, query, after, limit), str(query)
                rest = walked(written, query, after, None)[len(found) :]
                assert found.head == (found.events[-1].position if rest else len(written)), str(query)
                for event in found:
                    assert (event.type, event.data["n"]) == (written[event.position - 1].type, event.position - 1)
                    assert list(event.tags) == list(written[event.position - 1].tags)


def test_a_large_gap_is_read_without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_index, "READ_WHOLE_ROWS_MAX", 40)
    chance = random.Random(3)
    with Log(tmp_path / "home") as log:
        store = open_store(log)
        written = some_events(chance, 300, 0)
        for begin in range(0, 300, 20):
            store.append(written[begin : begin + 20], stream=str(begin % 60))

        fresh = open_store(log)
        for tag in TAGS:
            query = Query(tags=tag)
            assert [event.position for event in fresh.read(query)] == walked(written, query, 0, None)
        assert [fresh.version(stream) for stream in ("0", "20", "40", "60")] == [100, 100, 100, 0]
        assert [event.data["n"] for event in fresh.read(stream="20")] == [n for n in range(300) if n // 20 % 3 == 1]


WRITER = """
import sys
from headwater.aggregates import EventStore, EventType, Event
from headwater.log.home import Log
store = EventStore(Log(sys.argv[1]), "events", [EventType.declared("moved", "n BIGINT")])
for n in range(3):
    store.append([Event("moved", {"n": n}, ["from:elsewhere"])], stream="7")
"""


def test_what_another_process_writes_is_seen_and_followed(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        store = EventStore(log, "events", [EventType.declared("moved", "n BIGINT")])
        store.append([("moved", {"n": -1})])
        following = store.subscribe(Query(tags="from:elsewhere"), timeout="60 seconds")

        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "home")])
        followed = [next(following).data["n"] for _ in range(3)]
        assert process.wait(60) == 0

        assert followed == [0, 1, 2]
        assert store.version("7") == 3
        assert [event.position for event in store.read(Query(tags="from:elsewhere"), after=2)] == [3, 4]


def test_a_subscription_goes_on_after_a_position(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        store = open_store(log)
        store.append([Event("moved", {"n": n}, [f"tag:{n % 2}"]) for n in range(6)])

        after_three = [event.position for event in store.subscribe(after=3, timeout="1 millisecond")]
        of_a_tag = [event.position for event in store.subscribe(Query(tags="tag:1"), timeout="1 millisecond")]

    assert after_three == [4, 5, 6]
    assert of_a_tag == [2, 4, 6]
