"""Recorders: inserts of events in the loop of the library's own test cases, and conditional appends with tags.

What it is: ``acts`` of each contender: ``insert_events`` of one event (a new originator each time, as in the library's
``test_performance``; one hot originator; ten thousand of them in turn), and with tags: read by tag, then append unless
something has come.
Invariants: all go through the library's recorders, ours too. SQLite has no recorder of tags.
Not here: commands (``commands_bench.py``).
Read next: ``contenders.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

from eventsourcing.dcb.api import DCBAppendCondition, DCBEvent, DCBQuery, DCBQueryItem
from eventsourcing.dcb.persistence import DCBInfrastructureFactory
from eventsourcing.persistence import InfrastructureFactory, StoredEvent
from eventsourcing.utils import Environment

from bench.decide.contenders import Contender, prepared
from bench.decide.turns import Act

COLD = 10_000
COURSES = 1_000


def acts(contender: Contender) -> Iterator[Act]:
    """What one contender does."""
    factory = prepared(contender, InfrastructureFactory.construct(Environment("inserts", contender.environment)))
    recorder = factory.application_recorder()
    for what, originators in (
        ("insert, a new originator", map(uuid4_of, itertools.count())),
        ("insert, one originator", itertools.repeat(uuid4())),
        (f"insert, {COLD} originators", itertools.cycle([uuid4() for _ in range(COLD)])),
    ):
        yield Act(what, contender, inserter(recorder, originators))
    if contender.tags is not None:
        tags = DCBInfrastructureFactory.construct(Environment("tags", contender.tags)).dcb_recorder()
        yield Act("read by tag and append", contender, booker(tags))


def uuid4_of(_: int) -> UUID:
    return uuid4()


def inserter(recorder: Any, originators: Iterator[UUID]) -> Callable[[], None]:
    versions: dict[UUID, int] = {}

    def insert() -> None:
        originator = next(originators)
        version = versions[originator] = versions.get(originator, 0) + 1
        recorder.insert_events([StoredEvent(originator, version, "topic1", b"state1")])

    return insert


def booker(recorder: Any) -> Callable[[], None]:
    """A student enrols in a course, unless somebody else has done so since its events were read."""
    numbers = itertools.count()

    def book() -> None:
        number = next(numbers)
        course, student = f"course-{number % COURSES}", f"student-{number}"
        query = DCBQuery(items=[DCBQueryItem(types=["Enrolled"], tags=[course])])
        found = recorder.read(query)
        seats = sum(1 for _ in found)
        event = DCBEvent("Enrolled", b"%d" % seats, [course, student])
        recorder.append([event], DCBAppendCondition(fail_if_events_match=query, after=found.head))

    return book
