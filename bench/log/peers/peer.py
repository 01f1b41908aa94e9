"""The contract of a peer: four calls.

``setup`` once, before anything; ``append`` and ``read_all`` many times, in turn with other systems; ``teardown`` once,
always, also after a ``setup`` that failed. ``append`` begins with an empty store each time and returns seconds;
``read_all`` reads what the last ``append`` wrote.
Invariants: only the work itself is timed, never making the store or connecting; the time ends when the system has
confirmed every row. A peer that cannot be had raises ``PeerUnavailable`` from ``setup``.
Not here: choosing the number of rows, checking the answers (``bench/log_bench.py``).
Read next: ``sqlite_wal.py``, the shortest of them.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from bench.log.order_rows import Rows
from bench.peer_servers import PeerUnavailable


@dataclass(frozen=True)
class Mode:
    """One way of appending. ``given`` says what the caller holds when the clock starts: what the system likes
    best (``ready``: packed bytes, tuples) or the application's dicts, which must be encoded under the clock."""

    name: str
    given: Literal["ready", "dicts"] = "ready"


@dataclass(frozen=True)
class Reading:
    """What a full read gave: how many rows, the sum of ``order_id`` (when asked for), and how long it took."""

    rows: int
    seconds: float
    checksum: int | None = None


class Peer(ABC):
    """A system beside which the log is measured; the module's docstring is its contract."""

    title: ClassVar[str]
    modes: ClassVar[tuple[Mode, ...]]
    # Slower systems get this share of the rows, so that all take about as long and the figure stays steady.
    share: ClassVar[float] = 1.0

    @abstractmethod
    def setup(self, directory: Path) -> None:
        """Start the server or open the file under ``directory``; raise ``PeerUnavailable`` when that cannot be."""

    @abstractmethod
    def append(self, rows: Rows, mode: Mode) -> float:
        """Write all rows into an empty store in this mode, confirmed; return the seconds."""

    @abstractmethod
    def read_all(self, *, check: bool = False) -> Reading:
        """Read what the last ``append`` wrote, every column; with ``check``, also sum ``order_id``."""

    @abstractmethod
    def teardown(self) -> None:
        """Stop and remove everything ``setup`` made. Called once, also when ``setup`` failed half-way."""


class Stopwatch:
    """Seconds between entering and leaving; ``seconds`` is there afterwards."""

    seconds: float = 0.0


@contextlib.contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time a block with the garbage collector held still, as ``timeit`` does: its pauses belong to no system."""
    watch = Stopwatch()
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    try:
        yield watch
        watch.seconds = time.perf_counter() - start
    finally:
        gc.enable()


def client_library(module: str, *, package: str) -> Any:
    """Import a peer's client library, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PeerUnavailable(f'{package} is not installed (pip install "headwater[bench]")') from error
