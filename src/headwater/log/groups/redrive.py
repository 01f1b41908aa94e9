"""Redrive: dead letters of a work group are put back.

What it is: ``redrive`` enters the messages of dead letters into their group again, by their places in the topic, with a
delivery count of nothing; other groups of the topic see nothing of it.
Invariants: each letter is put back at most once, the oldest first: one transaction enters the messages and moves the
place up to which the dead-letter topic was read. A letter stays in the dead-letter topic. A message whose row is gone
(retention, compaction) is counted and not put back. Letters of an earlier group of the same name are left alone.
Not here: giving up (``worker.py``), posting letters (``dead_letters.py``). Read next: ``dead_letters.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.errors import Misuse
from headwater.log.groups.dead_letters import dead_letter_topic, post
from headwater.log.groups.leases import Lease, Leases
from headwater.log.groups.messages import MessageReader
from headwater.log.groups.staging import NEVER_US, MessageStage
from headwater.log.groups.work_settings import settings_of

if TYPE_CHECKING:
    from headwater.log.groups.groups import Group

TABLE_REDRIVES = """
CREATE TABLE IF NOT EXISTS redrives (
    group_id INTEGER PRIMARY KEY REFERENCES groups(id) ON DELETE CASCADE,
    next INTEGER NOT NULL,               -- up to where the dead-letter topic was read
    redriven INTEGER NOT NULL            -- messages put back, ever
);
"""

LETTERS_MAX = 10_000  # in one transaction


@dataclass(frozen=True)
class Redriven:
    """The result of a redrive.

    ``redriven``: messages put back. ``gone``: letters whose message is no longer in the topic; their rows are in the
    dead-letter topic. ``left``: letters that were not looked at because of a limit.
    """

    topic: str
    group: str
    redriven: int
    gone: int
    left: int

    def to_dict(self) -> dict[str, Any]:
        """The form of ``headwater group redrive --json``."""
        return asdict(self)


def redrive(group: Group, *, limit: int | None = None) -> Redriven:
    """Put back at most ``limit`` dead letters (None: all there are now).

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> jobs = log.topic("jobs", "id BIGINT")
    >>> _ = jobs.append([{"id": 7}])
    >>> with jobs.worker("runners") as worker:
    ...     worker.take()[0].reject("not today")
    ...     put_back = jobs.group("runners").redrive()
    ...     [again] = worker.take(timeout=5)
    >>> put_back.redriven, again.row, again.deliveries
    (1, {'id': 7}, 1)
    """
    topic = group.topic
    if group.kind != "work":
        raise Misuse(f'group "{group.name}" of topic "{topic.name}" is a consumer group: it has no dead letters')
    if limit is not None and limit < 1:
        raise Misuse(f"limit must be at least 1, not {limit}")
    post(topic, group.name, group.id)  # what a full disk or a crash has kept in the catalog
    row = topic.log.registry.find(dead_letter_topic(topic.name, group.name))
    if row is None:
        return Redriven(topic.name, group.name, 0, 0, 0)
    dead = topic.log.opened(row)
    end = dead.end_offsets()[0]
    done = gone = looked = 0
    while limit is None or looked < limit:
        start = max(_next(group), dead.start_offsets()[0])
        stop = min(end, start + min(LETTERS_MAX, LETTERS_MAX if limit is None else limit - looked))
        if start >= stop:
            break
        batches = dead.read({0: start}, stop={0: stop}, columns=["partition", "offset", "died_at"])
        letters = [letter for batch in batches for letter in batch.to_pylist()]
        put_back, missing = _put_back(group, letters, start, stop)
        done, gone, looked = done + put_back, gone + missing, looked + stop - start
    return Redriven(topic.name, group.name, done, gone, max(0, end - max(_next(group), dead.start_offsets()[0])))


def _next(group: Group) -> int:
    rows = group.topic.log.catalog.read("SELECT next FROM redrives WHERE group_id = ?", (group.id,))
    return int(rows[0]["next"]) if rows else 0


def _put_back(group: Group, letters: Sequence[dict[str, Any]], start: int, stop: int) -> tuple[int, int]:
    """Enter the messages of letters, and move on to ``stop``; how many were entered, and how many are gone."""
    topic, catalog = group.topic, group.topic.log.catalog
    created = catalog.read("SELECT created_us FROM groups WHERE id = ?", (group.id,))
    born_us = int(created[0]["created_us"]) if created else 0
    places = sorted(
        {
            (letter["partition"], letter["offset"])
            for letter in letters
            if round(letter["died_at"].timestamp() * 1_000_000) >= born_us
        }
    )
    rows, _ = MessageReader(topic).read([Lease(*place, 0, 0, "") for place in places], topic.end_offsets())
    stage, now_us = MessageStage(topic, group.id, settings_of(catalog, group.id)), topic.clock.now_us()
    # At once, and whatever their time was: a user has decided so.
    back = [
        replace(stage.details(*place, rows[place][0]), visible_us=0, expires_us=NEVER_US)
        for place in places
        if place in rows
    ]
    with catalog.write() as db:
        known = db.execute("SELECT next FROM redrives WHERE group_id = ?", (group.id,)).fetchone()
        if (known["next"] if known else 0) > start:
            return 0, 0  # another process has put these back
        entered = stage.insert(db, back, now_us) if back else 0
        Leases(group.id).move_positions(db, {partition for partition, _ in places})
        db.execute(
            "INSERT INTO redrives (group_id, next, redriven) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET next = excluded.next, redriven = redriven + excluded.redriven",
            (group.id, stop, entered),
        )
    return entered, len(places) - len(back)
