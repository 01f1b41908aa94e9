"""Alerts: conditions that a user should act on.

What it is: conditions such as a group that retention is about to overtake or has overtaken, a damaged segment, late
rows of a view, a paused view, a failing sink; stored in the catalog, published by a callback and in the topic
``_alerts``.
Invariants: a condition is published when it begins and not again while it lasts; after it ended it may begin again.
Noting a condition is one transaction, so one of several processes publishes it. It is in ``_alerts`` exactly once, also
when that process dies in between, because its number is the sequence of an idempotent producer. A loss is noted in the
transaction that loses. The callback is called afterwards, by the publishing process, at most once.
Not here: when conditions are checked (``maintenance.py``), dropping segments (``retention.py``), finding damage
(``home_check.py``). Read next: ``maintenance.py``.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.log.catalog.registry import TopicRow
from headwater.log.storage.locks import FileLock
from headwater.log.storage.partition_layout import SegmentSpan, spans_of
from headwater.log.topic_settings import TopicOptions, TopicSettings

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic

logger = logging.getLogger("headwater.log")

ALERTS_TOPIC = "_alerts"
ALERTS_SCHEMA = (
    "at TIMESTAMP, kind STRING, topic STRING, `group` STRING, `partition` INT, message STRING, detail STRING"
)
ALERTS_SETTINGS: TopicOptions = {"event_time": "at", "retention_bytes": 16 << 20, "segment_bytes_max": 1 << 20}
RISK = 0.8  # of the retention limit

TABLES_ALERTS = """
CREATE TABLE IF NOT EXISTS alerts (     -- conditions that last, or are not published yet
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- also the sequence under which it is written to the topic _alerts
    topic_id INTEGER NOT NULL REFERENCES topics(id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    partition INTEGER NOT NULL,
    subject TEXT NOT NULL,               -- the group's name, or the file's
    at_us INTEGER NOT NULL,
    message TEXT NOT NULL,
    detail TEXT NOT NULL,                -- JSON
    published INTEGER NOT NULL DEFAULT 0,
    lasting INTEGER NOT NULL DEFAULT 1,
    UNIQUE (topic_id, kind, partition, subject)
);
"""


@dataclass(frozen=True)
class Alert:
    """The argument of ``Log(on_alert=…)``, and the content of a row of ``_alerts``.

    ``kind``: "lag_at_risk" (retention will soon drop what the group has not read), "lag_lost" (it did), "corruption"
    (a segment is damaged), "late_rows" (too many rows come too late for a view), "capture_lag" (a captured database
    keeps much of its log for us), "capture_failed" (a capture ended with an error), "view_paused" (a view failed and
    stands still), "set_aside" (a record was set aside), "sink" (one does not answer, or was refused) or "engine" (rows
    of an app wait and no tick comes). An alert without a topic has the topic of the alerts.

    >>> alert = Alert(at_us=0, kind="lag_lost", topic="orders", group="billing", partition=0, message="…", detail={})
    >>> alert.to_dict()["at"]
    '1970-01-01T00:00:00.000Z'
    """

    at_us: int
    kind: str
    topic: str
    group: str | None
    partition: int
    message: str
    detail: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return {"at": format_us(values.pop("at_us")), **values}

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True)
class _Condition:
    kind: str
    partition: int
    subject: str
    message: str
    detail: dict[str, Any]

    @property
    def name(self) -> tuple[str, int, str]:
        return (self.kind, self.partition, self.subject)


# Lag


def risk(spans: Sequence[SegmentSpan], settings: TopicSettings, position: int, now_us: int) -> tuple[float, str]:
    """The fraction of a retention limit that the oldest unread segment has reached (1.0: due), and which limit.

    >>> spans = [SegmentSpan(0, 10, 400, newest_us=0), SegmentSpan(10, 20, 400, newest_us=5_000)]
    >>> risk(spans, TopicSettings(retention_ms=10), position=3, now_us=9_000)
    (0.9, 'age')
    >>> risk(spans, TopicSettings(retention_bytes=1_000), position=10, now_us=9_000)
    (0.4, 'bytes')
    """
    unread = [span for span in spans if span.next_offset > position]
    if not unread:
        return 0.0, "age"
    by_age = by_bytes = 0.0
    if settings.retention_ms is not None:
        by_age = (now_us - unread[0].newest_us) / (settings.retention_ms * 1000)
    if settings.retention_bytes is not None and not unread[0].active:
        by_bytes = sum(span.bytes for span in unread) / settings.retention_bytes
    return (by_age, "age") if by_age >= by_bytes else (by_bytes, "bytes")


def watch_groups(topic: Topic) -> None:
    """Note the groups of a topic that retention endangers or has overtaken, and resolve the others."""
    catalog, row = topic.log.catalog, topic.row()
    settings = row.settings
    limited = settings.retention_ms is not None or settings.retention_bytes is not None
    numbers = range(settings.partitions) if limited and _positions(catalog.read, row.id) else ()
    spans = {number: spans_of(topic, number) for number in numbers}
    now_us = topic.clock.now_us()

    found = _conditions(row, _positions(catalog.read, row.id), spans, now_us)
    if set(found) == _lasting(catalog.read, row.id):
        return
    with catalog.write() as db:
        # Checked again inside, because another process may have been faster.
        def read(sql: str, parameters: Sequence[Any]) -> list[sqlite3.Row]:
            return db.execute(sql, parameters).fetchall()

        found = _conditions(row, _positions(read, row.id), spans, now_us)
        for condition in found.values():
            _note(db, row.id, condition, now_us)
        for kind, partition, subject in _lasting(read, row.id) - set(found):
            _resolve(db, row.id, kind, partition, subject)


def note_lost(db: sqlite3.Connection, row: TopicRow, partition: int, now_us: int) -> None:
    """Note the groups that were before a partition's new start; inside the transaction that moves it."""

    def read(sql: str, parameters: Sequence[Any]) -> list[sqlite3.Row]:
        return db.execute(sql, parameters).fetchall()

    for position in _positions(read, row.id):
        if position["partition"] == partition and position["offset"] < position["start_offset"]:
            _note(db, row.id, _lost(row, position), now_us)


def _positions(read: Any, topic_id: int) -> list[sqlite3.Row]:
    rows: list[sqlite3.Row] = read(
        "SELECT groups.name, positions.partition, positions.offset, partitions.start_offset FROM groups"
        " JOIN positions ON positions.group_id = groups.id"
        " JOIN partitions ON partitions.topic_id = groups.topic_id AND partitions.partition = positions.partition"
        " WHERE groups.topic_id = ? ORDER BY groups.name, positions.partition",
        (topic_id,),
    )
    return rows


def _conditions(
    row: TopicRow, positions: Sequence[sqlite3.Row], spans: Mapping[int, Sequence[SegmentSpan]], now_us: int
) -> dict[tuple[str, int, str], _Condition]:
    found = []
    for position in positions:
        if position["offset"] < position["start_offset"]:
            found.append(_lost(row, position))
        parts = spans.get(position["partition"], ())
        offset = max(position["offset"], position["start_offset"])
        part, by = risk(parts, row.settings, offset, now_us)
        if part >= RISK:
            found.append(_at_risk(row, position, offset, parts[-1].next_offset, part, by))
    return {condition.name: condition for condition in found}


def _lost(row: TopicRow, position: sqlite3.Row) -> _Condition:
    group, partition, start = position["name"], position["partition"], position["start_offset"]
    lost = start - position["offset"]
    return _Condition(
        "lag_lost",
        partition,
        group,
        f'retention of topic "{row.name}" has overtaken group "{group}" in partition {partition}: '
        f"{lost} rows were dropped before it read them",
        {"position": position["offset"], "start": start, "rows_lost": lost},
    )


def _at_risk(row: TopicRow, position: sqlite3.Row, offset: int, end: int, part: float, by: str) -> _Condition:
    group, partition = position["name"], position["partition"]
    limit = row.settings.retention_ms if by == "age" else row.settings.retention_bytes
    setting = f"retention={limit} ms" if by == "age" else f"retention_bytes={limit}"
    return _Condition(
        "lag_at_risk",
        partition,
        group,
        f'group "{group}" is {end - offset} rows behind in topic "{row.name}" partition {partition}, and the oldest '
        f"of them have reached {min(part, 1.0):.0%} of {setting}",
        {"position": offset, "end": end, "lag": end - offset, "part": round(part, 3), "by": by},
    )


# Damage


def note_corruption(topic: Topic, partition: int, file: str, message: str) -> None:
    """Note a damaged segment, once until ``check`` finds it undamaged."""
    condition = _Condition("corruption", partition, file, message, {"file": file})
    with topic.log.catalog.write() as db:
        _note(db, topic.id, condition, topic.clock.now_us())


# Late rows


def note_late_rows(topic: Topic, view: str, message: str | None, detail: dict[str, Any]) -> bool:
    """Note that many rows of a topic are late for a view (``message``), or resolve it; whether that is new."""
    catalog, row = topic.log.catalog, topic.row()
    lasts = ("late_rows", 0, view) in _lasting(catalog.read, row.id, "late_rows")
    if lasts == (message is not None):
        return False
    with catalog.write() as db:
        if message is not None:
            _note(db, row.id, _Condition("late_rows", 0, view, message, {"view": view, **detail}), topic.clock.now_us())
        else:
            _resolve(db, row.id, "late_rows", 0, view)
    return message is not None


def note_capture(topic: Topic, kind: str, capture: str, message: str | None, detail: dict[str, Any]) -> bool:
    """Note "capture_lag" or "capture_failed" (``message``), or resolve it; whether it is new."""
    catalog, row = topic.log.catalog, topic.row()
    lasts = (kind, 0, capture) in _lasting(catalog.read, row.id, kind)
    if lasts == (message is not None):
        return False
    with catalog.write() as db:
        if message is not None:
            condition = _Condition(kind, 0, capture, message, {"capture": capture, **detail})
            _note(db, row.id, condition, topic.clock.now_us())
        else:
            _resolve(db, row.id, kind, 0, capture)
    return message is not None


# Views that fail


def note_paused(log: Log, app: str, paused: Mapping[str, tuple[str, dict[str, Any]]]) -> None:
    """Note the paused views of an app ({view: message, detail}), and resolve all others."""
    lasting = {
        row["subject"]
        for row in log.catalog.read(
            "SELECT subject FROM alerts WHERE kind = 'view_paused' AND lasting AND subject LIKE ? ESCAPE '!'",
            (app.replace("_", "!_") + "/%",),
        )
    }
    wanted = {f"{app}/{view}": (view, *about) for view, about in paused.items()}
    if set(wanted) == lasting:
        return
    topic = log.topic(ALERTS_TOPIC, ALERTS_SCHEMA, **ALERTS_SETTINGS)
    with log.catalog.write() as db:
        for subject in lasting - set(wanted):
            _resolve(db, topic.id, "view_paused", 0, subject)
        for subject, (view, message, detail) in wanted.items():
            condition = _Condition("view_paused", 0, subject, message, {"app": app, "view": view, **detail})
            _note(db, topic.id, condition, log.clock.now_us())
    publish(log)


def note_set_aside(log: Log, record: str, message: str, detail: dict[str, Any]) -> None:
    """Note a record that was set aside: published once, not a lasting condition."""
    topic = log.topic(ALERTS_TOPIC, ALERTS_SCHEMA, **ALERTS_SETTINGS)
    subject = f"{detail['app']}/{record}"
    with log.catalog.write() as db:
        _note(db, topic.id, _Condition("set_aside", 0, subject, message, detail), log.clock.now_us())
        _resolve(db, topic.id, "set_aside", 0, subject)
    publish(log)


# Sinks


def note_sink(log: Log, sink: str, message: str | None, detail: dict[str, Any]) -> None:
    """Note a failing sink (``message``), or resolve it; published when it begins."""
    if message is None and not log.catalog.read("SELECT 1 FROM alerts WHERE kind = 'sink' AND subject = ?", (sink,)):
        return
    topic = log.topic(ALERTS_TOPIC, ALERTS_SCHEMA, **ALERTS_SETTINGS)
    with log.catalog.write() as db:
        if message is None:
            _resolve(db, topic.id, "sink", 0, sink)
        else:
            condition = _Condition("sink", 0, sink, message, {"sink": sink, **detail})
            _note(db, topic.id, condition, log.clock.now_us())
    publish(log)


def note_engine(log: Log, app: str, message: str | None, detail: dict[str, Any]) -> None:
    """Note that rows of an app wait and no tick comes (``message``), or resolve it; published when it begins."""
    if message is None and not log.catalog.read("SELECT 1 FROM alerts WHERE kind = 'engine' AND subject = ?", (app,)):
        return
    topic = log.topic(ALERTS_TOPIC, ALERTS_SCHEMA, **ALERTS_SETTINGS)
    with log.catalog.write() as db:
        if message is None:
            _resolve(db, topic.id, "engine", 0, app)
        else:
            _note(db, topic.id, _Condition("engine", 0, app, message, {"app": app, **detail}), log.clock.now_us())
    publish(log)


def resolve_corruption(topic: Topic, still: set[tuple[int, str]]) -> None:
    """Resolve corruption alerts after a complete ``check`` of a topic, except for (partition, file) in ``still``."""
    catalog = topic.log.catalog
    ended = _lasting(catalog.read, topic.id, "corruption") - {("corruption", *where) for where in still}
    if ended:
        with catalog.write() as db:
            for kind, partition, subject in ended:
                _resolve(db, topic.id, kind, partition, subject)


# Storing and publishing


def _lasting(read: Any, topic_id: int, family: str = "lag") -> set[tuple[str, int, str]]:
    rows = read(
        "SELECT kind, partition, subject FROM alerts WHERE topic_id = ? AND lasting AND kind LIKE ?",
        (topic_id, f"{family}%"),
    )
    return {(row["kind"], row["partition"], row["subject"]) for row in rows}


def _note(db: sqlite3.Connection, topic_id: int, condition: _Condition, now_us: int) -> None:
    db.execute(
        "INSERT INTO alerts (topic_id, kind, partition, subject, at_us, message, detail) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET lasting = 1",
        (topic_id, *condition.name, now_us, condition.message, json.dumps(condition.detail)),
    )


def _resolve(db: sqlite3.Connection, topic_id: int, kind: str, partition: int, subject: str) -> None:
    where = "topic_id = ? AND kind = ? AND partition = ? AND subject = ?"
    values = (topic_id, kind, partition, subject)
    # An unpublished one is still published, and deleted then.
    db.execute(f"DELETE FROM alerts WHERE published AND {where}", values)
    db.execute(f"UPDATE alerts SET lasting = 0 WHERE {where}", values)


def publish(log: Log) -> list[Alert]:
    """Append every unpublished alert to ``_alerts``, then call ``log.on_alert``; returns them."""
    unpublished = (
        "SELECT alerts.*, topics.name FROM alerts JOIN topics ON topics.id = topic_id WHERE NOT published ORDER BY id"
    )
    if not log.catalog.read(unpublished):
        return []
    topic = log.topic(ALERTS_TOPIC, ALERTS_SCHEMA, **ALERTS_SETTINGS)
    published = []
    lock = FileLock(log.home / "alerts.lock")
    try:
        # One at a time, in the order of their numbers: the idempotent producer takes a lower one for a repetition.
        with lock:
            for row in log.catalog.read(unpublished):
                alert = _alert(row)
                topic.append([_record(alert)], producer="headwater", sequence=row["id"])
                with log.catalog.write() as db:
                    db.execute("UPDATE alerts SET published = 1 WHERE id = ?", (row["id"],))
                    db.execute("DELETE FROM alerts WHERE id = ? AND NOT lasting", (row["id"],))
                published.append(alert)
    finally:
        lock.close()
    for alert in published:
        logger.warning("%s", alert)
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
    return [_alert(row) for row in lasting_rows(log)]


def lasting_rows(log: Log) -> list[sqlite3.Row]:
    """The same as rows of the catalog, with each one's subject."""
    return log.catalog.read(
        "SELECT alerts.*, topics.name FROM alerts JOIN topics ON topics.id = topic_id WHERE lasting ORDER BY id DESC"
    )


def _alert(row: sqlite3.Row) -> Alert:
    group = row["subject"] if row["kind"].startswith("lag") else None
    detail = json.loads(row["detail"])
    return Alert(row["at_us"], row["kind"], row["name"], group, row["partition"], row["message"], detail)


def _record(alert: Alert) -> dict[str, Any]:
    import datetime as dt

    values = asdict(alert)
    at = dt.datetime.fromtimestamp(values.pop("at_us") / 1_000_000, dt.UTC)
    return {**values, "at": at, "detail": json.dumps(values["detail"])}
