"""Groups: named readers that share a topic.

What it is: the parts common to consumer groups and work groups: opening, description, lag, reset, deletion, and the
positions that maintenance needs.
Invariants: a group's kind never changes; it has a position for every partition from the beginning; a group with active
members is reset only with ``force``, which fences them.
Not here: reading (``consumer.py``: whole partitions, in order; ``worker.py``: single messages).
Read next: ``consumer.py``, then ``worker.py``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headwater.clock import format_us
from headwater.errors import Conflict, Misuse, OffsetOutOfRange, UnknownGroup
from headwater.log.catalog.catalog import Catalog
from headwater.log.groups.redrive import Redriven, redrive
from headwater.log.topic_reader import Place, offsets_for
from headwater.log.topic_settings import check_name

if TYPE_CHECKING:
    from headwater.log.topic import Topic

Kind: TypeAlias = Literal["consumer", "work"]


@dataclass(frozen=True)
class MemberDescription:
    """One member of a group, as the catalog knows it."""

    id: str
    name: str | None
    heartbeat: str
    alive: bool
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class GroupDescription:
    """The state of a group at one moment.

    ``in_flight``, ``delayed``, ``dead_letters``, ``redriven`` and ``missed`` are counts of a work group: leased now, to
    be delivered later, given up (ever), put back (ever), and removed by retention before delivery.
    """

    topic: str
    group: str
    kind: Kind
    generation: int
    members: tuple[MemberDescription, ...]
    positions: dict[int, int]
    lag: dict[int, int]
    lag_total: int
    in_flight: int
    delayed: int
    dead_letters: int
    redriven: int
    missed: int
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The form of ``headwater group describe --json``."""
        return asdict(self)


