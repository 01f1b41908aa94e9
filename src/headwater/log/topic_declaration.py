"""Topic declaration: creating a topic, opening it, or extending its schema.

What it is: the effect of ``log.topic(name, schema, …)`` on a topic that exists already.
Invariants: the decision is made and stored in one catalog transaction, so two processes that declare at once agree; a
declaration that says less than the stored one changes nothing; code with an older schema still opens the topic; a
change that is impossible is refused with the reason, and nothing is stored.
Not here: schema compatibility (``log/schema/evolution.py``), DDL (``log/schema/ddl.py``). Read next: ``home.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.clock import Clock
from headwater.errors import DeclarationConflict, InvalidDeclaration
from headwater.hints import suggestion
from headwater.log.catalog.registry import Registry, TopicRow
from headwater.log.schema.clock_correction import with_clock_columns
from headwater.log.schema.evolution import evolve
from headwater.log.schema.normalization import WEIGHT, normalize_schema
from headwater.log.schema.personal_columns import Personal, resolved
from headwater.log.schema.row_claims import check_rows_by
from headwater.log.storage.routing import check_key_type
from headwater.log.topic_settings import FOREVER, TopicSettings, check_name, declared

WHY_FOREVER = {
    "key": "Rows were routed by the old key: the same key would be found in two partitions.",
    "ordered_by": "Rows were routed by the old columns: their order would be lost.",
    "partitions": "The same key would land in another partition than its older rows, and order would be lost.",
    "event_time": "Indexes and watermarks were made for the old column.",
    "clock": "Event times were corrected by the old columns.",
    "values": "The messages that are there have the old form.",
    "events": "Rows of a history have versions that its event store gave them; other rows have none.",
}


def open_or_declare(
    registry: Registry,
    name: str,
    schema: str | pa.Schema,
    values: Mapping[str, Any],
    now_us: int,
    *,
    multiset: bool = False,
) -> TopicRow:
    """The topic as declared: created, or changed to the declaration where that is allowed.

    A ``multiset`` is a table without a key; its rows have a weight.
    """
    wanted = wanted_topic(name, schema, values, multiset=multiset)
    with registry.catalog.write(durable=True):
        row = registry.find(name)
        settings, merged = wanted.beside(row)
        if row is None:
            return registry.create(name, merged, settings, now_us)
        if settings != row.settings:
            registry.change_settings(row.id, settings)
        if not merged.equals(row.schema):
            registry.add_schema(row.id, merged, now_us)
        found = registry.find(name)
        assert found is not None
        return found


@dataclass(frozen=True)
class WantedTopic:
    """What a declaration asks for, whichever log stores it."""

    name: str
    schema: pa.Schema
    changes: Mapping[str, Any]
    multiset: bool

    def beside(self, row: TopicRow | None) -> tuple[TopicSettings, pa.Schema]:
        """The settings and columns of the topic from now on, if it is as ``row`` says; or the error."""
        if row is None:
            settings = TopicSettings(**self.changes)
            wanted = with_clock_columns(self.schema, settings)
            check_columns_exist(wanted, settings)
            return _for_readers(settings, _with_not_null(wanted, settings))
        if row.is_multiset != self.multiset:
            raise _other_kind(row)
        for setting in FOREVER:
            if setting in self.changes and self.changes[setting] != getattr(row.settings, setting):
                raise conflict(self.name, setting, getattr(row.settings, setting), self.changes[setting])
        wanted = _with_not_null(with_clock_columns(self.schema, row.settings), row.settings)
        settings = row.settings.with_changes(dict(self.changes))
        if any(earlier.equals(wanted) for earlier in row.schemas.values()):
            return _for_readers(settings, row.schema)
        grown = evolve(row.schema, wanted, key=row.settings.routed_by, event_time=row.settings.event_time)
        return _for_readers(settings, grown)


class DeclaredTopic:
    """The declaration of a topic as a process sees it, whichever log stores it.

    >>> import headwater as hw, tempfile
    >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT", partitions=2)
    >>> isinstance(topic, DeclaredTopic), topic.name, topic.settings.partitions, topic.schema.names
    (True, 't', 2, ['x'])
    """

    log: Any  # each kind of topic has its own
    _row: TopicRow

    def row(self) -> TopicRow:
        """The declaration as this process last saw it."""
        return self._row

    @property
    def id(self) -> int:
        """The topic's number; another one when it was deleted and made again."""
        return self._row.id

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._row.name

    @property
    def settings(self) -> TopicSettings:
        """Everything declared besides the columns."""
        return self._row.settings

    @property
    def schema(self) -> pa.Schema:
        """The columns, in the latest version."""
        return self._row.schema

    @property
    def privacy(self) -> dict[str, Personal]:
        """The personal columns, each with its declaration; empty where none are declared.

        >>> import headwater as hw, tempfile
        >>> declared = {"user_id": hw.Personal("user_id")}
        >>> visits = hw.Log(tempfile.mkdtemp()).topic("visits", "user_id BIGINT, page STRING", privacy=declared)
        >>> list(visits.privacy)
        ['user_id']
        """
        return dict(self._row.settings.privacy)

    @property
    def schema_version(self) -> int:
        """The latest version's number, from 1."""
        return self._row.version

    @property
    def clock(self) -> Clock:
        """The log's clock."""
        clock: Clock = self.log.clock
        return clock


