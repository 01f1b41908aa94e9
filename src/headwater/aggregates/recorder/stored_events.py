"""Stored events: what the library ``eventsourcing`` stores, as a history of one partition.

What it is: ``StoredEventHistory``, whose events have an originator (the stream), a version, a topic (the type) and a
state of bytes; ``OriginatorIndex``, which knows every version of every originator.
Invariants: an originator has each version at most once, decided under the partition's lock, so it is exact over
processes. Versions may begin anywhere and have gaps, as those of snapshots do. An event's position is its notification
id: without gaps, and seen in order.
Not here: the library's classes (``recorders.py``).
Read next: ``recorders.py``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.aggregates.events.event_index import FORGOTTEN_ROWS, NEWEST_ROWS, EventIndex, forget_first
from headwater.aggregates.events.event_rows import EventDraft, EventRows
from headwater.errors import VersionConflict
from headwater.log.contract import EventLog, EventTopic, EventTransaction

STATE = pa.schema([("state", pa.binary())])


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event as it was stored."""

    position: int
    originator: str
    version: int
    topic: str
    state: bytes


class OriginatorIndex(EventIndex):
    """The versions of each originator, and where they are.

    Most originators have versions that rise by one: for these the first one says it all. For the others there is a
    dict from version to offset.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._first: dict[str, int] = {}
        self._scattered: dict[str, dict[int, int]] = {}
        self._kept: dict[int, KeptEvent] = {}  # by offset, the newest ones

    def has(self, originator: str, version: int) -> bool:
        """Whether an originator has an event of this version."""
        first = self._first.get(originator)
        if first is None:
            return False
        scattered = self._scattered.get(originator)
        return first <= version <= self._versions[originator] if scattered is None else version in scattered

    def between(self, originator: str, gt: int | None, lte: int | None) -> Sequence[int]:
        """The offsets of an originator's events with versions in a range, in the order of the versions."""
        with self._lock:
            first = self._first.get(originator)
            if first is None:
                return ()
            scattered = self._scattered.get(originator)
            if scattered is None:
                offsets = self._streams[originator]
                begin = 0 if gt is None else max(0, gt + 1 - first)
                end = len(offsets) if lte is None else max(begin, lte + 1 - first)
                return offsets[begin:end]
            versions = sorted(
                version for version in scattered if (gt is None or version > gt) and (lte is None or version <= lte)
            )
            return [scattered[version] for version in versions]

    def keep(self, events: Iterable[KeptEvent]) -> None:
        """Remember events, so that they are not read from the log when they are asked for soon."""
        with self._lock:
            kept = self._kept
            for event in events:
                kept[event.position - 1] = event
            while len(kept) > NEWEST_ROWS + FORGOTTEN_ROWS:
                forget_first(kept)

    def kept(self, offsets: Sequence[int]) -> list[KeptEvent]:
        """The events at some offsets, in that order; those that are not in memory are read."""
        found = [self._kept.get(offset) for offset in offsets]
        missing = sorted(offset for offset, event in zip(offsets, found, strict=True) if event is None)
        if not missing:
            return [event for event in found if event is not None]
        read = {event.position - 1: event for event in map(_kept, self.events(missing))}
        return [event or read[offset] for offset, event in zip(offsets, found, strict=True)]

    def _enter(
        self,
        offset: int,
        stream: str | None,
        version: int | None,
        kind: str,
        tags: Iterable[str] | None,
        request: str | None,
    ) -> None:
        assert stream is not None
        assert version is not None
        before = self._versions.get(stream)
        super()._enter(offset, stream, version, kind, tags, request)
        scattered = self._scattered.get(stream)
        if before is None:
            self._first[stream] = version
        elif scattered is not None:
            scattered[version] = offset
        elif version != before + 1:
            known: array[int] = self._streams[stream]
            first = self._first[stream]
            self._scattered[stream] = {first + place: known[place] for place in range(len(known) - 1)}
            self._scattered[stream][version] = offset


