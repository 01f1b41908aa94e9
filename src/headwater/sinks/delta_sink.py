"""Delta: a view as a Delta table, with one version for each tick.

What it is: ``DeltaSink``, a sink that merges a tick's changes by the view's key, through the package ``deltalake``.
Invariants: a tick is one commit, which also stores tick, epoch and version; Delta's transaction number of this sink
prevents a second commit of a tick. A view without a key has the columns ``_hw_row`` and ``_hw_count``: each distinct
row with its multiplicity.
Not here: Delta's log; vacuuming and compaction, which are up to the table's owner.
Read next: ``parquet_sink.py``; ``docs/sinks.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from headwater.errors import MissingExtra, OffsetOutOfRange, SinkRefused, Unavailable
from headwater.log.schema.ddl import spark_type
from headwater.log.schema.normalization import WEIGHT
from headwater.sinks.sink import (
    ROW_NAME,
    Leftover,
    Sink,
    SinkContext,
    StoredProgress,
    Target,
    check_fence,
    is_next,
    reached,
)
from headwater.views.serving.deliveries import Delivery, counted, deletes, row_names, upserts

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from headwater.log.contract import EventLog

COUNT = "_hw_count"
ABOUT = "headwater"  # the key of our metadata in a commit
LOOK_BACK = 100  # commits of others (OPTIMIZE, …) after our last one
LOG_KEPT = "delta.logRetentionDuration"


@dataclass(frozen=True)
class DeltaSink(Sink):
    """A Delta table at a path or address, partitioned by some of the view's columns.

    >>> DeltaSink("revenue.delta", partition_by=["country"]).partition_by
    ('country',)
    """

    path: str
    partition_by: Sequence[str] = ()
    storage_options: Mapping[str, str] | None = None

    kind = "delta"
    copy_replaces = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        object.__setattr__(self, "partition_by", tuple(self.partition_by))

    @property
    def layout(self) -> str:
        return ",".join(self.partition_by)

    def open(self, context: SinkContext, log: EventLog) -> Target:
        del log
        with MissingExtra.raised_for("hw.sinks.Delta", "delta"):
            import deltalake  # noqa: F401
        return DeltaTarget(context, self)

    def version_at(self, tick: int) -> int:
        """The table's version that is the view at a tick: for time travel.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> users = app.table("users", "id BIGINT, country STRING", key="id")
        >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
        >>> table = hw.sinks.Delta(f"{tempfile.mkdtemp()}/countries")
        >>> _ = app.sink("countries", table)
        >>> _ = users.upsert([{"id": 1, "country": "DE"}])
        >>> _ = app.tick()
        >>> table.version_at(1)
        0
        """
        from deltalake import DeltaTable

        table = DeltaTable(self.path, storage_options=_options(self))
        for commit in table.history():
            about = json.loads(commit.get(ABOUT, "null"))
            if about is not None and about["tick"] <= tick:
                return int(commit["version"])
        raise OffsetOutOfRange(f"no commit of {self.path} is of tick {tick} or before", hint="See the table's history.")

    def __str__(self) -> str:
        return f"delta:{self.path}"


def _options(sink: DeltaSink) -> dict[str, str] | None:
    return dict(sink.storage_options) if sink.storage_options else None


class DeltaTarget(Target):
    """The table."""

    def __init__(self, context: SinkContext, sink: DeltaSink) -> None:
        super().__init__(context)
        self.sink = sink
        for name in sink.partition_by:
            if name not in context.schema.names:
                raise SinkRefused(
                    f'view "{context.view}" has no column "{name}" to partition by',
                    hint=f"It has: {', '.join(context.schema.names)}.",
                )
        for field in context.schema:
            if _has_length_of_time(field.type):
                raise SinkRefused(
                    f'Delta has no type for column "{field.name}" of view "{context.view}": {spark_type(field.type)}',
                    hint="Give it as a number in the view's SQL: unix_micros of both ends, or EXTRACT(…).",
                    column=field.name,
                )

    # The contract

    def progress(self) -> StoredProgress | None:
        with self._translated():
            table = self._table()
            return None if table is None else self._progress(table)

    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        from deltalake import write_deltalake

        with self._translated():
            table = self._table()
            if table is not None:
                self._refuse_foreign(table)
                check_fence(self._progress(table), self.context, epoch, filling=True)
            if self.context.key:
                content: Any = pa.RecordBatchReader.from_batches(self.context.schema, _of(self.context.schema, rows))
            else:
                content = self._counted(*counted(rows, self.context.schema))
            write_deltalake(
                self.sink.path,
                content,
                mode="overwrite",
                schema_mode="overwrite",
                partition_by=list(self.sink.partition_by) or None,
                storage_options=_options(self.sink),
                commit_properties=self._properties(tick, epoch),
            )
            return StoredProgress(tick, epoch, self.context.version)

    def apply(self, delivery: Delivery) -> StoredProgress:
        with self._translated():
            table = self._table()
            progress = None if table is None else self._progress(table)
            if table is None or not is_next(progress, self.context, delivery):
                return reached(progress, self.context)
            properties = self._properties(delivery.tick, delivery.epoch)
            if self.context.key:
                self._merge(table, delivery.changes, properties)
            else:
                self._merge_bag(table, delivery.changes, properties)
            return StoredProgress(delivery.tick, delivery.epoch, self.context.version)

    # Rows

    def forget(self) -> Leftover | None:
        """Earlier versions go, and with them their entries in Delta's log, which have statistics of values.

        Each commit that this takes says whose table it is, and at which tick: the entries that said so go too.
        """
        from deltalake import CommitProperties

        with self._translated():
            table = self._table()
            if table is not None:
                about = CommitProperties(custom_metadata={ABOUT: json.dumps(self._about(table))})
                kept = table.metadata().configuration.get(LOG_KEPT, "interval 30 days")
                table.alter.set_table_properties({LOG_KEPT: "interval 0 seconds"}, commit_properties=about)
                table.vacuum(
                    retention_hours=0, enforce_retention_duration=False, dry_run=False, commit_properties=about
                )
                table.create_checkpoint()
                table.cleanup_metadata()
                table.alter.set_table_properties({LOG_KEPT: kept}, commit_properties=about)
        return None

    def _merge(self, table: DeltaTable, changes: pa.Table, properties: Any) -> None:
        gone, come = deletes(changes, self.context.key), upserts(changes)
        weights = np.repeat([-1, 1], [gone.num_rows, come.num_rows])
        source = pa.concat_tables([gone, come]).append_column(WEIGHT, pa.array(weights, pa.int64()))
        same = " AND ".join(_same(name, source.column(name).null_count > 0) for name in self.context.key)
        columns = {_name(name): f"s.{_name(name)}" for name in self.context.schema.names}
        merge = table.merge(source, same, source_alias="s", target_alias="t", commit_properties=properties)
        merge.when_matched_delete(f"s.{WEIGHT} < 0").when_matched_update(columns).when_not_matched_insert(
            columns, f"s.{WEIGHT} > 0"
        ).execute()

    def _merge_bag(self, table: DeltaTable, changes: pa.Table, properties: Any) -> None:
        rows = changes.drop_columns([WEIGHT])
        source = self._counted(rows, row_names(rows), changes.column(WEIGHT).to_pylist())
        columns = {_name(name): f"s.{_name(name)}" for name in source.schema.names}
        merge = table.merge(
            source, f"t.{ROW_NAME} = s.{ROW_NAME}", source_alias="s", target_alias="t", commit_properties=properties
        )
        merge.when_matched_delete(f"t.{COUNT} + s.{COUNT} <= 0").when_matched_update(
            {COUNT: f"t.{COUNT} + s.{COUNT}"}
        ).when_not_matched_insert(columns, f"s.{COUNT} > 0").execute()

    def _counted(self, rows: pa.Table, names: Sequence[bytes], counts: Sequence[int]) -> pa.Table:
        texts = pa.array([name.hex() for name in names], pa.string())
        return rows.append_column(ROW_NAME, texts).append_column(COUNT, pa.array(counts, pa.int64()))

    # Commits and progress

    def _table(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        options = _options(self.sink)
        if not DeltaTable.is_deltatable(self.sink.path, options):
            return None
        return DeltaTable(self.sink.path, storage_options=options)

    def _properties(self, tick: int, epoch: int) -> Any:
        from deltalake import CommitProperties, Transaction

        about = {"sink": self.context.identity, "tick": tick, "epoch": epoch, "version": self.context.version}
        return CommitProperties(
            custom_metadata={ABOUT: json.dumps(about)},
            app_transactions=[Transaction(self.context.identity, tick)],
            max_commit_retries=0,  # a concurrent commit may be another process's: read the progress again
        )

    def _about(self, table: DeltaTable) -> Any:
        """Our metadata of the last commit that has any."""
        for commit in table.history(LOOK_BACK):
            if ABOUT in commit:
                return json.loads(commit[ABOUT])
        return None

    def _progress(self, table: DeltaTable) -> StoredProgress | None:
        about = self._about(table)
        if about is None or about["sink"] != self.context.identity:
            return None
        if table.transaction_version(self.context.identity) != about["tick"]:
            return None  # the table was restored to an earlier version
        return StoredProgress(about["tick"], about["epoch"], about["version"])

    def _refuse_foreign(self, table: DeltaTable) -> None:
        about = self._about(table)
        if about is None and table.transaction_version(self.context.identity) is not None:
            return  # our commits are gone from Delta's log; the number of the last one is in the table
        if about is None or about["sink"] != self.context.identity:
            whose = f"it belongs to sink {about['sink']}" if about else "Headwater did not make it"
            raise SinkRefused(
                f"a Delta table exists at {self.sink.path}, and {whose}", hint="Give the sink another path."
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except (CommitFailedError, OSError) as error:
            raise Unavailable(
                f"the Delta table {self.sink.path} could not be changed: {str(error).splitlines()[0]}",
                hint="It is retried.",
            ) from error
        except DeltaError as error:
            said = str(error).splitlines()[0]
            raise SinkRefused(
                f'Delta refused the rows of sink "{self.context.sink}" for {self.sink.path}: {said}',
                hint="Change the view's SQL, or give the sink another path.",
            ) from error


def _has_length_of_time(arrow: pa.DataType) -> bool:
    parts = [arrow.field(place).type for place in range(arrow.num_fields)]
    return kinds.is_duration(arrow) or any(map(_has_length_of_time, parts))


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _same(name: str, nulls: bool) -> str:
    """Whether a key's column is equal on both sides.

    Not by IS NOT DISTINCT FROM: with two of them deltalake 1.6 inserts nothing. Only where a null is, because what is
    no plain equality is compared row by row.
    """
    target, source = f"t.{_name(name)}", f"s.{_name(name)}"
    return f"({target} = {source} OR ({target} IS NULL AND {source} IS NULL))" if nulls else f"{target} = {source}"


def _of(schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        yield batch.cast(schema)
