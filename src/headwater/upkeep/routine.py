"""Routine: a thread that does what is due, again and again, beside an app that runs.

What it is: ``Routine``: ``start``, ``stop`` and the loop around ``step``.
Invariants: ``step`` is called at once and then every ``seconds``, never twice at the same time; ``stop`` waits for the
one that is under way.
Not here: what is due (``backup/backup_schedule.py``, ``erasure/purpose_expiry.py``, ``erasure/erased_places.py``).
Read next: ``backup/backup_schedule.py``.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class Routine(ABC):
    """One such thread."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name, self._seconds = name, seconds
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def step(self) -> None:
        """Do what is due. It raises nothing: a routine never ends the app."""

    def start(self) -> None:
        """Begin. Stopped before, it goes on."""
        self._over.clear()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, when what is under way is done."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            self.step()
            if self._over.wait(self._seconds):
                return
