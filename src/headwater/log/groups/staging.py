"""Staging: messages of a work group that are looked at before they are delivered.

What it is: for a group with ``deliver_at``, ``expires_at``, ``priority`` or ``ordered_by``, messages are read ahead
into ``work_messages``, each with its priority, order key and expiry beside it in ``work_details``; takes choose.
Invariants: a message is staged once, in the transaction that moves ``work_partitions.next`` past it. A row of
``work_details`` exists as long as its message is unsettled. A message whose key has an earlier unsettled one in its
partition, or another one anywhere that was delivered and not answered, is not delivered: one message of a key at a
time, in order. Deliverable messages are read ahead up to ``AHEAD_MAX``, those for later up to ``STAGED_MAX``:
priorities hold within these.
Not here: leases (``leases.py``), waiting and giving up (``worker.py``). Read next: ``leases.py``, ``worker.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.clock import format_us
from headwater.errors import OffsetOutOfRange
from headwater.log.catalog.catalog import Catalog
from headwater.log.groups.leases import Lease, Leases
from headwater.log.groups.work_settings import WorkSettings
from headwater.log.schema.json_lines import json_line

if TYPE_CHECKING:
    from headwater.log.topic import Topic

TABLE_STAGED = """
CREATE TABLE IF NOT EXISTS work_details (  -- beside work_messages, of groups that look at messages first
    group_id INTEGER NOT NULL REFERENCES groups(id) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    order_key TEXT,                      -- NULL: in no order
    expires_us INTEGER NOT NULL,
    PRIMARY KEY (group_id, partition, offset)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS work_details_by_key ON work_details (group_id, order_key, partition, offset);
"""

AHEAD_MAX = 10_000  # deliverable messages that are looked at
STAGED_MAX = 1_000_000  # with those that are for later
STAGE_ROWS = 2_000  # read by one take
NEVER_US = 2**62

_EARLIER_OF_KEY = (
    "SELECT 1 FROM work_details e WHERE e.group_id = d.group_id AND e.order_key = d.order_key"
    " AND e.partition = d.partition AND e.offset < d.offset"
)
# Also one whose lease has run out: its holder may still renew or accept it, until it is delivered again.
_HELD_OF_KEY = (
    "SELECT 1 FROM work_details o JOIN work_messages l USING (group_id, partition, offset)"
    " WHERE o.group_id = d.group_id AND o.order_key = d.order_key AND l.released = 0"
    " AND (o.partition != d.partition OR o.offset != d.offset)"
)
_CHOICE = (
    "SELECT m.partition, m.offset, m.deliveries FROM work_messages m"
    " JOIN work_details d USING (group_id, partition, offset)"
    " WHERE m.group_id = :group AND m.lease_until_us <= :now AND m.deliveries < :most AND d.expires_us > :now"
    f" AND (d.order_key IS NULL OR (NOT EXISTS ({_EARLIER_OF_KEY}) AND NOT EXISTS ({_HELD_OF_KEY})))"
    " ORDER BY d.priority DESC, m.offset, m.partition LIMIT :limit"
)
_EXPIRED = (
    "SELECT m.partition, m.offset, m.deliveries, m.lease, m.worker, d.expires_us FROM work_messages m"
    " JOIN work_details d USING (group_id, partition, offset)"
    " WHERE m.group_id = :group AND d.expires_us <= :now AND (m.released OR m.lease_until_us <= :now) LIMIT :limit"
)
_TOO_OFTEN = (
    "SELECT 1 FROM work_messages WHERE group_id = :group AND lease_until_us <= :now AND deliveries >= :most LIMIT 1"
)


@dataclass(frozen=True)
class StagedMessage:
    """What is known of a message before its delivery."""

    partition: int
    offset: int
    visible_us: int
    priority: int
    order_key: str | None
    expires_us: int


class MessageStage:
    """The staged messages of one work group."""

    def __init__(self, topic: Topic, group_id: int, settings: WorkSettings) -> None:
        self.settings = settings
        self._topic = topic
        self._group_id = group_id
        self._catalog: Catalog = topic.log.catalog
        self._leases = Leases(group_id)

    # Reading ahead

    def fill(self, ends: Mapping[int, int], now_us: int) -> bool:
        """Stage messages, if there is room and some are waiting; whether any were."""
        counts = self._catalog.read(
            "SELECT count(*) AS every, ifnull(sum(deliveries = 0 AND lease_until_us <= ?), 0) AS ahead"
            " FROM work_messages WHERE group_id = ?",
            (now_us, self._group_id),
        )[0]
        room = min(AHEAD_MAX - counts["ahead"], STAGED_MAX - counts["every"], STAGE_ROWS)
        rows = self._catalog.read(
            "SELECT partition, next FROM work_partitions WHERE group_id = ? ORDER BY next, partition", (self._group_id,)
        )
        waiting = [(row["partition"], row["next"]) for row in rows if row["next"] < ends[row["partition"]]]
        moved = False
        for place, (partition, start) in enumerate(waiting):
            share = -(-room // (len(waiting) - place))
            if share <= 0:
                break
            count = self._stage(partition, start, min(start + share, ends[partition]), now_us)
            room -= count
            moved = True
        return moved

    def _stage(self, partition: int, start: int, stop: int, now_us: int) -> int:
        try:
            found = list(self._read(partition, start, stop))
            missed = 0
        except OffsetOutOfRange:  # retention was faster
            stop = self._topic.start_offsets()[partition]
            found, missed = [], stop - start
        with self._catalog.write() as db:
            moved = db.execute(
                "UPDATE work_partitions SET next = ? WHERE group_id = ? AND partition = ? AND next = ?",
                (stop, self._group_id, partition, start),
            )
            if not moved.rowcount:
                return 0  # another worker has staged these
            self.insert(db, found, now_us)
            if missed:
                db.execute("UPDATE work_groups SET missed = missed + ? WHERE group_id = ?", (missed, self._group_id))
            self._leases.move_positions(db, {partition})
        return len(found)

    def insert(self, db: sqlite3.Connection, messages: Sequence[StagedMessage], now_us: int) -> int:
        """Enter messages that no worker was given yet; returns how many were not there."""
        entered = db.executemany(
            "INSERT OR IGNORE INTO work_messages"
            " (group_id, partition, offset, deliveries, worker, lease, lease_until_us, released)"
            " VALUES (?, ?, ?, 0, '', 0, ?, 1)",
            [(self._group_id, each.partition, each.offset, each.visible_us) for each in messages],
        ).rowcount
        looked_at = () if self.settings.plain else messages  # a redrive enters messages of plain groups too
        db.executemany(
            "INSERT OR IGNORE INTO work_details (group_id, partition, offset, priority, order_key, expires_us)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [
                (self._group_id, each.partition, each.offset, each.priority, each.order_key, each.expires_us)
                for each in looked_at
            ],
        )
        if messages:
            self._leases.due(db, min([now_us, *(each.visible_us for each in messages)]))
        return max(0, entered)

    def _read(self, partition: int, start: int, stop: int) -> Iterator[StagedMessage]:
        for batch in self._topic.read_partition(partition, start, stop=stop, columns=list(self.settings.columns)):
            for offset, row in zip(batch.offsets.tolist(), _plain_rows(batch.data), strict=True):
                yield self.details(partition, offset, row)

    def details(self, partition: int, offset: int, row: Mapping[str, Any]) -> StagedMessage:
        """What a message's row says."""
        settings = self.settings
        order = None
        if settings.ordered_by and not all(row[name] is None for name in settings.ordered_by):
            order = json_line({name: row[name] for name in settings.ordered_by})
        return StagedMessage(
            partition,
            offset,
            visible_us=0 if settings.deliver_at is None else _time_us(row[settings.deliver_at], 0),
            priority=0 if settings.priority is None else row[settings.priority] or 0,
            order_key=order,
            expires_us=NEVER_US if settings.expires_at is None else _time_us(row[settings.expires_at], NEVER_US),
        )

    # Choosing

    def expired(self, db: sqlite3.Connection, *, now_us: int, limit: int) -> list[tuple[Lease, str]]:
        """Messages whose time is over and that no worker holds, each with the reason to give it up."""
        rows = db.execute(_EXPIRED, {"group": self._group_id, "now": now_us, "limit": limit})
        return [(Lease(*row[:5]), f"expired at {format_us(row[5])}") for row in rows.fetchall()]

    def choose(
        self, db: sqlite3.Connection, *, number: int, worker: str, now_us: int, deliveries_max: int, limit: int
    ) -> list[Lease]:
        """The next deliveries: the most urgent first, then the oldest; of a key only the first unsettled one."""
        if limit <= 0:
            return []
        values = {"group": self._group_id, "now": now_us, "most": deliveries_max, "limit": limit}
        rows = db.execute(_CHOICE, values)
        chosen = [Lease(row[0], row[1], row[2] + 1, number, worker) for row in rows.fetchall()]
        return self._one_of_each_key(db, chosen) if self.settings.ordered_by else chosen

    def _one_of_each_key(self, db: sqlite3.Connection, chosen: Sequence[Lease]) -> list[Lease]:
        """Without a second message of a key: rows of one key may be in several partitions."""
        seen: set[str | None] = set()
        kept = []
        for lease in chosen:
            (key,) = db.execute(
                "SELECT order_key FROM work_details WHERE group_id = ? AND partition = ? AND offset = ?",
                (self._group_id, lease.partition, lease.offset),
            ).fetchone()
            if key is None or key not in seen:
                kept.append(lease)
            seen.add(key)
        return kept

    def in_flight(self, db: sqlite3.Connection, now_us: int) -> int:
        """The number of messages that are leased."""
        sql = "SELECT count(*) FROM work_messages WHERE group_id = ? AND released = 0 AND lease_until_us > ?"
        return int(db.execute(sql, (self._group_id, now_us)).fetchone()[0])

    def has_any(self, now_us: int, deliveries_max: int) -> bool:
        """Whether a message is to be delivered or given up: a look without a transaction."""
        values = {"group": self._group_id, "now": now_us, "most": deliveries_max, "limit": 1}
        return any(self._catalog.read(sql, values) for sql in (_CHOICE, _EXPIRED, _TOO_OFTEN))

    def next_due_us(self, now_us: int) -> int:
        """When the next message becomes visible or comes back."""
        rows = self._catalog.read(
            "SELECT min(lease_until_us) AS at FROM work_messages WHERE group_id = ? AND lease_until_us > ?",
            (self._group_id, now_us),
        )
        return NEVER_US if rows[0]["at"] is None else int(rows[0]["at"])


def _plain_rows(data: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = data.to_pylist()
    return rows


def _time_us(value: Any, otherwise: int) -> int:
    return otherwise if value is None else round(value.timestamp() * 1_000_000)
