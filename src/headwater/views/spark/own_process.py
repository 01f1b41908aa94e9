"""The host process of Spark: left as it is, unless the process is Headwater's own.

What it is: ``claim``, called once by the command line and by the server's child processes; ``starting`` and
``started``, which ``spark_session.py`` calls around the start of Spark.
Invariants: without ``claim`` (``hw.App`` in a notebook or in another program) file descriptor 2, the root logger and
the SIGINT handler are the same after the start as before. With it, Java's standard error goes to a file, Ctrl-C waits
while the JVM starts, and py4j logs no stack traces.
Not here: the session itself (``spark_session.py``).
Read next: ``spark_session.py``.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

_claimed = threading.Event()


def claim() -> None:
    """Declare that this process belongs to Headwater: ``headwater`` on the command line, or a child of the server."""
    _claimed.set()


def is_claimed() -> bool:
    """Whether ``claim`` was called in this process."""
    return _claimed.is_set()


@contextmanager
def starting(java_log: Path | None) -> Iterator[None]:
    """Around the start of Spark; the SIGINT handler is afterwards what it was.

    PySpark installs a handler that calls the JVM, possibly in the middle of another call.
    """
    if threading.current_thread() is not threading.main_thread():
        with java_writes_to(java_log if is_claimed() else None):
            yield
        return
    before = signal.getsignal(signal.SIGINT)
    if is_claimed() and callable(before):
        with interrupts_deferred(before), java_writes_to(java_log):
            yield
        return
    try:
        with java_writes_to(java_log if is_claimed() else None):
            yield
    finally:
        if before is not None:  # None: installed by C code, and cannot be put back
            signal.signal(signal.SIGINT, before)


def started(spark: SparkSession) -> None:
    """After the start: what is raised when the JVM has ended or Ctrl-C was pressed is not logged as well."""
    if is_claimed():
        logging.getLogger().addFilter(_is_not_of_py4j)  # py4j logs with the root logger
        spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]


@contextmanager
def java_writes_to(path: Path | None) -> Iterator[None]:
    """Start the JVM with its standard error in a file: a process inherits file descriptor 2 when it starts.

    Python's own messages of that time (a warning of another thread) still reach the terminal.
    """
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    kept, before = os.dup(2), sys.stderr
    # Appending, so that the file can be truncated while Java writes (``log/maintenance/bounded_logs.py``).
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    with open(kept, "w", buffering=1, encoding="utf-8", errors="backslashreplace") as terminal:
        try:
            sys.stderr = terminal
            os.dup2(target, 2)
            yield
        finally:
            os.dup2(kept, 2)
            sys.stderr = before
            os.close(target)


@contextmanager
def interrupts_deferred(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Ctrl-C takes effect when the JVM has started, which would be left behind otherwise; a second one at once."""
    pressed: list[FrameType | None] = []

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(frame)
        if len(pressed) > 1:
            handler(number, frame)

    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if pressed:
        handler(signal.SIGINT, pressed[0])


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"
