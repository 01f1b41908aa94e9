"""Tag recorder: the recorder of the library's package ``eventsourcing.dcb`` over a history.

What it is: ``HeadwaterDCBRecorder``: events with tags, read by types and tags, and appended unless events that match a
query came after a position.
Invariants: the condition is checked under the partition's lock, so it is exact over processes. Positions have no gaps
and are seen in order.
Not here: the index and the condition (``aggregates/events``).
Read next: ``aggregates/events/event_store.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from eventsourcing.dcb.api import (
    DCBAppendCondition,
    DCBEvent,
    DCBQuery,
    DCBReadResponse,
    DCBRecorder,
    DCBSequencedEvent,
    DCBSubscription,
)
from eventsourcing.persistence import ProgrammingError

from headwater.aggregates.events.event_query import Query, QueryItem
from headwater.aggregates.events.event_rows import EventDraft
from headwater.aggregates.events.event_store import EventStore
from headwater.aggregates.events.event_types import RecordedEvent
from headwater.aggregates.recorder.history_wait import HistoryWaits
from headwater.aggregates.recorder.recorders import mapped_errors
from headwater.log.contract import EventLog

DATA = pa.schema([("data", pa.binary())])
SELECT_MAX = 500  # events that a subscription fetches at once


class HeadwaterDCBRecorder(DCBRecorder):
    """Events with tags in one history.

    >>> import headwater as hw, tempfile
    >>> from eventsourcing.dcb.api import DCBAppendCondition, DCBEvent, DCBQuery, DCBQueryItem
    >>> recorder = HeadwaterDCBRecorder(hw.Log(tempfile.mkdtemp()))
    >>> taken = DCBQuery(items=[DCBQueryItem(tags=["name:ada"])])
    >>> claim = DCBEvent("NameClaimed", b"{}", ["name:ada"])
    >>> recorder.append([claim], DCBAppendCondition(fail_if_events_match=taken))
    1
    >>> recorder.append([claim], DCBAppendCondition(fail_if_events_match=taken))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
        ...
    eventsourcing.persistence.IntegrityError: …
    >>> [found.position for found in recorder.read(taken)]
    [1]
    """

    def __init__(self, log: EventLog, name: str = "dcb_events", **settings: Any) -> None:
        self.store = EventStore(log, name, [], extra=DATA, **settings)
        self.topic = self.store.topic
        self.waits = HistoryWaits(self.topic)

    def read(
        self, query: DCBQuery | None = None, *, after: int | None = None, limit: int | None = None
    ) -> FoundTaggedEvents:
        """The events that match, after a position."""
        with mapped_errors():
            found = self.store.read(_query(query), after=after, limit=limit)
        head = found.head if limit is None else (found.events[-1].position if found.events else None)
        return FoundTaggedEvents(found.events, head or None)

    def append(self, events: Sequence[DCBEvent], condition: DCBAppendCondition | None = None) -> int:
        """Append events, all or none, unless some that match the condition's query came after its position."""
        if not events:
            raise ProgrammingError("an append needs an event")
        moment = self.topic.clock.now_us()
        drafts = [EventDraft(event.type, {}, event.tags, at_us=moment, extra={"data": event.data}) for event in events]
        with mapped_errors():
            if condition is None:
                return self.store.append_drafts(drafts, keep=True).position
            fail_if, after = _query(condition.fail_if_events_match), condition.after
            return self.store.append_drafts(drafts, fail_if=fail_if, after=after, keep=True).position

    def subscribe(self, query: DCBQuery | None = None, *, after: int | None = None) -> TagSubscription:
        """The events that match, those that come later too. Appends of any process wake it."""
        return TagSubscription(self, query, after)


class FoundTaggedEvents(DCBReadResponse):
    """What was read, and ``head``: what a condition's ``after`` takes."""

    def __init__(self, events: Sequence[RecordedEvent], head: int | None) -> None:
        self._events = iter(events)
        self._head = head

    @property
    def head(self) -> int | None:
        """The position up to which was read."""
        return self._head

    def __next__(self) -> DCBSequencedEvent:
        return _sequenced(next(self._events))


class TagSubscription(DCBSubscription[HeadwaterDCBRecorder]):
    """Events in order; after the last one it waits until the log wakes it."""

    def __init__(self, recorder: HeadwaterDCBRecorder, query: DCBQuery | None, after: int | None) -> None:
        super().__init__(recorder, query, after)
        self._wanted = _query(query)
        self._fetched: Iterator[RecordedEvent] = iter(())

    def stop(self) -> None:
        """End the iteration, also one that waits in another thread."""
        super().stop()
        self._recorder.waits.wake()

    def __next__(self) -> DCBSequencedEvent:
        while not self._has_been_stopped:
            for event in self._fetched:
                return _sequenced(event)
            found = self._recorder.store.read(self._wanted, after=self._last_position, limit=SELECT_MAX)
            if found.head > self._last_position:
                self._last_position = found.events[-1].position if len(found) == SELECT_MAX else found.head
                self._fetched = iter(found.events)
                continue
            self._recorder.waits.until_after(self._last_position, lambda: self._has_been_stopped)
        raise StopIteration


def _query(given: DCBQuery | None) -> Query:
    items = given.items if given is not None else ()
    return Query.any_of(QueryItem(frozenset(item.types), frozenset(item.tags)) for item in items)


def _sequenced(event: RecordedEvent) -> DCBSequencedEvent:
    data = (event.extra or {}).get("data") or b""
    return DCBSequencedEvent(DCBEvent(event.type, data, list(event.tags)), event.position)
