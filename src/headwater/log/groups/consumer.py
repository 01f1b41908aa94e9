"""Consumers: members of a consumer group, which read whole partitions in order.

What it is: joining, heartbeats, polling, committing and handing over partitions, with the semantics of Kafka's consumer
groups. There is no coordinator: every step is a transaction on the catalog.
Invariants: a partition has one owner at a time, and only the owner commits (others are ``Fenced``, and nothing
changes); a new owner starts at the committed offset, so after a crash no row is skipped and at most the uncommitted
tail is seen twice; a commit never goes back, except after ``seek`` or a group's reset.
Not here: membership (``members.py``), assignment (``assignment.py``), reset (``groups.py``), single messages
(``worker.py``). Read next: ``members.py``, then ``assignment.py``.

An owner keeps a partition that is assigned to another member until every batch it returned from it is committed (with
``auto_commit``: until its next poll) and returns no more of it; at a poll ``session_timeout`` later it gives the
partition up anyway. A hanging handler keeps its partitions while its process lives: heartbeats come from a thread.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict

from headwater.durations import Duration, to_seconds, to_timeout
from headwater.errors import ClosedError, Fenced, HeadwaterError, Misuse, OffsetOutOfRange
from headwater.log.catalog.catalog import Catalog
from headwater.log.groups.assignment import TABLES_ASSIGNMENTS
from headwater.log.groups.groups import open_group, resolve_place
from headwater.log.groups.members import TABLES_MEMBERS, Member
from headwater.log.topic_reader import Place
from headwater.log.topic_settings import check_name

if TYPE_CHECKING:
    from headwater.log.batch import Batch
    from headwater.log.topic import Topic

TABLES_CONSUMERS = TABLES_MEMBERS + TABLES_ASSIGNMENTS

# Waits are cut into slices; a rebalance is noticed after each.
SLICE_S = 1.0
SLICE_WHILE_PENDING_S = 0.05


class ConsumerOptions(TypedDict, total=False):
    """What ``Topic.consumer`` takes by keyword: what ``Consumer`` does.

    >>> options: ConsumerOptions = {"member": "till", "rows_max": 100}
    """

    member: str | None
    start: Place
    session_timeout: Duration
    auto_commit: bool
    columns: Iterable[str] | None
    rows_max: int | None
    background: bool


class Consumer:
    """One member of a consumer group; made by ``topic.consumer(group)``.

    ``start`` applies only to a new group. ``member`` is a static member name: a second consumer of the same name takes
    over the first one's partitions at once, and the first is fenced. With ``background=False`` heartbeats are sent by
    ``poll``, ``commit`` and ``heartbeat`` only.

    >>> import tempfile
    >>> from headwater.log.home import Log
    >>> log = Log(tempfile.mkdtemp())
    >>> orders = log.topic("orders", "order_id BIGINT", partitions=1)
    >>> _ = orders.append([{"order_id": 1}, {"order_id": 2}])
    >>> with orders.consumer("billing") as consumer:
    ...     batch = consumer.poll(timeout=5)
    ...     consumer.commit(batch)
    ...     consumer.assignment, consumer.generation, consumer.position(), consumer.heartbeat()
    ((0,), 1, {0: 2}, True)
    >>> batch.to_pylist()
    [{'order_id': 1}, {'order_id': 2}]
    >>> orders.group("billing").lag()
    {0: 0}
    >>> consumer = orders.consumer("billing", member="till")
    >>> consumer.seek("earliest")
    >>> consumer.member, consumer.poll(timeout=5).num_rows
    ('till-...', 2)
    >>> consumer.close()
    """

    def __init__(
        self,
        topic: Topic,
        group: str,
        *,
        member: str | None = None,
        start: Place = "earliest",
        session_timeout: Duration = "10 seconds",
        auto_commit: bool = False,
        columns: Iterable[str] | None = None,
        rows_max: int | None = None,
        background: bool = True,
    ) -> None:
        session_s = to_seconds(session_timeout, what="session_timeout")
        if session_s == 0:
            raise Misuse(f"session_timeout must be more than 0 seconds, not {session_timeout}")
        if rows_max is not None and rows_max < 1:
            raise Misuse(f"rows_max must be at least 1, not {rows_max}")
        if member is not None:
            check_name("member", member)
        self.topic = topic
        self.group = group
        self.session_timeout = session_s
        self.auto_commit = auto_commit
        self._columns = list(columns) if columns is not None else None
        self._rows_max = rows_max
        self._catalog: Catalog = topic.log.catalog
        self._clock = topic.clock
        self._group_id = open_group(topic, group, kind="consumer", start=start)
        self._member = Member(topic, group, self._group_id, name=member, session_timeout=session_s)
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._turn = 0
        self._forget()
        self._member.join()
        self._look()
        if background:
            arguments = (weakref.ref(self), self._closed, session_s / 3)
            threading.Thread(target=_beat, args=arguments, name=f"headwater-{self.member}", daemon=True).start()

    # The member's own state. Rows between committed and position were returned and are not committed.
    def _forget(self) -> None:
        self._position: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._sought: set[int] = set()
        self._leaving: dict[int, float] = {}  # partition -> the time at which it is given up at the latest
        self._pending = False  # a partition is assigned to this member, and its owner has not released it yet
        self._readers: dict[int, Iterator[Batch]] = {}

    # -- reading ---------------------------------------------------------------------------------------------------

    def poll(self, timeout: Duration | None = None) -> Batch | None:
        """The next batch of one of the owned partitions, or None after ``timeout`` (None: wait for ever).

        An evicted member joins again here, as a new member, and drops its uncommitted positions.
        """
        self._require_open()
        if self.auto_commit:
            # The new owner reads an evicted member's uncommitted rows again; nothing is undone here.
            with contextlib.suppress(Fenced):
                self.commit()
        seconds = to_timeout(timeout)
        deadline = None if seconds is None else self._clock.monotonic() + seconds
        while True:
            with self._lock:
                self._keep_up()
                batch = self._next_batch()
                if batch is not None:
                    return batch
                seen = {p: offset for p, offset in self._position.items() if p not in self._leaving}
                pending = self._pending or bool(self._leaving)
            slice_s = min(SLICE_WHILE_PENDING_S if pending else SLICE_S, self.session_timeout / 3)
            if deadline is not None:
                slice_s = min(slice_s, deadline - self._clock.monotonic())
            if slice_s <= 0 or self._closed.is_set():
                return None
            if seen:
                self.topic.wait(seen, timeout=slice_s)
            else:
                self._closed.wait(slice_s)

    def __iter__(self) -> Iterator[Batch]:
        """Batches for ever, until the consumer is closed."""
        while not self._closed.is_set():
            batch = self.poll(timeout=SLICE_S)
            if batch is not None:
                yield batch

    def _next_batch(self) -> Batch | None:
        ends = self.topic.end_offsets()
        order = sorted(p for p in self._position if p not in self._leaving)
        for step in range(len(order)):
            partition = order[(self._turn + step) % len(order)]
            batch = self._read(partition, ends[partition])
            if batch is not None:
                self._turn = (self._turn + step + 1) % len(order)
                return batch
        return None

    def _read(self, partition: int, end: int) -> Batch | None:
        position = self._position[partition]
        if position > end:
            raise self._out_of_range(partition, position)
        if position == end:
            return None
        reader = self._readers.pop(partition, None)
        try:
            batch = next(reader, None) if reader is not None else None
            if batch is None:
                reader = self.topic.read_partition(partition, position, columns=self._columns, rows_max=self._rows_max)
                batch = next(reader, None)
        except OffsetOutOfRange as error:
            raise self._out_of_range(partition, position) from error
        if batch is None:
            # Compaction removed everything from here to the end as it was before we looked.
            self._position[partition] = end
            return None
        assert reader is not None
        self._readers[partition] = reader
        self._position[partition] = batch.next_offset
        # Where compaction removed all rows, a batch only says where to go on.
        return batch if batch.num_rows else self._read(partition, end)

    def _out_of_range(self, partition: int, position: int) -> OffsetOutOfRange:
        start, end = self.topic.start_offsets()[partition], self.topic.end_offsets()[partition]
        where = f'the end of topic "{self.topic.name}"' if position > end else f'the start of topic "{self.topic.name}"'
        return OffsetOutOfRange(
            f"offset {position} of group {self.group} is {'after' if position > end else 'before'} {where}"
            f" partition {partition}",
            detail=f"The partition holds {start} up to, not including, {end}.",
            hint=f"Reset with: headwater group reset {self.group} --topic {self.topic.name} --to earliest",
            topic=self.topic.name,
            group=self.group,
            partition=partition,
            offset=position,
            start=start,
            end=end,
        )

    @property
    def member(self) -> str:
        """This member's id; a new one after each join."""
        return self._member.id

    @property
    def generation(self) -> int:
        """The group's generation, as of the last poll or heartbeat."""
        return self._member.generation

    @property
    def is_pending(self) -> bool:
        """Whether partitions are about to come to this member, or to leave it."""
        return self._pending or bool(self._leaving)

    # -- positions -------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> tuple[int, ...]:
        """The partitions this member owns, as of its last poll or heartbeat."""
        return tuple(sorted(self._position))

    def position(self) -> dict[int, int]:
        """The next offset of each owned partition."""
        return dict(sorted(self._position.items()))

    def lag(self) -> dict[int, int]:
        """The distance from the position to the end of each owned partition, in offsets."""
        ends = self.topic.end_offsets()
        return {partition: max(0, ends[partition] - offset) for partition, offset in self.position().items()}

    def commit(self, what: Batch | Mapping[int, int] | None = None) -> None:
        """Commit positions: of all returned rows, of one batch and all before it, or ``{partition: offset}``.

        All or, when one partition is no longer owned, nothing (``Fenced``). An offset below the committed one changes
        nothing, unless the owner has called ``seek``.
        """
        self._require_open()
        with self._lock:
            offsets = self._commit_offsets(what)
            if not offsets:
                return
            with self._catalog.write() as db:
                self._store(db, offsets)
            self._stored(offsets)

    def commit_in(
        self, what: Batch | Mapping[int, int] | None = None
    ) -> Callable[[sqlite3.Connection], Callable[[], None]]:
        """The same commit as a part of a transaction: it is called inside, and what it returns afterwards."""
        self._require_open()
        with self._lock:
            offsets = self._commit_offsets(what)

        def enter(db: sqlite3.Connection) -> Callable[[], None]:
            self._store(db, offsets)
            return lambda: self._stored(offsets)

        return enter

    def _store(self, db: sqlite3.Connection, offsets: Mapping[int, int]) -> None:
        now_us = self._clock.now_us()
        self._member.require_ownership(db, offsets)
        for partition, offset in offsets.items():
            back = partition in self._sought
            db.execute(
                "UPDATE positions SET offset = ?, committed_us = ?"
                " WHERE group_id = ? AND partition = ? AND (offset < ? OR ?)",
                (offset, now_us, self._group_id, partition, offset, back),
            )
        self._member.refresh(db, now_us)

    def _stored(self, offsets: Mapping[int, int]) -> None:
        with self._lock:
            for partition, offset in offsets.items():
                back = partition in self._sought
                self._committed[partition] = offset if back else max(offset, self._committed.get(partition, offset))
                self._sought.discard(partition)
            self._revoke()

    def _commit_offsets(self, what: Batch | Mapping[int, int] | None) -> dict[int, int]:
        if what is None:
            return {p: at for p, at in self._position.items() if at > self._committed[p] or p in self._sought}
        if isinstance(what, Mapping):
            return resolve_place(self.topic, what)
        return {what.partition: what.next_offset}

    def seek(self, to: Place) -> None:
        """Continue at another position: "earliest", "latest", an offset, offsets by partition, a time.

        It becomes the group's position with the next commit, also when it is lower than before.
        """
        self._require_open()
        with self._lock:
            self._keep_up()
            offsets = resolve_place(self.topic, to)
            foreign = [p for p in offsets if p not in self._position]
            if foreign and isinstance(to, Mapping):
                raise Misuse(
                    f"this consumer cannot seek in partitions {foreign}: it does not own them",
                    detail=f"It owns {list(self.assignment)}.",
                )
            for partition in self._position:
                if partition in offsets:
                    self._position[partition] = offsets[partition]
                    self._readers.pop(partition, None)
                    self._sought.add(partition)

    # -- membership ------------------------------------------------------------------------------------------------

    def heartbeat(self) -> bool:
        """Send a heartbeat and evict expired members; False when this member was itself evicted."""
        with self._lock:
            if self._closed.is_set() or not self._member.beat():
                return False
            self._look()
            return True

    def close(self, *, commit: bool | None = None) -> None:
        """Leave the group; the others take over at once. Commits first with ``auto_commit`` (or ``commit``)."""
        with self._lock:
            if self._closed.is_set():
                return
            try:
                if self.auto_commit if commit is None else commit:
                    with contextlib.suppress(Fenced):
                        self.commit()
            finally:
                self._closed.set()
                self._readers.clear()
                self._member.leave()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A handler that failed has not finished its batch: auto_commit must not commit that one.
        self.close(commit=False if kind is not None else None)

    def __repr__(self) -> str:
        places = " ".join(f"{self.topic.name}[{p}]@{offset}" for p, offset in self.position().items())
        return f"<Consumer {self.member} of {self.group}, generation {self.generation}: {places or 'no partitions'}>"

    def _keep_up(self) -> None:
        """The first step of every poll: one SELECT when nothing has changed."""
        present, rebalanced = self._member.look()
        if not present:
            self._member.rejoin()
            self._forget()
            self._look()
        elif self._member.beat_is_due():
            self.heartbeat()
        elif rebalanced or self._pending:
            self._look()
        if self._leaving:
            self._revoke(waited=True)

    def _look(self) -> None:
        """Learn our shares; take up new partitions at the committed offset."""
        shares = self._member.shares()
        owned = {share.partition for share in shares if share.owned}
        for share in shares:
            if not share.owned:
                continue
            if share.partition not in self._position:
                self._position[share.partition] = self._committed[share.partition] = share.committed
            if share.wanted:
                self._leaving.pop(share.partition, None)
            else:
                self._leaving.setdefault(share.partition, self._clock.monotonic() + self.session_timeout)
        for partition in [p for p in self._position if p not in owned]:
            self._drop(partition)
        self._pending = any(not share.owned for share in shares)
        self._revoke()

    def _revoke(self, *, waited: bool = False) -> None:
        """Hand over what others are to have, once nothing of it is uncommitted.

        ``waited``: or once its time is up; asked by poll only, since a handler at work is not to be robbed.
        """
        for partition, latest in list(self._leaving.items()):
            settled = self._position[partition] <= self._committed[partition] and partition not in self._sought
            if settled or (waited and self._clock.monotonic() >= latest):
                self._member.hand_over(partition)
                self._drop(partition)

    def _drop(self, partition: int) -> None:
        self._position.pop(partition, None)
        self._committed.pop(partition, None)
        self._leaving.pop(partition, None)
        self._readers.pop(partition, None)
        self._sought.discard(partition)

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise ClosedError(f'this consumer of group "{self.group}" was closed', hint="Make a new one.")


def _beat(reference: weakref.ref[Consumer], closed: threading.Event, interval: float) -> None:
    """Heartbeats while the user's code is busy. A forgotten consumer is not kept alive by its own heartbeats."""
    while not closed.wait(interval):
        consumer = reference()
        if consumer is None:
            return
        # What goes wrong here (a busy catalog, a closed log) meets the user at the next poll, with its reason.
        with contextlib.suppress(HeadwaterError, sqlite3.Error):
            consumer.heartbeat()
        del consumer
