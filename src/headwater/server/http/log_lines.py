"""Log lines: repeated lines are written once, with a count.

What it is: ``SeldomHandler``, a logging handler in front of another one; ``log_to_stderr`` installs it.
Invariants: the first line of a kind is written at once; repetitions within ``AGAIN_S`` are counted and written as one
line "(repeated 1204 times)", at the latest when the process ends, so no client can fill the disk. Memory is bounded.
Not here: the lines themselves.
Read next: ``running.py``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

AGAIN_S = 10.0
KINDS_MAX = 256
FORMAT = "%(asctime)s %(name)s: %(message)s"


class SeldomHandler(logging.Handler):
    """Hands records on to another handler, equal ones seldom.

    >>> import sys
    >>> now = [0.0]
    >>> handler = SeldomHandler(logging.StreamHandler(sys.stdout), monotonic=lambda: now[0])
    >>> log = logging.Logger("doctest"); log.addHandler(handler)
    >>> for _ in range(1205):
    ...     log.warning("no descriptors")
    no descriptors
    >>> now[0] = 11.0
    >>> log.warning("something else")
    no descriptors (repeated 1204 times)
    something else
    >>> handler.close()
    """

    def __init__(
        self, inner: logging.Handler, *, seconds: float = AGAIN_S, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._inner = inner
        self._seconds = seconds
        self._monotonic = monotonic
        # For each kind: when it was last written, and how many came since; oldest first.
        self._written: OrderedDict[tuple[str, int, str], tuple[float, int]] = OrderedDict()
        self._timer: threading.Timer | None = None

    def setFormatter(self, fmt: logging.Formatter | None) -> None:
        """The lines are written by the other handler."""
        self._inner.setFormatter(fmt)

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a record on, or count it."""
        self._write_counts(self._monotonic() - self._seconds)
        kind = (record.name, record.levelno, record.getMessage())
        if kind in self._written:
            at, count = self._written[kind]
            self._written[kind] = (at, count + 1)
            self._wake_later()
            return
        self._written[kind] = (self._monotonic(), 0)
        if len(self._written) > KINDS_MAX:
            self._write_count(*self._written.popitem(last=False))
        self._inner.handle(record)

    def _write_counts(self, until: float) -> None:
        """Write the counts of lines that were written before ``until``."""
        while self._written and next(iter(self._written.values()))[0] <= until:
            self._write_count(*self._written.popitem(last=False))

    def _write_count(self, kind: tuple[str, int, str], written: tuple[float, int]) -> None:
        name, level, message = kind
        if written[1]:
            first = message.splitlines()[0] if message else ""
            said = f"{first} (repeated {written[1]} time{'s' * (written[1] != 1)})"
            self._inner.handle(logging.LogRecord(name, level, "", 0, "%s", (said,), None))
            self._written[kind] = (self._monotonic(), 0)

    def _wake_later(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(self._seconds, self._wake)
            self._timer.daemon = True
            self._timer.start()

    def _wake(self) -> None:
        with self.lock:  # type: ignore[union-attr]
            self._timer = None
            self._write_counts(self._monotonic() - self._seconds)
            if any(count for _, count in self._written.values()):
                self._wake_later()

    def close(self) -> None:
        """Write the counts, and close."""
        with self.lock:  # type: ignore[union-attr]
            if self._timer is not None:
                self._timer.cancel()
            for kind, written in list(self._written.items()):
                self._write_count(kind, written)
            self._written.clear()
        self._inner.close()
        super().close()


def log_to_stderr() -> None:
    """Let warnings of this process go to stderr, equal ones seldom."""
    logging.basicConfig(level=logging.WARNING, format=FORMAT, handlers=[SeldomHandler(logging.StreamHandler())])
