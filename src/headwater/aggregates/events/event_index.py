"""Event index: where the events of a stream, a tag or a request are in one partition.

What it is: ``EventIndex``, in the memory of a process that reads or writes events; read from the log when it is first
needed, and then kept up as events come.
Invariants: it covers a prefix of the partition, up to ``position``. Under the partition's lock, after ``catch_up`` to
its end, it tells exactly what is there, over all processes. Histories lose no rows, so offsets are places in arrays.
Catching up takes no lock of any partition: it is done under one of them.
Not here: the events themselves (``event_store.py``); an index on disk: reading it anew takes about a second for a
million events.
Read next: ``event_condition.py``.
"""

from __future__ import annotations

import itertools
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.aggregates.events.event_query import Query, QueryItem
from headwater.aggregates.events.event_rows import INDEX_COLUMNS, EventDraft, EventRows
from headwater.aggregates.events.event_types import RecordedEvent
from headwater.log.schema.event_metadata import METADATA_COLUMNS

if TYPE_CHECKING:
    from headwater.log.batch import Batch
    from headwater.log.contract import EventTopic

NEWEST_ROWS = 16_384  # events that are kept decoded: those that readers mostly ask for
FORGOTTEN_ROWS = 1_024  # at once: finding the first entry of a dict takes the longer the more were removed before it
READ_WHOLE_ROWS_MAX = 4_096  # a gap of more is read without the events' data
FEW_OFFSETS = 64  # so many are looked up in a tag's list one by one; for more the list becomes a set
NOTHING: array[int] = array("q")


