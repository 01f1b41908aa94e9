"""Topic settings: everything that a declaration says besides the columns.

What it is: ``TopicSettings``, a frozen record with defaults, checked when created, stored as JSON in the catalog;
``TopicOptions`` and ``TableOptions``, the keyword arguments of a declaration, for editors and type checkers.
Invariants: key, event_time, clock, partitions, values and events never change; other settings may be declared again.
Not here: the schema (``log/schema/normalization.py``), the effect of settings (``log/storage/partition_writer.py``,
``log/maintenance/retention.py``, ``log/maintenance/compaction.py``, ``log/groups/backpressure.py``).
Read next: ``docs/log.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypedDict

from headwater.durations import Duration, to_us
from headwater.errors import InvalidDeclaration
from headwater.hints import closest
from headwater.log.schema.personal_columns import Personal, declared_privacy
from headwater.log.schema.row_claims import declared_rows_by

Fsync = Literal["always", "interval", "never"]
Overflow = Literal["keep", "drop", "block"]
ValueForm = Literal["json", "arrow", "avro", "raw"]
Partitioner = Literal["murmur2", "crc32"]

PARTITIONS_MAX = 1024
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
FOREVER = ("key", "ordered_by", "event_time", "partitions", "clock", "values", "events")
UNTIL_READ = re.compile(r"\s*until read(?:,\s*at most\s+(?P<limit>.+))?", re.IGNORECASE)
# Declared as durations ("7 days", a timedelta, seconds), stored in milliseconds.
DURATIONS = {
    "lateness": "lateness_ms",
    "idle": "idle_ms",
    "fsync_interval": "fsync_interval_ms",
    "segment_age_max": "segment_ms_max",
    "retention": "retention_ms",
    "tombstone_grace": "tombstone_grace_ms",
    "block_timeout": "block_timeout_ms",
    "remember_ids": "remember_ids_ms",
    "group_expiry": "group_expiry_ms",
}
_DECLARED_AS = {stored: name for name, stored in DURATIONS.items()}


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """The settings of one topic as they are stored. Times in milliseconds, sizes in bytes; see ``declared``.

    >>> TopicSettings(key=("id",), partitions=4).fsync
    'interval'
    >>> TopicSettings(fsync="sometimes")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: fsync cannot be 'sometimes'
      Hint: Use one of: always, interval, never.
    """

    key: tuple[str, ...] = ()
    ordered_by: tuple[str, ...] = ()  # routes rows without making them upserts: each one is an event
    event_time: str | None = None
    lateness_ms: int = 0
    idle_ms: int | None = 60_000
    clock: tuple[str, str] | None = None
    partitions: int = 1
    fsync: Fsync = "interval"
    fsync_interval_ms: int = 50
    segment_bytes_max: int = 128 << 20
    segment_ms_max: int = 24 * 3600 * 1000
    retention_ms: int | None = None
    retention_bytes: int | None = None
    until_read: bool = False  # what every reader has read goes; the two limits above are for what is unread
    archive: str | None = None
    compact: bool = False
    tombstone_grace_ms: int = 24 * 3600 * 1000
    overflow: Overflow = "keep"
    overflow_rows_max: int | None = None
    block_timeout_ms: int = 30_000
    remember_ids_ms: int = 7 * 24 * 3600 * 1000  # for how long a request id is recognised
    group_expiry_ms: int | None = 30 * 24 * 3600 * 1000
    values: ValueForm | None = None  # what messages of a log on Kafka hold; the embedded log has its own form
    partitioner: Partitioner = "murmur2"  # by which keys find their partition on Kafka; the embedded log has its own
    captured_by: str | None = None  # the capture that writes it; ticks read it up to the capture's last marker
    events: bool = False  # a history of events: complete for ever, and written through its event store alone
    privacy: Mapping[str, Personal] = field(default_factory=dict)  # personal columns; none without a declaration
    proof: bool = False  # sealed rows are hashed, so that a change of them can be found and proven
    rows_by: Mapping[str, str] = field(default_factory=dict)  # column to claim: readers see the rows of their claims

    def __post_init__(self) -> None:
        _one_of("fsync", self.fsync, ("always", "interval", "never"))
        _one_of("overflow", self.overflow, ("keep", "drop", "block"))
        _one_of("values", self.values or "json", ("json", "arrow", "avro", "raw"))
        _one_of("partitioner", self.partitioner, ("murmur2", "crc32"))
        if self.key and self.values in ("arrow", "raw"):
            raise InvalidDeclaration(
                f'values="{self.values}" does not go with a key',
                detail="Of a topic with a key each row is a message of its own, under its key.",
                hint='Use values="json" or "avro".',
            )
        if not 1 <= self.partitions <= PARTITIONS_MAX:
            raise InvalidDeclaration(
                f"partitions cannot be {self.partitions!r}",
                hint=f"Use a number from 1 to {PARTITIONS_MAX}; as many as the consumers that will share the work.",
            )
        for name in (
            "fsync_interval_ms",
            "segment_bytes_max",
            "segment_ms_max",
            "retention_ms",
            "retention_bytes",
            "overflow_rows_max",
            "idle_ms",
            "remember_ids_ms",
            "group_expiry_ms",
        ):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value <= 0):
                unit = (
                    "Use a time of at least a millisecond."
                    if name in _DECLARED_AS
                    else "Use a whole number above zero."
                )
                raise InvalidDeclaration(f"{_DECLARED_AS.get(name, name)} cannot be {value!r}", hint=unit)
        if not isinstance(self.lateness_ms, int) or self.lateness_ms < 0:
            raise InvalidDeclaration(f"lateness cannot be {self.lateness_ms!r}", hint="Use a time of 0 or more.")
        if self.clock is not None and (len(self.clock) != 2 or self.event_time in (None, *self.clock)):
            raise InvalidDeclaration(
                f"clock={self.clock!r} cannot be used with event_time={self.event_time!r}",
                hint='Name the device\'s columns, clock=("occurred_at", "sent_at"), and another one that Headwater '
                'fills with the corrected time: event_time="at".',
            )
        if self.key and self.ordered_by:
            raise InvalidDeclaration(
                "key and ordered_by exclude each other",
                detail="With a key a row takes the place of the one before; ordered_by keeps every row as an event.",
                hint='Declare ordered_by="account_id" for events in order, key="account_id" for the latest state.',
            )
        if self.events:
            self._check_history()
        if self.compact and not self.key:
            raise InvalidDeclaration(
                "compact=True needs a key", hint='Compaction keeps the latest row of each key: declare key="…".'
            )
        if self.until_read and self.retention_ms is None and self.retention_bytes is None:
            raise InvalidDeclaration(
                'retention="until read" needs a limit for rows that no reader reads',
                hint='Write retention="until read, at most 30 days", or give retention_bytes.',
            )
        if self.overflow != "keep" and self.overflow_rows_max is None:
            raise InvalidDeclaration(
                f'overflow="{self.overflow}" needs overflow_rows_max',
                hint="Say how many rows the slowest group may be behind before the policy acts.",
            )

    def _check_history(self) -> None:
        """Refuse settings that would take events out of a history."""
        limits = ("retention_ms", "retention_bytes", "until_read", "compact", "key")
        for name in limits:
            if getattr(self, name):
                raise InvalidDeclaration(
                    f"a history of events has no {_DECLARED_AS.get(name, name)}",
                    detail="Its state is what all of its events add up to, so none of them may be removed.",
                    hint="Leave it out. Views over the events may have a horizon.",
                )
        if self.overflow != "keep":
            raise InvalidDeclaration(
                f'a history of events cannot have overflow="{self.overflow}"', hint="Leave overflow out."
            )

    def to_json(self) -> str:
        """The settings as the catalog's text."""
        return json.dumps(asdict(self))

    @property
    def routed_by(self) -> tuple[str, ...]:
        """The columns that decide the partition of a row; none: each batch goes to one partition."""
        return self.key or self.ordered_by

    @staticmethod
    def from_json(text: str) -> TopicSettings:
        """The settings of a catalog's text."""
        values = json.loads(text)
        known = {each.name for each in fields(TopicSettings)}
        values = {name: value for name, value in values.items() if name in known}
        clock = values.get("clock")
        tuples: dict[str, Any] = {name: tuple(values.get(name) or ()) for name in ("key", "ordered_by")}
        tuples["clock"] = None if clock is None else tuple(clock)
        personal = {column: Personal.from_dict(each) for column, each in (values.get("privacy") or {}).items()}
        return TopicSettings(**{**values, **tuples, "privacy": personal})

    def with_changes(self, changes: dict[str, Any]) -> TopicSettings:
        """The same settings with some changed."""
        return replace(self, **changes)


