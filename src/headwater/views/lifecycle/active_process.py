"""The active process: the one that runs an app, as a standby sees it.

What it is: ``ActiveProcess.is_gone`` says whether no process runs the app any more, so that a standby may take it over.
Invariants: no clocks are compared. Where the state is on a store, a standby's own clock runs from when it last saw the
lease or the commits change, and not while the store does not answer. Where it is in the home, the kernel tells: a dead
process gives its file lock back (``liveness.py``). To be wrong costs a restart and never a row: who may commit is
decided by the epoch.
Not here: the lease (``views/state/remote/state_lease.py``); what a standby does (``standby.py``).
Read next: ``standby.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from pathlib import Path

from headwater.clock import Clock
from headwater.errors import ObjectStoreUnavailable
from headwater.views.lifecycle.liveness import signs_of
from headwater.views.state.manifest import Manifests

logger = logging.getLogger("headwater.views")

LOCK_SECONDS = 2.0  # between the commit with which a process takes over, and the lock that it holds from then on


class ActiveProcess:
    """The process that runs an app.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> ActiveProcess(Manifests(log.catalog, "shop"), Path(tempfile.mkdtemp()), log.clock).is_gone()  # none ever did
    True
    """

    def __init__(self, manifests: Manifests, folder: Path, clock: Clock) -> None:
        self._manifests = manifests
        self._folder = folder
        self._clock = clock
        self._seen: Hashable = None
        self._since = clock.monotonic()

    def is_gone(self) -> bool:
        """Whether no process runs the app. Follows the manifests; to be called every second or so."""
        now = self._clock.monotonic()
        try:
            self._manifests.follow()
            epoch, lease = self._manifests.epoch(), self._manifests.read_lease()
        except ObjectStoreUnavailable as error:
            logger.warning("whether the app is run cannot be seen: %s", error.message)
            self._since = self._clock.monotonic()
            return False
        if not epoch or (lease is not None and lease.released):
            return True
        seconds = self._manifests.lease_seconds
        signs: Hashable = (epoch, self._manifests.tick(), lease)
        if seconds is None:  # the state is in the home
            seconds = LOCK_SECONDS
            signs = now if signs_of(self._folder, epoch).alive else epoch
        if signs != self._seen:
            self._seen, self._since = signs, now
        return now - self._since >= seconds
