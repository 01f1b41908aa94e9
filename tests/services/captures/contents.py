"""What a captured table holds, read from its topic, at its last marker or at each of them.

What it is: the tests' own reading of topics and markers, with nothing of the views.
Invariants: a state is what the rows up to an offset leave, in the order of the topic.
Not here: what should be there (the tests ask the database).
Read next: ``test_conformance.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.log.event_time.capture_markers import Marker, Markers
from headwater.log.schema.normalization import WEIGHT
from headwater.log.topic import Topic


def markers_of(topic: Topic) -> Markers:
    capture = topic.settings.captured_by
    assert capture is not None
    markers = Markers.find(topic.log, capture)
    assert markers is not None
    return markers


def every_marker(markers: Markers) -> Iterator[Marker]:
    for offset in range(markers.topic.start_offsets()[0], markers.topic.end_offsets()[0]):
        marker = markers.at(offset)
        assert marker is not None
        yield marker


def records(topic: Topic, stop: int | None = None) -> list[dict[str, Any]]:
    topic.refresh()
    if topic.row().is_multiset:
        return list(topic.rows(columns=topic.schema.names, stop={0: stop} if stop is not None else None))
    return list(topic.rows(columns=[*topic.schema.names, "_deleted"], stop={0: stop} if stop is not None else None))


def shown(topic: Topic) -> list[dict[str, Any]]:
    """The table as ticks see it: at the last marker."""
    last = markers_of(topic).last()
    assert last is not None
    return state(topic, records(topic, last.ends.get(topic.name, 0)))


def state(topic: Topic, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if topic.row().is_multiset:
        counts: dict[str, tuple[dict[str, Any], int]] = {}
        for row in rows:
            plain = {name: value for name, value in row.items() if name != WEIGHT}
            counts[repr(plain)] = (plain, counts.get(repr(plain), (plain, 0))[1] + row[WEIGHT])
        assert all(count >= 0 for _, count in counts.values())
        return [row for row, count in counts.values() for _ in range(count)]
    live: dict[Any, dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in topic.settings.key)
        if row["_deleted"]:
            live.pop(key, None)
        else:
            live[key] = {name: value for name, value in row.items() if name != "_deleted"}
    return list(live.values())


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """Equal as bags, told apart by what differs."""
    first, second = sorted(map(_text, found)), sorted(map(_text, wanted))
    assert first == second


def _text(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))