# The names that a declaration may use.
SETTING_NAMES = tuple(sorted(_DECLARED_AS.get(each.name, each.name) for each in fields(TopicSettings)))


class TableOptions(TypedDict, total=False):
    """What ``app.table`` takes by keyword, besides the key. A test keeps it equal to ``TopicSettings``.

    >>> options: TableOptions = {"event_time": "since", "compact": True}
    >>> TopicSettings(key=("id",), **options).compact
    True
    """

    event_time: str | None
    lateness: Duration
    idle: Duration | None
    clock: Sequence[str] | None
    partitions: int
    fsync: Fsync
    fsync_interval: Duration
    segment_bytes_max: int
    segment_age_max: Duration
    compact: bool
    tombstone_grace: Duration
    overflow: Overflow
    overflow_rows_max: int | None
    block_timeout: Duration
    remember_ids: Duration
    group_expiry: Duration | None
    values: ValueForm | None
    partitioner: Partitioner
    captured_by: str | None
    privacy: Mapping[str, Personal]
    proof: bool
    rows_by: Mapping[str, str]


class TopicOptions(TableOptions, total=False):
    """What ``log.topic`` and ``app.topic`` take by keyword: every setting of ``TopicSettings``.

    >>> options: TopicOptions = {"key": "order_id", "retention": "7 days"}
    >>> settings = TopicSettings(**declared(options))
    >>> settings.key, settings.retention_ms
    (('order_id',), 604800000)
    """

    key: str | Sequence[str] | None
    ordered_by: str | Sequence[str] | None
    retention: Duration | None
    retention_bytes: int | None
    until_read: bool
    archive: str | None
    events: bool


