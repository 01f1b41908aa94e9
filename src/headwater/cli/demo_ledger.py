"""The demo's ledger: what the processes reported, held against what the log holds.

What it is: ``Ledger`` adds up reports; its ``problems`` are sentences about promises that were not kept.
Invariants: nothing is taken on trust. Every offset must have been seen by some consumer; every acknowledged batch must
be in the log, every order once; every message accepted once or dead. An acceptance that a killed worker announced and
had no time to confirm counts if nobody else accepted the message.
Not here: the processes (``demo_parts.py``); showing the result (``demo_screen.py``).
Read next: ``demo.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from headwater.cli.demo_parts import BULK_ROWS, EMAIL_ROWS, NUMBERS, POISON_EVERY, PRODUCERS, STEADY_ROWS

ROWS_PER_BATCH = {"web": STEADY_ROWS, "mobile": STEADY_ROWS, "bulk": BULK_ROWS, "mailer": EMAIL_ROWS}


class Ledger:
    """Everything that was reported."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, int] = {}  # producer -> its last acknowledged batch
        self.seen: dict[int, list[tuple[int, int]]] = {}  # partition -> offset ranges, as they were seen
        self.accepted: Counter[int] = Counter()
        self.announced: dict[str, set[int]] = {}  # worker -> what it is about to accept
        self.unconfirmed: set[int] = set()
        self.wakes: list[tuple[int, int]] = []  # (when it was appended, microseconds until it was seen)
        self.members: dict[str, str] = {}  # consumer -> its id in the group
        self.ready: set[str] = set()
        self.busy: set[str] = set()  # consumers and workers that have got something
        self.fenced = 0
        self.resumed_at: dict[str, int] = {}

    def note(self, name: str, facts: Mapping[str, Any]) -> None:
        """Enter one report."""
        if "ready" in facts:
            self.ready.add(name)
            self.members[name] = facts.get("member", name)
            self.resumed_at[name] = facts.get("resumed_at", 0)
        if "acknowledged" in facts:
            self.acknowledged[name] = facts["acknowledged"]
        if "seen" in facts or "accepting" in facts or "released" in facts:
            self.busy.add(name)
        if "seen" in facts:
            partition, first, following = facts["seen"]
            self.seen.setdefault(partition, []).append((first, following))
            self.wakes += [(moment, took) for moment, took in facts["wakes"]]
        if "accepting" in facts:
            self.announced[name] = set(facts["accepting"])
        if "accepted" in facts:
            self.accepted.update(facts["accepted"])
            self.announced.pop(name, None)
        self.fenced += "fenced" in facts

    def note_killed(self, name: str) -> None:
        """A process was killed: what it announced last may or may not have happened."""
        self.ready.discard(name)
        self.unconfirmed |= self.announced.pop(name, set())

    # Consumers

    def coverage(self, ends: Mapping[int, int]) -> tuple[int, int]:
        """How many offsets nobody saw, and how many were seen again."""
        skipped = again = 0
        for partition, end in ends.items():
            reached = 0
            for first, following in sorted(self.seen.get(partition, [])):
                skipped += max(0, first - reached)
                again += max(0, min(reached, following) - first)
                reached = max(reached, following)
            skipped += max(0, end - reached)
        return skipped, again

    # Producers

    def orders(self, ids: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[int, int]:
        """Of the orders in the log: how many acknowledged ones are missing, and how many are there twice."""
        missing = twice = 0
        for place, name in enumerate(PRODUCERS):
            numbers = ids[ids // NUMBERS == place] % NUMBERS
            expected = (self.acknowledged[name] + 1) * ROWS_PER_BATCH[name] if name in self.acknowledged else 0
            there = np.unique(numbers)
            twice += len(numbers) - len(there)
            missing += expected - int(np.count_nonzero(there < expected))
        return missing, twice

    # Workers

    def emails(self) -> tuple[int, int, int]:
        """How many messages can be done, how many were accepted, and how many more than once."""
        count = (self.acknowledged.get("mailer", -1) + 1) * EMAIL_ROWS
        accepted = set(self.accepted) | self.unconfirmed
        twice = sum(1 for times in self.accepted.values() if times > 1)
        return count - self.poison, len(accepted), twice

    @property
    def poison(self) -> int:
        """How many messages cannot be done."""
        count = (self.acknowledged.get("mailer", -1) + 1) * EMAIL_ROWS
        return sum(1 for number in range(count) if number % POISON_EVERY == 1)

    # Waking

    def wake_ms(self, *, before_us: int | None = None, since_us: int | None = None) -> dict[str, Any]:
        """From the append in one process to the row in another: the median and the 99th percentile."""
        took = [
            microseconds / 1000
            for moment, microseconds in self.wakes
            if (before_us is None or moment < before_us) and (since_us is None or moment >= since_us)
        ]
        if not took:
            return {"p50": None, "p99": None, "samples": 0}
        p50, p99 = np.percentile(took, [50, 99])
        return {"p50": round(float(p50), 2), "p99": round(float(p99), 2), "samples": len(took)}
