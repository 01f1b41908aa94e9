"""Leases: the worker that holds each delivered message of a work group.

What it is: the tables of a work group and every statement on them, each run in the caller's transaction. A message's
states are: new → leased → (released or expired → leased)* → settled.
Invariants: a row in ``work_messages`` exists only while a message is delivered and not settled. A message is held under
the number of the take that leased it; numbers are never used again, so a late answer of an earlier holder finds no row.
``work_partitions.next`` is the first offset never delivered, ``positions.offset`` the lowest unsettled one.
Not here: waiting, rows, transactions (``worker.py``); dead letters (``dead_letters.py``). Read next: ``worker.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

TABLES_LEASES = """
CREATE TABLE IF NOT EXISTS work_groups (
    group_id INTEGER PRIMARY KEY REFERENCES groups(id) ON DELETE CASCADE,
    lease INTEGER NOT NULL DEFAULT 0,    -- counts takes; the number of a take is what its messages are held by
    due_us INTEGER NOT NULL,             -- no message comes back before this; saves the search for those that do
    dead INTEGER NOT NULL DEFAULT 0,     -- messages given up, ever
    dead_sequence INTEGER NOT NULL DEFAULT 0,
    missed INTEGER NOT NULL DEFAULT 0    -- messages that retention removed first
);
CREATE TABLE IF NOT EXISTS work_partitions (
    group_id INTEGER NOT NULL REFERENCES groups(id) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    next INTEGER NOT NULL,               -- the first offset never delivered
    PRIMARY KEY (group_id, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS work_messages (  -- delivered and not settled
    group_id INTEGER NOT NULL REFERENCES groups(id) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    worker TEXT NOT NULL,                -- who has it, or had it last
    lease INTEGER NOT NULL,
    lease_until_us INTEGER NOT NULL,     -- from when on it may be given to another
    released INTEGER NOT NULL,           -- 1: given back; 0: leased, or its lease ran out
    PRIMARY KEY (group_id, partition, offset)
) WITHOUT ROWID;
"""

NEVER_US = 2**62

_RUN_HELD = " WHERE group_id = ? AND partition = ? AND offset BETWEEN ? AND ? AND lease = ? AND released = 0"
_HELD = " WHERE group_id = ? AND partition = ? AND offset = ? AND lease = ? AND released = 0"


class Lease(NamedTuple):
    """One delivery of one message."""

    partition: int
    offset: int
    deliveries: int
    number: int
    worker: str


@dataclass(frozen=True)
class Gap:
    """Leased offsets of a partition without a row, and the first offset after them that may have one."""

    partition: int
    missing: tuple[tuple[int, int], ...]  # offset, lease number
    next_row: int
    retained_out: bool


class Leases:
    """The leases of one work group. Every method takes the open transaction."""

    def __init__(self, group_id: int, *, staged: bool = False) -> None:
        self.group_id = group_id
        self.staged = staged  # messages have details beside them: see ``staging.py``

    def prepare(self, db: sqlite3.Connection) -> None:
        """Create the rows that a work group needs besides its positions, if missing."""
        db.execute("INSERT OR IGNORE INTO work_groups (group_id, due_us) VALUES (?, ?)", (self.group_id, NEVER_US))
        db.execute(
            "INSERT OR IGNORE INTO work_partitions (group_id, partition, next)"
            " SELECT group_id, partition, offset FROM positions WHERE group_id = ?",
            (self.group_id,),
        )

    def begin(self, db: sqlite3.Connection) -> tuple[int, int]:
        """The number of a new take, and the time before which no lease expires."""
        db.execute("UPDATE work_groups SET lease = lease + 1 WHERE group_id = ?", (self.group_id,))
        row = db.execute("SELECT lease, due_us FROM work_groups WHERE group_id = ?", (self.group_id,)).fetchone()
        return row[0], row[1]

    def back_too_often(
        self, db: sqlite3.Connection, *, now_us: int, deliveries_max: int, limit: int
    ) -> list[tuple[Lease, str]]:
        """Returned messages that reached the maximum of deliveries, each with the reason to give it up."""
        rows = db.execute(
            "SELECT partition, offset, deliveries, lease, worker, released FROM work_messages"
            " WHERE group_id = ? AND lease_until_us <= ? AND deliveries >= ? LIMIT ?",
            (self.group_id, now_us, deliveries_max, limit),
        )
        return [(Lease(*row[:5]), given_up_reason(row[2], released=bool(row[5]))) for row in rows.fetchall()]

    def back(
        self, db: sqlite3.Connection, *, number: int, worker: str, now_us: int, deliveries_max: int, limit: int
    ) -> list[Lease]:
        """Returned messages as next deliveries, the longest waiting first."""
        rows = db.execute(
            "SELECT partition, offset, deliveries FROM work_messages"
            " WHERE group_id = ? AND lease_until_us <= ? AND deliveries < ?"
            " ORDER BY lease_until_us, partition, offset LIMIT ?",
            (self.group_id, now_us, deliveries_max, limit),
        )
        return [Lease(row[0], row[1], row[2] + 1, number, worker) for row in rows.fetchall()]

    def fresh(
        self, db: sqlite3.Connection, *, number: int, worker: str, ends: Mapping[int, int], limit: int, turn: int
    ) -> list[Lease]:
        """Messages never delivered, in offset order, taken evenly from the partitions; moves ``next``."""
        rows = db.execute(
            "SELECT partition, next FROM work_partitions WHERE group_id = ? ORDER BY partition", (self.group_id,)
        ).fetchall()
        waiting = [(partition, start) for partition, start in rows if start < ends[partition]]
        if limit <= 0 or not waiting:
            return []
        first = turn % len(waiting)
        waiting = waiting[first:] + waiting[:first]
        # Partitions with the fewest messages come first; the others fill the rest.
        if limit > len(waiting):
            waiting.sort(key=lambda each: ends[each[0]] - each[1])
        leases: list[Lease] = []
        for place, (partition, start) in enumerate(waiting):
            share = -(-(limit - len(leases)) // (len(waiting) - place))
            stop = min(start + share, ends[partition])
            if stop > start:
                leases += [Lease(partition, offset, 1, number, worker) for offset in range(start, stop)]
                db.execute(
                    "UPDATE work_partitions SET next = ? WHERE group_id = ? AND partition = ?",
                    (stop, self.group_id, partition),
                )
        return leases

    def write(self, db: sqlite3.Connection, *, fresh: Sequence[Lease], again: Sequence[Lease], until_us: int) -> None:
        """Store leases, on new and on returned messages."""
        db.executemany(
            "INSERT INTO work_messages"
            " (group_id, partition, offset, deliveries, lease, worker, lease_until_us, released)"
            f" VALUES ({self.group_id}, ?, ?, ?, ?, ?, {until_us}, 0)",
            fresh,
        )
        db.executemany(
            "UPDATE work_messages SET deliveries = ?3, lease = ?4, worker = ?5, lease_until_us = ?6, released = 0"
            " WHERE group_id = ?7 AND partition = ?1 AND offset = ?2",
            [(*lease, until_us, self.group_id) for lease in again],
        )
        if fresh or again:
            self.due(db, until_us)

    def unsettled(self, db: sqlite3.Connection) -> int:
        """The number of messages that are delivered and not settled."""
        row = db.execute("SELECT count(*) FROM work_messages WHERE group_id = ?", (self.group_id,)).fetchone()
        return int(row[0])

    def find_due(self, db: sqlite3.Connection) -> None:
        """Find the time of the next expiry; until then only a release returns a message."""
        db.execute(
            "UPDATE work_groups SET due_us = ifnull("
            "(SELECT min(lease_until_us) FROM work_messages WHERE group_id = work_groups.group_id), ?)"
            " WHERE group_id = ?",
            (NEVER_US, self.group_id),
        )

    def settle(self, db: sqlite3.Connection, leases: Iterable[Lease]) -> list[Lease]:
        """Delete settled messages; returns the leases that were lost to another holder."""
        lost: list[Lease] = []
        partitions: set[int] = set()
        for run in runs(leases):
            partitions.add(run[0].partition)
            place = (self.group_id, run[0].partition, run[0].offset, run[-1].offset, run[0].number)
            if db.execute("SELECT count(*) FROM work_messages" + _RUN_HELD, place).fetchone()[0] < len(run):
                rows = db.execute("SELECT offset FROM work_messages" + _RUN_HELD, place)
                held = {row[0] for row in rows.fetchall()}
                lost += [lease for lease in run if lease.offset not in held]
            db.execute("DELETE FROM work_messages" + _RUN_HELD, place)
            if self.staged:
                drop_details(db, self.group_id, run[0].partition, run[0].offset, run[-1].offset)
        self.move_positions(db, partitions)
        return lost

    def release(self, db: sqlite3.Connection, until_us: Mapping[Lease, int]) -> list[Lease]:
        """Return messages to the group, each from a time on; returns the leases that were lost to another holder."""
        return self._until(db, until_us, released=1)

    def renew(self, db: sqlite3.Connection, leases: Iterable[Lease], *, until_us: int) -> list[Lease]:
        """Extend leases; returns the leases that were lost to another holder."""
        return self._until(db, dict.fromkeys(leases, until_us), released=0)

    def release_all(self, db: sqlite3.Connection, *, worker: str, now_us: int) -> None:
        """Release every message that one worker holds."""
        given_back = db.execute(
            "UPDATE work_messages SET released = 1, lease_until_us = ?"
            " WHERE group_id = ? AND worker = ? AND released = 0",
            (now_us, self.group_id, worker),
        )
        if given_back.rowcount:
            self.due(db, now_us)

    def close_gap(self, db: sqlite3.Connection, gap: Gap) -> None:
        """Delete leases on offsets without a row, and continue at the next row."""
        where = (self.group_id, gap.partition)
        dropped = db.executemany(
            "DELETE FROM work_messages WHERE group_id = ? AND partition = ? AND offset = ? AND lease = ?",
            [(*where, offset, number) for offset, number in gap.missing],
        ).rowcount
        if self.staged and gap.missing:
            drop_details(db, *where, gap.missing[0][0], gap.missing[-1][0])
        following = db.execute(
            "SELECT next FROM work_partitions WHERE group_id = ? AND partition = ?", where
        ).fetchone()
        # Leased offsets are below "next", and no row lies between them and next_row: none is skipped.
        db.execute(
            "UPDATE work_partitions SET next = max(next, ?) WHERE group_id = ? AND partition = ?",
            (gap.next_row, *where),
        )
        if gap.retained_out and following is not None:
            missed = dropped + max(0, gap.next_row - following[0])
            db.execute("UPDATE work_groups SET missed = missed + ? WHERE group_id = ?", (missed, self.group_id))
        self.move_positions(db, {gap.partition})

    def move_positions(self, db: sqlite3.Connection, partitions: Iterable[int]) -> None:
        """Set the group's positions to the lowest unsettled offset."""
        for partition in partitions:
            db.execute(
                "UPDATE positions SET offset = ifnull("
                "(SELECT min(m.offset) FROM work_messages m WHERE m.group_id = ?1 AND m.partition = ?2),"
                "(SELECT next FROM work_partitions w WHERE w.group_id = ?1 AND w.partition = ?2))"
                " WHERE group_id = ?1 AND partition = ?2",
                (self.group_id, partition),
            )

    def _until(self, db: sqlite3.Connection, until_us: Mapping[Lease, int], *, released: int) -> list[Lease]:
        lost = [
            lease
            for lease, at_us in until_us.items()
            if not db.execute(
                "UPDATE work_messages SET lease_until_us = ?, released = ?" + _HELD,
                (at_us, released, self.group_id, lease.partition, lease.offset, lease.number),
            ).rowcount
        ]
        self.due(db, min(until_us.values(), default=NEVER_US))
        return lost

    def due(self, db: sqlite3.Connection, until_us: int) -> None:
        """Note that a message may come back at a time."""
        db.execute("UPDATE work_groups SET due_us = min(due_us, ?) WHERE group_id = ?", (until_us, self.group_id))


def drop_details(db: sqlite3.Connection, group_id: int, partition: int, first: int, last: int) -> None:
    """Delete the details of messages between two offsets that are settled."""
    db.execute(
        "DELETE FROM work_details AS d WHERE group_id = ?1 AND partition = ?2 AND offset BETWEEN ?3 AND ?4"
        " AND NOT EXISTS (SELECT 1 FROM work_messages m"
        " WHERE m.group_id = ?1 AND m.partition = ?2 AND m.offset = d.offset)",
        (group_id, partition, first, last),
    )


def runs(leases: Iterable[Lease]) -> list[list[Lease]]:
    """Leases of one take on consecutive offsets as ranges: one statement settles each.

    >>> [len(run) for run in runs([Lease(0, 4, 1, 7, "w"), Lease(0, 3, 1, 7, "w"), Lease(0, 6, 1, 7, "w")])]
    [2, 1]
    """
    found: list[list[Lease]] = []
    for lease in sorted(set(leases)):
        last = found[-1][-1] if found else None
        if last and (last.partition, last.offset + 1, last.number) == (lease.partition, lease.offset, lease.number):
            found[-1].append(lease)
        else:
            found.append([lease])
    return found


def given_up_reason(deliveries: int, *, released: bool) -> str:
    """The reason for giving up a message that was not rejected.

    >>> given_up_reason(5, released=False)
    'not accepted in 5 deliveries; the last lease ran out'
    """
    return f"not accepted in {deliveries} deliveries; the last {'was released' if released else 'lease ran out'}"
