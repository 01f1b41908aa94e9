"""A writer of events that will be killed.

What it is: ``write_events_until_killed``, the body of a child process: it decides over what it has read, appends under
a condition, and keeps a diary: ``sent`` before an append, ``done`` after it.
Invariants: every event says what its writer had read (``after``), so that the history alone shows whether a condition
was checked wrongly. A request whose end is not in the diary is tried again first.
Not here: the killing and the judgement (``test_conditions_survive_kill.py``).
Read next: ``test_conditions_survive_kill.py``.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from headwater.aggregates import Event, EventStore, EventType, Query
from headwater.errors import AppendConflict, VersionConflict
from headwater.log.home import Log

SEATS = 3
COURSES = 4
ACCOUNTS = 3
NAMES = 400
TYPES = {
    "enrolled": "after BIGINT, course STRING, student STRING",
    "withdrew": "after BIGINT, course STRING, student STRING",
    "claimed": "after BIGINT, name STRING",
    "moved": "after BIGINT, account STRING",
}


def open_store(home: Path | str) -> EventStore:
    """The history of the test: one partition, and small segments, so that some of them get sealed."""
    types = [EventType.declared(name, fields) for name, fields in TYPES.items()]
    return EventStore(Log(home), "school", types, segment_bytes_max=30_000)


def seats_of(course: str) -> Query:
    """What decides whether a course has a free seat."""
    return Query(types=["enrolled", "withdrew"], tags=[course])


def read_diary(path: Path) -> dict[str, dict[str, Any]]:
    """What a writer noted last about each of its requests."""
    noted: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        entry = json.loads(line)
        noted[entry["request"]] = entry
    return noted


class EventWriter:
    """One writer: four rules, each with its own kind of condition."""

    def __init__(self, home: str, diary: str, seed: int) -> None:
        self.store = open_store(home)
        self.past = read_diary(Path(diary))
        self.chance = random.Random(seed)
        self.name = f"{Path(diary).stem}-{seed}"
        self.count = 0
        self._fd = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, **entry: Any) -> None:
        os.write(self._fd, json.dumps(entry).encode() + b"\n")

    def append(self, events: list[Event], request: str | None = None, **condition: Any) -> None:
        self.count += 1
        request = request or f"{self.name}-{self.count}"
        said = [[event.type, dict(event.data), list(event.tags)] for event in events]
        sent = {"request": request, "events": said, "stream": condition.get("stream")}
        self.note(**sent, done=None)
        try:
            appended = self.store.append(events, request_id=request, **condition)
        except (AppendConflict, VersionConflict):
            self.note(**sent, done=0)
        else:
            self.note(**sent, done=appended.position)

    def again(self) -> None:
        """Try the request again that was under way when the last writer of this diary was killed."""
        for request, entry in list(self.past.items())[-1:]:
            if entry["done"] is None:
                # Without a condition: it is written if it was not, and recognised if it was. Only events of a stream,
                # whose versions are given as they are written.
                events = [Event(kind, data, tags) for kind, data, tags in entry["events"]]
                if entry["stream"] is not None:
                    self.append(events, request, stream=entry["stream"])

    def enrol(self) -> None:
        course, student = f"course:{self.chance.randrange(COURSES)}", f"student:{self.chance.randrange(1000)}"
        found = self.store.read(seats_of(course))
        seated: list[str] = []
        for event in found:
            (seated.append if event.type == "enrolled" else seated.remove)(event.data["student"])
        if len(seated) == SEATS:
            kind, student = "withdrew", self.chance.choice(seated)
        elif student in seated:
            return
        else:
            kind = "enrolled"
        data = {"after": found.head, "course": course, "student": student}
        self.append([Event(kind, data, [course, student])], fail_if=seats_of(course), after=found.head)

    def claim(self) -> None:
        name = f"name:{self.chance.randrange(NAMES)}"
        self.append([Event("claimed", {"after": 0, "name": name}, [name])], fail_if=Query(tags=[name]))

    def move(self) -> None:
        account = f"account:{self.chance.randrange(ACCOUNTS)}"
        version = self.store.version(account)
        data = {"after": version, "account": account}
        events = [Event("moved", data) for _ in range(self.chance.choice([1, 1, 2, 3]))]
        self.append(events, stream=account, expected=version)


def write_events_until_killed(home: str, diary: str, *, seed: int) -> None:
    """Append to ``home`` until somebody ends this process."""
    writer = EventWriter(home, diary, seed)
    writer.again()
    while True:
        writer.chance.choice([writer.enrol, writer.enrol, writer.claim, writer.move])()
