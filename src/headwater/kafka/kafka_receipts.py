"""Receipts: what a log on Kafka remembers of its writers, in a compacted topic.

What it is: ``KafkaReceipts``, the topic ``<prefix>_headwater.receipts``: the latest message under a key is the last
sequence of a named producer, the answer to a request id, or the position of a reader of a foreign source.
Invariants: a receipt is written in the Kafka transaction of the rows that it is about, so both are there or neither is.
Receipts that must not be decided by two writers at once are in one scope, the first two parts of a key; a scope is a
transactional id, and so has one holder: who begins to write in it shuts the holder before out, and then reads what that
one has committed. A writer that was shut out decides again, on what is there now; whether it may go on is in the
receipt (the epoch of a producer). A commit without a clear answer is looked up, never guessed.
Not here: what receipts say (``kafka_known_writes.py``), transactions (``kafka_transactions.py``).
Read next: ``kafka_known_writes.py``.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headwater.errors import CommitUnsure, LogUnavailable, RowRefused, Unavailable
from headwater.kafka.kafka_address import KafkaAddress
from headwater.kafka.kafka_client import KafkaAdmin
from headwater.kafka.kafka_keys import partitions_of
from headwater.kafka.kafka_ranges import RangeReader
from headwater.kafka.kafka_transactions import KafkaRecord, KafkaTransactions, Places, Positions, ProducerFenced

NAME = "_headwater.receipts"
SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": str(24 * 3600 * 1000)}
PARTITIONS = 8  # so that a transaction that stays open holds back few of the writers that begin
HELD_MAX = 32  # scopes that a process holds at once; each is a client of Kafka
ATTEMPTS_MAX = 30
BACKOFF_S = 0.05
SETTLED_SECONDS_MAX = 60.0  # a process that died with an open transaction holds readers back until it times out
WAIT_S = 0.01

Key = tuple[str, ...]  # a kind, who or where, and what
Scope = tuple[str, str]
Receipt = dict[str, Any]
Notes = Mapping[Key, Receipt | None]  # None forgets it


@dataclass(frozen=True)
class NotedWrite:
    """Messages to be written, and what is noted with them, once their places are known."""

    records: Iterable[tuple[str, KafkaRecord]]
    notes: Callable[[Places], Notes]
    positions: Positions | None = None


class Remembered:
    """Receipts of one partition of the topic as far as they were read, with what their holder wrote since.

    Used under the lock of its scope, but for ``get``.
    """

    def __init__(self, receipts: KafkaReceipts, number: int, wanted: Callable[[Key], bool]) -> None:
        self._receipts = receipts
        self._number = number
        self._wanted = wanted
        self._position: int | None = None
        self._found: dict[Key, Receipt] = {}  # the oldest first

    def get(self, key: Key) -> Receipt | None:
        """The receipt under a key."""
        return self._found.get(key)

    def oldest(self, count: int) -> list[tuple[Key, Receipt]]:
        """Those that were written first."""
        return list(islice(self._found.items(), count))

    def all(self) -> dict[Key, Receipt]:
        """Every one of them."""
        return dict(self._found)

    def note(self, notes: Notes) -> None:
        """Take over what was committed. It is read again later, in the same order, so nothing becomes older by it."""
        for key, receipt in notes.items():
            self._found.pop(key, None)
            if receipt is not None:
                self._found[key] = receipt

    def catch_up(self, *, settled: bool) -> Remembered:
        """Read on; ``settled``: with everything that was written before this call."""
        receipts, number = self._receipts, self._number
        end = receipts.end(number, committed=not settled)
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        # Transactions of other scopes may be open before ``end``: they are over soon, or time out.
        while settled and receipts.end(number, committed=True) < end:
            if time.monotonic() > deadline:
                raise LogUnavailable(f'a transaction is open in Kafka topic "{receipts.topic}"', hint="Try again.")
            time.sleep(WAIT_S)
        start = receipts.start(number) if self._position is None else self._position
        for key, value in receipts.messages(number, start, end):
            if self._wanted(key):
                self.note({key: value})
        self._position = max(start, end)
        return self


# What is to be written, decided on the receipts; None when there is nothing to write.
Decide = Callable[[Remembered], NotedWrite | None]


class KafkaReceipts:
    """The receipts of one log, for the threads of a process."""

    def __init__(self, address: KafkaAddress, admin: KafkaAdmin) -> None:
        self.topic = address.prefix + NAME
        self.address = address
        self._admin = admin
        self._lock = threading.Lock()
        self._scopes: OrderedDict[Scope, _HeldScope] = OrderedDict()
        self._reading = threading.Lock()
        self._reader: RangeReader | None = None
        self._exists = False

    def write(self, scope: Scope, decide: Decide) -> Places:
        """Write what ``decide`` makes of the receipts of a scope; the places of the messages, none where nothing was.

        ``decide`` is called again when another process wrote in the scope meanwhile.
        """
        self._make()
        for attempt in range(ATTEMPTS_MAX):
            with self._held(scope) as held:
                try:
                    return held.write(decide)
                except (ProducerFenced, CommitUnsure):
                    pass  # the hold is over: the next attempt reads what is there
            time.sleep(random.uniform(0, BACKOFF_S * min(attempt, 10)))
        raise Unavailable(
            f'other processes write all the time under "{scope[1]}" in the log at {self.address.shown}',
            hint="Try again; or give each process a producer name, or a topic, of its own.",
        )

    def look(self, scope: Scope) -> Remembered:
        """The receipts of a scope as they are for its holder, or were a moment ago, for who only looks."""
        with self._held(scope) as held:
            return held.look() if self._found() else held.remembered

    def all(self, kind: str) -> dict[Key, Receipt]:
        """All receipts of a kind, of all scopes."""
        if not self._found():
            return {}
        found: dict[Key, Receipt] = {}
        for number in range(PARTITIONS):
            found |= Remembered(self, number, lambda key: key[0] == kind).catch_up(settled=False).all()
        return found

    def forget(self, kind: str, wanted: Callable[[Key], bool]) -> None:
        """Delete receipts, such as those of a topic that is gone."""
        for scope in {(key[0], key[1]) for key in self.all(kind) if wanted(key)}:
            self.write(scope, lambda seen: NotedWrite((), lambda _: {key: None for key in seen.all() if wanted(key)}))

    def _held(self, scope: Scope) -> _HeldScope:
        with self._lock:
            held = self._scopes.get(scope)
            if held is None:
                held = self._scopes[scope] = _HeldScope(self, scope)
            self._scopes.move_to_end(scope)
            for other in list(self._scopes)[: max(0, len(self._scopes) - HELD_MAX)]:
                if self._scopes[other].given_up():
                    del self._scopes[other]
        return held

    def _found(self) -> bool:
        self._exists = self._exists or self._admin.find(self.topic) is not None
        return self._exists

    def _make(self) -> None:
        if self._found():
            return
        self._admin.create(self.topic, PARTITIONS, self.address.replicas, SETTINGS)
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while not self._found():
            if time.monotonic() > deadline:
                raise LogUnavailable(f'Kafka has made topic "{self.topic}" and does not show it', hint="Try again.")
            time.sleep(WAIT_S)

    # Reading, for ``Remembered``

    def start(self, number: int) -> int:
        """The start of one partition."""
        return self._admin.starts(self.topic, [number])[number]

    def end(self, number: int, *, committed: bool) -> int:
        """The end of one partition: of what is committed, or of everything."""
        return self._admin.ends(self.topic, [number], committed=committed)[number]

    def messages(self, number: int, start: int, end: int) -> Iterator[tuple[Key, Receipt | None]]:
        """What was written from one offset of a partition up to another."""
        with self._reading:
            if self._reader is None:
                self._reader = RangeReader(self.address.cluster, self.topic)
            for messages in self._reader.read(number, start, end):
                for message in messages:
                    value = message.value()
                    yield tuple(json.loads(message.key())), None if value is None else json.loads(value)

    def close(self) -> None:
        """Leave the cluster."""
        with self._lock:
            for held in self._scopes.values():
                held.close()
            self._scopes.clear()
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None


class _HeldScope:
    """One scope. It is held from its first write on, until another process takes it."""

    def __init__(self, receipts: KafkaReceipts, scope: Scope) -> None:
        self._receipts = receipts
        self._scope = scope
        self._number = part_of(scope)
        self._lock = threading.Lock()
        self._producer: KafkaTransactions | None = None
        self.remembered = Remembered(receipts, self._number, lambda key: key[:2] == scope)

    def __enter__(self) -> _HeldScope:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def look(self) -> Remembered:
        """The receipts; of a scope that is not held they are read first."""
        return self.remembered if self._producer is not None else self.remembered.catch_up(settled=False)

    def write(self, decide: Decide) -> Places:
        """Write what is decided; an error of Kafka's ends the hold."""
        topic, notes = self._receipts.topic, dict[Key, Receipt | None]()
        producer = self._begun()
        wanted = decide(self.remembered)
        if wanted is None:
            return {}

        def noted(places: Places) -> Iterator[tuple[str, KafkaRecord]]:
            notes.update(wanted.notes(places))
            for key, receipt in notes.items():
                value = None if receipt is None else json.dumps(receipt).encode()
                yield topic, KafkaRecord(json.dumps(key).encode(), value, self._number)

        try:
            places = producer.commit(wanted.records, wanted.positions, noted)
        except BaseException:
            self.close()
            raise
        self.remembered.note(notes)
        return {place: offset for place, offset in places.items() if place[0] != topic}

    def _begun(self) -> KafkaTransactions:
        if self._producer is None:
            address = self._receipts.address
            self._producer = KafkaTransactions(
                address.cluster,
                f"headwater/{self._receipts.topic}/{'/'.join(self._scope)}",
                address.transaction_timeout_ms,
                refused=RowRefused,
                linger_ms=2,
            )
            try:
                self._producer.begin()  # what the holder before had open is over when this returns
                self.remembered.catch_up(settled=True)
            except BaseException:
                self.close()
                raise
        return self._producer

    def given_up(self) -> bool:
        """Let go of the scope, unless a thread writes in it."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.close()
        finally:
            self._lock.release()
        return True

    def close(self) -> None:
        """Let go of the scope; the next write begins anew."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None


def part_of(scope: Scope) -> int:
    """The partition of a scope's receipts.

    >>> part_of(("producer", "importer")) == part_of(("producer", "importer"))
    True
    """
    return int(partitions_of([json.dumps(scope).encode()], PARTITIONS)[0])