class Group:
    """A handle on one group of a topic; it is not a member and reads no rows.

    >>> import tempfile
    >>> from headwater.log.home import Log
    >>> log = Log(tempfile.mkdtemp())
    >>> orders = log.topic("orders", "order_id BIGINT", partitions=1)
    >>> _ = orders.append([{"order_id": 1}, {"order_id": 2}])
    >>> orders.consumer("billing").close()
    >>> billing = orders.group("billing")
    >>> billing.lag()
    {0: 2}
    >>> billing.reset("latest")
    {0: 2}
    >>> billing.describe().lag_total
    0
    """

    def __init__(self, topic: Topic, name: str) -> None:
        self.topic = topic
        self.name = name
        self._catalog: Catalog = topic.log.catalog
        row = _group_row(self._catalog, topic.id, name)
        if row is None:
            others = [group["name"] for group in _group_rows(self._catalog, topic.id)]
            raise UnknownGroup(
                f'topic "{topic.name}" has no group "{name}"',
                detail=f"Its groups are: {', '.join(others)}." if others else "It has no groups yet.",
                hint="A group is created by its first consumer or worker.",
                topic=topic.name,
                group=name,
            )
        self.id = int(row["id"])
        self.kind: Kind = row["kind"]

    def __repr__(self) -> str:
        return f"<Group {self.name} ({self.kind}) of {self.topic.name}>"

    def positions(self) -> dict[int, int]:
        """The committed offset of each partition; for a work group, everything below it is settled."""
        rows = self._catalog.read(
            "SELECT partition, offset FROM positions WHERE group_id = ? ORDER BY partition", (self.id,)
        )
        return {row["partition"]: row["offset"] for row in rows}

    def lag(self) -> dict[int, int]:
        """The distance from the group's position to the end of each partition, in offsets."""
        positions = self.positions()
        ends = self.topic.end_offsets()
        return {partition: max(0, ends[partition] - offset) for partition, offset in positions.items()}

    def describe(self) -> GroupDescription:
        """Kind, generation, members, positions, lag and, for a work group, messages in flight and dead."""
        now_us = self.topic.clock.now_us()
        generation = self._catalog.read("SELECT generation, settings FROM groups WHERE id = ?", (self.id,))
        if not generation:
            raise UnknownGroup(f'group "{self.name}" of topic "{self.topic.name}" was deleted', group=self.name)
        lag = self.lag()
        work = self._catalog.read(
            "SELECT dead, missed, ifnull(r.redriven, 0) AS redriven FROM work_groups w"
            " LEFT JOIN redrives r ON r.group_id = w.group_id WHERE w.group_id = ?",
            (self.id,),
        )
        return GroupDescription(
            topic=self.topic.name,
            group=self.name,
            kind=self.kind,
            generation=int(generation[0][0]),
            members=self._members(now_us),
            positions=self.positions(),
            lag=lag,
            lag_total=sum(lag.values()),
            in_flight=self._leases(now_us),
            delayed=self._delayed(now_us),
            dead_letters=int(work[0]["dead"]) if work else 0,
            redriven=int(work[0]["redriven"]) if work else 0,
            missed=int(work[0]["missed"]) if work else 0,
            settings=json.loads(generation[0]["settings"]),
        )

    def reset(self, to: Place, *, force: bool = False) -> dict[int, int]:
        """Move the group to another position; returns the new positions.

        ``to``: "earliest", "latest", an offset for every partition, ``{partition: offset}`` (the others stay), or a
        datetime. Active members are a ``Conflict``, unless ``force``, which fences them. A work group loses its leases
        and delivery counts.
        """
        offsets = resolve_place(self.topic, to)
        now_us = self.topic.clock.now_us()
        with self._catalog.write() as db:
            self._require_no_members(db, now_us, force=force, what="reset")
            for partition, offset in offsets.items():
                where = (offset, self.id, partition)
                db.execute(
                    "UPDATE positions SET offset = ?, committed_us = ? WHERE group_id = ? AND partition = ?",
                    (offset, now_us, self.id, partition),
                )
                db.execute("UPDATE work_partitions SET next = ? WHERE group_id = ? AND partition = ?", where)
                db.execute("DELETE FROM work_messages WHERE group_id = ? AND partition = ?", where[1:])
                db.execute("DELETE FROM work_details WHERE group_id = ? AND partition = ?", where[1:])
        return self.positions()

    def delete(self, *, force: bool = False) -> None:
        """Delete the group with its positions, members and leases. Its dead-letter topic stays."""
        with self._catalog.write() as db:
            self._require_no_members(db, self.topic.clock.now_us(), force=force, what="deletion")
            db.execute("DELETE FROM groups WHERE id = ?", (self.id,))

    def redrive(self, *, limit: int | None = None) -> Redriven:
        """Put dead letters of a work group back, the oldest first; see ``Redriven`` and ``redrive.py``."""
        return redrive(self, limit=limit)

    def _members(self, now_us: int) -> tuple[MemberDescription, ...]:
        held: dict[str, list[int]] = {}
        for row in self._catalog.read(
            "SELECT owner, partition FROM assignments WHERE group_id = ? ORDER BY partition", (self.id,)
        ):
            held.setdefault(row["owner"], []).append(row["partition"])
        rows = self._catalog.read("SELECT * FROM members WHERE group_id = ? ORDER BY id", (self.id,))
        return tuple(
            MemberDescription(
                id=row["id"],
                name=row["name"],
                heartbeat=format_us(row["heartbeat_us"]),
                alive=row["heartbeat_us"] + row["session_us"] >= now_us,
                partitions=tuple(held.get(row["id"], ())),
            )
            for row in rows
        )

    def _leases(self, now_us: int) -> int:
        sql = "SELECT count(*) FROM work_messages WHERE group_id = ? AND released = 0 AND lease_until_us > ?"
        return int(self._catalog.read(sql, (self.id, now_us))[0][0])

    def _delayed(self, now_us: int) -> int:
        sql = "SELECT count(*) FROM work_messages WHERE group_id = ? AND released = 1 AND lease_until_us > ?"
        return int(self._catalog.read(sql, (self.id, now_us))[0][0])

    def _require_no_members(self, db: sqlite3.Connection, now_us: int, *, force: bool, what: str) -> None:
        active = [member.id for member in self._members(now_us) if member.alive]
        leases = self._leases(now_us)
        if (active or leases) and not force:
            raise Conflict(
                f'group "{self.name}" of topic "{self.topic.name}" has active members: {what} refused',
                detail=f"Members: {', '.join(active) or 'none'}; messages in flight: {leases}.",
                hint="Stop them (a killed one counts until its session or lease expires), or use force.",
                group=self.name,
                members=active,
                in_flight=leases,
            )
        db.execute("UPDATE groups SET generation = generation + 1 WHERE id = ?", (self.id,))
        db.execute("DELETE FROM members WHERE group_id = ?", (self.id,))
        db.execute("DELETE FROM assignments WHERE group_id = ?", (self.id,))


