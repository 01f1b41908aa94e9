"""Dedup window: the ids of a topic's last messages.

What it is: the ids in a column of the topic itself, read back to recognise a redelivered message.
Invariants: the log is the only memory: the id and the rows are one append, so after a crash both are there or neither
is. It is bounded to ``window`` rows of each partition. Two threads never write the same id at once; two processes may,
within the same instant (documented).
Not here: writing (``ingest.py``). Read next: ``ingest.py``, ``docs/inlets.md``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from headwater.errors import InvalidDeclaration
from headwater.log.topic import Topic

WINDOW_ROWS = 100_000


class DedupWindow:
    """The ids that a topic holds, in one of its columns.

    >>> import headwater as hw, tempfile
    >>> topic = hw.Log(tempfile.mkdtemp()).topic("hooks", "x INT, delivery STRING")
    >>> _ = topic.append([{"x": 1, "delivery": "a"}])
    >>> dedup_window = DedupWindow(topic, "delivery")
    >>> with dedup_window.claimed(["a", "b"]):
    ...     dedup_window.has("a"), dedup_window.has("b")
    (True, False)
    """

    def __init__(self, topic: Topic, column: str, *, window: int = WINDOW_ROWS) -> None:
        if column not in topic.schema.names or not pa.types.is_string(topic.schema.field(column).type):
            raise InvalidDeclaration(
                f'topic "{topic.name}" has no STRING column "{column}" for the ids of messages',
                hint=f'Declare it with "{column} STRING" among its columns, or name another one: id_column="…".',
                topic=topic.name,
                column=column,
            )
        self.topic = topic
        self.column = column
        self.window = window
        self._ids: dict[int, OrderedDict[str, None]] = {}
        self._seen: dict[int, int] = {}
        self._claims: set[str] = set()
        self._changed = threading.Condition()

    @contextmanager
    def claimed(self, ids: Iterable[str]) -> Iterator[None]:
        """Lock some ids and update the window; other threads wait for these ids."""
        wanted = set(ids)
        if not wanted:
            yield
            return
        with self._changed:
            # All ids are claimed at once or none, so two threads cannot deadlock.
            while wanted & self._claims:
                self._changed.wait()
            self._claims |= wanted
            try:
                self._catch_up()
            except BaseException:
                self._release(wanted)
                raise
        try:
            yield
        finally:
            with self._changed:
                self._release(wanted)

    def _release(self, ids: set[str]) -> None:
        self._claims -= ids
        self._changed.notify_all()

    def has(self, message: str) -> bool:
        """Whether some partition has rows of this message."""
        return any(message in ids for ids in self._ids.values())

    def missing(self, batch: pa.RecordBatch, *, besides: Collection[str] = ()) -> pa.RecordBatch:
        """The rows of a batch whose ids are neither in the topic nor in ``besides``."""
        ids = batch.column(self.column).to_pylist()
        found = {one for one in set(ids) if one is not None and self.has(one)}
        known = [one in found for one in ids]
        keep = [not (had or one in besides) for one, had in zip(ids, known, strict=True)]
        return batch if all(keep) else batch.filter(pa.array(np.array(keep, dtype=bool)))

    def _catch_up(self) -> None:
        """Read the appends of all processes since the last call."""
        topic = self.topic
        ends = topic.end_offsets()
        starts = topic.start_offsets()
        for partition, end in ends.items():
            ids = self._ids.setdefault(partition, OrderedDict())
            since = max(self._seen.get(partition, 0), end - self.window, starts[partition])
            if since < end:
                # The topic's own reader knows the index up to where it last looked; a new one would read all of it.
                for batch in topic.reader(partition).read(since, end, [self.column]):
                    for message in batch.data.column(0).to_pylist():
                        if message is not None:
                            ids[message] = None
                            ids.move_to_end(message)
                while len(ids) > self.window:
                    ids.popitem(last=False)
            self._seen[partition] = end
