"""State lease: a process that runs an app tells others so, on the object store that the app's state is on.

What it is: ``StateLease``, a thread of the process that runs the app: it writes ``leases/<epoch>.json`` every few
seconds with a number that rises. ``read_lease`` reads it for a standby.
Invariants: only the process of an epoch writes the lease of that epoch, so one that was replaced and wakes up disturbs
nobody's. A lease tells who is there, and nothing more: who may commit is decided by the commits alone
(``commit_log.py``). It has no time in it, since clocks of two machines are never compared: a standby judges by its own
clock, from when it last saw the number change (``views/lifecycle/active_process.py``).
Not here: when a standby takes over (``views/lifecycle/active_process.py``).
Read next: ``commit_log.py``; ``docs/operations.md``.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass

from headwater.errors import HeadwaterError
from headwater.objects.object_store import ObjectStore

logger = logging.getLogger("headwater.views")

LEASES = "leases/"
BEATS = 5  # renewals in the time after which a standby takes over: so many requests may fail, or be slow


@dataclass(frozen=True)
class LeaseRecord:
    """What a lease says. ``released``: its process does not run the app any more: no need to wait."""

    beat: int
    released: bool
    holder: str  # for people: the machine and the process


class StateLease:
    """The lease of this process, renewed until ``release``.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from headwater.objects.folder_store import FolderStore
    >>> store = FolderStore(Path(tempfile.mkdtemp()))
    >>> lease = StateLease(store, epoch=3, seconds=10.0)
    >>> lease.begin()
    >>> read_lease(store, 3).released
    False
    >>> lease.release()
    >>> read_lease(store, 3).released
    True
    """

    def __init__(
        self, store: ObjectStore, *, epoch: int, seconds: float, look: Callable[[], None] = lambda: None
    ) -> None:
        self.epoch = epoch
        self._store = store
        self._every_s = seconds / BEATS
        self._look = look  # called with each renewal: whether another process has taken over
        self._beat = 0
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headwater-lease", daemon=True)

    def begin(self) -> None:
        """Write the lease, and go on renewing it; leases of older epochs are removed."""
        self._write()
        self._thread.start()

    def _run(self) -> None:
        self._tried(self._remove_older)
        while not self._released.wait(self._every_s):
            self._tried(self._write)
            self._tried(self._look)

    def _tried(self, work: Callable[[], None]) -> None:
        try:
            work()
        except HeadwaterError as error:  # the next renewal will do; at worst a standby takes over
            logger.warning("the lease of epoch %d: %s", self.epoch, error.message)

    def _write(self, *, released: bool = False) -> None:
        self._beat += 1
        record = LeaseRecord(self._beat, released, f"{socket.gethostname()}, process {os.getpid()}")
        self._store.put(_name(self.epoch), json.dumps(asdict(record)).encode())

    def _remove_older(self) -> None:
        for found in self._store.list(LEASES):
            if found.name < _name(self.epoch):
                self._store.delete(found.name)

    def release(self) -> None:
        """This process does not run the app any more: a standby may take over at once."""
        self._released.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._tried(lambda: self._write(released=True))


def read_lease(store: ObjectStore, epoch: int) -> LeaseRecord | None:
    """The lease of an epoch; None when its process has written none."""
    data = store.get(_name(epoch))
    return None if data is None else LeaseRecord(**json.loads(data))


def _name(epoch: int) -> str:
    return f"{LEASES}{epoch:020d}.json"
