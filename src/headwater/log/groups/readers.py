"""Readers: everything that reads a topic and has a position in it.

What it is: consumer groups, work groups and apps, with positions, lag and the time of their last sign of life; the
decision which of them are abandoned or expired; removing expired groups.
Invariants: an app's positions change in the transaction that commits its tick. A reader that has a member is neither
abandoned nor expired. An expired reader holds back nothing; only a group that would hold something back is removed: on
all other topics an unused group costs nothing and keeps its place.
Not here: sinks, which read committed ticks and not topics (``sink_lag.py``); alerts (``log/maintenance/``).
Read next: ``backpressure.py``, ``log/maintenance/reader_alerts.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headwater.clock import format_us
from headwater.errors import UnknownApp
from headwater.log.topic_settings import TopicSettings

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic

TABLES_READERS = """
CREATE TABLE IF NOT EXISTS app_positions (  -- up to where the last committed tick of an app has read each topic
    app TEXT NOT NULL,
    topic_id INTEGER NOT NULL REFERENCES topics(id) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    needed INTEGER NOT NULL,             -- rows from here on are read again: by a paused view, by a rebuild
    PRIMARY KEY (topic_id, app, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS app_signs (      -- the last commit of each app
    app TEXT PRIMARY KEY,
    seen_us INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS group_signs (    -- when a member last left; until then its heartbeats tell
    group_id INTEGER PRIMARY KEY REFERENCES groups(id) ON DELETE CASCADE,
    seen_us INTEGER NOT NULL
);
"""

ReaderKind: TypeAlias = Literal["consumer", "work", "app"]
Read: TypeAlias = Callable[[str, Sequence[Any]], list[sqlite3.Row]]

# A silent reader with unread rows is told of after its topic's group_expiry (or so long, where nothing expires), …
ABANDONED_US = 30 * 24 * 3600 * 1_000_000
HOLDING_PART = 0.1  # … after a tenth of it, when rows are kept for it or producers may have to wait for it,
BLOCKING_US = 60 * 1_000_000  # … and after a minute, when they do.


@dataclass(frozen=True)
class Reader:
    """One reader of one topic.

    >>> reader = Reader("consumer", "billing", {0: 7}, seen_us=0, members=0)
    >>> reader.lag({0: 10}), reader.title, reader.silent_us(5_000_000)
    (3, 'group "billing"', 5000000)
    """

    kind: ReaderKind
    name: str
    positions: Mapping[int, int]
    seen_us: int  # the last commit, heartbeat or departure
    members: int  # living ones; an app has none: its ticks tell
    needed: Mapping[int, int] | None = None  # rows from here on must be kept; None: from the positions on

    @property
    def title(self) -> str:
        """What messages call it."""
        return f'app "{self.name}"' if self.kind == "app" else f'group "{self.name}"'

    @property
    def subject(self) -> str:
        """Its name among the subjects of alerts; no name of a group has a colon."""
        return f"app:{self.name}" if self.kind == "app" else self.name

    def lag(self, ends: Mapping[int, int]) -> int:
        """The rows from its positions to the ends of the partitions."""
        return sum(max(0, ends.get(number, 0) - offset) for number, offset in self.positions.items())

    def silent_us(self, now_us: int) -> int:
        """The time since its last sign of life; 0 while it has a member."""
        return 0 if self.members else max(0, now_us - self.seen_us)

    def way_on(self, topic: str) -> str:
        """What to do about it when the reader will not read on."""
        if self.kind == "app":
            return f"Run the app, or, if it is gone for good: headwater app forget {self.name}"
        return f"Start a member, or, if the group is not needed: headwater group delete {self.name} --topic {topic}"


@dataclass(frozen=True)
class ReaderLag:
    """The lag of one reader in one topic, as ``headwater lag`` shows it.

    ``retention_part``: the fraction of the nearest retention limit that its oldest unread rows have reached; None
    without a limit. ``state``: "reading", "silent", "abandoned" or "overtaken".
    """

    topic: str
    reader: str
    kind: str
    lag: int
    positions: dict[int, int]
    retention_part: float | None
    state: str
    seen_at: str

    def to_dict(self) -> dict[str, Any]:
        """The form of ``headwater lag --json``."""
        return {**vars(self), "positions": {str(number): offset for number, offset in self.positions.items()}}


# Finding


def readers_of(read: Read, topic_id: int, now_us: int) -> list[Reader]:
    """The readers of a topic: its groups by name, then apps by name."""
    positions: dict[tuple[ReaderKind, str], dict[int, int]] = {}
    seen: dict[tuple[ReaderKind, str], int] = {}
    members: dict[tuple[ReaderKind, str], int] = {}
    who: tuple[ReaderKind, str]
    for row in read(
        "SELECT g.kind, g.name, p.partition, p.offset, max(p.committed_us, g.created_us, ifnull(s.seen_us, 0)) AS seen"
        " FROM groups g JOIN positions p ON p.group_id = g.id LEFT JOIN group_signs s ON s.group_id = g.id"
        " WHERE g.topic_id = ? ORDER BY g.name, p.partition",
        (topic_id,),
    ):
        who = (row["kind"], row["name"])
        positions.setdefault(who, {})[row["partition"]] = row["offset"]
        seen[who] = max(seen.get(who, 0), row["seen"])
    for row in read(
        "SELECT g.kind, g.name, max(m.heartbeat_us) AS beat, sum(m.heartbeat_us + m.session_us >= ?) AS living"
        " FROM groups g JOIN members m ON m.group_id = g.id WHERE g.topic_id = ? GROUP BY g.id",
        (now_us, topic_id),
    ):
        who = (row["kind"], row["name"])
        if who in seen:
            seen[who], members[who] = max(seen[who], row["beat"]), row["living"]
    needed: dict[tuple[ReaderKind, str], dict[int, int]] = {}
    for row in read(
        "SELECT app, partition, offset, needed, ifnull(seen_us, 0) AS seen"
        " FROM app_positions LEFT JOIN app_signs USING (app) WHERE topic_id = ? ORDER BY app, partition",
        (topic_id,),
    ):
        who = ("app", row["app"])
        positions.setdefault(who, {})[row["partition"]] = row["offset"]
        needed.setdefault(who, {})[row["partition"]] = row["needed"]
        seen[who] = row["seen"]
    return [
        Reader(who[0], who[1], at, seen[who], members.get(who, 0), needed.get(who)) for who, at in positions.items()
    ]


def holding_readers(read: Read, topic_id: int, settings: TopicSettings, now_us: int) -> list[Reader]:
    """The readers for whose sake rows are kept and producers wait: all but the expired ones."""
    return [reader for reader in readers_of(read, topic_id, now_us) if not is_expired(reader, settings, now_us)]


def slowest(readers: Iterable[Reader], ends: Mapping[int, int]) -> tuple[int, Reader | None]:
    """The largest lag, and the reader that has it."""
    return max(((reader.lag(ends), reader) for reader in readers), key=lambda each: each[0], default=(0, None))


def read_up_to(readers: Sequence[Reader], partition: int) -> int:
    """The offset below which no reader needs a partition's rows any more; 0 without readers."""
    return min(((reader.needed or reader.positions).get(partition, 0) for reader in readers), default=0)


def is_expired(reader: Reader, settings: TopicSettings, now_us: int) -> bool:
    """Whether it has given no sign of life for the topic's ``group_expiry``.

    >>> reader = Reader("consumer", "billing", {0: 7}, seen_us=0, members=0)
    >>> [is_expired(reader, TopicSettings(group_expiry_ms=limit), now_us=5_000) for limit in (6, 5, None)]
    [False, True, False]
    """
    limit_ms = settings.group_expiry_ms
    return limit_ms is not None and reader.silent_us(now_us) >= limit_ms * 1000 and not reader.members


def is_abandoned(reader: Reader, settings: TopicSettings, ends: Mapping[int, int], now_us: int) -> bool:
    """Whether it has unread rows and has been silent for too long.

    >>> reader, minutes = Reader("consumer", "billing", {0: 7}, seen_us=0, members=0), 60_000_000
    >>> is_abandoned(reader, TopicSettings(), {0: 9}, 2 * minutes)
    False
    >>> full = TopicSettings(overflow="block", overflow_rows_max=2)
    >>> is_abandoned(reader, full, {0: 9}, 2 * minutes), is_abandoned(reader, full, {0: 8}, 2 * minutes)
    (True, False)
    """
    lag = reader.lag(ends)
    if lag == 0 or reader.members:
        return False
    limit_us = ABANDONED_US if settings.group_expiry_ms is None else settings.group_expiry_ms * 1000
    if holds_back(settings):
        limit_us = round(limit_us * HOLDING_PART)
    if settings.overflow != "keep" and lag >= (settings.overflow_rows_max or 0):
        limit_us = min(limit_us, BLOCKING_US)
    return reader.silent_us(now_us) >= limit_us


def holds_back(settings: TopicSettings) -> bool:
    """Whether a slow reader of the topic costs others something: waiting producers, dropped rows, or disk."""
    return settings.until_read or settings.overflow != "keep"


# Writing


def write_app_positions(
    db: sqlite3.Connection,
    app: str,
    frontier: Mapping[int, Mapping[int, int]],
    now_us: int,
    *,
    needed: Sequence[Mapping[int, Mapping[int, int]]] = (),
) -> None:
    """Store up to where an app has read topics, by the topics' ids; in the transaction of its tick.

    Topics that are not named are no longer read by the app. Rows from the ``needed`` frontiers on are still needed.
    """

    def first_needed(topic: int, number: int, offset: int) -> int:
        return min([offset, *(each[topic].get(number, offset) for each in needed if topic in each)])

    known = {row[0] for row in db.execute("SELECT DISTINCT topic_id FROM app_positions WHERE app = ?", (app,))}
    db.executemany(
        "DELETE FROM app_positions WHERE topic_id = ? AND app = ?", [(topic, app) for topic in known - set(frontier)]
    )
    db.executemany(
        "INSERT INTO app_positions (app, topic_id, partition, offset, needed)"
        " SELECT ?, id, ?, ?, ? FROM topics WHERE id = ?"
        " ON CONFLICT DO UPDATE SET offset = excluded.offset, needed = excluded.needed"
        " WHERE offset != excluded.offset OR needed != excluded.needed",
        [
            (app, number, offset, first_needed(topic, number, offset), topic)
            for topic, of in frontier.items()
            for number, offset in of.items()
        ],
    )
    db.execute("INSERT OR REPLACE INTO app_signs (app, seen_us) VALUES (?, ?)", (app, now_us))


def forget_app(log: Log, app: str) -> list[str]:
    """Let go of an app's positions; returns the topics that it read. Its next tick, if there is one, stores them again.

    >>> import headwater as hw, tempfile
    >>> forget_app(hw.Log(tempfile.mkdtemp()), "shop")
    Traceback (most recent call last):
        ...
    headwater.errors.UnknownApp: no app "shop" reads a topic of this home
      Hint: headwater lag shows all readers.
    """
    with log.catalog.write() as db:
        rows = db.execute(
            "SELECT DISTINCT name FROM app_positions JOIN topics ON topics.id = topic_id WHERE app = ? ORDER BY name",
            (app,),
        ).fetchall()
        if not rows:
            raise UnknownApp(
                f'no app "{app}" reads a topic of this home', hint="headwater lag shows all readers.", app=app
            )
        db.execute("DELETE FROM app_positions WHERE app = ?", (app,))
    return [row["name"] for row in rows]


def removable(readers: Iterable[Reader], settings: TopicSettings, ends: Mapping[int, int], now_us: int) -> list[Reader]:
    """The readers that have expired and would hold something back."""
    if not holds_back(settings):
        return []
    return [reader for reader in readers if reader.lag(ends) and is_expired(reader, settings, now_us)]


def remove(db: sqlite3.Connection, topic_id: int, readers: Iterable[Reader]) -> None:
    """Remove groups of a topic, and apps' positions in it, inside a transaction."""
    for reader in readers:
        if reader.kind == "app":
            db.execute("DELETE FROM app_positions WHERE topic_id = ? AND app = ?", (topic_id, reader.name))
        else:
            db.execute("DELETE FROM groups WHERE topic_id = ? AND name = ?", (topic_id, reader.name))


def note_departure(db: sqlite3.Connection, group_id: int, now_us: int) -> None:
    """Remember when a member left: from then on the group is silent."""
    db.execute(
        "INSERT OR REPLACE INTO group_signs (group_id, seen_us) SELECT id, ? FROM groups WHERE id = ?",
        (now_us, group_id),
    )


# Showing


def reader_state(reader: Reader, topic: Topic, ends: Mapping[int, int], starts: Mapping[int, int], now_us: int) -> str:
    """The word for how a reader is."""
    if any(offset < starts[number] for number, offset in reader.positions.items() if number in starts):
        return "overtaken"
    if is_abandoned(reader, topic.settings, ends, now_us):
        return "abandoned"
    return "reading" if reader.members or reader.lag(ends) == 0 else "silent"


def seen_at(reader: Reader) -> str:
    """The time of the last sign of life, as text."""
    return format_us(reader.seen_us)
