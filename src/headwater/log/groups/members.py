"""Members: membership of a consumer in its group.

What it is: joining, heartbeats, eviction of dead members, leaving, and the proof of ownership that a commit needs; each
is one transaction on the catalog, since there is no coordinator.
Invariants: every join has a new id, so an evicted id never owns a partition again; a member that notices an expired
session evicts that member and rebalances; a name has one member, the latest.
Not here: positions and batches (``consumer.py``), assignment (``assignment.py``). Read next: ``assignment.py``.
"""

from __future__ import annotations

import os
import secrets
import socket
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import Fenced
from headwater.log.catalog.catalog import Catalog
from headwater.log.groups import assignment
from headwater.log.groups.readers import note_departure

if TYPE_CHECKING:
    from headwater.log.topic import Topic

TABLES_MEMBERS = """
CREATE TABLE IF NOT EXISTS members (
    group_id INTEGER NOT NULL REFERENCES groups(id) ON DELETE CASCADE,
    id TEXT NOT NULL,                    -- a new one for every join
    name TEXT,                           -- given by the user; a consumer group has one living member of a name
    session_us INTEGER NOT NULL,
    heartbeat_us INTEGER NOT NULL,
    PRIMARY KEY (group_id, id)
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Share:
    """One partition that a member owns or is assigned, with the committed offset."""

    partition: int
    owned: bool
    wanted: bool
    committed: int


class Member:
    """One consumer's membership. Not safe for threads by itself; ``Consumer`` holds a lock."""

    def __init__(self, topic: Topic, group: str, group_id: int, *, name: str | None, session_timeout: float) -> None:
        self.topic = topic
        self.group = group
        self.group_id = group_id
        self.name = name
        self.session_us = round(session_timeout * 1e6)
        self.id = ""
        self.generation = -1
        self.beaten_us = 0
        self._catalog: Catalog = topic.log.catalog

    def join(self) -> None:
        """Join under a new id. A member of the same name is replaced, and its partitions are inherited."""
        self.id = new_id(self.name)
        now_us = self.topic.clock.now_us()
        with self._catalog.write() as db:
            if not db.execute("SELECT 1 FROM groups WHERE id = ?", (self.group_id,)).fetchone():
                raise self.deleted()
            namesakes = db.execute(
                "SELECT id FROM members WHERE group_id = ? AND name = ?", (self.group_id, self.name)
            ).fetchall()
            db.execute(
                "INSERT INTO members (group_id, id, name, session_us, heartbeat_us) VALUES (?, ?, ?, ?, ?)",
                (self.group_id, self.id, self.name, self.session_us, now_us),
            )
            for namesake in namesakes:
                assignment.take_over(db, self.group_id, old=namesake["id"], new=self.id)
            self._rebalance(db, now_us)
        self.beaten_us = now_us

    def rejoin(self) -> None:
        """Join again after an eviction; refused when a member of the same name took over."""
        namesakes = self._catalog.read(
            "SELECT id FROM members WHERE group_id = ? AND name = ?", (self.group_id, self.name)
        )
        if namesakes:
            raise Fenced(
                f'another consumer "{self.name}" has taken this one\'s place in group "{self.group}"',
                detail=f"This is {self.id}; the other is {namesakes[0]['id']}.",
                hint="Close this one, or give each member its own name.",
                group=self.group,
                member=self.id,
                owner=namesakes[0]["id"],
            )
        self.join()

    def look(self) -> tuple[bool, bool]:
        """Whether this id is still a member, and whether the group has been rebalanced since; one SELECT."""
        rows = self._catalog.read(
            "SELECT generation, (SELECT 1 FROM members WHERE group_id = groups.id AND members.id = ?) AS present"
            " FROM groups WHERE id = ?",
            (self.id, self.group_id),
        )
        if not rows:
            raise self.deleted()
        return bool(rows[0]["present"]), rows[0]["generation"] != self.generation

    def shares(self) -> list[Share]:
        """The partitions that this member owns or is assigned; updates ``generation``."""
        # The generation first: if it moves on in between, the next look sees it.
        generation = self._catalog.read("SELECT generation FROM groups WHERE id = ?", (self.group_id,))
        rows = self._catalog.read(
            "SELECT a.partition, a.owner, a.wanted, p.offset FROM assignments a"
            " JOIN positions p ON p.group_id = a.group_id AND p.partition = a.partition"
            " WHERE a.group_id = ? AND (a.owner = ? OR a.wanted = ?)",
            (self.group_id, self.id, self.id),
        )
        self.generation = int(generation[0][0]) if generation else -1
        return [
            Share(
                partition=row["partition"],
                owned=row["owner"] == self.id,
                wanted=row["wanted"] == self.id,
                committed=row["offset"],
            )
            for row in rows
        ]

    def beat(self) -> bool:
        """Send a heartbeat and evict expired members; False when this member was itself evicted."""
        now_us = self.topic.clock.now_us()
        with self._catalog.write() as db:
            if not self.refresh(db, now_us):
                return False
            late = db.execute(
                "SELECT 1 FROM members WHERE group_id = ? AND heartbeat_us + session_us < ?", (self.group_id, now_us)
            ).fetchone()
            if late:
                self._rebalance(db, now_us)
        return True

    def refresh(self, db: sqlite3.Connection, now_us: int) -> bool:
        """Update the heartbeat, inside a transaction."""
        beaten = db.execute(
            "UPDATE members SET heartbeat_us = ? WHERE group_id = ? AND id = ?", (now_us, self.group_id, self.id)
        )
        self.beaten_us = now_us
        return bool(beaten.rowcount)

    def beat_is_due(self) -> bool:
        """Whether a third of the session has passed since the last heartbeat."""
        return self.topic.clock.now_us() - self.beaten_us >= self.session_us // 3

    def require_ownership(self, db: sqlite3.Connection, partitions: Iterable[int]) -> None:
        """Raise ``Fenced`` unless this member owns the partitions; inside the caller's transaction."""
        for partition in partitions:
            row = db.execute(
                "SELECT groups.generation, owner FROM groups LEFT JOIN assignments"
                " ON group_id = id AND partition = ? WHERE id = ?",
                (partition, self.group_id),
            ).fetchone()
            if row is None:
                raise self.deleted()
            if row["owner"] != self.id:
                raise Fenced(
                    f'group "{self.group}" partition {partition} is no longer this consumer\'s: nothing was committed',
                    detail=f"This is {self.id} of generation {self.generation};"
                    f" the owner is {row['owner'] or 'no member'}, the generation {row['generation']}.",
                    hint="Rejoin by calling poll(), or make a new consumer; uncommitted rows go to the new owner.",
                    group=self.group,
                    partition=partition,
                    member=self.id,
                    generation=self.generation,
                    owner=row["owner"],
                    current_generation=row["generation"],
                )

    def hand_over(self, partition: int) -> None:
        """Hand an owned partition over to the member it is assigned to."""
        with self._catalog.write() as db:
            assignment.hand_over(db, self.group_id, partition, owner=self.id)

    def leave(self) -> None:
        """Leave the group; its partitions are assigned to the others at once."""
        with self._catalog.write() as db:
            gone = db.execute("DELETE FROM members WHERE group_id = ? AND id = ?", (self.group_id, self.id))
            if gone.rowcount:
                note_departure(db, self.group_id, self.topic.clock.now_us())
                self._rebalance(db, self.topic.clock.now_us())

    def deleted(self) -> Fenced:
        """The error for a group that was deleted."""
        return Fenced(f'group "{self.group}" of topic "{self.topic.name}" was deleted', group=self.group)

    def _rebalance(self, db: sqlite3.Connection, now_us: int) -> None:
        partitions = range(self.topic.settings.partitions)
        assignment.rebalance(db, self.group_id, partitions=partitions, now_us=now_us)


def new_id(name: str | None) -> str:
    """An id for a member or worker: its name, or host and process, and a random part."""
    return f"{name or f'{socket.gethostname()}-{os.getpid()}'}-{secrets.token_hex(4)}"
