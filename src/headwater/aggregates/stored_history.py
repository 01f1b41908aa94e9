"""Stored history: what the log tells of aggregates, without their classes.

What it is: ``StoredHistory``, one history of a log as it is read by people: its ids, its counts, and the life of one
aggregate as documents; ``histories``, all of a log.
Invariants: no code of the user runs, so a server and a command line may ask at any time. Data is as it was stored:
upcasters are not applied. Nothing is written.
Not here: states, which need the class (``aggregate_repository.py``).
Read next: ``events/event_index.py``; ``cli/aggregates/aggregate_commands.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from heapq import nsmallest
from typing import Any

import pyarrow as pa

from headwater.aggregates.aggregate_repository import EXTRA
from headwater.aggregates.aggregate_states import NOTED, REJECTED, UNCOUNTED
from headwater.aggregates.command_arguments import from_text
from headwater.aggregates.command_context import SETTLED
from headwater.aggregates.events.event_index import EventIndex
from headwater.aggregates.events.event_rows import EPOCH, MICROSECOND, EventRows
from headwater.aggregates.events.event_types import RecordedEvent
from headwater.aggregates.state_values import json_values
from headwater.errors import UnknownAggregate
from headwater.hints import suggestion
from headwater.log.contract import EventLog, EventTopic
from headwater.log.storage import routing

AGGREGATE, STORE = "aggregate", "store"
PENDING, OVERDUE = "pending", "overdue"


def histories(log: EventLog) -> dict[str, StoredHistory]:
    """The histories of a log, by name.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("bank", home=tempfile.mkdtemp())
    >>> _ = app.event_store("bookings", {"paid": "cents BIGINT"})
    >>> list(histories(app.log))
    ['bookings']
    """
    return {topic.name: StoredHistory(topic) for topic in log.topics() if topic.settings.events}


def history_of(log: EventLog, name: str) -> StoredHistory:
    """One history, or the error."""
    known = {topic.name: topic for topic in log.topics() if topic.settings.events}
    if name not in known:
        raise UnknownAggregate(
            f'this log has no history "{name}"',
            hint=suggestion(name, known, otherwise=f"It has: {', '.join(sorted(known)) or 'none yet'}."),
            aggregate=name,
        )
    return StoredHistory(known[name])


class StoredHistory:
    """One history of a log, read only. Keep it: its index is read from the log when it is first asked.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("bank", home=tempfile.mkdtemp())
    >>> store = app.event_store("bookings", {"paid": "cents BIGINT"}, partitions=2)
    >>> _ = store.append([("paid", {"cents": 5}), ("paid", {"cents": 6})], stream="7")
    >>> history = StoredHistory(app.log.get_topic("bookings"))
    >>> history.counts()
    {'ids': 1, 'events': 2, 'rejected': 0, 'types': {'paid': 2}}
    >>> history.ids(), [event["data"] for event in history.life("7")]
    ([('7', 2)], [{'cents': 5}, {'cents': 6}])
    """

    def __init__(self, topic: EventTopic) -> None:
        self.topic = topic
        self.name = topic.name
        names = topic.schema.names
        self.kind = AGGREGATE if "command" in names else STORE
        rows = EventRows([], pa.schema([column for column in EXTRA if column.name in names]))
        self._indexes = [EventIndex(topic, number, rows) for number in range(topic.settings.partitions)]

    def counts(self) -> dict[str, Any]:
        """How many ids, events and rejected commands there are, and how many events of each type."""
        types: dict[str, int] = {}
        ids = 0
        for index in self._indexes:
            index.catch_up()
            ids += sum(1 for _, version in index.streams() if version)
            for name, count in index.type_counts().items():
                types[name] = types.get(name, 0) + count
        counted = {name: count for name, count in sorted(types.items()) if name not in UNCOUNTED}
        return {"ids": ids, "events": sum(counted.values()), "rejected": types.get(REJECTED, 0), "types": counted}

    def ids(self, *, prefix: str = "", after: str = "", limit: int | None = None) -> list[tuple[str, int]]:
        """The ids and their versions, in the order of their texts: those that begin with ``prefix``, after an id."""
        found: list[tuple[str, int]] = []
        for index in self._indexes:
            index.catch_up()
            found += [each for each in index.streams() if each[0].startswith(prefix) and each[0] > after]
        return sorted(found) if limit is None else nsmallest(limit, found)

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest events of all ids, rejected commands among them, newest first."""
        found: list[RecordedEvent] = []
        for index in self._indexes:
            end = index.catch_up()
            found += index.events(range(max(0, end - limit), end))
        found = sorted((event for event in found if event.type != NOTED), key=lambda event: event.at, reverse=True)
        return [described(event) for event in found[:limit]]

    def version(self, id: str) -> int:
        """The number of events of one aggregate."""
        index = self._indexes[self._partition_of(id)]
        index.catch_up()
        return index.version(id)

    def events(self, id: str, *, limit: int | None = None, before: int | None = None) -> list[RecordedEvent]:
        """The events of one aggregate, and its rejected commands; ``UnknownAggregate`` when it has neither.

        With ``limit`` the newest so many; with ``before`` those before a position.
        """
        index = self._indexes[self._partition_of(id)]
        index.catch_up()
        offsets = list(index.stream_offsets(id))
        if not offsets:
            near = suggestion(id, [each for each, _ in self.ids(limit=1000)], otherwise="It has no events.")
            raise UnknownAggregate(f'there is no {self.name} "{id}"', hint=near, aggregate=self.name, id=id)
        if before is not None:
            offsets = [offset for offset in offsets if offset + 1 < before]
        chosen = offsets if limit is None else offsets[max(0, len(offsets) - limit) :]
        return [event for event in index.events(chosen) if event.type != NOTED]

    def life(self, id: str, *, limit: int | None = None, before: int | None = None) -> list[dict[str, Any]]:
        """The events of one aggregate as documents; tentative ones say what became of them."""
        events = self.events(id, limit=limit, before=before)
        now = EPOCH + self.topic.clock.now_us() * MICROSECOND
        later = self.events(id) if before is not None and any(_deadline(each) for each in events) else events
        settled = {each.extra["settles"]: each for each in later if each.type in SETTLED and each.extra}
        documents = []
        for event in events:
            document = described(event)
            if (deadline := _deadline(event)) is not None:
                by = settled.get(event.version)
                waits = OVERDUE if deadline <= now else PENDING
                document["tentative"] |= {
                    "became": waits if by is None else by.type,
                    "settled_by": None if by is None else by.version,
                }
            documents.append(document)
        return documents

    def _partition_of(self, id: str) -> int:
        return routing.partition_of_text(id, len(self._indexes))


