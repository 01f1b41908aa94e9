"""Input relations: topics and tables of the log, as the changes that views are fed with.

What it is: ``InputRelation`` turns a range of offsets of one topic into changes. Four kinds: a *keyed* topic or table
(the latest row by key is the state), a *bag* (rows carry their own ``_weight``), a *log* (every row was added), and the
*versions* of a keyed topic (every record was added, tombstones too), which is a second relation over the same topic.
A keyed topic or a log is a relation once more with the metadata of its records (``orders$metadata``).
Invariants: the changes of a range, added to the state at its start, are the state at its end; of several rows of one
key in a range only the last counts; the same range and state give the same changes.
Not here: reading of segments (``log/``, ``views/spark/topic_scan.py``); the state's files (``views/state/trace.py``).
Read next: ``engine.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.contract import Capability, EventLog, EventTopic
from headwater.log.event_time.producer_progress import ProducerProgress, merge_progress, progress_of_batch
from headwater.views import thresholds
from headwater.views.compiler.frontend.as_of import APPENDED, DELETED, OFFSET, VERSIONS, versions_of
from headwater.views.compiler.frontend.metadata_columns import METADATA, metadata_of
from headwater.views.compiler.plan import WEIGHT, Relation
from headwater.views.source.offset_ranges import Frontier, distance
from headwater.views.spark.topic_scan import SYSTEM
from headwater.views.stages.stage_schemas import columns_of
from headwater.views.state.algebra import consolidate, distinct, negate, union, weighted_schema, with_weight
from headwater.views.state.delta import Delta
from headwater.views.state.omissions import Omitted, frame_without, without
from headwater.views.state.row_equality import last_of_each, matches, matching
from headwater.views.state.state_trace import StateTrace
from headwater.views.state.trace import Trace
from headwater.views.tick.exchange import exchanged
from headwater.views.tick.executor_inputs import changes_by_executors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.views.stages.view_sessions import ViewSessions

SAMPLE_ROWS = 10_000  # these tell how large a row is
# Where an offset may be a message of a thousand rows: so many are taken without a look, and read by Spark beyond.
SAMPLE_MESSAGES = 10
LOCAL_MESSAGES_MAX = 2_000
CHUNK_ROWS = 1 << 20

# What a record has beside its topic's columns.
MARKS = pa.schema([(DELETED, pa.bool_()), (OFFSET, pa.int64()), (APPENDED, pa.timestamp("us", tz="UTC"))])


class InputKind(StrEnum):
    """How a topic's rows are to be understood."""

    KEYED = "keyed"
    BAG = "bag"
    LOG = "log"
    VERSIONS = "versions"


def inputs_of(log: EventLog) -> dict[str, InputRelation]:
    """Every topic and table of a home, and what has the same records, by the relation's name."""
    found = [InputRelation(topic) for topic in log.topics()]
    found += [
        *(InputRelation(base.topic, versions=True) for base in found if base.has_versions),
        *(InputRelation(base.topic, metadata=True) for base in found if base.kind is not InputKind.BAG),
    ]
    return {base.name: base for base in found}


def rows_taken(inputs: Iterable[InputRelation], begin: Frontier, stop: Frontier) -> dict[str, int]:
    """How many rows of each topic the last tick took, which went from ``begin`` to ``stop``."""
    taken = {name: distance({name: begin.get(name, {})}, {name: stop[name]}) for name in stop}
    return taken | {base.topic.name: base.rows_taken for base in inputs if not base.is_gapless}


