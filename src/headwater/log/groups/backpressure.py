"""Backpressure: a topic's policy when producers are faster than readers.

What it is: ``admit``, called before each append: ``keep`` (the disk is the buffer), ``drop`` (counted), ``block`` (wait
for the slowest group or app, with a time-out).
Invariants: a topic without readers keeps everything; a batch is admitted or dropped as a whole; dropped rows are
counted in the catalog and in the token. An expired reader is not waited for, removed or not yet.
Not here: positions of readers (``readers.py``), retention, which may drop unread rows
(``log/maintenance/retention.py``). Read next: ``readers.py``, ``topic.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.clock import Clock
from headwater.errors import Backpressure
from headwater.log.catalog.catalog import Catalog
from headwater.log.catalog.registry import TopicRow
from headwater.log.groups.readers import Reader, holding_readers, seen_at, slowest

LOOK_AGAIN_S = 0.01


def admit(topic: TopicRow, rows: int, catalog: Catalog, clock: Clock, ends: Callable[[], Mapping[int, int]]) -> int:
    """The number of rows that may be appended (all or none); waits under ``block``."""
    settings = topic.settings
    if settings.overflow == "keep":
        return rows
    limit = settings.overflow_rows_max
    assert limit is not None
    deadline = clock.monotonic() + settings.block_timeout_ms / 1000
    while True:
        lag, reader = slowest(holding_readers(catalog.read, topic.id, settings, clock.now_us()), ends())
        # A batch larger than the limit passes when nothing is waiting: it could never pass otherwise.
        if reader is None or lag + rows <= limit or lag == 0:
            return rows
        if settings.overflow == "drop":
            return 0
        if clock.monotonic() >= deadline:
            raise _full(topic, reader, lag)
        clock.sleep(LOOK_AGAIN_S)


def _full(topic: TopicRow, reader: Reader, lag: int) -> Backpressure:
    settings = topic.settings
    waited = f"Waited {settings.block_timeout_ms / 1000:g} s for it; nothing of this batch was written."
    hint = "Add consumers to the group, raise overflow_rows_max, or append later."
    if reader.kind == "app":
        hint = f"Is it running? {reader.way_on(topic.name)}"
    elif not reader.members:
        waited = f"It has no member since {seen_at(reader)}. {waited}"
        hint = reader.way_on(topic.name)
    return Backpressure(
        f'topic "{topic.name}" is full: {reader.title} is {lag} rows behind, {settings.overflow_rows_max} are allowed',
        detail=waited,
        hint=hint,
        topic=topic.name,
        **{"app" if reader.kind == "app" else "group": reader.name},
        lag=lag,
    )
