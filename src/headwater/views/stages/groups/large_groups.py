"""Large groups: a GROUP BY over many rows, by Spark's scans.

What it is: ``LargeGroups``, the queries of an ``AccumulateStage`` whose flow is too large for one task: the groups of a
first fill, what a tick changes in the groups there are, and groups that are too many for the driver.
Invariants: a first fill is one query, with no state beside it, and so is what a tick changes: each row of the flow is
read once, unless a value is out of range.
Not here: small flows, and what is done with groups that are few (``stage_run.py``); the SQL of the queries
(``views/compiler/render.py``).
Read next: ``stage_run.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.schema.ddl import spark_type
from headwater.views.compiler.plan import AccumulateStage
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.relation import BoundRows
from headwater.views.stages.stage_schemas import StageSchema
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import consolidate, union, weighted_schema, with_weight
from headwater.views.state.delta import Delta
from headwater.views.state.sql_equality import groups_compared, groups_flattened
from headwater.views.state.state_trace import StateTrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OUT_OF_RANGE, FLOW = "_out_of_range", "_flow"


class LargeGroups:
    """The groups of one stage in one tick."""

    def __init__(self, stage: AccumulateStage, shape: StageSchema, sessions: ViewSessions) -> None:
        self.stage = stage
        self.shape = shape
        self.sessions = sessions

    def partial(self, sql: str, bound: Mapping[str, BoundRows], partial_sql: str, schema: pa.Schema) -> BoundRows:
        """The differences of the touched groups."""
        return self._settled(
            self.sessions.frame(self._partial(partial_sql), bound, large=True, steps=[(FLOW, sql)]), schema
        )

    def first(
        self, sql: str, bound: Mapping[str, BoundRows], partial_sql: str, combine_sql: str, result: pa.Schema
    ) -> BoundRows:
        """All groups of a stage that has none yet: there is nothing to add them to."""
        steps = [(FLOW, sql), ("_partial", self._partial(partial_sql)), ("_before", no_rows(self.shape.state))]
        columns = ", ".join(map(quoted, result.names))
        combined = f"SELECT {columns} FROM (\n{combine_sql}\n)"
        return self._settled(self.sessions.frame(combined, bound, large=True, steps=steps), result)

    def added(self, partial: BoundRows, combine_sql: str, own: StateTrace) -> Delta | None:
        """The stage's changes, of more groups than are looked up; None when a value was out of range."""
        spark = self.sessions.large
        partial.frame(spark).createOrReplaceTempView("_partial")
        same = " AND ".join(f"p.{column.name} <=> b.{column.name}" for column in self.stage.groups)
        assert self.shape.flow is not None
        on = groups_compared(same, self.shape.flow)
        own.bag(spark).createOrReplaceTempView("_every")
        before = spark.sql(f"SELECT b.* FROM _every b LEFT SEMI JOIN _partial p ON {on}")
        before.createOrReplaceTempView("_before")
        return self.written(spark.sql(combine_sql), before)

    def written(self, combined: DataFrame, before: DataFrame | None = None) -> Delta | None:
        """New rows of the touched groups less their old ones, in files; None when a value was out of range."""
        if OUT_OF_RANGE in combined.columns and not combined.where(OUT_OF_RANGE).isEmpty():
            return None
        names, weighted = self.shape.state.names, weighted_schema(self.shape.state)
        new = with_weight(combined.select(*map(quoted, names)).where("_n <> 0"), 1)
        if before is None:  # a group has one row: nothing could cancel out
            return self.sessions.write(new, weighted)
        return self.sessions.write(consolidate(union(new, with_weight(before, -1)), names), weighted)

    def _partial(self, partial_sql: str) -> str:
        assert self.shape.partial is not None
        groups = pa.schema([self.shape.partial.field(column.name) for column in self.stage.groups])
        return groups_flattened(partial_sql, groups, dict(self.stage.windows))

    def _settled(self, frame: DataFrame, schema: pa.Schema) -> BoundRows:
        if self.stage.groups:
            return self.sessions.materialize(frame, schema, grouped=True)
        return BoundRows.of(self.sessions.collect_frame(frame, schema))  # one row, however many flow


def no_rows(schema: pa.Schema) -> str:
    """SQL for a table of these columns without rows.

    >>> no_rows(pa.schema([("_n", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
    'SELECT CAST(NULL AS BIGINT) AS `_n`, CAST(NULL AS TIMESTAMP) AS `at` WHERE FALSE'
    """
    columns = (f"CAST(NULL AS {spark_type(field.type)}) AS {quoted(field.name)}" for field in schema)
    return f"SELECT {', '.join(columns)} WHERE FALSE"
