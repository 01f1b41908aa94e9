"""Partition assignment of a consumer group: balanced and sticky.

What it is: the assignment (a pure function), and the rebalance that stores it.
Invariants: a rebalance is one transaction and raises the generation by one; shares differ by at most one partition and
as few partitions as possible move; a live owner keeps a partition until it hands it over (``hand_over``), a dead one
loses it at once.
Not here: when to join, leave or hand over (``consumer.py``). Read next: ``consumer.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence

TABLES_ASSIGNMENTS = """
CREATE TABLE IF NOT EXISTS assignments (
    group_id INTEGER NOT NULL REFERENCES groups(id) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    owner TEXT,                          -- the member that reads it and may commit
    wanted TEXT,                         -- the member that is to have it; the same as owner when all is settled
    generation INTEGER NOT NULL,         -- the generation in which the owner got it
    PRIMARY KEY (group_id, partition)
) WITHOUT ROWID;
"""


def assigned(partitions: Collection[int], members: Collection[str], current: Mapping[int, str]) -> dict[int, str]:
    """Assign partitions to members: balanced, moving as few as possible from ``current``.

    >>> assigned(range(4), ["a", "b"], {})
    {0: 'a', 1: 'a', 2: 'b', 3: 'b'}
    >>> assigned(range(4), ["a", "b", "c"], {0: "a", 1: "a", 2: "b", 3: "b"})
    {0: 'a', 1: 'a', 2: 'b', 3: 'c'}
    """
    if not members:
        return {}
    held: dict[str, list[int]] = {member: [] for member in sorted(members)}
    for partition in sorted(partitions):
        owner = current.get(partition)
        if owner in held:
            held[owner].append(partition)

    # The larger shares go to the members that hold most: they then give up least.
    share, larger_shares = divmod(len(partitions), len(held))
    by_load = sorted(held, key=lambda member: (-len(held[member]), member))
    quota = {member: share + (place < larger_shares) for place, member in enumerate(by_load)}

    target = {partition: member for member in held for partition in held[member][: quota[member]]}
    free = [partition for partition in sorted(partitions) if partition not in target]
    for member in by_load:
        missing = quota[member] - min(len(held[member]), quota[member])
        target.update(dict.fromkeys(free[:missing], member))
        free = free[missing:]
    return dict(sorted(target.items()))


def rebalance(db: sqlite3.Connection, group_id: int, *, partitions: Sequence[int], now_us: int) -> int:
    """Evict members with expired sessions and assign the partitions again; returns the new generation."""
    db.execute("DELETE FROM members WHERE group_id = ? AND heartbeat_us + session_us < ?", (group_id, now_us))
    living = {row[0] for row in db.execute("SELECT id FROM members WHERE group_id = ?", (group_id,))}
    rows = db.execute("SELECT partition, owner, wanted FROM assignments WHERE group_id = ?", (group_id,))
    before: dict[int, tuple[str | None, str | None]] = {row[0]: (row[1], row[2]) for row in rows}

    current: dict[int, str] = {}
    for partition, (owner, wanted) in before.items():
        # A hand-over under way keeps its direction, so that two joins in a row do not move things twice.
        if wanted in living:
            current[partition] = str(wanted)
        elif owner in living:
            current[partition] = str(owner)
    target = assigned(partitions, living, current)

    db.execute("UPDATE groups SET generation = generation + 1 WHERE id = ?", (group_id,))
    generation = int(db.execute("SELECT generation FROM groups WHERE id = ?", (group_id,)).fetchone()[0])
    for partition in partitions:
        owner, wanted = before.get(partition, (None, None))
        new_wanted = target.get(partition)
        new_owner = owner if owner in living else new_wanted
        if partition in before and (new_owner, new_wanted) == (owner, wanted):
            continue
        db.execute(
            "INSERT INTO assignments (group_id, partition, owner, wanted, generation) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (group_id, partition) DO UPDATE SET owner = excluded.owner, wanted = excluded.wanted,"
            " generation = CASE WHEN owner IS excluded.owner THEN generation ELSE excluded.generation END",
            (group_id, partition, new_owner, new_wanted, generation),
        )
    return generation


def take_over(db: sqlite3.Connection, group_id: int, *, old: str, new: str) -> None:
    """Give a member's partitions to its successor of the same name; the old one is fenced."""
    db.execute("UPDATE assignments SET owner = ? WHERE group_id = ? AND owner = ?", (new, group_id, old))
    db.execute("UPDATE assignments SET wanted = ? WHERE group_id = ? AND wanted = ?", (new, group_id, old))
    db.execute("DELETE FROM members WHERE group_id = ? AND id = ?", (group_id, old))


def hand_over(db: sqlite3.Connection, group_id: int, partition: int, *, owner: str) -> None:
    """Move a partition from its live owner to the member it is assigned to."""
    db.execute(
        "UPDATE assignments SET owner = wanted, generation = (SELECT generation FROM groups WHERE id = group_id)"
        " WHERE group_id = ? AND partition = ? AND owner = ? AND wanted IS NOT owner",
        (group_id, partition, owner),
    )
