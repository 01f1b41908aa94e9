"""Aggregate states: what the events of each aggregate add up to, in memory and as snapshots.

What it is: ``AggregateStates``: loads states, brings them up to date, and lets written events be a part of them;
``LoadedState``, one of them.
Invariants: a state is what the stored events give, and never what a command did to it. One lock for each aggregate:
threads of a process do not change a state at the same time. A state over which an event method failed is thrown away.
Not here: deciding (``command_decision.py``), the file of snapshots (``snapshots.py``).
Read next: ``aggregate_repository.py``.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.aggregates.aggregate_class import AggregateClass
from headwater.aggregates.command_context import SETTLED, PendingEvent
from headwater.aggregates.events.event_index import EventIndex
from headwater.aggregates.events.event_store import EventStore
from headwater.aggregates.events.event_types import RecordedEvent
from headwater.aggregates.snapshots import Snapshots, StateSnapshot

CACHED_MAX = 50_000  # states in memory; one that is not there is read from the log, which takes four times as long
EVENTS_AT_ONCE = 8_192
SCANNED_ROWS_MAX = 4_096  # after a snapshot; they take a few milliseconds
LOCKS = 64
REJECTED, NOTED = "rejected", "noted"
UNCOUNTED = (REJECTED, NOTED)  # rows without a version: no part of the state


@dataclass
class LoadedState:
    """The state of one aggregate after the events before a position of its partition."""

    instance: Any
    version: int = 0
    position: int = 0
    pending: dict[int, PendingEvent] | None = None
    snapshot_version: int = 0


class AggregateStates:
    """The states of one kind of aggregate."""

    def __init__(self, declared: AggregateClass, store: EventStore, snapshots: Snapshots, snapshot_every: int) -> None:
        self.declared = declared
        self.snapshots = snapshots
        self._store = store
        self._snapshot_every = snapshot_every
        self._cache: OrderedDict[str, LoadedState] = OrderedDict()
        self._cache_lock = threading.Lock()
        self._locks = [threading.RLock() for _ in range(LOCKS)]

    def lock(self, stream: str) -> threading.RLock:
        """The lock of an aggregate; several share one."""
        return self._locks[hash(stream) % LOCKS]

    def in_memory(self, stream: str) -> LoadedState | None:
        """The state as this process last saw it, which may be old; None when it is not in memory."""
        return self._cache.get(stream)

    def new(self) -> LoadedState:
        """An aggregate without events."""
        return LoadedState(self.declared.new())

    def load(self, stream: str) -> LoadedState:
        """The state of an aggregate as of now. It is shared: it is not to be changed."""
        with self.lock(stream):
            index = self._store.index(stream)
            with self._cache_lock:
                loaded = self._cache.get(stream)
            if not index.position and (found := self._without_index(stream, loaded, index)) is not None:
                return found
            end = index.catch_up()
            if loaded is None:
                loaded = self._from_snapshot(stream, end) if index.stream_offsets(stream) else self.new()
            self._catch_up(stream, loaded, index)
            loaded.position = max(loaded.position, end)
            self._remember(stream, loaded)
            return loaded

    def _without_index(self, stream: str, loaded: LoadedState | None, index: EventIndex) -> LoadedState | None:
        """The state from the few rows after the one in memory, or after a snapshot: a new process that only looks need
        not read the whole index."""
        end = self._store.topic.end_offset(index.partition)
        loaded = loaded or self._from_snapshot(stream, end)
        if not loaded.position or end - loaded.position > SCANNED_ROWS_MAX:
            return None
        if loaded.position < end:
            self._apply_all(stream, loaded, index.scan(stream, loaded.position, end))
            loaded.position = end
        self._remember(stream, loaded)
        return loaded

    def at_version(self, stream: str, version: int) -> LoadedState:
        """The state after the first ``version`` events, or all if they are fewer. It is the caller's own."""
        loaded = self._from_snapshot(stream, self._store.topic.end_offset(self._store.index(stream).partition))
        if loaded.version > version:
            loaded = self.new()
        for event in self._store.each_of(stream, after=loaded.position) if loaded.version < version else ():
            if event.version is not None and event.version > version:
                break
            self.apply(loaded, event)
        return loaded

    def _apply_all(self, stream: str, loaded: LoadedState, events: Iterable[RecordedEvent]) -> None:
        """Let events be a part of a state; it is thrown away when that fails, since a half of one may be in it."""
        try:
            for event in events:
                self.apply(loaded, event)
        except BaseException:
            self._forget(stream)
            raise

    def _catch_up(self, stream: str, loaded: LoadedState, index: EventIndex) -> None:
        offsets = index.stream_offsets(stream)
        place = bisect_left(offsets, loaded.position)
        while place < len(offsets):
            lot = offsets[place : place + EVENTS_AT_ONCE]
            self._apply_all(stream, loaded, index.events(lot))
            place += len(lot)
            if loaded.version - loaded.snapshot_version >= self._snapshot_every:
                self._snapshot(stream, loaded)

    def advance(self, stream: str, loaded: LoadedState, events: Sequence[RecordedEvent], position: int) -> None:
        """Let the events that were just written be a part of the state in memory."""
        self._apply_all(stream, loaded, events)
        loaded.position = position
        if loaded.version - loaded.snapshot_version >= self._snapshot_every:
            self._snapshot(stream, loaded)

    def apply(self, loaded: LoadedState, event: RecordedEvent) -> None:
        """Let a stored event be a part of a state."""
        apply_recorded(self.declared, loaded, event)

    def _from_snapshot(self, stream: str, end: int) -> LoadedState:
        found = self.snapshots.find(stream)
        if found is None or found.position > end:  # a home that went back to an older copy
            return self.new()
        instance, pending = found.state
        return LoadedState(instance, found.version, found.position, pending, found.version)

    def _snapshot(self, stream: str, loaded: LoadedState) -> None:
        self.snapshots.store(stream, StateSnapshot(loaded.version, loaded.position, (loaded.instance, loaded.pending)))
        loaded.snapshot_version = loaded.version

    def _remember(self, stream: str, loaded: LoadedState) -> None:
        with self._cache_lock:
            self._cache[stream] = loaded
            self._cache.move_to_end(stream)
            if len(self._cache) > CACHED_MAX:
                self._cache.popitem(last=False)

    def _forget(self, stream: str) -> None:
        with self._cache_lock:
            self._cache.pop(stream, None)


def apply_recorded(declared: AggregateClass, loaded: LoadedState, event: RecordedEvent) -> None:
    """Let a stored event be a part of a state."""
    extra = event.extra or {}
    if event.type in SETTLED and extra.get("settles") is not None:
        settled = (loaded.pending or {}).pop(extra["settles"], None)
        if settled is not None:
            declared.apply_settled(loaded.instance, settled.type, settled.data, event.type)
    elif event.type not in UNCOUNTED:
        declared.apply(loaded.instance, event)
        if extra.get("deadline") is not None and event.version is not None:
            loaded.pending = loaded.pending if loaded.pending is not None else {}
            loaded.pending[event.version] = PendingEvent(event.version, event.type, event.data, extra["deadline"])
    if event.version is not None:
        loaded.version = event.version
    loaded.position = event.position
