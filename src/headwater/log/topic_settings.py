"""What can be declared about a topic besides its columns.

What it is: ``TopicSettings``, a frozen record with defaults, checked when it is made, stored as JSON in the catalog;
``TopicOptions`` and ``TableOptions``, the same names as keyword arguments, for editors and type checkers.
Invariants: key, event_time, clock and partitions never change for a topic's life; everything else may be declared anew.
Not here: the schema (``log/schema/normalization.py``), acting on the settings (``log/storage/partition_writer.py``,
``log/maintenance/retention.py``, ``log/maintenance/compaction.py``, ``log/groups/backpressure.py``).
Read next: ``docs/log.md``, which explains each setting.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypedDict

from headwater.durations import to_us
from headwater.errors import InvalidDeclaration

Fsync = Literal["always", "interval", "never"]
Milliseconds = int | str | dt.timedelta  # 5000, "5 seconds", timedelta(seconds=5)
Overflow = Literal["keep", "drop", "block"]

PARTITIONS_MAX = 1024
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
FOREVER = ("key", "event_time", "partitions", "clock")


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """The settings of one topic. Times in milliseconds, sizes in bytes.

    >>> TopicSettings(key=("id",), partitions=4).fsync
    'interval'
    >>> TopicSettings(fsync="sometimes")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: fsync cannot be 'sometimes'
      Hint: Use one of: always, interval, never.
    """

    key: tuple[str, ...] = ()
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
    archive: str | None = None
    compact: bool = False
    tombstone_grace_ms: int = 24 * 3600 * 1000
    overflow: Overflow = "keep"
    overflow_rows_max: int | None = None
    block_timeout_ms: int = 30_000
    captured_by: str | None = None  # the capture that writes it; ticks take it up to that one's last marker

    def __post_init__(self) -> None:
        _one_of("fsync", self.fsync, ("always", "interval", "never"))
        _one_of("overflow", self.overflow, ("keep", "drop", "block"))
        if not 1 <= self.partitions <= PARTITIONS_MAX:
            raise InvalidDeclaration(
                f"partitions cannot be {self.partitions!r}",
                hint=f"Use a number from 1 to {PARTITIONS_MAX}; as many as the consumers that shall share the work.",
            )
        for name in (
            "fsync_interval_ms",
            "segment_bytes_max",
            "segment_ms_max",
            "retention_ms",
            "retention_bytes",
            "overflow_rows_max",
            "idle_ms",
        ):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value <= 0):
                raise InvalidDeclaration(f"{name} cannot be {value!r}", hint="Use a whole number above zero.")
        if not isinstance(self.lateness_ms, int) or self.lateness_ms < 0:
            raise InvalidDeclaration(
                f"lateness_ms cannot be {self.lateness_ms!r}", hint="Use a whole number, 0 or more."
            )
        if self.clock is not None and (len(self.clock) != 2 or self.event_time in (None, *self.clock)):
            raise InvalidDeclaration(
                f"clock={self.clock!r} cannot be used with event_time={self.event_time!r}",
                hint='Name the device\'s columns, clock=("occurred_at", "sent_at"), and another one that Headwater '
                'fills with the corrected time: event_time="at".',
            )
        if self.compact and not self.key:
            raise InvalidDeclaration(
                "compact=True needs a key", hint='Compaction keeps the latest row of each key: declare key="…".'
            )
        if self.overflow != "keep" and self.overflow_rows_max is None:
            raise InvalidDeclaration(
                f'overflow="{self.overflow}" needs overflow_rows_max',
                hint="Say how many rows the slowest group may be behind before the policy acts.",
            )

    def to_json(self) -> str:
        """The text that the catalog stores."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> TopicSettings:
        """The settings in a catalog's text."""
        values = json.loads(text)
        known = {field.name for field in fields(TopicSettings)}
        values = {name: value for name, value in values.items() if name in known}
        clock = values.get("clock")
        tuples = {"key": tuple(values.get("key") or ()), "clock": None if clock is None else tuple(clock)}
        return TopicSettings(**{**values, **tuples})

    def with_changes(self, changes: dict[str, Any]) -> TopicSettings:
        """The same settings with some declared anew."""
        return replace(self, **changes)


DURATIONS = {field.name for field in fields(TopicSettings) if "_ms" in field.name}


class TableOptions(TypedDict, total=False):
    """What ``app.table`` takes by keyword, besides the key. A test keeps it equal to ``TopicSettings``.

    >>> options: TableOptions = {"event_time": "since", "compact": True}
    >>> TopicSettings(key=("id",), **options).compact
    True
    """

    event_time: str | None
    lateness_ms: Milliseconds
    idle_ms: Milliseconds | None
    clock: Sequence[str] | None
    partitions: int
    fsync: Fsync
    fsync_interval_ms: Milliseconds
    segment_bytes_max: int
    segment_ms_max: Milliseconds
    compact: bool
    tombstone_grace_ms: Milliseconds
    overflow: Overflow
    overflow_rows_max: int | None
    block_timeout_ms: Milliseconds
    captured_by: str | None


class TopicOptions(TableOptions, total=False):
    """What ``log.topic`` and ``app.topic`` take by keyword: every setting of ``TopicSettings``.

    >>> options: TopicOptions = {"key": "order_id", "retention_ms": "7 days"}
    >>> settings = TopicSettings(**declared(options))
    >>> settings.key, settings.retention_ms
    (('order_id',), 604800000)
    """

    key: str | Sequence[str] | None
    retention_ms: Milliseconds | None
    retention_bytes: int | None
    archive: str | None


def declared(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings somebody wrote, with unknown names refused, in the types that ``TopicSettings`` has.

    >>> declared({"key": "id", "retention_ms": "7 days", "idle_ms": 500})
    {'key': ('id',), 'retention_ms': 604800000, 'idle_ms': 500}
    """
    values = {
        name: to_us(value, what=name) // 1000 if name in DURATIONS and isinstance(value, str | dt.timedelta) else value
        for name, value in values.items()
    }
    known = {field.name for field in fields(TopicSettings)}
    for name in values:
        if name not in known:
            raise InvalidDeclaration(f'unknown setting "{name}"', hint="Known: " + ", ".join(sorted(known)) + ".")
    if "key" in values:
        key = values["key"]
        key = () if key is None else (key,) if isinstance(key, str) else tuple(key)
        values = {**values, "key": key}
    if values.get("clock") is not None:
        values = {**values, "clock": tuple(values["clock"])}
    return values


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
