"""Alerts: conditions that a user should act on, told when they begin and when they are over.

What it is: conditions such as a damaged segment, late rows of a view, a paused view, a failing sink; stored in the
catalog, published by a callback and in the topic ``_alerts``.
Invariants: a condition is told when it begins, not again while it lasts, and once more when it is over; after that it
may begin again. Beginning and ending are one transaction each, which also writes the event to an outbox; so of several
processes one tells it, and it is in ``_alerts`` exactly once, also when that process dies in between, because the
event's number is the sequence of an idempotent producer. The callback is called afterwards, at most once.
Not here: lag and abandoned readers (``reader_alerts.py``), when conditions are checked (``maintenance.py``), finding
damage (``home_check.py``). Read next: ``reader_alerts.py``, ``maintenance.py``.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from headwater.clock import format_us
from headwater.log.storage.locks import FileLock
from headwater.log.topic_settings import TopicOptions

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic
    from headwater.log.home import Log
    from headwater.log.topic import Topic

logger = logging.getLogger("headwater.log")

ALERTS_TOPIC = "_alerts"
ALERTS_SCHEMA = (
    "at TIMESTAMP, kind STRING, topic STRING, `group` STRING, `partition` INT, message STRING, detail STRING, "
    "state STRING"
)
ALERTS_SETTINGS: TopicOptions = {"event_time": "at", "retention_bytes": 16 << 20, "segment_bytes_max": 1 << 20}
PRODUCER = "headwater-alerts"
GROUP_KINDS = ("lag_at_risk", "lag_lost", "group_abandoned")  # the subject is a reader

AlertState = Literal["begin", "end", "once"]

TABLES_ALERTS = """
CREATE TABLE IF NOT EXISTS alert_conditions (  -- those that last
    topic_id INTEGER NOT NULL,           -- of a deleted topic they are ended, and told so
    kind TEXT NOT NULL,
    partition INTEGER NOT NULL,
    subject TEXT NOT NULL,               -- the reader's name, or the file's
    topic TEXT NOT NULL,
    since_us INTEGER NOT NULL,
    message TEXT NOT NULL,
    detail TEXT NOT NULL,                -- JSON
    PRIMARY KEY (topic_id, kind, partition, subject)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS alert_events (      -- what is to be told; deleted once it was
    id INTEGER PRIMARY KEY AUTOINCREMENT,      -- also the sequence under which it is written to the topic _alerts
    at_us INTEGER NOT NULL,
    state TEXT NOT NULL,
    kind TEXT NOT NULL,
    partition INTEGER NOT NULL,
    subject TEXT NOT NULL,
    topic TEXT NOT NULL,
    message TEXT NOT NULL,
    detail TEXT NOT NULL
);
"""


@dataclass(frozen=True)
class Alert:
    """The argument of ``Log(on_alert=…)``, and the content of a row of ``_alerts``.

    ``state``: "begin", "end" (it is over; the message says why), or "once" (it happened, and does not last).
    ``kind``: "lag_at_risk" (retention will soon drop what a group or app has not read), "lag_lost" (it did),
    "group_abandoned" (no member reads on), "loss_accepted" (an app went on without the rows that it lost), "corruption"
    (a segment is damaged), "view_damaged" (a file below ``views/`` is), "late_rows" (too many rows come too late for a
    view), "capture_lag" (a captured database keeps much of its log for us), "capture_failed" (a capture ended with an
    error), "process" (a process's request is stuck, or its function fails), "view_paused" (a view failed and stands
    still), "set_aside" (a record was set aside), "sink" (one does not answer, or was refused) or "engine" (rows of an
    app wait and no tick comes). An alert without a topic has the topic of the alerts.

    >>> alert = Alert(at_us=0, kind="lag_lost", topic="orders", group="billing", partition=0, message="…", detail={})
    >>> alert.to_dict()["at"], alert.state
    ('1970-01-01T00:00:00.000Z', 'begin')
    """

    at_us: int
    kind: str
    topic: str
    group: str | None
    partition: int
    message: str
    detail: Mapping[str, Any]
    state: AlertState = "begin"

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return {"at": format_us(values.pop("at_us")), **values}

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True)
class Condition:
    """What an alert is about, before it is told."""

    kind: str
    partition: int
    subject: str
    message: str
    detail: dict[str, Any]

    @property
    def name(self) -> tuple[str, int, str]:
        """What distinguishes it from the other conditions of its topic."""
        return (self.kind, self.partition, self.subject)


# Damage


def note_corruption(topic: Topic, partition: int, file: str, message: str) -> None:
    """Note a damaged segment, once until ``check`` finds it undamaged."""
    condition = Condition("corruption", partition, file, message, {"file": file})
    with topic.log.catalog.write() as db:
        begin(db, topic.id, condition, topic.clock.now_us())


# Late rows and captures


def note_late_rows(log: Log, topic: EventTopic, view: str, message: str | None, detail: dict[str, Any]) -> bool:
    """Note that many rows of a topic are late for a view (``message``), or that it is over; whether that is news."""
    about = topic if topic.log is log else alerts_topic(log)  # a topic of another log has no row in this catalog
    return _note_one(about, Condition("late_rows", 0, view, message or "", {"view": view, **detail}), bool(message))


def note_capture(topic: EventTopic, kind: str, capture: str, message: str | None, detail: dict[str, Any]) -> None:
    """Note "capture_lag" or "capture_failed" (``message``) of the capture with these markers, or that it is over."""
    log = topic.log.local
    about = topic if topic.log is log else alerts_topic(log)
    if _note_one(about, Condition(kind, 0, capture, message or "", {"capture": capture, **detail}), bool(message)):
        publish(log)


def _note_one(topic: EventTopic, condition: Condition, lasts: bool) -> bool:
    """Begin or end one condition of a topic; whether anything changed."""
    catalog = topic.log.local.catalog
    if (condition.name in lasting_names(catalog.read, topic.id, (condition.kind,))) == lasts:
        return False
    with catalog.write() as db:
        now_us = topic.clock.now_us()
        return begin(db, topic.id, condition, now_us) if lasts else end(db, topic.id, condition.name, now_us)


# Apps: views, sinks, engines


def note_paused(log: Log, app: str, paused: Mapping[str, tuple[str, dict[str, Any]]]) -> None:
    """Note the paused views of an app ({view: message, detail}), and end all others."""
    lasting = {
        row["subject"]
        for row in log.catalog.read(
            "SELECT subject FROM alert_conditions WHERE kind = 'view_paused' AND subject LIKE ? ESCAPE '!'",
            (app.replace("_", "!_") + "/%",),
        )
    }
    wanted = {f"{app}/{view}": (view, *about) for view, about in paused.items()}
    if set(wanted) == lasting:
        return
    topic = alerts_topic(log)
    with log.catalog.write() as db:
        for subject in lasting - set(wanted):
            end(db, topic.id, ("view_paused", 0, subject), log.clock.now_us(), "It goes on.")
        for subject, (view, message, detail) in wanted.items():
            condition = Condition("view_paused", 0, subject, message, {"app": app, "view": view, **detail})
            begin(db, topic.id, condition, log.clock.now_us())
    publish(log)


def note_set_aside(log: Log, record: str, message: str, detail: dict[str, Any]) -> None:
    """Tell once that a record was set aside."""
    note_once(log, Condition("set_aside", 0, f"{detail['app']}/{record}", message, detail))


def note_once(log: Log, condition: Condition, topic: str | None = None) -> None:
    """Tell of something that happened and does not last; of no topic, if none is named."""
    about = topic or alerts_topic(log).name
    with log.catalog.write() as db:
        _tell(db, about, condition, log.clock.now_us(), "once")
    publish(log)


def note_sink(log: Log, sink: str, message: str | None, detail: dict[str, Any]) -> None:
    """Note a failing sink (``message``), or that it follows again."""
    _note_app(log, Condition("sink", 0, sink, message or "", {"sink": sink, **detail}), lasts=message is not None)


def note_process(log: Log, request: str, message: str | None, detail: dict[str, Any]) -> None:
    """Note that a process's request is stuck or fails (``message``), or that it goes on."""
    _note_app(log, Condition("process", 0, request, message or "", detail), lasts=message is not None)


def note_engine(log: Log, app: str, message: str | None, detail: dict[str, Any]) -> None:
    """Note that rows of an app wait and no tick comes (``message``), or that one came."""
    _note_app(log, Condition("engine", 0, app, message or "", {"app": app, **detail}), lasts=message is not None)


def note_drill(log: Log, address: str, message: str | None, detail: dict[str, Any]) -> None:
    """Note that a drill of backups failed or is overdue (``message``), or that one was good."""
    _note_app(log, Condition("backup_drill", 0, address, message or "", detail), lasts=message is not None)


def note_backup(log: Log, address: str, message: str | None, detail: dict[str, Any]) -> None:
    """Note that a scheduled backup failed (``message``), or that one was made."""
    _note_app(log, Condition("backup", 0, address, message or "", detail), lasts=message is not None)


def _note_app(log: Log, condition: Condition, *, lasts: bool) -> None:
    """Begin or end a condition that concerns no topic."""
    where = (condition.kind, condition.subject)
    if not lasts and not log.catalog.read("SELECT 1 FROM alert_conditions WHERE kind = ? AND subject = ?", where):
        return
    if _note_one(alerts_topic(log), condition, lasts):
        publish(log)


def resolve_corruption(topic: Topic, still: set[tuple[int, str]]) -> None:
    """End corruption alerts after a complete ``check`` of a topic, except for (partition, file) in ``still``."""
    catalog = topic.log.catalog
    ended = lasting_names(catalog.read, topic.id, ("corruption",)) - {("corruption", *where) for where in still}
    if ended:
        with catalog.write() as db:
            for name in ended:
                end(db, topic.id, name, topic.clock.now_us(), "The check finds it sound.")


def end_of_topic(log: Log, topic_id: int) -> None:
    """End the conditions of a topic that was deleted."""
    with log.catalog.write() as db:
        rows = db.execute("SELECT kind, partition, subject FROM alert_conditions WHERE topic_id = ?", (topic_id,))
        for row in rows.fetchall():
            end(db, topic_id, tuple(row), log.clock.now_us(), "The topic was deleted.")
    publish(log)


# Storing and publishing


def alerts_topic(log: Log) -> Topic:
    """The topic of the alerts."""
    return log.topic(ALERTS_TOPIC, ALERTS_SCHEMA, **ALERTS_SETTINGS)


def lasting_names(
    read: Callable[[str, Sequence[Any]], list[sqlite3.Row]], topic_id: int, kinds: Sequence[str]
) -> set[tuple[str, int, str]]:
    """The names of the conditions of a topic that last, of these kinds."""
    marks = ", ".join("?" * len(kinds))
    rows = read(
        f"SELECT kind, partition, subject FROM alert_conditions WHERE topic_id = ? AND kind IN ({marks})",
        (topic_id, *kinds),
    )
    return {(row["kind"], row["partition"], row["subject"]) for row in rows}


def begin(db: sqlite3.Connection, topic_id: int, condition: Condition, now_us: int) -> bool:
    """Let a condition begin, inside a transaction; False when it lasts already."""
    topic = db.execute("SELECT name FROM topics WHERE id = ?", (topic_id,)).fetchone()
    if topic is None:
        return False  # deleted meanwhile
    kept = db.execute(
        "INSERT OR IGNORE INTO alert_conditions"
        " (topic_id, kind, partition, subject, topic, since_us, message, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (topic_id, *condition.name, topic["name"], now_us, condition.message, json.dumps(condition.detail)),
    )
    if not kept.rowcount:
        return False
    _tell(db, topic["name"], condition, now_us, "begin")
    return True


def end(db: sqlite3.Connection, topic_id: int, name: tuple[str, int, str], now_us: int, why: str = "") -> bool:
    """Let a condition end, inside a transaction; False when it does not last."""
    where = " WHERE topic_id = ? AND kind = ? AND partition = ? AND subject = ?"
    row = db.execute(f"SELECT * FROM alert_conditions{where}", (topic_id, *name)).fetchone()
    if row is None:
        return False
    db.execute(f"DELETE FROM alert_conditions{where}", (topic_id, *name))
    detail = {**json.loads(row["detail"]), "since": format_us(row["since_us"])}
    message = f"over: {row['message']}" if not why else f"over: {row['message']}. {why}"
    _tell(db, row["topic"], Condition(*name, message, detail), now_us, "end")
    return True


def _tell(db: sqlite3.Connection, topic: str, condition: Condition, now_us: int, state: AlertState) -> None:
    db.execute(
        "INSERT INTO alert_events (at_us, state, kind, partition, subject, topic, message, detail)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (now_us, state, *condition.name, topic, condition.message, json.dumps(condition.detail)),
    )


def publish(log: Log) -> list[Alert]:
    """Append every event of the outbox to ``_alerts``, then call ``log.on_alert``; returns them."""
    if not log.catalog.read("SELECT 1 FROM alert_events LIMIT 1"):
        return []
    topic = alerts_topic(log)
    published = []
    lock = FileLock(log.home / "alerts.lock")
    try:
        # One at a time, in the order of their numbers: the idempotent producer takes a lower one for a repetition.
        with lock:
            for row in log.catalog.read("SELECT * FROM alert_events ORDER BY id"):
                alert = _alert(row, row["at_us"], row["state"])
                topic.append([_record(alert)], producer=PRODUCER, sequence=row["id"])
                with log.catalog.write() as db:
                    db.execute("DELETE FROM alert_events WHERE id = ?", (row["id"],))
                published.append(alert)
    finally:
        lock.close()
    for alert in published:
        logger.log(logging.INFO if alert.state == "end" else logging.WARNING, "%s", alert)
        if log.on_alert is not None:
            try:
                log.on_alert(alert)
            except Exception:
                logger.exception("on_alert failed for %s", alert)
    return published


def lasting(log: Log) -> list[Alert]:
    """The conditions that last, the latest first.

    >>> import headwater as hw, tempfile
    >>> lasting(hw.Log(tempfile.mkdtemp()))
    []
    """
    return [_alert(row, row["since_us"], "begin") for row in lasting_rows(log)]


def lasting_rows(log: Log) -> list[sqlite3.Row]:
    """The same as rows of the catalog, with each one's subject."""
    return log.catalog.read("SELECT * FROM alert_conditions ORDER BY since_us DESC, topic, kind, partition, subject")


def _alert(row: sqlite3.Row, at_us: int, state: AlertState) -> Alert:
    is_group = row["kind"] in GROUP_KINDS and ":" not in row["subject"]
    group = row["subject"] if is_group else None
    return Alert(
        at_us, row["kind"], row["topic"], group, row["partition"], row["message"], json.loads(row["detail"]), state
    )


def _record(alert: Alert) -> dict[str, Any]:
    values = asdict(alert)
    at = dt.datetime.fromtimestamp(values.pop("at_us") / 1_000_000, dt.UTC)
    return {**values, "at": at, "detail": json.dumps(values["detail"])}