def wanted_topic(name: str, schema: str | pa.Schema, values: Mapping[str, Any], *, multiset: bool) -> WantedTopic:
    """A declaration, checked by itself.

    >>> wanted_topic("basket", "fruit STRING", {}, multiset=True).schema.names
    ['_weight', 'fruit']
    """
    check_name("table" if multiset else "topic", name)
    wanted = normalize_schema(schema)
    if multiset:  # first, so that the user's columns keep their order when one is added
        wanted = pa.schema([pa.field(WEIGHT, pa.int64(), nullable=False), *wanted])
    return WantedTopic(name, wanted, declared(values), multiset)


def conflict(name: str, setting: str, stored: Any, asked: Any) -> DeclarationConflict:
    """The error for a setting that cannot change."""
    return DeclarationConflict(
        f'{setting} of topic "{name}" is {shown(stored)} and cannot become {shown(asked)}',
        detail=WHY_FOREVER[setting],
        hint=f"Declare a new topic and copy: for batch in old.read(): new.append(batch.data). "
        f'Or declare "{name}" with {setting}={shown(stored)}.',
        topic=name,
        setting=setting,
    )


def _other_kind(row: TopicRow) -> DeclarationConflict:
    """The error for a table without a key where the topic is of another kind, or the reverse."""
    if row.is_multiset:
        return DeclarationConflict(
            f'"{row.name}" is a table without a key and cannot be declared as anything else',
            detail="Its rows have weights, so that one of several equal rows can be deleted.",
            hint=f'Open it as a table: app.table("{row.name}", …) without a key. Or choose another name.',
            topic=row.name,
        )
    what = f"has the key {shown(row.settings.key)}" if row.settings.key else "is a topic of events"
    return DeclarationConflict(
        f'"{row.name}" {what}, and cannot become a table without a key',
        detail="Its rows have no weights, so none of them could be deleted.",
        hint=f"Declare it with key={shown(row.settings.key)}." if row.settings.key else "Take another name.",
        topic=row.name,
    )


def shown(value: Any) -> str:
    """A setting's value as a user would write it."""
    if isinstance(value, tuple):
        return repr(value[0]) if len(value) == 1 else repr(list(value))
    return repr(value)


def check_columns_exist(schema: pa.Schema, settings: TopicSettings) -> None:
    """Key and event time must be columns of fitting types."""
    named = [("key", name) for name in settings.key] + [("ordered_by", name) for name in settings.ordered_by]
    for what, name in [*named, ("event_time", settings.event_time)]:
        if name is None:
            continue
        if name not in schema.names:
            raise InvalidDeclaration(
                f'{what} "{name}" is not a column', hint=suggestion(name, schema.names), column=name
            )
    for name in settings.routed_by:
        check_key_type(name, schema.field(name).type)
    if len(set(settings.routed_by)) != len(settings.routed_by):
        raise InvalidDeclaration(f"{'key' if settings.key else 'ordered_by'} names a column twice")
    if settings.event_time is not None:
        kind = schema.field(settings.event_time).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise InvalidDeclaration(
                f'event_time "{settings.event_time}" is {kind}, not a time',
                hint="Use a TIMESTAMP, TIMESTAMP_NTZ or DATE column.",
            )


def _for_readers(settings: TopicSettings, schema: pa.Schema) -> tuple[TopicSettings, pa.Schema]:
    """The settings checked against the columns, with each personal column's id filled in."""
    check_rows_by(settings.rows_by, schema)
    return settings.with_changes({"privacy": resolved(settings.privacy, schema)}), schema


def _with_not_null(schema: pa.Schema, settings: TopicSettings) -> pa.Schema:
    """Columns that route and event time are never null, whether the declaration says so or not."""
    never = {*settings.routed_by, settings.event_time}
    return pa.schema([field.with_nullable(False) if field.name in never else field for field in schema])