def declared(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a declaration as they are stored: durations in milliseconds, columns as a tuple.

    >>> declared({"key": "id", "retention": "7 days", "idle": None})
    {'key': ('id',), 'until_read': False, 'idle_ms': None, 'retention_ms': 604800000}
    >>> declared({"retention": "until read, at most 30 days"})
    {'until_read': True, 'retention_ms': 2592000000}
    """
    for name in values:
        if name not in SETTING_NAMES:
            near = closest(name, SETTING_NAMES)
            hint = f'Did you mean "{near}"? ' if near else ""
            raise InvalidDeclaration(f'unknown setting "{name}"', hint=f"{hint}Known: {', '.join(SETTING_NAMES)}.")
    values = _retention(values)
    plain = {name: value for name, value in values.items() if name not in DURATIONS}
    times = {DURATIONS[name]: _milliseconds(name, values[name]) for name in sorted(DURATIONS.keys() & values.keys())}
    values = {**plain, **times}
    for name in ("key", "ordered_by"):
        if name in values:
            given = values[name]
            values = {**values, name: () if given is None else (given,) if isinstance(given, str) else tuple(given)}
    if "privacy" in values:
        values = {**values, "privacy": declared_privacy(values["privacy"])}
    if "rows_by" in values:
        values = {**values, "rows_by": declared_rows_by(values["rows_by"])}
    if values.get("clock") is not None:
        values = {**values, "clock": tuple(values["clock"])}
    return values


def _retention(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """``retention="until read, at most 30 days"`` as the two settings that it stands for."""
    if "retention" not in values or "until_read" in values:
        return values
    found = UNTIL_READ.fullmatch(values["retention"]) if isinstance(values["retention"], str) else None
    if found is None:
        return {**values, "until_read": False}
    return {**values, "until_read": True, "retention": found["limit"]}


def _milliseconds(name: str, duration: Duration | None) -> int | None:
    return None if duration is None else round(to_us(duration, what=name) / 1000)


def check_name(what: str, name: str) -> None:
    """Refuse a topic's or group's name that cannot be a file name everywhere."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidDeclaration(
            f"{what} name {name!r} is not allowed",
            hint="Use letters, digits, '.', '_' and '-', at most 200 of them, not beginning with '.' or '-'.",
        )


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidDeclaration(f"{name} cannot be {value!r}", hint=f"Use one of: {', '.join(allowed)}.")
