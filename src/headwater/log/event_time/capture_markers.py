"""Capture markers: the offsets up to which a tick may read captured tables.

What it is: a capture writes a marker after each batch to its system topic ``_captured.NAME``: its position in the other
database's log, and the offset up to which each of its tables holds whole transactions.
Invariants: a marker is durable after the rows that it names and before the database is told to forget them; offsets in
markers only grow; a table without a marker is not visible. All tables of one capture are read up to the same marker, so
a tick never shows half a transaction. A home without captures pays nothing.
Not here: writing markers (``capture/capture.py``); the tick (``views/tick/engine.py``).
Read next: ``views/tick/engine.py``, ``docs/capture.md``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.log.token import Token
from headwater.log.topic_reader import last_rows
from headwater.log.topic_settings import TopicOptions

if TYPE_CHECKING:
    from headwater.log.contract import EventLog, EventTopic

MARKERS = "_captured."
SCHEMA = "`position` STRING, number BIGINT, committed_at TIMESTAMP, ends STRING"
SETTINGS: TopicOptions = {"fsync": "always", "retention_bytes": 16 << 20, "segment_bytes_max": 1 << 20}

Ends = Mapping[str, int]
Stops = dict[str, dict[int, int]]


@dataclass(frozen=True)
class Marker:
    """A point at which a capture's tables hold whole transactions."""

    offset: int
    position: str
    number: int  # the position as a number that rises
    committed_at: dt.datetime | None
    ends: Ends  # of each table

    def reaches(self, offsets: Ends) -> bool:
        """Whether the marker has all of these tables, at these offsets or beyond."""
        return all(self.ends.get(name, 0) >= offset for name, offset in offsets.items())

    def within(self, offsets: Ends) -> bool:
        """Whether none of these tables is beyond its offset."""
        return all(self.ends.get(name, 0) <= offset for name, offset in offsets.items())


class Markers:
    """The markers of one capture.

    >>> import headwater as hw, tempfile
    >>> markers = Markers.declared(hw.Log(tempfile.mkdtemp()), "shop")
    >>> markers.append("0/16B3748", 23803720, None, {"users": 4})
    >>> markers.append("0/16B3800", 23803904, None, {"users": 9})
    >>> markers.last().ends, markers.last_within({"users": 8}).position
    ({'users': 9}, '0/16B3748')
    """

    def __init__(self, topic: EventTopic) -> None:
        self.topic = topic

    @staticmethod
    def declared(log: EventLog, capture: str) -> Markers:
        """The markers of a capture; the topic is created if missing."""
        return Markers(log.topic(MARKERS + capture, SCHEMA, **SETTINGS))

    @staticmethod
    def find(log: EventLog, capture: str) -> Markers | None:
        """The markers of a capture, if it ever wrote any."""
        topic = log.find_topic(MARKERS + capture)
        return None if topic is None else Markers(topic)

    def append(self, position: str, number: int, committed_at: dt.datetime | None, ends: Ends) -> None:
        text = str(Token({name: {0: end} for name, end in ends.items()}))
        row = {"position": position, "number": number, "committed_at": committed_at, "ends": text}
        self.topic.append([row])

    def last(self) -> Marker | None:
        return self._before(self.topic.end_offsets()[0])

    def last_within(self, offsets: Ends) -> Marker | None:
        """The latest marker that is beyond none of these offsets."""
        return self._before(self._first(lambda marker: not marker.within(offsets)))

    def first_beyond(self, offsets: Ends) -> Marker | None:
        """The first marker that has all of these offsets, and more of some table."""
        return self.at(self._first(lambda marker: marker.reaches(offsets) and not marker.within(offsets)))

    def first_at(self, number: int, since: int = 0) -> Marker | None:
        """The first marker at this position or beyond; those before the offset ``since`` are of another slot."""
        return self.at(self._first(lambda marker: marker.offset >= since and marker.number >= number))

    def _first(self, wanted: Callable[[Marker], bool]) -> int:
        """Binary search: offsets only grow, so the condition holds from some marker on."""
        low, high = self.topic.start_offsets()[0], self.topic.end_offsets()[0]
        while low < high:
            middle = (low + high) // 2
            marker = self.at(middle)
            if marker is None or wanted(marker):
                high = middle
            else:
                low = marker.offset + 1
        return low

    def at(self, offset: int) -> Marker | None:
        """The marker at an offset, or the next one: the offsets of some logs have holes. None at the end."""
        start, end, span = self.topic.start_offsets()[0], self.topic.end_offsets()[0], 1
        while start <= offset < end:
            for batch in self.topic.read_partition(0, offset, stop=min(offset + span, end)):
                if batch.num_rows:
                    return _marker(batch.to_pylist()[0], int(batch.offsets[0]))
            offset, span = offset + span, span * 4
        return None

    def _before(self, stop: int) -> Marker | None:
        """The last marker before an offset, if it is still kept."""
        for batch in last_rows(self.topic, 0, stop):
            return _marker(batch.to_pylist()[-1], int(batch.offsets[-1]))
        return None


