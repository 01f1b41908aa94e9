"""Removal pin: while a backup copies files, none of them is removed.

What it is: ``RemovalPin``, a lock on ``backup.lock`` in the home; sealing, compaction, retention and the pruning of
runs ask ``is_held`` before they remove a file that readers may still need.
Invariants: a file goes from the catalog before it is removed, and the pin is asked in between. A backup takes the pin
before it copies the catalog; so what that copy names was not removed before, and is not as long as the pin is held. The
kernel releases the pin of a dead process. Files that were left are removed by the next round of maintenance.
Not here: what a backup copies (``upkeep/backup/``). Read next: ``log/maintenance/sealing.py``.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from headwater.log.storage.locks import FileLock

FILE = "backup.lock"


class RemovalPin:
    """The pin of one home.

    >>> import tempfile
    >>> home = Path(tempfile.mkdtemp())
    >>> pin = RemovalPin(home)
    >>> is_held(home), pin.acquire(), is_held(home)
    (False, True, True)
    >>> pin.release()
    >>> is_held(home)
    False
    """

    def __init__(self, home: Path) -> None:
        self._lock = FileLock(home / FILE)

    def acquire(self) -> bool:
        """Take the pin; False when another backup of this home has it."""
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        self._lock.release()
        self._lock.close()


def is_held(home: Path) -> bool:
    """Whether a backup of this home is copying files."""
    try:
        fd = os.open(home / FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False  # no backup was ever made
    try:
        # Shared, so that two that ask do not see each other; closing releases it.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
