"""Reading: what topics, tables and views hold, as frames of one moment.

What it is: ``RelationSnapshot`` gives each relation's rows at one manifest, and runs queries over them.
Invariants: all relations of a query are read at the same tick; a topic that no view reads is read to its end.
Not here: the serving store, which needs no Spark (``serving_store.py``); comparing
(``views/lifecycle/verification.py``).
Read next: ``views/state/manifest.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from headwater.errors import InvalidQuery, InvalidView
from headwater.log.contract import EventLog
from headwater.log.event_time import capture_markers
from headwater.log.schema.ddl import parse_view_ddl
from headwater.views import thresholds
from headwater.views.compiler.frontend.bloom_filters import write_out_blooms
from headwater.views.compiler.frontend.metadata_columns import may_name_metadata, write_out_metadata
from headwater.views.compiler.frontend.query_tables import parsed_query, tables_in
from headwater.views.compiler.plan import WEIGHT, Relation, topic_of
from headwater.views.privacy.hidden_columns import Hidden
from headwater.views.serving.query_admission import check_reading
from headwater.views.spark.collect import collected
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.stage_schemas import columns_of
from headwater.views.stages.view_sessions import BOTH, LARGE
from headwater.views.state.algebra import consolidate, expand, visible, weights
from headwater.views.state.manifest import Manifest, RelationEntry
from headwater.views.state.omissions import frame_without, omitted_of
from headwater.views.state.remote.run_cache import RunCache
from headwater.views.state.small_runs import SmallRuns
from headwater.views.state.state_store import trace_of
from headwater.views.state.trace import Trace
from headwater.views.tick.inputs import InputKind, InputRelation, inputs_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.federation.attachments import Attachment
    from headwater.federation.stores import Fetched


@dataclass(frozen=True)
class QueryReply:
    """The rows of a query, and the statements sent to attached stores for it."""

    table: pa.Table
    fetched: tuple[Fetched, ...] = ()


class RelationSnapshot:
    """Every relation of a home as one app's manifest sees it."""

    def __init__(
        self,
        log: EventLog,
        folder: Path,
        manifest: Manifest,
        spark: SparkSession,
        attached: Mapping[str, Attachment] | None = None,
        bytes_max: int | None = None,
    ) -> None:
        self.log = log
        self.bytes_max = bytes_max  # of an answer
        self.attached = attached or {}
        self.hidden: Hidden = {}  # columns that queries get null of
        self.admits = False  # queries come from elsewhere: Spark gets none that it reads otherwise than we do
        self.folder = folder
        self.manifest = manifest
        self.spark = spark.newSession()
        for name, value in {**BOTH, **LARGE}.items():
            self.spark.conf.set(name, value)
        self.spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
        self.inputs = inputs_of(log)
        for base in self.inputs.values():
            base.omitted = omitted_of(manifest.aside, base.topic)

    def names(self) -> list[str]:
        """All relations that can be read."""
        topics = {name for name, base in self.inputs.items() if name == base.topic.name}
        return sorted(topics | set(self.manifest.views))

    def frame(self, name: str, columns: list[str] | None = None) -> DataFrame:
        """A relation's rows; of a view, also of ``columns`` that its users do not see."""
        entry = self.manifest.relations.get(name)
        if entry is not None:
            return self._state(name, entry, columns or self._shown(name, entry))
        return self.from_log(name)

    def rows(self, name: str) -> pa.Table:
        """The rows of a relation that has a state; a small one is read on the driver, without a Spark job."""
        entry = self.manifest.relations[name]
        trace = self._trace(name, entry)
        if trace.rows <= thresholds.LOCAL_ROWS_MAX:
            for run in trace.runs:
                trace.verify(run)
            content = consolidate(visible(trace.content(), self._shown(name, entry)))
            if weights(content).sum() <= thresholds.LOCAL_ROWS_MAX:  # one row may be there a hundred million times
                return expand(content)
        return self.frame(name).toArrow()

    def weighted(self, name: str) -> DataFrame:
        """The weighted rows of a relation that has a state."""
        return self.trace(name).frame(self.spark)

    def trace(self, name: str) -> Trace:
        """The trace of a relation that has a state, for reading."""
        return self._trace(name, self.manifest.relations[name])

    def from_log(self, name: str) -> DataFrame:
        """A topic's or table's rows, from the log alone, up to the manifest's frontier."""
        base = self.inputs[name]
        start, known = base.topic.start_offsets(), self.manifest.frontier.get(base.topic.name)
        stop = dict(known or capture_markers.bound([base.topic], self.log.cut([base.topic]))[base.topic.name])
        start = {number: min(start[number], stop[number]) for number in stop}
        return self.understood(base, frame_without(self.spark, base.topic, start, stop, stored(base), base.omitted))

    def understood(self, base: InputRelation, every: DataFrame) -> DataFrame:
        """The rows of a topic or table that has these records."""
        names = base.schema.names
        if base.kind in (InputKind.LOG, InputKind.VERSIONS):
            return every.select(*map(quoted, names))
        if base.kind is InputKind.BAG:
            return expand(consolidate(every, names))
        every.createOrReplaceTempView("_every")
        key = ", ".join(map(quoted, base.key))
        columns = ", ".join(map(quoted, names))
        latest = f"row_number() OVER (PARTITION BY {key} ORDER BY _offset DESC)"
        ranked = f"SELECT *, {latest} AS _latest FROM _every"
        try:
            return self.spark.sql(
                f"SELECT {columns} FROM ({ranked}) WHERE _latest = 1 AND NOT coalesce(_deleted, false)"
            )
        finally:  # a query of this session could name it, whatever is hidden
            self.spark.catalog.dropTempView("_every")

    def _shown(self, name: str, entry: RelationEntry) -> list[str]:
        """The columns that readers see."""
        shown = self.manifest.views[name]["columns"] if name in self.manifest.views else entry["schema"]
        return list(parse_view_ddl(shown).names)

    def _trace(self, name: str, entry: RelationEntry) -> Trace:
        app, home = self.folder.name, self.log.local
        small, cache = SmallRuns(home.catalog, app), RunCache.of(home.catalog, app, home.files)
        return trace_of(self.folder, name, entry, home.files, small, cache)

    def _state(self, name: str, entry: RelationEntry, columns: list[str]) -> DataFrame:
        trace = self._trace(name, entry)
        if [field for field in trace.schema.names if field != WEIGHT] == columns:
            return trace.bag(self.spark)
        return expand(consolidate(visible(trace.frame(self.spark), columns)))

    def query(self, sql: str) -> pa.Table:
        """Run a query over relations by their names."""
        return self.reply(sql).table

    def reply(self, sql: str, *, push_down: bool = True) -> QueryReply:
        """Run a query over relations by their names, and tables of attached stores by theirs."""
        sql = self._written_out(sql)
        read = parsed_query(sql)
        if any(table.args.get("version") for tree in read for table in tree.find_all(exp.Table)):
            raise InvalidQuery(
                "AS OF can be asked in a view, not in a query",
                hint="Declare a view with this join, and query that; view.history shows a view as it was.",
            )
        if self.attached or any(table.db for tree in read for table in tree.find_all(exp.Table)):
            from headwater.views.serving.federated_tables import foreign_reply

            found = foreign_reply(self, sql, read, push_down=push_down)
            if found is not None:
                return found
        self.show(tables_in(sql))
        return QueryReply(self.run(sql))

    def _written_out(self, sql: str) -> str:
        """The query over relations that have the metadata columns which it names, without Bloom filters."""
        try:
            sql = write_out_blooms(sql).sql
        except InvalidView as error:
            raise InvalidQuery(error.message, detail=error.detail, hint=error.hint) from None
        if not may_name_metadata(sql):
            return sql
        relations = {name: base.relation for name, base in self.inputs.items() if name == base.topic.name}
        for name, view in self.manifest.views.items():
            relations[name] = Relation(name, columns_of(parse_view_ddl(view["columns"])), is_view=True)
        try:
            return write_out_metadata(sql, relations).sql
        except InvalidView as error:
            raise InvalidQuery(error.message, detail=error.detail, hint=error.hint) from None

    def show(self, names: Iterable[str]) -> None:
        """Let queries of this session find relations by their names."""
        for name in names:
            found = next((one for one in (*self.names(), *self.inputs) if one.lower() == name.lower()), None)
            if found is None:
                raise InvalidQuery(
                    f'there is no topic, table or view "{name}"',
                    hint="There are: " + (", ".join(self.names()) or "none yet") + ".",
                    name=name,
                )
            self._hiding(found, self.frame(found)).createOrReplaceTempView(quoted(found))

    def _hiding(self, name: str, frame: DataFrame) -> DataFrame:
        """A relation as queries may read it."""
        from pyspark.sql import functions as f

        columns = self.hidden.get(topic_of(name).lower())
        if columns is None:
            return frame
        if columns.closed is not None:
            raise InvalidQuery(f'a query cannot read "{name}": {columns.closed}', name=name)
        if columns.rows is not None:
            types = dict(frame.dtypes)
            known = [f"{quoted(column)} {types[column]}" for column, _ in columns.rows.values if column in types]
            columns.rows.check(parse_view_ddl(", ".join(known)) if known else pa.schema([]))
            for column, values in columns.rows.values:
                frame = frame.where(f.col(quoted(column)).cast("string").isin(*values))
            # No condition of the query comes before these, where one that fails would tell of rows that are not shown:
            # Spark moves none past a condition whose outcome it does not know.
            frame = frame.where(f.rand() >= 0)
        nothing = {each.name: f.lit(None).cast(each.dataType).alias(each.name) for each in frame.schema}
        return frame.select(*(nothing[c] if columns.hides(c) else f.col(quoted(c)) for c in frame.columns))

    def run(self, sql: str) -> pa.Table:
        """Run a query whose tables are shown."""
        from pyspark.errors import PySparkException

        if self.admits:
            check_reading(self.spark, sql)
        try:
            frame = self.spark.sql(sql)
            return frame.toArrow() if self.bytes_max is None else collected(frame, self.bytes_max)
        except PySparkException as error:
            first = str(error).splitlines()[0]
            raise InvalidQuery("the query cannot be run", detail=first, hint="Correct the query.") from error


def stored(base: InputRelation) -> list[str]:
    """The columns of a topic's records that its rows depend on."""
    more = {InputKind.BAG: [WEIGHT], InputKind.KEYED: ["_deleted", "_offset"]}
    return list(dict.fromkeys([*base.schema.names, *more.get(base.kind, [])]))
