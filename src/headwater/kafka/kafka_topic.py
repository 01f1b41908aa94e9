"""A topic of a log on Kafka.

What it is: ``KafkaTopic``, which keeps the contract of ``log/contract.py`` over one topic of Kafka: appending, event
time and groups; what it comes from, ``KafkaTopicReader``, has the offsets and the reading.
Invariants: an append that has returned is seen by every reader. What the log does not offer is refused where it is
asked for.
Not here: the form of messages (``kafka_values.py``), producing (``kafka_appender.py``).
Read next: ``kafka_topic_reader.py``, ``kafka_log.py``; ``docs/kafka.md``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from headwater.clock import format_us
from headwater.kafka.kafka_appender import KafkaAppender
from headwater.kafka.kafka_group import KafkaConsumer, KafkaGroup, app_lags, groups_of
from headwater.kafka.kafka_topic_reader import KafkaTopicReader
from headwater.log.catalog.registry import TopicRow
from headwater.log.commits.request_ids import content_of
from headwater.log.commits.value_versions import Expected
from headwater.log.contract import Capability, OpenedProducer, require
from headwater.log.event_time import heartbeats
from headwater.log.event_time.producer_progress import ProducerProgress, merge_progress, progress_of_batch
from headwater.log.groups.readers import ReaderLag
from headwater.log.producer import Producer
from headwater.log.schema.ddl import to_ddl
from headwater.log.schema.event_metadata import Metadata, with_metadata
from headwater.log.schema.json_lines import json_objects
from headwater.log.storage.framing import StoredRow
from headwater.log.token import Token
from headwater.log.topic_appender import AppendIdentity
from headwater.log.topic_description import describe_watermark

if TYPE_CHECKING:
    from headwater.kafka.kafka_log import KafkaLog
    from headwater.log.commits.append_request import RowsCondition
    from headwater.log.groups.consumer import ConsumerOptions
    from headwater.log.groups.worker import WorkerOptions

BATCH_ROWS = 65_536
SEEN_SECONDS_MAX = 10.0  # an append that has returned is seen within this, unless others hold a transaction open
SEEN_STEP_S = 0.002
FOLLOW_S = 1.0


class KafkaTopic(KafkaTopicReader):
    """A topic on Kafka; made by ``KafkaLog.topic`` and ``KafkaLog.get_topic``."""

    def __init__(self, log: KafkaLog, row: TopicRow) -> None:
        super().__init__(log, row)
        self.appender = KafkaAppender(self)

    # Appending

    def append(
        self,
        rows: Any,
        *,
        producer: str | None = None,
        sequence: int | None = None,
        request_id: str | None = None,
        partition: int | None = None,
        expected: Expected | None = None,
        after: Token | str | None = None,
        metadata: Metadata | None = None,
    ) -> Token:
        """Append rows; see ``Topic.append``. They are whole, and seen by readers, when this returns."""
        batch = with_metadata(self.row_batch(rows), metadata)
        if after is not None:
            self.log.wait_for(after)
        return self.append_batch(
            batch, producer=producer, sequence=sequence, request_id=request_id, partition=partition, expected=expected
        )

    def append_json(self, lines: str | bytes | Iterable[str | bytes]) -> Token:
        """Append JSON lines, one object a line."""
        return self.append_batch(self.json_batch(json_objects(lines, self.schema)))

    def append_batch(
        self,
        batch: pa.RecordBatch,
        *,
        producer: str | None = None,
        sequence: int | None = None,
        producer_id: int = 0,
        epoch: int = 0,
        deleted: bool | pa.Array = False,
        first_chunk: int = 0,
        request_id: str | None = None,
        partition: int | None = None,
        expected: Expected | None = None,
    ) -> Token:
        """Append one record batch that has the topic's schema already."""
        del producer_id  # it is made of the name
        self.log.check_open()
        self.appender.check_identity(producer, sequence, request_id, deleted)
        if expected is not None:
            require(self.log, Capability.CONDITIONAL_APPENDS, "an append with a condition, or an insert by key,")
        if partition is not None:
            self.appender.checked_partition(partition)
        if request_id is not None:
            content = content_of([(self.id, deleted is True, batch)])
            records, kept_us = self.appender.records(batch, deleted, partition), self.settings.remember_ids_ms * 1000
            return self.log.known_writes.write_requested(self.id, request_id, content, records, None, kept_us)
        if not batch.num_rows:
            return Token({self.name: {}})
        if producer is not None and sequence is not None:
            identity = AppendIdentity(producer, sequence, 0, epoch, first_chunk)
            return self.log.known_writes.append_numbered(self, batch, identity, deleted, partition)
        return self.log.written(self.appender.records(batch, deleted, partition))

    def append_if(self, rows: pa.RecordBatch | StoredRow, *, partition: int, condition: RowsCondition) -> Token:
        """Not offered: a broker checks no condition as it writes."""
        del rows, partition, condition
        require(self.log, Capability.CONDITIONAL_APPENDS, f'an append with a condition to "{self.name}"')
        raise AssertionError

    def append_messages(self, batch: pa.RecordBatch, ids: Collection[str]) -> Token:
        """Append the rows of messages and remember their ids, together; ``IdsKnown`` when one of them is remembered."""
        return self.log.known_writes.append_messages(self, batch, ids) if ids else self.append_batch(batch)

    def known_ids(self, ids: Iterable[str]) -> set[str]:
        """Those of some ids of messages that are remembered."""
        return self.log.known_writes.known_ids(self, ids)

    def count_dropped(self, rows: int) -> None:
        """Nothing to count: this log has no backpressure."""
        del rows

    def row_batch(self, rows: Any) -> pa.RecordBatch:
        """Rows as ``append`` takes them, as a checked batch for ``append_batch``."""
        return self.appender.row_batch(rows)

    def json_batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        """Dicts with JSON's values as a checked batch for ``append_batch``."""
        return self.appender.json_batch(rows)

    def delete(self, keys: Any, *, metadata: Metadata | None = None) -> Token:
        """Append tombstones for these keys: messages without a value."""
        return self.append_batch(with_metadata(self.appender.tombstones(keys), metadata), deleted=True)

    def remove(self, batch: pa.RecordBatch, *, request_id: str | None = None) -> Token:
        """Not offered: it would need a lock over all programs that write to the cluster."""
        del batch, request_id
        require(self.log, Capability.REMOVAL_BY_VALUE, f'a deletion from table "{self.name}"')
        raise AssertionError

    def version(self, *value: Any) -> int:
        """Not offered."""
        del value
        require(self.log, Capability.CONDITIONAL_APPENDS, "the version of a row or stream")
        raise AssertionError

    def producer(self, name: str | None = None, *, batch_rows: int = 8192, linger: float = 0.05) -> Producer:
        """A buffered producer: ``send`` one row at a time, written in batches."""
        return Producer(self, name, batch_rows=batch_rows, linger=linger)

    def open_producer(self, name: str) -> OpenedProducer:
        """Open a named producer; the previous holder of the name is shut out."""
        return self.log.known_writes.open_producer(self, name)

    def producer_names(self) -> dict[int, str]:
        """The names of the topic's producers, by their numbers."""
        return self.log.known_writes.producer_names(self)

    def sync(self) -> None:
        """Nothing to do: an append returns when the replicas have it."""

    # Event time

    def progress(self, start: Mapping[int, int], stop: Mapping[int, int]) -> dict[int, ProducerProgress]:
        """How far each producer (0: anonymous ones) is in event time within a range."""
        column = self.settings.event_time
        assert column is not None, "ask only for topics with an event time"
        found: dict[int, ProducerProgress] = {}
        for number in sorted(stop):
            for batch in self.read_partition(
                number, start.get(number, 0), stop=stop[number], columns=[column, "_appended_at", "_producer"]
            ):
                found = merge_progress(found, progress_of_batch(batch.data, column))
        return found

    def heartbeat(self, nothing_before: dt.datetime) -> Token:
        """Promise that appends will bring no more rows before a moment."""
        return heartbeats.send(self, nothing_before)

    def watermark(self) -> dict[str, Any]:
        """The watermark of the topic."""
        return describe_watermark(self)

    # Groups

    def consumer(self, group: str, **options: Unpack[ConsumerOptions]) -> KafkaConsumer:
        """A member of a consumer group of Kafka: whole partitions, in order."""
        return KafkaConsumer(self, group, **options)

    def worker(self, group: str, **options: Unpack[WorkerOptions]) -> Any:
        """Not offered."""
        del options
        require(self.log, Capability.WORK_GROUPS, f'the work group "{group}"')

    def groups(self) -> list[KafkaGroup]:
        """The consumer groups that have committed offsets of this topic."""
        return groups_of(self)

    def group(self, name: str) -> KafkaGroup:
        """One group of this topic."""
        return KafkaGroup(self, name)

    def lag(self) -> list[ReaderLag]:
        """How far each consumer group and each app of the home is behind, in offsets."""
        return [*(each.reader_lag() for each in self.groups()), *app_lags(self)]

    def change_settings(self, **changes: Any) -> None:
        """Change settings that no declaration changes."""
        self.log.change_settings(self, changes)

    def describe(self, *, times: bool = True) -> dict[str, Any]:
        """The topic's declaration and offsets, as plain values. Sizes are the broker's business."""
        starts, ends, row = self.start_offsets(), self.end_offsets(), self._row
        return {
            "name": self.name,
            "schema": to_ddl(row.schema),
            "schema_version": row.version,
            "settings": asdict(row.settings),
            "created_at": format_us(row.created_us),
            "dropped_rows": 0,
            "partitions": [
                {
                    "partition": number,
                    "start_offset": starts[number],
                    "end_offset": ends[number],
                    "rows": ends[number] - starts[number],
                    "sealed_segments": 0,
                    "sealed_bytes": 0,
                    "arrow_segments": 0,
                    "arrow_bytes": 0,
                }
                for number in self._numbers
            ],
            **({"event_time": describe_watermark(self)} if times and row.settings.event_time else {}),
        }

    def __repr__(self) -> str:
        return f"KafkaTopic({self.name}, {to_ddl(self.schema)})"