@dataclass(frozen=True)
class NewVersions:
    """The condition of an append: none of its versions is there."""

    history: str
    index: OriginatorIndex
    drafts: Sequence[EventDraft]

    def check(self, end: int) -> None:
        """Raise unless it holds for the events before ``end``."""
        index = self.index
        index.catch_up(end)
        for draft in self.drafts:
            assert draft.stream is not None
            assert draft.version is not None
            if index.has(draft.stream, draft.version):
                raise VersionConflict(
                    f'"{draft.stream}" of "{self.history}" has an event of version {draft.version}',
                    detail="Another writer came first. Nothing was written.",
                    hint="Get the aggregate again, and do the command again.",
                    history=self.history,
                    stream=draft.stream,
                    version=draft.version,
                )

    def took(self, end: int, rows: int) -> None:
        """The append was written."""
        if rows != len(self.drafts):
            return
        self.index.took(self.drafts, end)
        first = end - rows + 1
        self.index.keep(
            KeptEvent(first + place, draft.stream or "", draft.version or 0, draft.type, draft.extra["state"])
            for place, draft in enumerate(self.drafts)
        )


class StoredEventHistory:
    """A history of stored events.

    >>> import headwater as hw, tempfile
    >>> history = StoredEventHistory(hw.Log(tempfile.mkdtemp()), "accounts_events")
    >>> history.append([("7", 1, "Account.Opened", b"{}"), ("7", 2, "Account.Credited", b"5")])
    2
    >>> [(event.position, event.version, event.state) for event in history.select("7", gt=1)]
    [(2, 2, b'5')]
    >>> history.append([("7", 2, "Account.Closed", b"{}")])
    Traceback (most recent call last):
        ...
    headwater.errors.VersionConflict: "7" of "accounts_events" has an event of version 2
      Another writer came first. Nothing was written.
      Hint: Get the aggregate again, and do the command again.
    """

    def __init__(self, log: EventLog, name: str, **settings: Any) -> None:
        self.log = log
        self.name = name
        self.rows = EventRows([], STATE)
        self.topic: EventTopic = log.topic(name, self.rows.schema, event_time="at", events=True, **settings)
        self.index = OriginatorIndex(self.topic, 0, self.rows)

    def append(
        self, events: Sequence[tuple[str, int, str, bytes]], *, transaction: EventTransaction | None = None
    ) -> int:
        """Append events (originator, version, topic, state), all or none; returns the position of the last one.

        In a transaction they are written when it ends, and 0 is returned.
        """
        moment = self.topic.clock.now_us()
        drafts = [
            EventDraft(topic, {}, (), originator, version, moment, None, {"state": state})
            for originator, version, topic, state in events
        ]
        if len(drafts) > 1:
            self._refuse_twice(drafts)
        condition = NewVersions(self.name, self.index, drafts)
        if transaction is not None:
            batch = self.rows.batch(drafts, self.topic.schema)
            transaction.append_if(self.topic, batch, partition=0, condition=condition)
            return 0
        rows = self.rows.stored(drafts, self.topic.schema)
        return self.topic.append_if(rows, partition=0, condition=condition).frontier[self.name][0]

    def _refuse_twice(self, drafts: Sequence[EventDraft]) -> None:
        seen: set[tuple[str | None, int | None]] = set()
        for draft in drafts:
            place = (draft.stream, draft.version)
            if place in seen:
                raise VersionConflict(
                    f'two of the events have the version {draft.version} of "{draft.stream}"',
                    detail="Nothing was written.",
                    history=self.name,
                )
            seen.add(place)

    def select(
        self,
        originator: str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> list[KeptEvent]:
        """The events of an originator, by version."""
        self.index.catch_up()
        offsets = self.index.between(originator, gt, lte)
        if desc:
            offsets = offsets[::-1]
        return self.index.kept(offsets if limit is None else offsets[:limit])

    @property
    def head(self) -> int:
        """The position of the last event."""
        return self.index.catch_up()


def _kept(event: Any) -> KeptEvent:
    return KeptEvent(event.position, event.stream, event.version, event.type, event.extra["state"])
