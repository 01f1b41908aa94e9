"""Backpressure: a topic's policy when producers are faster than consumers.

What it is: ``admit``, called before each append: ``keep`` (the disk is the buffer), ``drop`` (counted), ``block`` (wait
for the slowest group, with a time-out).
Invariants: a topic without groups keeps everything; a batch is admitted or dropped as a whole; dropped rows are counted
in the catalog and in the token.
Not here: positions of groups (``groups.py``), retention, which may drop unread rows (``log/maintenance/retention.py``).
Read next: ``topic.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.clock import Clock
from headwater.errors import Backpressure
from headwater.log.catalog.catalog import Catalog
from headwater.log.catalog.registry import TopicRow

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
        lag, group = slowest_lag(catalog, topic.id, ends())
        # A batch larger than the limit passes when nothing is waiting: it could never pass otherwise.
        if lag + rows <= limit or lag == 0:
            return rows
        if settings.overflow == "drop":
            return 0
        if clock.monotonic() >= deadline:
            raise Backpressure(
                f'topic "{topic.name}" is full: group "{group}" is {lag} rows behind, {limit} are allowed',
                detail=f"Waited {settings.block_timeout_ms / 1000:g} s for it; nothing of this batch was written.",
                hint="Add consumers to the group, raise overflow_rows_max, or append later.",
                topic=topic.name,
                group=group,
                lag=lag,
            )
        clock.sleep(LOOK_AGAIN_S)


def slowest_lag(catalog: Catalog, topic_id: int, ends: Mapping[int, int]) -> tuple[int, str]:
    """The largest lag over all groups of a topic, and the group's name."""
    rows = catalog.read(
        "SELECT groups.name AS name, partition, offset FROM positions JOIN groups ON groups.id = group_id "
        "WHERE topic_id = ?",
        (topic_id,),
    )
    lags: dict[str, int] = {}
    for row in rows:
        behind = max(0, ends.get(row["partition"], 0) - row["offset"])
        lags[row["name"]] = lags.get(row["name"], 0) + behind
    if not lags:
        return 0, ""
    name = max(lags, key=lambda group: lags[group])
    return lags[name], name