class InputRelation:
    """One topic as a relation."""

    def __init__(
        self, topic: EventTopic, *, versions: bool = False, metadata: bool = False, changes_only: bool = False
    ) -> None:
        self.topic = topic
        self.name = topic.name + (VERSIONS if versions else METADATA if metadata else "")
        self.key = tuple(topic.settings.key or ()) if not versions else ()
        names = [name for name in topic.schema.names if name != WEIGHT]
        self.schema = pa.schema([topic.schema.field(name).with_nullable(True) for name in names])
        self.has_metadata = metadata  # the rows have the columns that every record has
        if metadata:
            self.schema = pa.schema([*self.schema, *SYSTEM])
        if versions:
            self.kind = InputKind.VERSIONS
            self.schema = pa.schema([*self.schema, *MARKS])
        elif self.key:
            self.kind = InputKind.KEYED
        elif WEIGHT in topic.schema.names:
            self.kind = InputKind.BAG
        else:
            self.kind = InputKind.LOG
        self.omitted: Omitted = {}  # records that views leave out, as the manifest says
        self.rows_taken = 0  # by the last tick; at most so many where Spark reads them
        # How far producers are in event time in what the driver read last; of a log whose files do not say it.
        self.progress: dict[int, ProducerProgress] | None = None
        self.rows_per_offset = 1.0  # as the rows that wait tell, where an offset is not a row
        self.changes_only = changes_only  # stages read only its changes, never its content: see ``prepare.py``

    def with_changes_only(self) -> InputRelation:
        """The same relation, of which stages read only the changes."""
        versions = self.kind is InputKind.VERSIONS
        return InputRelation(self.topic, versions=versions, metadata=self.has_metadata, changes_only=True)

    @property
    def has_versions(self) -> bool:
        """Whether it can be asked for as it was: its records have a key, and the time from which each counts."""
        return self.kind is InputKind.KEYED and self.topic.settings.event_time is not None

    @property
    def lost_rows(self) -> bool:
        """Whether the log may have lost rows that are in the state: they are asked for there, then."""
        settings = self.topic.settings
        bounded = settings.retention_ms is not None or settings.retention_bytes is not None
        if bounded and any(self.topic.start_offsets().values()):
            return True
        # Compaction loses nothing of a table, but all of its past.
        return self.kind is InputKind.VERSIONS and settings.compact

    @property
    def is_log_backed(self) -> bool:
        """Whether the log is the state: no row ever leaves it, or stages read only changes, so nothing is copied."""
        settings = self.topic.settings
        bounded = settings.retention_ms is not None or settings.retention_bytes is not None
        if self.kind is InputKind.VERSIONS:
            # Copied, unless views remember what they need: the log may be compacted one day.
            return self.changes_only and not bounded and not settings.compact
        # Lookups go by spans of offsets: where these do not count rows, rows that stages look up are copied.
        return self.kind is InputKind.LOG and (self.changes_only or (not bounded and self.is_gapless))

    @property
    def is_gapless(self) -> bool:
        """Whether an offset is a row."""
        return Capability.GAPLESS_OFFSETS in self.topic.log.capabilities

    def tick_offsets_max(self, start: Mapping[int, int], stop: Mapping[int, int]) -> int | None:
        """How many offsets from ``start`` on one tick may take; None: as many as there are."""
        count = _offsets(start, stop)
        if self.is_log_backed or count <= (SAMPLE_ROWS if self.is_gapless else SAMPLE_MESSAGES):
            return None
        longest = max(stop, key=lambda number: stop[number] - start.get(number, 0))
        position = begin = start.get(longest, 0)
        rows = size = 0
        for batch in self.topic.read_partition(
            longest, begin, stop=stop[longest], columns=self.schema.names, rows_max=SAMPLE_ROWS
        ):
            rows, size, position = rows + batch.num_rows, size + batch.data.nbytes, batch.next_offset
            if rows >= SAMPLE_ROWS:
                break
        if not self.is_gapless:
            self.rows_per_offset = rows / max(1, position - begin)
        row_bytes = max(1, size // max(1, rows))
        rows_max = min(thresholds.TICK_ROWS_MAX, max(1, thresholds.TICK_BYTES_MAX // row_bytes))
        return rows_max if self.is_gapless else max(1, rows_max * max(1, position - begin) // max(1, rows))

    @property
    def relation(self) -> Relation:
        """What the compiler is told."""
        if self.kind is InputKind.VERSIONS:
            return versions_of(InputRelation(self.topic).relation)
        if self.has_metadata:
            return metadata_of(InputRelation(self.topic).relation)
        never_null = self.key or tuple(field.name for field in self.topic.schema if not field.nullable)
        return Relation(
            self.name,
            columns_of(self.schema),
            self.key,
            append_only=self.kind is InputKind.LOG,
            not_null=tuple(name for name in never_null if name != WEIGHT),
            event_time=self.topic.settings.event_time if self.has_versions else None,
        )

    def changes(
        self,
        start: Mapping[int, int],
        stop: Mapping[int, int],
        trace: StateTrace | None,
        sessions: ViewSessions | None = None,
    ) -> Delta:
        """What the rows from ``start`` up to ``stop`` change in the state ``trace``.

        With ``sessions`` whose place is an object store, executors compute what many rows change.
        """
        self.rows_taken = 0
        self.progress = None
        if _offsets(start, stop) == 0:
            return Delta.nothing(weighted_schema(self.schema))
        if sessions is not None and sessions.place is not None and self._is_large(start, stop):
            return changes_by_executors(self, start, stop, trace, sessions)
        if self.kind in (InputKind.LOG, InputKind.VERSIONS):
            return self._added(start, stop)
        if self.kind is InputKind.BAG:
            table = self.read(start, stop, [*self.schema.names, WEIGHT])
            return Delta.local(
                consolidate(table) if table.num_rows <= thresholds.INPUT_CONSOLIDATED_ROWS_MAX else table
            )
        return self._upserted(start, stop, trace)

    def rows_up_to(self, stop: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
        """The state at ``stop`` as the log tells it, each row with weight 1. Not for a bag."""
        start = self.topic.start_offsets()
        for number in sorted(stop):
            if start[number] >= stop[number]:
                continue
            chunks = self._chunks(number, start[number], stop[number])
            if self.kind is InputKind.KEYED:  # a key has one partition
                chunks = iter([self._without_deleted(functools.reduce(self._replaced, chunks))])
            for chunk in chunks:
                yield from with_weight(chunk, 1).to_batches()

    def changed_between(self, begin: Mapping[int, int], stop: Mapping[int, int]) -> Iterator[pa.Table]:
        """What the records of a range changed, as the log tells it, with weights."""
        if self.kind is InputKind.BAG:
            yield self.read(begin, stop, [*self.schema.names, WEIGHT])
            return
        if self.kind is not InputKind.KEYED:
            for number in sorted(stop):
                for chunk in self._chunks(number, begin.get(number, 0), stop[number]):
                    yield with_weight(chunk, 1)
            return
        rows = self.read(begin, stop, [*self.schema.names, DELETED])
        keys = distinct(rows.select(list(self.key)))
        held = (matching(pa.Table.from_batches([batch]), self.key, keys) for batch in self.rows_up_to(begin))
        new = with_weight(self._without_deleted(rows), 1)
        yield consolidate(union(new, *map(negate, held)))

    def _chunks(self, number: int, start: int, stop: int) -> Iterator[pa.Table]:
        """The records of a range of one partition, about so many at once; at least one chunk."""
        names = self.schema.names if self.kind is not InputKind.KEYED else [*self.schema.names, DELETED]
        shape = self._shape(names)
        held: list[pa.RecordBatch] = []
        for batch in self._batches(number, start, stop, shape):
            held.append(batch)
            if sum(each.num_rows for each in held) >= CHUNK_ROWS:
                yield pa.Table.from_batches(held, schema=shape)
                held = []
        yield pa.Table.from_batches(held, schema=shape)

    def _replaced(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        both = pa.concat_tables([older, newer])
        return both.filter(pa.array(last_of_each(both, self.key)))

    def _without_deleted(self, rows: pa.Table) -> pa.Table:
        rows = rows.filter(pa.array(last_of_each(rows, self.key)))
        return rows.filter(pc.invert(rows.column(DELETED).fill_null(False))).select(self.schema.names)

    def read(self, start: Mapping[int, int], stop: Mapping[int, int], columns: list[str]) -> pa.Table:
        """The records of a range, as they are: of the topic's columns and the marks."""
        shape, time = self._shape(columns), self.topic.settings.event_time
        told = time is not None and not self.is_in_files
        names = list(dict.fromkeys([*shape.names, str(time), "_appended_at", "_producer"])) if told else shape.names
        batches: list[pa.RecordBatch] = []
        self.progress = {} if told else None
        for number in sorted(stop):
            if stop[number] <= start.get(number, 0):
                continue
            for batch in self.topic.read_partition(number, start.get(number, 0), stop=stop[number], columns=names):
                if self.progress is not None:
                    self.progress = merge_progress(self.progress, progress_of_batch(batch.data, str(time)))
                batches.append(without(batch, self.omitted).select(shape.names).cast(shape))
        table = pa.Table.from_batches(batches, schema=shape)
        self.rows_taken = table.num_rows
        return table

    def _shape(self, columns: list[str]) -> pa.Schema:
        stored = {field.name: field.with_nullable(True) for field in self.topic.schema}
        stored |= {field.name: field for field in (*MARKS, *SYSTEM)}
        return pa.schema([stored[name] for name in columns])

    def _batches(self, number: int, start: int, stop: int, shape: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in self.topic.read_partition(number, start, stop=stop, columns=shape.names):
            yield without(batch, self.omitted).cast(shape)

    def taken_back(
        self, records: Omitted, before: Omitted, stop: Mapping[int, int], trace: StateTrace | None
    ) -> pa.Table:
        """What leaving these records out, beside those of ``before``, changes in the state ``trace`` at ``stop``."""
        names = self.schema.names if self.kind is not InputKind.BAG else [*self.schema.names, WEIGHT]
        now, self.omitted = self.omitted, before
        rows = [self.read({p: o}, {p: o + 1}, names) for p, offsets in records.items() for o in offsets]
        self.omitted = now
        if not rows:
            return weighted_schema(self.schema).empty_table()
        taken = pa.concat_tables(rows)
        if self.kind is not InputKind.KEYED:
            return negate(taken if self.kind is InputKind.BAG else with_weight(taken, 1))
        keys = distinct(taken.select(list(self.key)))
        start = self.topic.start_offsets()
        latest = []
        for number in sorted(records):  # a key has one partition
            chunks = (
                chunk.filter(matches(chunk, self.key, keys))
                for chunk in self._chunks(number, start[number], stop[number])
            )
            found = functools.reduce(self._replaced, chunks)
            latest.append(with_weight(self._without_deleted(found), 1))
        assert trace is not None
        held = matching(trace.lookup(list(self.key), keys, self.schema.names), self.key, keys)
        return consolidate(union(*latest, negate(held)))

    @property
    def is_in_files(self) -> bool:
        """Whether Spark reads the log's own files, whose statistics tell of times."""
        return Capability.NATIVE_FILES in self.topic.log.capabilities

    def is_for_tasks(self, start: Mapping[int, int], stop: Mapping[int, int], *, by_executors: bool) -> bool:
        """Whether the range is in no file, and tasks read its rows and not the driver.

        ``by_executors``: they also write what is kept of the input.
        """
        if self.is_in_files or not (self.is_log_backed or by_executors):
            return False
        return self._is_large({number: start.get(number, 0) for number in stop}, stop)

    def _is_large(self, start: Mapping[int, int], stop: Mapping[int, int]) -> bool:
        """Whether Spark reads the range: its rows are too many for the driver, or may be."""
        if self.is_gapless or self.key or not self.is_log_backed:
            return _offsets(start, stop) * self.rows_per_offset > thresholds.TASK_ROWS_MAX
        # A message may hold a thousand rows, and none was looked into.
        return _offsets(start, stop) > min(LOCAL_MESSAGES_MAX, thresholds.TASK_ROWS_MAX)

    def _added(self, start: Mapping[int, int], stop: Mapping[int, int]) -> Delta:
        begin = {number: start.get(number, 0) for number in stop}
        if not self._is_large(begin, stop) or not self.is_log_backed:  # what is kept must be written down
            return Delta.local(with_weight(self.read(begin, stop, self.schema.names), 1))

        def build(spark: SparkSession) -> DataFrame:
            return with_weight(frame_without(spark, self.topic, begin, stop, self.schema.names, self.omitted), 1)

        self.rows_taken = self.topic.rows_most(begin, stop)
        return Delta.lazy(self.schema, self.rows_taken, build, plain=True)

    def _upserted(self, start: Mapping[int, int], stop: Mapping[int, int], trace: StateTrace | None) -> Delta:
        """Old rows of the keys with -1, the last rows of the range with +1."""
        if isinstance(trace, Trace) and _worth_a_pass(_offsets(start, stop), trace):
            trace.unmap()  # the rows will be sorted anew; until then their pages need not be held
        rows = self.read(start, stop, [*self.schema.names, DELETED])
        last = last_of_each(rows, self.key)
        latest = rows if last.all() else rows.filter(pa.array(last))
        new = latest.filter(pc.invert(latest.column(DELETED).fill_null(False))).select(self.schema.names)
        if trace is None or trace.rows == 0:
            return Delta.local(with_weight(new, 1))
        keys = latest.select(list(self.key))
        del rows, latest  # a tick may have half a gigabyte of them
        assert isinstance(trace, Trace)
        many = _worth_a_pass(keys.num_rows, trace)
        if many or keys.num_rows > thresholds.LOOKUP_KEYS_MOST:
            return exchanged(trace, keys, with_weight(new, 1), keeps=many)
        found = trace.lookup(list(self.key), keys, self.schema.names)
        both = union(negate(matching(found, self.key, keys)), with_weight(new, 1))
        return Delta.local(consolidate(both) if both.num_rows <= thresholds.INPUT_CONSOLIDATED_ROWS_MAX else both)


def _offsets(start: Mapping[int, int], stop: Mapping[int, int]) -> int:
    return sum(stop[number] - start.get(number, 0) for number in stop)


def _worth_a_pass(keys: int, trace: Trace) -> bool:
    """Whether a lookup of so many keys would touch nearly all of the state, and what they change are files for Spark:
    an old row and a new one for each key.
    """
    return 2 * keys > thresholds.TASK_ROWS_MAX and keys > thresholds.LOOKUP_PART * trace.rows