def described(event: RecordedEvent) -> dict[str, Any]:
    """An event, or a rejected command, as a document for people and programs."""
    extra, said = event.extra or {}, event.metadata
    command, rejected, deadline = extra.get("command"), extra.get("rejected"), extra.get("deadline")
    return {
        "id": event.stream,
        "version": event.version,
        "type": event.type,
        "at": event.at.isoformat(),
        "data": {} if rejected else json_values(event.data),
        "tags": list(event.tags),
        "actor": None if said is None else said.actor,
        "correlation_id": None if said is None else said.correlation_id,
        "causation_id": None if said is None else said.causation_id,
        "request_id": event.request_id,
        "command": command and {"name": command["name"], "arguments": _arguments(command["arguments"])},
        "rejected": rejected and {"reason": rejected["reason"], "data": _arguments(rejected["details"])},
        "tentative": None if deadline is None else {"deadline": deadline.isoformat()},
        "settles": extra.get("settles"),
        "partition": event.partition,
        "position": event.position,
    }


def _deadline(event: RecordedEvent) -> dt.datetime | None:
    return (event.extra or {}).get("deadline")


def _arguments(text: str | None) -> Any:
    return json_values(from_text(text)) if text else {}


def pending_of(life: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tentative events of a life that are neither confirmed nor cancelled nor expired."""
    return [each for each in life if each["tentative"] and each["tentative"]["became"] in (PENDING, OVERDUE)]