def groups_of(topic: Topic) -> list[Group]:
    """All groups of a topic, by name."""
    return [Group(topic, row["name"]) for row in _group_rows(topic.log.catalog, topic.id)]


def open_group(topic: Topic, name: str, *, kind: Kind, start: Place) -> int:
    """The group's id; a group that does not exist yet is created with its positions at ``start``."""
    check_name("group", name)
    catalog: Catalog = topic.log.catalog
    row = _group_row(catalog, topic.id, name)
    if row is None:
        offsets = topic.start_offsets() | resolve_place(topic, start)
        with catalog.write() as db:
            now_us = topic.clock.now_us()
            created = db.execute(
                "INSERT OR IGNORE INTO groups (topic_id, name, kind, created_us) VALUES (?, ?, ?, ?)",
                (topic.id, name, kind, now_us),
            )
            if created.rowcount:
                db.executemany(
                    "INSERT INTO positions (group_id, partition, offset, committed_us) VALUES (?, ?, ?, ?)",
                    [(created.lastrowid, partition, offset, now_us) for partition, offset in offsets.items()],
                )
        row = _group_row(catalog, topic.id, name)
        assert row is not None
    if row["kind"] != kind:
        raise Misuse(
            f'group "{name}" of topic "{topic.name}" is a {row["kind"]} group, not a {kind} group',
            detail="A consumer group owns whole partitions; a work group takes single messages.",
            hint="Choose another name for the group.",
            group=name,
            kind=row["kind"],
        )
    return int(row["id"])


def resolve_place(topic: Topic, place: Place) -> dict[int, int]:
    """A position ("earliest", a time, offsets) resolved to offsets, which must be in the log.

    ``{partition: offset}`` concerns the named partitions only.
    """
    numbers = sorted(place) if isinstance(place, Mapping) else range(topic.settings.partitions)
    offsets = offsets_for(topic, place, numbers)
    starts, ends = topic.start_offsets(), topic.end_offsets()
    for partition, offset in offsets.items():
        if not starts[partition] <= offset <= ends[partition]:
            raise OffsetOutOfRange(
                f'offset {offset} is outside of topic "{topic.name}" partition {partition}',
                detail=f"It holds {starts[partition]} up to, not including, {ends[partition]}.",
                topic=topic.name,
                partition=partition,
                offset=offset,
                start=starts[partition],
                end=ends[partition],
            )
    return offsets


@dataclass(frozen=True)
class ClampedPosition:
    """A position that was beyond the log's end after a power cut, and its new value."""

    group: str
    partition: int
    before: int
    after: int


def clamp_positions(db: sqlite3.Connection, topic_id: int, partition: int, end: int) -> list[ClampedPosition]:
    """Move positions back to the log's end, for recovery after a power cut that lost rows a group had read."""
    rows = db.execute(
        "SELECT groups.id, groups.name, positions.offset FROM groups JOIN positions ON positions.group_id = groups.id"
        " WHERE groups.topic_id = ? AND positions.partition = ? AND positions.offset > ? ORDER BY groups.name",
        (topic_id, partition, end),
    ).fetchall()
    groups_of_topic = "group_id IN (SELECT id FROM groups WHERE topic_id = ?)"
    for table, column in (("positions", "offset"), ("work_partitions", "next")):
        db.execute(
            f"UPDATE {table} SET {column} = ? WHERE {groups_of_topic} AND partition = ? AND {column} > ?",
            (end, topic_id, partition, end),
        )
    for table in ("work_messages", "work_details"):
        db.execute(
            f"DELETE FROM {table} WHERE {groups_of_topic} AND partition = ? AND offset >= ?", (topic_id, partition, end)
        )
    return [ClampedPosition(group=row[1], partition=partition, before=row[2], after=end) for row in rows]


def _group_row(catalog: Catalog, topic_id: int, name: str) -> sqlite3.Row | None:
    rows = catalog.read("SELECT id, kind FROM groups WHERE topic_id = ? AND name = ?", (topic_id, name))
    return rows[0] if rows else None


def _group_rows(catalog: Catalog, topic_id: int) -> list[sqlite3.Row]:
    return catalog.read("SELECT id, name, kind FROM groups WHERE topic_id = ? ORDER BY name", (topic_id,))
