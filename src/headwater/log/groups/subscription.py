"""Subscriptions: one consumer of several topics.

What it is: ``Subscription`` holds a ``Consumer`` for each of some topics, or of all that fit a pattern, in groups of
one name; topics that are made later and fit are joined as they appear.
Invariants: those of consumer groups, topic by topic: order and ownership by partition, positions by topic and group.
Topics take turns, so a busy one does not starve the others. Between topics there is no order.
Not here: one topic (``consumer.py``). Read next: ``consumer.py``.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from headwater.durations import Duration, to_timeout
from headwater.errors import ClosedError, Fenced, HeadwaterError, Misuse
from headwater.log.batch import Batch
from headwater.log.groups.consumer import SLICE_S, Consumer, ConsumerOptions

if TYPE_CHECKING:
    from headwater.log.home import Log

LOOK_S = 1.0  # new topics are looked for so often
SLICE_WHILE_JOINING_S = 0.05


class Subscription:
    """A consumer of several topics; made by ``log.subscribe(topics, group)``.

    ``topics``: names, or one pattern as in file names: ``"orders.*"``. Topics whose names begin with ``_`` are
    Headwater's own and fit no pattern. A batch says its topic: ``batch.topic``.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> for country in ("at", "de"):
    ...     _ = log.topic(f"orders.{country}", "id BIGINT").append([{"id": 1}])
    >>> with log.subscribe("orders.*", "billing") as subscription:
    ...     batches = [subscription.poll(timeout=5) for _ in range(2)]
    ...     subscription.commit()
    >>> sorted(batch.topic for batch in batches)
    ['orders.at', 'orders.de']
    """

    def __init__(self, log: Log, topics: str | Sequence[str], group: str, **options: Unpack[ConsumerOptions]) -> None:
        self.group = group
        self._log = log
        self._options = options
        self._pattern = topics if isinstance(topics, str) else None
        names = [] if isinstance(topics, str) else list(dict.fromkeys(topics))
        if not topics:
            raise Misuse("a subscription needs a topic", hint='Give names, or a pattern such as "orders.*".')
        self._consumers: dict[str, Consumer] = {}
        self._turn = 0
        self._closed = False
        self._looked = float("-inf")
        try:
            for name in names:
                self._consumers[name] = log.get_topic(name).consumer(group, **options)
            self._look()
        except HeadwaterError:
            self.close()
            raise

    # -- reading ---------------------------------------------------------------------------------------------------

    def poll(self, timeout: Duration | None = None) -> Batch | None:
        """The next batch of any topic, or None after ``timeout`` (None: wait for ever)."""
        clock, waker = self._log.clock, self._log.waker
        seconds = to_timeout(timeout)
        deadline = None if seconds is None else clock.monotonic() + seconds
        while True:
            self._require_open()
            self._look()
            count = waker.count()  # before looking: what comes later moves it
            batch = self._next_batch()
            if batch is not None:
                return batch
            pending = any(consumer.is_pending for consumer in self._consumers.values())
            slice_s = SLICE_WHILE_JOINING_S if pending else SLICE_S
            if deadline is not None:
                slice_s = min(slice_s, deadline - clock.monotonic())
            if slice_s <= 0:
                return None
            waker.wait(count, slice_s)

    def __iter__(self) -> Iterator[Batch]:
        """Batches for ever, until the subscription is closed."""
        while not self._closed:
            batch = self.poll(timeout=SLICE_S)
            if batch is not None:
                yield batch

    def _next_batch(self) -> Batch | None:
        names = sorted(self._consumers)
        for step in range(len(names)):
            name = names[(self._turn + step) % len(names)]
            try:
                batch = self._consumers[name].poll(timeout=0)
            except (Fenced, ClosedError):
                if self._log.registry.find(name) is not None:
                    raise
                self._consumers.pop(name)  # the topic was deleted
                continue
            if batch is not None:
                self._turn = (self._turn + step + 1) % len(names)
                return batch
        return None

    def _look(self) -> None:
        """Join topics that fit the pattern and are not joined yet, and watch all of them."""
        now = self._log.clock.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        for name in self._log.registry.names() if self._pattern is not None else ():
            fits = not name.startswith("_") and fnmatchcase(name, self._pattern or "")
            if fits and name not in self._consumers:
                self._consumers[name] = self._log.get_topic(name).consumer(self.group, **self._options)
        for consumer in self._consumers.values():
            for number in range(consumer.topic.settings.partitions):
                self._log.waker.watch(consumer.topic.directory / str(number))

    # -- positions -------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are read now."""
        return tuple(sorted(self._consumers))

    @property
    def assignment(self) -> dict[str, tuple[int, ...]]:
        """The partitions that this member owns, by topic."""
        return {name: self._consumers[name].assignment for name in self.topics}

    def lag(self) -> dict[str, dict[int, int]]:
        """The distance from the position to the end of each owned partition, by topic."""
        return {name: self._consumers[name].lag() for name in self.topics}

    def commit(self, what: Batch | Mapping[str, Mapping[int, int]] | None = None) -> None:
        """Commit positions: of all returned rows, of one batch and all before it in its partition, or by topic.

        All topics are one transaction: ``Fenced`` in one commits none. ``Transaction.commit`` takes a subscription too.
        """
        enter = self.commit_in(what)
        with self._log.catalog.write() as db:
            settled = enter(db)
        settled()

    def commit_in(
        self, what: Batch | Mapping[str, Mapping[int, int]] | None = None
    ) -> Callable[[sqlite3.Connection], Callable[[], None]]:
        """The same commit as a part of a transaction: it is called inside, and what it returns afterwards."""
        self._require_open()
        if isinstance(what, Batch):
            return self._consumer(what.topic).commit_in(what)
        if what is None:
            enters = [consumer.commit_in() for consumer in self._consumers.values()]
        else:
            enters = [self._consumer(name).commit_in(offsets) for name, offsets in what.items()]

        def enter(db: sqlite3.Connection) -> Callable[[], None]:
            settled = [each(db) for each in enters]

            def settle() -> None:
                for each in settled:
                    each()

            return settle

        return enter

    def _consumer(self, topic: str) -> Consumer:
        if topic not in self._consumers:
            raise Misuse(f'this subscription does not read topic "{topic}"', hint=f"It reads: {', '.join(self.topics)}")
        return self._consumers[topic]

    # -- membership ------------------------------------------------------------------------------------------------

    def close(self, *, commit: bool | None = None) -> None:
        """Leave all groups; the others take over at once. Commits first with ``auto_commit`` (or ``commit``)."""
        self._closed = True
        with contextlib.ExitStack() as stack:  # all of them, also when one fails
            for consumer in self._consumers.values():
                stack.callback(consumer.close, commit=commit)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A handler that failed has not finished its batch: auto_commit must not commit that one.
        self.close(commit=False if kind is not None else None)

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError(f'this subscription of group "{self.group}" was closed', hint="Make a new one.")

    def __repr__(self) -> str:
        return f"<Subscription of {self.group} to {', '.join(self.topics) or self._pattern}>"
