"""A home in which everything is at work: writers, transactions, sealing, compaction, retention.

What it is: ``BusyHome``, whose threads write rows that tell by themselves what a cut must hold.
Invariants: in each topic of one partition the row at offset n has the number n, so that a restored log is compared with
the token alone, whatever the code under test says.
Not here: the tests. Read next: ``test_backup_is_a_cut.py``.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

from headwater.log.home import Log
from headwater.log.token import Token

KEYS = 7
SMALL = {"segment_bytes_max": 64 << 10, "fsync": "never"}


class BusyHome:
    """Four writers and two that maintain, until the block ends."""

    def __init__(self, home: Path, seed: int, *, compact: bool = True) -> None:
        self.random = random.Random(seed)
        self.log = Log(home, maintenance_interval=None)
        self.plain = self.log.topic("plain", "n BIGINT, filling STRING", **SMALL)
        self.compacted = self.log.topic("compacted", "k BIGINT, n BIGINT", key="k", compact=compact, **SMALL)
        self.passing = self.log.topic("passing", "n BIGINT, filling STRING", retention_bytes=20_000, **SMALL)
        self.debits = self.log.topic("debits", "n BIGINT", partitions=3, **SMALL)
        self.credits = self.log.topic("credits", "n BIGINT", **SMALL)
        self.causes = self.log.topic("causes", "n BIGINT", **SMALL)
        self.effects = self.log.topic("effects", "n BIGINT", partitions=2, **SMALL)
        for topic in self.log.topics():
            topic.open_partitions()
        self.failed: list[BaseException] = []
        self._over = threading.Event()
        works = (self._rows, self._transfers, self._causes, self._maintain, self._roll)
        self._threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]

    def __enter__(self) -> BusyHome:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.log.close()
        if self.failed:
            raise self.failed[0]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.failed.append(error)

    def _rows(self) -> None:
        n = 0
        while not self._over.wait(0.002):
            count = self.random.randint(1, 50)
            numbers = range(n, n + count)
            self.plain.append([{"n": m, "filling": "x" * 200} for m in numbers])
            self.passing.append([{"n": m, "filling": "y" * 200} for m in numbers])
            self.compacted.append([{"k": m % KEYS, "n": m} for m in numbers])
            n += count

    def _transfers(self) -> None:
        n = 0
        while not self._over.wait(0.002):
            with self.log.transaction() as t:
                t.append(self.debits, [{"n": n}])
                t.append(self.credits, [{"n": n}])
                t.store_position("transfers", before=None if n == 0 else str(n), after=str(n + 1))
            n += 1

    def _causes(self) -> None:
        n = 0
        while not self._over.wait(0.002):
            self.causes.append([{"n": n}])
            self.effects.append([{"n": n}])
            n += 1

    def _maintain(self) -> None:
        while not self._over.wait(self.random.random() * 0.05):
            report = self.log.maintain()
            assert report.ok, str(report)

    def _roll(self) -> None:
        while not self._over.wait(self.random.random() * 0.1):
            topic = self.random.choice(self.log.topics())
            topic.partition(self.random.randrange(topic.settings.partitions)).roll()


def assert_is_the_log_at(home: Path, token: Token, *, positions: bool = True) -> None:
    """Compare a restored home with what the writers of ``BusyHome`` must have written up to a token.

    ``positions``: those in foreign sources are of this very moment, not of an earlier one.
    """
    with Log(home, maintenance_interval=None) as log:
        report = log.check()
        assert report.ok, str(report)
        assert log.recoveries == []
        numbers = {}
        for topic in log.topics():
            assert topic.end_offsets() == token.frontier[topic.name], topic.name
            read = topic.read("earliest", columns=["n", "_offset"])
            numbers[topic.name] = [(row["n"], row["_offset"]) for batch in read for row in batch.to_pylist()]
        for name in ("plain", "causes", "credits"):
            assert numbers[name] == [(n, n) for n in range(token.frontier[name][0])]
        start = log.get_topic("passing").start_offsets()[0]
        assert numbers["passing"] == [(n, n) for n in range(start, token.frontier["passing"][0])]
        latest = {n % KEYS: n for n in range(token.frontier["compacted"][0])}
        assert {n % KEYS: n for n, _ in numbers["compacted"]} == latest

        # Whole transactions, with the position that each of them stored.
        transfers = sorted(n for n, _ in numbers["debits"])
        assert transfers == [n for n, _ in numbers["credits"]]
        position = log.stored_position("transfers")
        known = 0 if position is None else int(position)
        assert known == len(transfers) if positions else known <= len(transfers)
        # No effect without its cause, and all effects but the newest.
        effects = sorted(n for n, _ in numbers["effects"])
        assert effects == list(range(len(effects)))
        assert len(numbers["causes"]) - len(effects) in (0, 1)
