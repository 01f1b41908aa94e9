"""Tentative deadlines: tentative events expire when their time has come, though no command comes by.

What it is: ``TentativeDeadlines``, which knows the deadlines of one kind of aggregate; ``DeadlineWatch``, the thread
that looks at them while an app runs.
Invariants: an event expires once: the expiry is an event of the aggregate, decided as any command is. A command that
comes first expires what is overdue by itself, so nothing depends on the thread.
Not here: what expiry does to the state (``aggregate_class.py``, ``cancelled`` of an event method).
Read next: ``command_decision.py``.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.aggregates.command_context import SETTLED
from headwater.aggregates.events.event_rows import EPOCH, MICROSECOND
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.aggregates.aggregate_repository import AggregateRepository

logger = logging.getLogger("headwater.aggregates")

COLUMNS = ["stream", "version", "type", "deadline", "settles"]
LOOK_S = 1.0


class TentativeDeadlines:
    """The tentative events of one kind of aggregate that are not settled, by their deadlines."""

    def __init__(self, repository: AggregateRepository) -> None:
        self._repository = repository
        self._positions: dict[int, int] = {}
        self._open: dict[tuple[str, int], dt.datetime] = {}
        self._lock = threading.Lock()

    def overdue(self) -> list[str]:
        """The aggregates that have an event whose deadline has passed."""
        store = self._repository.store
        now = EPOCH + store.topic.clock.now_us() * MICROSECOND
        with self._lock:
            self._catch_up()
            return sorted({stream for (stream, _), deadline in self._open.items() if deadline <= now})

    def _catch_up(self) -> None:
        topic = self._repository.store.topic
        for partition in range(topic.settings.partitions):
            begin, end = self._positions.get(partition, 0), topic.end_offset(partition)
            if begin == end:
                continue
            for batch in topic.read_partition(partition, begin, stop=end, columns=COLUMNS):
                if batch.data.column("deadline").null_count + batch.data.column("settles").null_count < 2 * len(batch):
                    for row in batch.to_pylist():
                        if row["deadline"] is not None:
                            self._open[row["stream"], row["version"]] = row["deadline"]
                        elif row["settles"] is not None and row["type"] in SETTLED:
                            self._open.pop((row["stream"], row["settles"]), None)
            self._positions[partition] = end


class DeadlineWatch:
    """Lets tentative events of an app's aggregates expire while the app runs."""

    def __init__(self, repositories: Iterable[AggregateRepository]) -> None:
        self._repositories = [each for each in repositories if each.has_tentative]
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if there is anything to watch."""
        if self._repositories and self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._run, name="headwater-deadlines", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            for repository in self._repositories:
                try:
                    repository.expire()
                except HeadwaterError as error:
                    logger.warning('deadlines of "%s" wait: %s', repository.name, error)
