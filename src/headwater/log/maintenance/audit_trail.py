"""Audit trail: who read personal columns, erased, made and restored backups, and who may what: the topic ``_audit``.

What it is: ``AuditEntry``, one row; ``begin_trail`` makes the topic, ``note_audit`` appends to it.
Invariants: no personal value is in it: columns are named, never their values; a read is told without its key, an
erasure by the number of its record. A home has a trail once one was begun, by a server with keys over personal columns
or by ``headwater audit begin``; before that nothing is written. Rows are appended before whatever they tell of is
answered, under the topic's policy of durability, and hashed when they are sealed (``proof=True``). Changed settings are
told right after they are stored: a kill between the two loses that row.
Not here: what the server tells (``server/http/read_audit.py``).
Read next: ``server/http/read_audit.py``; ``docs/audit.md``.
"""

from __future__ import annotations

import datetime as dt
import getpass
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headwater.log.topic_settings import TopicOptions, TopicSettings

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic

AUDIT_TOPIC = "_audit"
AUDIT_SCHEMA = (
    "at TIMESTAMP, action STRING, who STRING, relation STRING, columns ARRAY<STRING>, `rows` BIGINT, detail STRING"
)
AUDIT_SETTINGS: TopicOptions = {"event_time": "at", "proof": True, "segment_bytes_max": 8 << 20}


@dataclass(frozen=True)
class AuditEntry:
    """Something that somebody did.

    ``action``: "read" (personal columns were shown), "rights" (of a server's key), "settings" (of a topic), "erase",
    "expire", "backup" or "restore". ``who``: the name of a server's key, or of the machine's user. ``relation``: the
    view or topic, an erasure's subject, or the key whose rights are told. ``detail``: by which way, or the rights.
    """

    action: str
    who: str
    relation: str | None = None
    columns: Sequence[str] = ()
    rows: int | None = None  # None: not known
    detail: str | None = None


def is_of_trail(topic: str) -> bool:
    """Whether a topic is the trail, or has copies of its rows: dead letters, late rows.

    >>> [is_of_trail(name) for name in ("_audit", "_audit.readers.dead", "_auditors")]
    [True, True, False]
    """
    return topic == AUDIT_TOPIC or topic.startswith(f"{AUDIT_TOPIC}.")


def begin_trail(log: Log) -> Topic:
    """The topic, made if the home has none.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> note_audit(log, AuditEntry("erase", "anna", "user_id"))  # nothing: there is no trail
    False
    >>> trail = begin_trail(log)
    >>> note_audit(log, AuditEntry("erase", "anna", "user_id"))
    True
    >>> [(row["action"], row["who"], row["relation"]) for row in trail.rows()]
    [('erase', 'anna', 'user_id')]
    """
    found = log.find_topic(AUDIT_TOPIC)
    return log.topic(AUDIT_TOPIC, AUDIT_SCHEMA, **AUDIT_SETTINGS) if found is None else found


def note_audit(log: Log, entry: AuditEntry) -> bool:
    """Append to the trail; False when the home has none."""
    topic = log.find_topic(AUDIT_TOPIC)
    if topic is None or log.read_only:
        return False
    at = dt.datetime.fromtimestamp(log.clock.now_us() / 1e6, dt.UTC)
    topic.append([{"at": at, **vars(entry), "columns": list(entry.columns)}])
    return True


def note_settings(log: Log, topic: str, before: TopicSettings, after: TopicSettings) -> None:
    """Append which settings of a topic are others now, and what they are."""
    was, now = asdict(before), asdict(after)
    changed = {name: now[name] for name in sorted(now) if now[name] != was[name]}
    note_audit(log, AuditEntry("settings", local_user(), topic, list(changed), detail=json.dumps(changed)))


def local_user() -> str:
    """Who works on this machine, as the trail names them."""
    try:
        return f"local:{getpass.getuser()}"
    except (OSError, KeyError):  # a user without a name
        return "local:unknown"