def _marker(row: dict[str, Any], offset: int) -> Marker:
    ends = {name: of[0] for name, of in Token.parse(row["ends"]).frontier.items()}
    return Marker(offset, row["position"], row["number"], row["committed_at"], ends)


def bound(topics: Iterable[EventTopic], ends: Stops) -> Stops:
    """The ends; those of captured tables are bounded by the last marker."""
    held = dict(ends)
    for capture, tables in _captures(topics).items():
        last = _last(tables[0].log, capture)
        for topic in tables:
            whole = 0 if last is None else last.ends.get(topic.name, 0)
            held[topic.name] = {0: max(min(whole, ends[topic.name][0]), topic.start_offsets()[0])}
    return held


def cut(
    topics: Iterable[EventTopic],
    begin: Mapping[str, Mapping[int, int]],
    stop: Stops,
    ends: Mapping[str, Mapping[int, int]],
) -> Stops:
    """The end of a tick that should reach ``stop`` and may reach ``ends``: each capture's tables at one marker.

    A single batch that is larger than ``stop`` allows is taken whole.
    """
    held = dict(stop)
    for capture, tables in _captures(topics).items():
        names = [topic.name for topic in tables]
        old, allowed, most = ({name: of[name].get(0, 0) for name in names} for of in (begin, stop, ends))
        markers = Markers.find(tables[0].log, capture)
        marker = None if markers is None else _chosen(markers, old, allowed, most)
        for name in names:
            held[name] = {0: max(old[name], marker.ends.get(name, 0) if marker else 0)}
    return held


def _chosen(markers: Markers, old: Ends, allowed: Ends, most: Ends) -> Marker | None:
    last = markers.last()
    if last is None or last.within(old) or last.within(allowed):
        return last
    within = markers.last_within(allowed)
    # Never back: a table that is further already would otherwise be ahead of the others.
    if within is not None and within.reaches(old) and not within.within(old):
        return within
    whole = markers.first_beyond(old)
    return whole if whole is not None and whole.within(most) else None


def _captures(topics: Iterable[EventTopic]) -> dict[str, list[EventTopic]]:
    found: dict[str, list[EventTopic]] = {}
    for topic in topics:
        if topic.settings.captured_by is not None:
            found.setdefault(topic.settings.captured_by, []).append(topic)
    return found


def _last(log: EventLog, capture: str) -> Marker | None:
    markers = Markers.find(log, capture)
    return None if markers is None else markers.last()


def watched(topics: Iterable[EventTopic]) -> list[EventTopic]:
    """The marker topics that bound these topics; a reader that waits for new rows waits for these."""
    found = []
    for capture, tables in _captures(topics).items():
        markers = Markers.find(tables[0].log, capture)
        if markers is not None:
            found.append(markers.topic)
    return found
