"""Workers: members of a work group, which take and acknowledge single messages.

What it is: taking messages on a lease, and accept, release, reject and renew, with the semantics of Kafka's share
groups (KIP-932). A group may have more workers than partitions.
Invariants: a message is leased to one worker at a time and settled once: accepted or given up. Deliveries are counted
when they begin, so a message that kills its workers is given up after ``deliveries_max`` too.
Not here: whole partitions in order (``consumer.py``); the tables (``leases.py``).
Read next: ``messages.py``, ``leases.py``, then ``dead_letters.py``.

Order: returned messages first (the longest waiting before the others), then new ones in offset order in each partition,
partitions round-robin. The order in which several workers *finish* messages is undefined, unless the group is
``ordered_by`` a column: then messages of one value are finished in order, one at a time (``staging.py``). Offsets that
compaction removed are skipped; tombstones are delivered (``message.deleted``). Messages that retention removed before
they were taken are skipped and counted as ``missed`` in the group's description.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict

from headwater.durations import Duration, to_seconds, to_timeout, to_us
from headwater.errors import ClosedError, Fenced, InvalidDeclaration, LeaseLost, Misuse
from headwater.log.catalog.catalog import Catalog
from headwater.log.groups.dead_letters import TABLE_DEAD_LETTERS, DeadLetter, bury, dead_letter_topic, post
from headwater.log.groups.groups import open_group
from headwater.log.groups.leases import NEVER_US, TABLES_LEASES, Lease, Leases, given_up_reason
from headwater.log.groups.members import new_id
from headwater.log.groups.messages import Message, MessageReader
from headwater.log.groups.readers import note_departure
from headwater.log.groups.redrive import TABLE_REDRIVES
from headwater.log.groups.staging import TABLE_STAGED, MessageStage
from headwater.log.groups.work_settings import declared_settings, settle_settings
from headwater.log.topic_reader import Place, metadata_at
from headwater.log.topic_settings import check_name

if TYPE_CHECKING:
    from headwater.log.topic import Topic

TABLES_WORKERS = TABLES_LEASES + TABLE_DEAD_LETTERS + TABLE_STAGED + TABLE_REDRIVES

# A worker counts as active for so long after its last take.
SESSION_S = 10.0
# Given-up messages that one take handles, so that it stays short.
BURIALS_MAX = 1000
# The sleep of a waiting worker; releases of other processes are seen after one slice.
SLICE_S = 1.0
SLICE_WHILE_IN_FLIGHT_S = 0.1
SLICE_IN_ORDER_S = 0.02  # the message before it may be settled by another process at any moment
ENDS_AGE_MAX_S = 0.02


class WorkerOptions(TypedDict, total=False):
    """What ``Topic.worker`` takes by keyword: what ``Worker`` does.

    >>> options: WorkerOptions = {"lease": 60.0, "deliveries_max": 3}
    """

    lease: Duration
    deliveries_max: int
    max_in_flight: int
    dead_letter: bool
    retry_delay: Duration
    retry_delay_max: Duration
    deliver_at: str | None
    expires_at: str | None
    priority: str | None
    ordered_by: str | Sequence[str] | None
    name: str | None
    start: Place


class Worker:
    """One member of a work group; made by ``topic.worker(group)``.

    ``lease``: seconds until an unsettled message may be delivered to another worker. ``deliveries_max``: deliveries
    (also those that ended by time-out or release) before a message is given up. ``max_in_flight``: unsettled messages
    of the whole group beyond which no new ones are taken. ``dead_letter=False``: given-up messages are only counted.
    ``retry_delay``: seconds until a released message is delivered again, doubled with each delivery, at most
    ``retry_delay_max``. ``start`` applies only to a new group.

    Columns of the topic that the group looks at, declared by its first worker: ``deliver_at`` (a TIMESTAMP; not before
    then), ``expires_at`` (given up from then on), ``priority`` (the highest first), ``ordered_by`` (one message of a
    value at a time, in order; other values in parallel).

    >>> import tempfile
    >>> from headwater.log.home import Log
    >>> log = Log(tempfile.mkdtemp())
    >>> mails = log.topic("mails", "address STRING", partitions=1)
    >>> _ = mails.append([{"address": "a@example.org"}, {"address": "nobody"}])
    >>> with mails.worker("senders") as worker:
    ...     for message in worker.take(2):
    ...         if "@" in message.row["address"]:
    ...             message.accept()
    ...         else:
    ...             message.reject("no address")
    >>> [(row["offset"], row["reason"], row["row"]) for row in log.get_topic("mails.senders.dead").rows()]
    [(1, 'no address', '{"address":"nobody"}')]
    >>> worker = mails.worker("archivists")
    >>> messages = worker.take(2)
    >>> worker.renew(messages, lease=600)
    >>> worker.release(messages)
    >>> worker.close()
    """

    def __init__(
        self,
        topic: Topic,
        group: str,
        *,
        lease: Duration = "30 seconds",
        deliveries_max: int = 5,
        max_in_flight: int = 1000,
        dead_letter: bool = True,
        retry_delay: Duration = 0,
        retry_delay_max: Duration = "5 minutes",
        deliver_at: str | None = None,
        expires_at: str | None = None,
        priority: str | None = None,
        ordered_by: str | Sequence[str] | None = None,
        name: str | None = None,
        start: Place = "earliest",
    ) -> None:
        self.lease = to_seconds(lease, what="lease")
        self.retry_delay = to_seconds(retry_delay, what="retry_delay")
        self.retry_delay_max = to_seconds(retry_delay_max, what="retry_delay_max")
        if self.lease == 0 or deliveries_max < 1 or max_in_flight < 1:
            raise Misuse(
                f"lease ({lease}), deliveries_max ({deliveries_max}) and max_in_flight ({max_in_flight})"
                " must be more than 0"
            )
        if name is not None:
            check_name("worker", name)
        if dead_letter and len(dead_letter_topic(topic.name, group)) > 200:
            raise InvalidDeclaration(
                f'the dead-letter topic "{dead_letter_topic(topic.name, group)}" would have too long a name',
                hint="Choose a shorter name for the group, or dead_letter=False.",
            )
        self.topic = topic
        self.group = group
        self.name = name
        self.id = new_id(name)
        self.deliveries_max = deliveries_max
        self.max_in_flight = max_in_flight
        self.dead_letter = dead_letter
        self._catalog: Catalog = topic.log.catalog
        self._clock = topic.clock
        self._reader = MessageReader(topic)
        self._closed = threading.Event()
        self._turn = 0
        self._ends: dict[int, int] = {}
        self._ends_seen = 0.0
        wanted = declared_settings(
            topic, deliver_at=deliver_at, expires_at=expires_at, priority=priority, ordered_by=ordered_by
        )
        self._group_id = open_group(topic, group, kind="work", start=start)
        with self._catalog.write() as db:
            self.settings = settle_settings(db, topic, group, self._group_id, wanted)
            self._leases = Leases(self._group_id, staged=not self.settings.plain)
            self._leases.prepare(db)
            self._beat(db, self._clock.now_us())
        self._stage = None if self.settings.plain else MessageStage(topic, self._group_id, self.settings)

    # -- taking ----------------------------------------------------------------------------------------------------

    def take(self, count: int = 1, timeout: Duration | None = None) -> list[Message]:
        """Up to ``count`` messages, as soon as there is one; none after ``timeout`` (None: wait for ever)."""
        if count < 1:
            raise Misuse(f"count must be at least 1, not {count}")
        seconds = to_timeout(timeout)
        deadline = None if seconds is None else self._clock.monotonic() + seconds
        while True:
            if self._closed.is_set():
                raise ClosedError(f'this worker of group "{self.group}" was closed', hint="Make a new one.")
            messages, progress = self._take_now(count)
            if messages:
                return messages
            if progress:
                continue
            slice_s = self._slice_s()
            if deadline is not None:
                slice_s = min(slice_s, deadline - self._clock.monotonic())
            if slice_s <= 0:
                return []
            self.topic.wait(self._ends, timeout=slice_s)

    def __iter__(self) -> Iterator[Message]:
        """Messages for ever, one at a time, until the worker is closed."""
        while not self._closed.is_set():
            yield from self.take(1, timeout=SLICE_S)

    def _slice_s(self) -> float:
        if self._stage is not None:
            until_due_s = (self._stage.next_due_us(self._clock.now_us()) - self._clock.now_us()) / 1e6
            longest = SLICE_IN_ORDER_S if self.settings.ordered_by else SLICE_WHILE_IN_FLIGHT_S
            return max(0.001, min(longest, until_due_s))
        due_us = self._catalog.read("SELECT due_us FROM work_groups WHERE group_id = ?", (self._group_id,))
        if not due_us or due_us[0][0] == NEVER_US:
            return SLICE_S
        until_due_s = (int(due_us[0][0]) - self._clock.now_us()) / 1e6
        return max(0.001, min(SLICE_WHILE_IN_FLIGHT_S, until_due_s))

    def _take_now(self, count: int) -> tuple[list[Message], bool]:
        """The messages available now, and whether another look at once makes sense."""
        now_us = self._clock.now_us()
        if not self._worth_a_transaction(count, now_us):
            return [], False
        if self._stage is not None:
            given_up, leases = self._chosen(self._stage, count, now_us)
        else:
            given_up, leases = self._next(count, now_us)
        if given_up:
            rows = self._read([lease for lease, _ in given_up])
            self._give_up(
                [
                    (lease, *rows[lease.partition, lease.offset], reason)
                    for lease, reason in given_up
                    if lease[:2] in rows
                ]
            )
        rows = self._read(leases)
        messages = [Message(self, lease, *rows[lease[:2]]) for lease in leases if lease[:2] in rows]
        return messages, bool(leases or given_up)

    def _next(self, count: int, now_us: int) -> tuple[list[tuple[Lease, str]], list[Lease]]:
        """Lease messages as they come: those to be given up, and those to be delivered."""
        given_up: list[tuple[Lease, str]] = []
        leases: list[Lease] = []
        with self._catalog.write() as db:
            now_us = max(now_us, self._clock.now_us())  # a lease begins when the catalog is ours, not before the wait
            number, due_us = self._leases.begin(db)
            until_us = now_us + round(self.lease * 1e6)
            if due_us <= now_us:
                limits = {"now_us": now_us, "deliveries_max": self.deliveries_max}
                given_up = self._leases.back_too_often(db, **limits, limit=BURIALS_MAX)
                # Leased, but not delivered, to read their rows; if this process dies, another one buries them.
                given_up = [(lease._replace(number=number), reason) for lease, reason in given_up]
                leases = self._leases.back(db, **limits, number=number, worker=self.id, limit=count)
            again = [lease for lease, _ in given_up] + leases
            room = min(count - len(leases), self.max_in_flight - self._leases.unsettled(db))
            self._turn += 1
            fresh = self._leases.fresh(db, number=number, worker=self.id, ends=self._ends, limit=room, turn=self._turn)
            self._leases.write(db, fresh=fresh, again=again, until_us=until_us)
            leases += fresh
            if due_us <= now_us:
                self._leases.find_due(db)
            self._beat(db, now_us)
        return given_up, leases

    def _chosen(self, stage: MessageStage, count: int, now_us: int) -> tuple[list[tuple[Lease, str]], list[Lease]]:
        """The same for a group that looks at its messages first."""
        with self._catalog.write() as db:
            now_us = max(now_us, self._clock.now_us())
            number, _ = self._leases.begin(db)
            limits = {"now_us": now_us, "deliveries_max": self.deliveries_max}
            over = dict(stage.expired(db, now_us=now_us, limit=BURIALS_MAX))
            too_often = self._leases.back_too_often(db, **limits, limit=BURIALS_MAX)
            over |= {lease: reason for lease, reason in too_often if lease not in over}
            given_up = [(lease._replace(number=number), reason) for lease, reason in over.items()]
            again = [lease for lease, _ in given_up]
            self._leases.write(db, fresh=(), again=again, until_us=now_us + round(self.lease * 1e6))
            room = min(count, self.max_in_flight - stage.in_flight(db, now_us))
            leases = stage.choose(db, **limits, number=number, worker=self.id, limit=room)
            self._leases.write(db, fresh=(), again=leases, until_us=now_us + round(self.lease * 1e6))
            self._beat(db, now_us)
        return given_up, leases

    def _worth_a_transaction(self, count: int, now_us: int) -> bool:
        """A check that costs one SELECT; also posts dead letters that a crash or a full disk left behind."""
        rows = self._catalog.read(
            "SELECT p.partition, p.next, w.due_us,"
            " EXISTS (SELECT 1 FROM dead_letters d WHERE d.group_id = w.group_id) AS buried"
            " FROM work_groups w JOIN work_partitions p ON p.group_id = w.group_id WHERE w.group_id = ?",
            (self._group_id,),
        )
        if not rows:
            raise Fenced(f'group "{self.group}" of topic "{self.topic.name}" was deleted', group=self.group)
        if rows[0]["buried"]:
            post(self.topic, self.group, self._group_id)
        known = sum(max(0, self._ends.get(row["partition"], 0) - row["next"]) for row in rows)
        # Also while messages are plenty: a long partition must not hide that others have grown.
        if known < count or self._clock.monotonic() - self._ends_seen > ENDS_AGE_MAX_S:
            self._ends = self.topic.end_offsets()
            self._ends_seen = self._clock.monotonic()
        if self._stage is not None:
            # Messages for later may fill what is read at once: read on until there is one for now, or the end.
            while not self._stage.has_any(now_us, self.deliveries_max):
                if not self._stage.fill(self._ends, now_us):
                    break
            else:
                self._stage.fill(self._ends, now_us)
                return True
        elif rows[0]["due_us"] <= now_us or any(self._ends[row["partition"]] > row["next"] for row in rows):
            return True
        if now_us - self._beaten_us > SESSION_S / 3 * 1e6:
            with self._catalog.write() as db:
                self._beat(db, now_us)
        return False

    def _read(self, leases: Sequence[Lease]) -> dict[tuple[int, ...], tuple[dict[str, Any], bool]]:
        """The rows of leased messages; leases on removed rows (compaction, retention) are dropped."""
        if not leases:
            return {}
        found, gaps = self._reader.read(leases, self._ends)
        if gaps:
            with self._catalog.write() as db:
                for gap in gaps:
                    self._leases.close_gap(db, gap)
        return dict(found)

    # -- answering -------------------------------------------------------------------------------------------------

    def accept(self, messages: Iterable[Message]) -> None:
        """Settle messages as done, in one transaction.

        Messages that another worker holds by now raise one ``LeaseLost``, after the others were accepted. Accepting
        twice is harmless.
        """
        todo = [message for message in messages if message.unanswered("accepted")]
        with self._catalog.write() as db:
            lost = self._leases.settle(db, [message.lease for message in todo])
        self._answered(todo, "accepted", lost)

    def accept_in(self, messages: Sequence[Message]) -> Callable[[sqlite3.Connection], Callable[[], None]]:
        """The same as a part of a transaction, which a lost lease refuses: it is called inside, its result after."""
        todo = [message for message in messages if message.unanswered("accepted")]

        def enter(db: sqlite3.Connection) -> Callable[[], None]:
            lost = self._leases.settle(db, [message.lease for message in todo])
            if lost:
                raise self._lost(todo, lost)
            return lambda: self._answered(todo, "accepted", [])

        return enter

    def release(self, messages: Iterable[Message], delay: Duration | None = None) -> None:
        """Give messages back; those delivered ``deliveries_max`` times are given up.

        ``delay``: the time until they are delivered again (seconds, or "1 minute"); if not given, by the worker's
        ``retry_delay`` and the deliveries so far.
        """
        delay_s = None if delay is None else to_seconds(delay, what="delay")
        todo = [message for message in messages if message.unanswered("released")]
        last = [message for message in todo if message.deliveries >= self.deliveries_max]
        others = [message.lease for message in todo if message.deliveries < self.deliveries_max]
        lost = self._give_up([(m.lease, m.row, m.deleted, given_up_reason(m.deliveries, released=True)) for m in last])
        if others:
            with self._catalog.write() as db:
                now_us = self._clock.now_us()
                until_us = {lease: now_us + round(1e6 * self._delay(lease, delay_s)) for lease in others}
                lost += self._leases.release(db, until_us)
        self._answered(todo, "released", lost)

    def _delay(self, lease: Lease, delay: float | None) -> float:
        if delay is not None:
            return delay
        # 2^30 seconds are longer than any maximum that makes sense, and no overflow.
        return min(self.retry_delay_max, self.retry_delay * float(1 << min(30, lease.deliveries - 1)))

    def reject(self, messages: Iterable[Message], reason: str) -> None:
        """Give messages up: they go to the dead letters with ``reason``, whatever their delivery count."""
        todo = [message for message in messages if message.unanswered("rejected")]
        lost = self._give_up([(message.lease, message.row, message.deleted, reason) for message in todo])
        self._answered(todo, "rejected", lost)

    def renew(self, messages: Iterable[Message], lease: Duration | None = None) -> None:
        """Keep messages for another ``lease`` (the worker's own, if not given) from now."""
        todo = [message for message in messages if message.unanswered("renewed")]
        until_us = self._clock.now_us() + (round(self.lease * 1e6) if lease is None else to_us(lease, what="lease"))
        with self._catalog.write() as db:
            lost = self._leases.renew(db, [message.lease for message in todo], until_us=until_us)
        self._answered(todo, None, lost)

    def _give_up(self, messages: Sequence[tuple[Lease, dict[str, Any], bool, str]]) -> list[Lease]:
        """Settle messages and bury them, in one transaction; then post them. Returns the leases that were lost."""
        if not messages:
            return []
        now_us = self._clock.now_us()
        said = {lease: metadata_at(self.topic, lease.partition, lease.offset) for lease, *_ in messages}
        with self._catalog.write() as db:
            lost = self._leases.settle(db, [lease for lease, *_ in messages])
            letters = [
                DeadLetter(
                    partition=lease.partition,
                    offset=lease.offset,
                    deliveries=lease.deliveries,
                    reason=reason,
                    worker=lease.worker,
                    row=row | {"_deleted": True} if deleted else row,
                    metadata=said[lease],
                )
                for lease, row, deleted, reason in messages
                if lease not in lost
            ]
            bury(db, self._group_id, letters, now_us=now_us, keep=self.dead_letter)
        if self.dead_letter:
            post(self.topic, self.group, self._group_id)
        return lost

    def _answered(self, messages: Sequence[Message], answer: str | None, lost: Sequence[Lease]) -> None:
        gone = set(lost)
        for message in messages:
            if message.lease not in gone:
                message.answer = answer
        if gone:
            raise self._lost(messages, lost)

    def _lost(self, messages: Sequence[Message], lost: Sequence[Lease]) -> LeaseLost:
        places = [f"{self.topic.name}[{lease.partition}]@{lease.offset}" for lease in lost]
        return LeaseLost(
            f'{len(places)} of {len(messages)} messages of group "{self.group}" are no longer this worker\'s:'
            f" {', '.join(places[:5])}{', …' if len(places) > 5 else ''}",
            detail=f"The lease ran out ({self.lease:g} s) and another worker took them, or the group was reset.",
            hint="Take a longer lease, or renew() while working; the other worker may do the work again.",
            group=self.group,
            worker=self.id,
            lost=[(lease.partition, lease.offset) for lease in lost],
        )

    # -- membership ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release all messages of this worker at once, and leave the group."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._catalog.write() as db:
            self._leases.release_all(db, worker=self.id, now_us=self._clock.now_us())
            note_departure(db, self._group_id, self._clock.now_us())
            db.execute("DELETE FROM members WHERE group_id = ? AND id = ?", (self._group_id, self.id))

    def _beat(self, db: sqlite3.Connection, now_us: int) -> None:
        """Update this worker's heartbeat and remove expired workers."""
        db.execute(
            "INSERT OR REPLACE INTO members (group_id, id, name, session_us, heartbeat_us) VALUES (?, ?, ?, ?, ?)",
            (self._group_id, self.id, self.name, round(SESSION_S * 1e6), now_us),
        )
        db.execute("DELETE FROM members WHERE group_id = ? AND heartbeat_us + session_us < ?", (self._group_id, now_us))
        self._beaten_us = now_us

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Worker {self.id} of {self.group} on {self.topic.name}>"
