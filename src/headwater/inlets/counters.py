"""Counters: messages and rows that an inlet has counted, in this process and in the home.

What it is: ``Counters`` (five numbers), ``CounterStore``, which threads count with, and ``stored``.
Invariants: counting takes a lock and nothing else; the catalog gets differences, about once a second and at the end, so
several processes may count for one inlet. A killed process loses the counts since the last write: the log is the truth,
counters are for observation.
Not here: rows that a topic's backpressure dropped, over all writers (the topic counts them too).
Read next: ``inlet.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

WRITE_EVERY_S = 1.0


@dataclass(frozen=True)
class Counters:
    """The counters of an inlet.

    ``received``, ``repeated`` and ``refused`` are messages (requests, metrics); ``appended`` and ``dropped`` are rows.
    ``dropped`` counts known losses: by a full queue, by the kernel, by the topic's overflow policy, or missing between
    two sequence numbers.

    >>> Counters(received=3, appended=2) + Counters(received=1, refused=1)
    Counters(received=4, appended=2, repeated=0, refused=1, dropped=0)
    >>> Counters(received=3).values(), Counters(received=3).to_dict()["received"]
    ((3, 0, 0, 0, 0), 3)
    """

    received: int = 0
    appended: int = 0
    repeated: int = 0
    refused: int = 0
    dropped: int = 0

    def __add__(self, other: Counters) -> Counters:
        return Counters(*(mine + theirs for mine, theirs in zip(self.values(), other.values(), strict=True)))

    def __sub__(self, other: Counters) -> Counters:
        return Counters(*(mine - theirs for mine, theirs in zip(self.values(), other.values(), strict=True)))

    def values(self) -> tuple[int, ...]:
        """The numbers, in the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def to_dict(self) -> dict[str, int]:
        """The numbers by name, for programs."""
        return asdict(self)


class CounterStore:
    """Counts for one inlet of this process, and adds the counts to the catalog."""

    def __init__(self, log: EventLog, app: str, name: str) -> None:
        self.address: str | None = None
        self.problem: str | None = None
        self.lag: int | None = None  # what waits in a foreign log, where that is known
        self._log = log
        self._key = (app, name)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._now = Counters()
        self._written = Counters()
        self._reported: tuple[str | None, str | None, int | None] = (None, None, None)
        self._written_at = log.clock.monotonic()

    @property
    def counters(self) -> Counters:
        """The counts of this process since the inlet was opened."""
        return self._now

    def count(self, **more: int) -> None:
        """Add to some counters, by name."""
        with self._lock:
            now = self._now
            self._now = replace(now, **{name: getattr(now, name) + number for name, number in more.items()})

    def write_if_due(self) -> None:
        """Add the counts to the catalog, at most once a second."""
        if self._log.clock.monotonic() - self._written_at >= WRITE_EVERY_S or self._reported[:2] != (
            self.address,
            self.problem,
        ):
            self.write()

    def write(self) -> None:
        """Add the counts to the catalog."""
        with self._writing:
            self._written_at = self._log.clock.monotonic()
            now, reported = self._now, (self.address, self.problem, self.lag)
            more = now - self._written
            if not any(more.values()) and reported == self._reported:
                return
            names = [field.name for field in fields(Counters)]
            added = ", ".join(f"{name} = {name} + excluded.{name}" for name in names)
            with self._log.local.catalog.write() as db:
                db.execute(
                    f"INSERT INTO inlets (app, name, {', '.join(names)}, address, problem, counted_us)"
                    f" VALUES (?, ?{', ?' * len(names)}, ?, ?, ?) ON CONFLICT DO UPDATE SET {added},"
                    " address = excluded.address, problem = excluded.problem, counted_us = excluded.counted_us",
                    (*self._key, *more.values(), *reported[:2], self._log.clock.now_us()),
                )
                if self.lag is not None:
                    db.execute("INSERT OR REPLACE INTO inlet_lags VALUES (?, ?, ?)", (*self._key, self.lag))
            self._written, self._reported = now, reported


def stored(log: EventLog, app: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The stored counters of some inlets, by name; zeros for one that has never run.

    ``lag`` is how many offsets of a foreign log are still to be read; None where there is none.

    >>> import headwater as hw, tempfile
    >>> stored(hw.Log(tempfile.mkdtemp()), "shop", ["github"])["github"]["received"]
    0
    """
    rows = {row["name"]: row for row in log.local.catalog.read("SELECT * FROM inlets WHERE app = ?", (app,))}
    seen = log.local.catalog.read("SELECT inlet, lag FROM inlet_lags WHERE app = ?", (app,))
    lags = {row["inlet"]: row["lag"] for row in seen}
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        row = rows.get(name)
        counted = {field.name: row[field.name] if row else 0 for field in fields(Counters)}
        found[name] = {
            **counted,
            "address": row["address"] if row else None,
            "problem": row["problem"] if row else None,
            "counted_at": format_us(row["counted_us"]) if row else None,
            "lag": lags.get(name),
        }
    return found
