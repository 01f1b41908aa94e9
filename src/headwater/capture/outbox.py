"""Outbox: rows that an application inserts in its transactions become events of topics.

What it is: ``Outbox``, a source around another one, and ``Router``, which appends each captured row to the topic that
one of its columns names.
Invariants: an event is appended once, in the order of commits, and only when its transaction is whole in the log: the
router reads up to the last marker. The sequence of an append is the offset of its last row in the outbox's own topic,
so after a crash the target alone says which events it has.
Not here: capturing the outbox table (``capture.py``). Read next: ``docs/debezium.md``, "Outbox".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.capture.database import CapturedDatabase, CaptureSource
from headwater.capture.door import Door
from headwater.errors import InvalidDeclaration, SourceRefused
from headwater.log.commits.sequence_ranges import CHUNKS_PER_SEQUENCE
from headwater.log.contract import EventLog, EventTopic
from headwater.log.event_time.capture_markers import Markers
from headwater.log.schema.event_metadata import Metadata, with_metadata

EVENT = "id STRING, aggregate_id STRING, type STRING, payload STRING"
ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Outbox:
    """A table whose inserted rows become events.

    ``topic`` is the column that names an event's topic, within ``name``; the others belong to the event. Where
    the table has the columns of ``correlation_id``, ``causation_id`` and ``actor``, these are the event's metadata.

    >>> import headwater as hw
    >>> hw.capture.Outbox(hw.capture.MySQL("mysql://localhost/shop", table="outbox"), name="events.{}").table
    'shop.outbox'
    """

    source: CaptureSource
    topic: str = "aggregate_type"
    id: str = "id"
    aggregate_id: str = "aggregate_id"
    type: str = "type"
    payload: str = "payload"
    name: str = "{}"
    correlation_id: str = "correlation_id"
    causation_id: str = "causation_id"
    actor: str = "actor"

    def __post_init__(self) -> None:
        if "{}" not in self.name:
            raise InvalidDeclaration(f"name {self.name!r} has no place for the column", hint='Use name="events.{}".')

    @property
    def table(self) -> str:
        return self.source.table

    @property
    def door(self) -> Door | None:
        """None: an event is moved whole."""
        if self.source.door is not None:
            raise InvalidDeclaration(
                f"the outbox {self.table} cannot have columns, mask or hash",
                hint="Leave them out; what an event should not say does not belong into the outbox.",
            )
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the outbox table must have."""
        return (self.topic, self.id, self.aggregate_id, self.type, self.payload)

    @property
    def metadata_columns(self) -> tuple[str, ...]:
        """The columns that it may have, for event metadata."""
        return (self.correlation_id, self.causation_id, self.actor)

    def capture_name(self, app: str) -> str:
        return self.source.capture_name(app)

    def server(self, app: str, log: EventLog | None = None) -> CapturedDatabase:
        return self.source.server(app, log)


class Router:
    """Moves events from an outbox's topic to their own topics."""

    def __init__(self, log: EventLog, outbox: Outbox, name: str, capture: str) -> None:
        self.log = log
        self.outbox = outbox
        self.name = name
        self.capture = capture
        self._position = 0
        self._targets: dict[
            str, tuple[EventTopic, int, int, int]
        ] = {}  # with producer, epoch, and the last offset it has

    def route(self) -> int:
        """Append events that markers cover and targets lack; returns how many."""
        markers = Markers.find(self.log, self.capture)
        last = markers.last() if markers is not None else None
        stop = last.ends.get(self.name, 0) if last is not None else 0
        if stop <= self._position:
            return 0
        source = self.log.get_topic(self.name)
        missing = [name for name in self.outbox.columns if name not in source.schema.names]
        if missing:
            raise SourceRefused(
                f'{self.outbox.table} has no column "{missing[0]}"', hint="Name the columns: Outbox(…, payload=…)."
            )
        said = [name for name in self.outbox.metadata_columns if name in source.schema.names]
        marks = [] if source.row().is_multiset else ["_deleted"]
        start = max(self._position, source.start_offsets()[0])
        count = 0
        for batch in source.read_partition(
            0, start, stop=stop, columns=[*self.outbox.columns, *said, *marks], rows_max=ROWS_AT_ONCE
        ):
            events: dict[str, list[tuple[int, dict[str, Any]]]] = {}
            for offset, row in zip(batch.offsets.tolist(), batch.data.to_pylist(), strict=True):
                if not row.get("_deleted"):  # rows are deleted from an outbox after use
                    events.setdefault(self.outbox.name.format(row[self.outbox.topic]), []).append((offset, row))
            for name, found in events.items():
                count += self._append(name, found)
            self._position = batch.next_offset
        return count

    def _append(self, name: str, found: list[tuple[int, dict[str, Any]]]) -> int:
        topic, producer_id, epoch, last = self._target(name)
        new = [(offset, row) for offset, row in found if offset > last]
        if not new:
            return 0
        outbox = self.outbox
        named = {"id": outbox.id, "aggregate_id": outbox.aggregate_id, "type": outbox.type, "payload": outbox.payload}
        columns = [pa.array([_text(row[column]) for _, row in new], pa.string()) for column in named.values()]
        batch = pa.RecordBatch.from_arrays(columns, names=list(named))
        said = [Metadata.carried(*(_text(row.get(name)) for name in outbox.metadata_columns)) for _, row in new]
        topic.append_batch(
            with_metadata(batch, said if any(each is not None for each in said) else None),
            producer=self.capture,
            sequence=new[-1][0],
            producer_id=producer_id,
            epoch=epoch,
        )
        self._targets[name] = topic, producer_id, epoch, new[-1][0]
        return len(new)

    def _target(self, name: str) -> tuple[EventTopic, int, int, int]:
        if name not in self._targets:
            topic = self.log.topic(name, EVENT)
            if topic.settings.partitions != 1:
                raise SourceRefused(
                    f'topic "{name}" has several partitions, and events of an outbox have one order',
                    hint="Let the outbox make the topic, or declare it with one partition.",
                )
            opened = topic.open_producer(self.capture)
            last = opened.last_sequence // CHUNKS_PER_SEQUENCE if opened.last_sequence >= 0 else -1
            self._targets[name] = topic, opened.id, opened.epoch, last
        return self._targets[name]


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)
