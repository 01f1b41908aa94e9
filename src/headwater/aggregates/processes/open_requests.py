"""Open requests: those of a process that have not ended.

What it is: ``OpenRequests``, in the memory of a runner; read from the process's history when it is first needed, and
then kept up as events come.
Invariants: it covers a prefix of each partition. A request is open from its start to its end, but for the time in which
it is stuck. Only the types of events are read, so that a million ended requests take about a second.
Not here: what is done with them (``process_runner.py``).
Read next: ``process_runner.py``.
"""

from __future__ import annotations

import threading

from headwater.aggregates.events.event_store import EventStore
from headwater.aggregates.processes.process_state import ENDED

OPENING, CLOSING = {"started", "resumed"}, {*ENDED, "stuck"}


class OpenRequests:
    """The open requests of one process."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._open: dict[str, None] = {}  # in the order of their starts
        self.positions = dict.fromkeys(range(len(store.indexes)), 0)

    def catch_up(self) -> None:
        """Read what has come since."""
        topic = self._store.topic
        with self._lock:
            for partition, start in self.positions.items():
                end = topic.end_offset(partition)
                if start >= end:
                    continue
                for batch in topic.read_partition(partition, start, stop=end, columns=["stream", "type"]):
                    streams, kinds = (batch.data.column(name).to_pylist() for name in ("stream", "type"))
                    for stream, kind in zip(streams, kinds, strict=True):
                        if kind in OPENING:
                            self._open[stream] = None
                        elif kind in CLOSING:
                            self._open.pop(stream, None)
                self.positions[partition] = end

    def ids(self) -> list[str]:
        """The requests that are open, oldest first in each partition."""
        with self._lock:
            return list(self._open)