class EventIndex:
    """The index of one partition of a history."""

    def __init__(self, topic: EventTopic, partition: int, rows: EventRows) -> None:
        self.position = 0
        self.partition = partition
        self._topic = topic
        self._rows = rows
        self._lock = threading.RLock()
        self._versions: dict[str, int] = {}
        self._streams: dict[str, array[int]] = {}
        self._tags: dict[str, array[int]] = {}
        self._requests: dict[tuple[str | None, str], tuple[int, int]] = {}  # first offset, and how many
        self._kinds = array("H")  # the type of each event
        self._kind_numbers: dict[str, int] = {}
        self._newest: dict[int, RecordedEvent] = {}  # by offset, oldest first

    def version(self, stream: str) -> int:
        """The number of events of a stream."""
        return self._versions.get(stream, 0)

    def request(self, stream: str | None, request_id: str) -> tuple[int, int] | None:
        """The offset of the first event of a stream's request, and how many it wrote."""
        return self._requests.get((stream, request_id))

    def stream_offsets(self, stream: str) -> Sequence[int]:
        """The offsets of a stream's events, its rejected commands among them."""
        return self._streams.get(stream, NOTHING)

    def streams(self) -> list[tuple[str, int]]:
        """Every stream with its version, without the nameless one, which has the events of erased people."""
        with self._lock:
            return [(stream, self._versions.get(stream, 0)) for stream in self._streams if stream]

    def type_counts(self) -> dict[str, int]:
        """How many events there are of each type."""
        with self._lock:
            counts = np.bincount(np.frombuffer(self._kinds, dtype=np.uint16), minlength=len(self._kind_numbers))
            return {name: int(counts[number]) for name, number in self._kind_numbers.items()}

    # Growing

    def catch_up(self, end: int | None = None) -> int:
        """Read the events up to ``end``, the partition's end; returns how far the index is."""
        if end is None:  # before the index is locked: whoever holds the partition's lock may wait for the index
            end = self._topic.end_offset(self.partition)
        with self._lock:
            if self.position < end:
                if end - self.position <= READ_WHOLE_ROWS_MAX:
                    for event in self._events(self._unlocked(end, self._columns())):
                        self._take(event)
                else:
                    self._take_columns(end)
                self.position = end
            return self.position

    def took(self, drafts: Sequence[EventDraft], end: int, *, keep: bool = False) -> None:
        """Note events that this process has just written; with ``keep`` the events too, so that they are not read back.

        Only those are kept that are surely read back as they were given, and that have no metadata.
        """
        with self._lock:
            if self.position != end - len(drafts):
                return  # it is read by the next catch_up
            offset = self.position
            for draft in drafts:
                self._enter(offset, draft.stream, draft.version, draft.type, draft.tags, draft.request_id)
                offset += 1
            self.position = end
            if keep and all(self._rows.is_read_as_given(draft) for draft in drafts):
                for event in self._rows.recorded(drafts, self.partition, end):
                    self._keep(event)

    def _take(self, event: RecordedEvent) -> None:
        offset = event.position - 1
        self._enter(offset, event.stream, event.version, event.type, event.tags, event.request_id)
        self._keep(event)

    def _keep(self, event: RecordedEvent) -> None:
        self._newest[event.position - 1] = event
        if len(self._newest) > NEWEST_ROWS + FORGOTTEN_ROWS:
            forget_first(self._newest)

    def _take_columns(self, end: int) -> None:
        for batch in self._unlocked(end, list(INDEX_COLUMNS)):
            columns: list[list[Any]] = [batch.data.column(name).to_pylist() for name in INDEX_COLUMNS]
            for offset, values in zip(batch.offsets.tolist(), zip(*columns, strict=True), strict=True):
                self._enter(offset, *values)

    def _enter(
        self,
        offset: int,
        stream: str | None,
        version: int | None,
        kind: str,
        tags: Iterable[str] | None,
        request: str | None,
    ) -> None:
        if stream is not None:
            if version is not None:
                self._versions[stream] = version
            known = self._streams.get(stream)
            if known is None:
                self._streams[stream] = array("q", (offset,))
            else:
                known.append(offset)
        for tag in tags or ():
            found = self._tags.get(tag)
            if found is None:
                self._tags[tag] = array("q", (offset,))
            elif found[-1] != offset:
                found.append(offset)
        if request is not None:
            first, count = self._requests.get((stream, request), (offset, 0))
            self._requests[stream, request] = (first, count + 1)
        number = self._kind_numbers.get(kind)
        if number is None:
            number = self._kind_numbers[kind] = len(self._kind_numbers)
        self._kinds.append(number)

    # Asking

    def first_match(self, query: Query, after: int) -> int | None:
        """The offset of an event that matches, at or after an offset; None when there is none."""
        with self._lock:
            if query.everything:
                return after if self.position > after else None
            for item in query.items:
                for offset in self._matching(item, after):
                    return offset
            return None

    def matches(self, query: Query, after: int) -> list[int]:
        """The offsets of all events that match, at or after an offset, in order."""
        with self._lock:
            if query.everything:
                return list(range(after, self.position))
            if len(query.items) == 1:
                return list(self._matching(query.items[0], after))
            return sorted({offset for item in query.items for offset in self._matching(item, after)})

    def _matching(self, item: QueryItem, after: int) -> Iterator[int]:
        kinds = {self._kind_numbers[name] for name in item.types if name in self._kind_numbers}
        if item.types and not kinds:
            return
        if not item.tags:
            of_kind = np.isin(np.frombuffer(self._kinds, dtype=np.uint16)[after:].copy(), list(kinds))
            yield from (np.flatnonzero(of_kind) + after).tolist()
            return
        lists = sorted((self._tags.get(tag, NOTHING) for tag in item.tags), key=len)
        rarest, others = lists[0], lists[1:]
        begin = bisect_left(rarest, after)
        if others and len(rarest) - begin > FEW_OFFSETS:
            sets = [set(each) for each in others]
            found = (offset for offset in rarest[begin:] if all(offset in each for each in sets))
        else:
            found = (offset for offset in rarest[begin:] if all(_holds(each, offset) for each in others))
        for offset in found:
            if not kinds or self._kinds[offset] in kinds:
                yield offset

    # Events

    def events(self, offsets: Sequence[int]) -> list[RecordedEvent]:
        """The events at some offsets, in order; those that are not in memory are read."""
        found: list[RecordedEvent] = []
        place = 0
        while place < len(offsets):
            known = self._newest.get(offsets[place])
            if known is not None:
                found.append(known)
                place += 1
                continue
            until = place + 1  # as many as are near each other are read at once
            while (
                until < len(offsets)
                and offsets[until] not in self._newest
                and offsets[until] - offsets[until - 1] <= READ_WHOLE_ROWS_MAX // 8
                and offsets[until] - offsets[place] < READ_WHOLE_ROWS_MAX * 16
            ):
                until += 1
            wanted = set(offsets[place:until])
            read = self._read(offsets[place], offsets[until - 1] + 1, wanted)
            found += read
            with self._lock:
                for event in read:
                    self._keep(event)
            place = until
        return found

    def scan(self, stream: str, start: int, stop: int) -> list[RecordedEvent]:
        """The events of a stream in a range, read without the index: for a process that has not built it."""
        return [event for event in self._read(start, stop) if event.stream == stream]

    def _read(self, start: int, stop: int, wanted: set[int] | None = None) -> list[RecordedEvent]:
        batches = self._topic.read_partition(self.partition, start, stop=stop, columns=self._columns())
        return self._events(batches, wanted if wanted is not None and len(wanted) < stop - start else None)

    def _unlocked(self, stop: int, columns: list[str]) -> Iterator[Batch]:
        # The caller may hold the lock of one partition: opening another one could wait for its holder for ever.
        return self._topic.read_unlocked(self.partition, self.position, stop=stop, columns=columns)

    def _columns(self) -> list[str]:
        return [*self._topic.schema.names, *METADATA_COLUMNS]

    def _events(self, batches: Iterable[Batch], wanted: set[int] | None = None) -> list[RecordedEvent]:
        found: list[RecordedEvent] = []
        for batch in batches:
            data, offsets = batch.data, batch.offsets.tolist()
            if wanted is not None:
                places = [place for place, offset in enumerate(offsets) if offset in wanted]
                if not places:
                    continue
                data, offsets = data.take(places), [offsets[place] for place in places]
            found += self._rows.events(data, self.partition, offsets)
        return found


def forget_first(events: dict[int, Any]) -> None:
    """Remove the events that were kept first."""
    for offset in list(itertools.islice(events, FORGOTTEN_ROWS)):
        del events[offset]


def _holds(offsets: Sequence[int], offset: int) -> bool:
    place = bisect_left(offsets, offset)
    return place < len(offsets) and offsets[place] == offset
