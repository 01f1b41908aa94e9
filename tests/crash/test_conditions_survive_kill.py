"""Writers with conditions, killed with ``kill -9``.

What it is: six processes decide over one history at once (seats of courses by tags, unique names, versions of streams,
request ids); all are killed at random moments, again and again; after each round the history is judged row by row.
Invariants: no event is there that its condition excluded, as a walk through the whole list shows; versions have no
gaps; a request is there once or not at all, and once if it was acknowledged. A new index says what the walk says.
Not here: one process (``tests/unit/aggregates/events``). Read next: ``event_writer.py``.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.aggregates import Query, RecordedEvent
from tests.crash.event_writer import SEATS, open_store, read_diary, seats_of, write_events_until_killed
from tests.crash.ledger import many

WRITERS = 6
ROUNDS = 4


@pytest.fixture(scope="module")
def nursery() -> Iterator[Executor]:
    """A process that has imported everything and opened nothing: writers forked from it are cheap to start."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def diaries(home: Path) -> list[Path]:
    return [home.parent / f"{home.name}-{number}.diary" for number in range(WRITERS)]


def kill_all(home: Path, seed: int) -> int:
    """One round, in the nursery: start the writers, kill each at a random moment."""
    chance = random.Random(seed)
    pa.array(["the first conversion makes pyarrow import pandas, where it is installed"])
    children = []
    for diary in diaries(home):
        child = multiprocessing.get_context("fork").Process(
            target=write_events_until_killed,
            args=(str(home), str(diary)),
            kwargs={"seed": chance.randrange(1 << 30)},
            daemon=True,
        )
        child.start()
        children.append((child, diary, diary.stat().st_size if diary.exists() else 0))
    deadline = time.monotonic() + 60
    while not all(diary.exists() and diary.stat().st_size > size + 4_000 for _, diary, size in children):
        assert all(child.is_alive() for child, _, _ in children), "a writer ended by itself: it met an error"
        assert time.monotonic() < deadline, "a writer did not get to its first appends within a minute"
        time.sleep(0.001)
    chance.shuffle(children)
    for child, _, _ in children:
        time.sleep(chance.uniform(0, 0.05))  # the random moment itself, nothing waits for it
        child.kill()
    for child, _, _ in children:
        child.join()
        assert child.exitcode == -9, "a writer ended by itself: it met an error"
    return len(children)


def judge(home: Path) -> tuple[list[RecordedEvent], int]:
    """Walk through the history and compare it with the diaries; returns the events and the conflicts that were seen."""
    store = open_store(home)
    events = store.read().events
    assert [event.position for event in events] == list(range(1, len(events) + 1))

    versions: Counter[str] = Counter()
    seated: dict[str, list[str]] = {}
    names: set[str] = set()
    last_of_course: dict[str, int] = {}
    for event in events:
        data = event.data
        if event.type == "moved":
            versions[data["account"]] += 1
            assert (event.stream, event.version) == (data["account"], versions[data["account"]])
        elif event.type == "claimed":
            assert data["name"] not in names, "a name was claimed twice"
            names.add(data["name"])
        else:
            inside = seated.setdefault(data["course"], [])
            assert last_of_course.get(data["course"], 0) <= data["after"], "the writer had not seen the event before"
            last_of_course[data["course"]] = event.position
            (inside.append if event.type == "enrolled" else inside.remove)(data["student"])
            assert len(inside) <= SEATS

    written: dict[str, list[RecordedEvent]] = {}
    for event in events:
        assert event.request_id is not None
        written.setdefault(event.request_id, []).append(event)
    conflicts, known = 0, 0
    for diary in diaries(home):
        for request, entry in read_diary(diary).items():
            mine = written.get(request, [])
            places = [event.position for event in mine]
            assert places == list(range(places[0], places[0] + len(entry["events"]))) if mine else True
            if entry["done"]:
                assert places, "an acknowledged append is gone"
                assert places[-1] == entry["done"]
            if entry["done"] == 0:
                assert not mine, "a refused append was written"
                conflicts += 1
            known += len(mine)
    assert known == len(events), "events that nobody sent"

    for stream, count in versions.items():  # the index of a new process, beside the walk
        assert store.version(stream) == count
    for course in seated:
        wanted = [event.position for event in events if seats_of(course).matches(event.type, event.tags)]
        assert [event.position for event in store.read(seats_of(course))] == wanted
    for name in list(names)[:20]:
        assert len(store.read(Query(tags=[name]))) == 1
    report = store.topic.log.local.check()
    assert report.ok, str(report)
    store.topic.log.close()
    return events, conflicts


def test_conditions_hold_when_their_writers_are_killed(nursery: Executor, quick_path: Path) -> None:
    chance = random.Random(19)
    kills, most, conflicts = 0, 0, 0

    for number in range(many(ROUNDS)):
        home = quick_path / f"home-{number // 4}"
        kills += nursery.submit(kill_all, home, chance.randrange(1 << 30)).result(timeout=120)
        events, refused = judge(home)
        most, conflicts = max(most, len(events)), conflicts + refused

    assert kills == WRITERS * many(ROUNDS)
    assert most > 300
    assert conflicts > 20, "the writers never met: nothing was tested"
