"""Kept progress: how far a sink is whose other system cannot store that (a webhook, a mail).

What it is: ``kept_progress`` finds where an app keeps it: in the home, or beside the state on an object store
(``StoreProgress``), so that another machine goes on where this one was.
Invariants: a process that was replaced cannot set the progress back. In the home a transaction compares the epoch. On
a store each process writes an object of its own, named by its epoch, and the newest epoch counts.
Not here: progress that is stored with the rows (each sink's module); statuses (``sink_status.py``).
Read next: ``sinks/sink.py``, ``webhook_sink.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headwater.objects.object_address import ObjectAddress
from headwater.objects.object_store import ObjectStore
from headwater.sinks.sink import SinkContext, StoredProgress, check_fence

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

SINKS = "sinks/"


class KeptProgress:
    """The progress of one sink, kept in the home."""

    def __init__(self, log: EventLog, context: SinkContext) -> None:
        self.log = log
        self.context = context

    def recall(self) -> tuple[StoredProgress | None, Any]:
        """The progress, and the sink's own data."""
        rows = self.log.local.catalog.read("SELECT * FROM sink_memories WHERE identity = ?", (self.context.identity,))
        if not rows:
            return None, None
        row = rows[0]
        return StoredProgress(row["tick"], row["epoch"], row["version"]), json.loads(row["memory"])

    def remember(self, tick: int, epoch: int, memory: Any = None) -> StoredProgress:
        """Store a tick; ``Fenced`` when a newer process has stored one."""
        with self.log.local.catalog.write(durable=True) as db:
            row = db.execute(
                "SELECT tick, epoch, version FROM sink_memories WHERE identity = ?", (self.context.identity,)
            ).fetchone()
            check_fence(StoredProgress(*row) if row else None, self.context, epoch, filling=True)
            db.execute(
                "INSERT OR REPLACE INTO sink_memories VALUES (?, ?, ?, ?, ?)",
                (self.context.identity, tick, epoch, self.context.version, json.dumps(memory)),
            )
        return StoredProgress(tick, epoch, self.context.version)


class StoreProgress(KeptProgress):
    """The same beside an app's state on an object store."""

    def __init__(self, log: EventLog, context: SinkContext, store: ObjectStore) -> None:
        super().__init__(log, context)
        self._store = store
        self._folder = f"{SINKS}{context.identity}/"

    def recall(self) -> tuple[StoredProgress | None, Any]:
        """See ``KeptProgress.recall``."""
        for found in reversed(self._store.list(self._folder)):
            data = self._store.get(found.name)
            if data is not None:  # else a newer process has removed it since
                kept = json.loads(data)
                return StoredProgress(kept["tick"], kept["epoch"], kept["version"]), kept["memory"]
        return None, None

    def remember(self, tick: int, epoch: int, memory: Any = None) -> StoredProgress:
        """See ``KeptProgress.remember``."""
        before, _ = self.recall()
        check_fence(before, self.context, epoch, filling=True)
        made = StoredProgress(tick, epoch, self.context.version)
        kept = {"tick": tick, "epoch": epoch, "version": made.version, "memory": memory}
        self._store.put(self._name(epoch), json.dumps(kept).encode())
        if before is None or before.epoch != epoch:
            for found in self._store.list(self._folder):
                if found.name < self._name(epoch):
                    self._store.delete(found.name)
        return made

    def _name(self, epoch: int) -> str:
        return f"{self._folder}{epoch:020d}.json"


def kept_progress(log: EventLog, context: SinkContext) -> KeptProgress:
    """The progress of a sink, where its app keeps it.

    >>> import headwater as hw, tempfile
    >>> import pyarrow as pa
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> context = SinkContext("shop", "revenue", "revenue.hook", pa.schema([("country", pa.string())]), (), "7f/1/ab")
    >>> _ = kept_progress(log, context).remember(tick=4, epoch=1)
    >>> kept_progress(log, context).recall()
    (StoredProgress(tick=4, epoch=1, version='7f/1/ab'), None)
    """
    rows = log.local.catalog.read("SELECT address FROM remote_states WHERE app = ?", (context.app,))
    if not rows:
        return KeptProgress(log, context)
    return StoreProgress(log, context, ObjectAddress.parse(rows[0]["address"]).open())
