"""Cached plans: planned once by Spark, run again in every tick.

What it is: a small query over tables that are here. Spark takes some 0.3 s to analyse, optimise and plan a join with a
sum, and some 0.05 s to run it over a thousand rows. So the tables are written to files whose paths and lengths stay the
same from tick to tick (``plan_inputs.py``), and the frame over them is kept: running it again reads what the files hold
now.
Invariants: a frame is kept only when its plan has nothing that remembers rows of an earlier run: no exchange, no
subquery, nothing that is not known to be safe. Any other query is planned each time and gives the same rows.
Not here: what to run (``views/stages/stage_run.py``); the settings of the session (``views/stages/view_sessions.py``).
Read next: ``views/stages/view_sessions.py``.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.log.schema.ddl import to_ddl
from headwater.views import thresholds
from headwater.views.spark import plan_inputs
from headwater.views.spark.scans import fitted, nullable, one_chunk
from headwater.views.spark.single_partition import in_one_task
from headwater.views.spark.topic_scan import READ_OPTIONS, literal_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT_MAX = 16  # frames of one view

# What a small session needs for a plan without exchanges. Joins of inputs that are in one partition happen in place.
SETTINGS = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.maxSinglePartitionBytes": str(1 << 62),
    # Spark takes a join to be as large as the product of its inputs: let the inputs seem small.
    "spark.sql.sources.fileCompressionFactor": "0.000001",
    "spark.sql.execution.topKSortFallbackThreshold": "0",  # a sort and a limit; a top-k may exchange rows inside
    "spark.sql.files.openCostInBytes": str(1 << 40),  # a file is never split
    "spark.sql.files.maxPartitionBytes": str(1 << 40),
    "spark.sql.parquet.filterPushdown": "false",
    # It would put a semi join below the leaf's coalescing, where it needs an exchange.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushDownLeftSemiAntiJoin",
}

# Operators that compute their rows anew whenever the plan is run.
FORGETFUL = frozenset(
    [
        *(
            "FileScan",
            "ColumnarToRow",
            "LocalTableScan",
            "Project",
            "Filter",
            "Generate",
            "Expand",
            "Union",
            "Coalesce",
        ),
        *("Sort", "GlobalLimit", "LocalLimit", "Window", "WindowGroupLimit"),
        *("HashAggregate", "SortAggregate", "ObjectHashAggregate"),
        *("SortMergeJoin", "ShuffledHashJoin", "CartesianProduct"),
    ]
)
OPERATOR = re.compile(r"^[\s:+\-]*(?:\*\(\d+\) )?(\w+)")


@dataclass(frozen=True)
class CachedQuery:
    """A query's text, and those that it mentions by name."""

    sql: str
    steps: tuple[tuple[str, str], ...] = ()


class PlanCache:
    """The cached plans of one view."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.reused = 0  # questions that a kept frame answered, since somebody set it to 0
        self._kept: OrderedDict[tuple[object, ...], DataFrame] = OrderedDict()

    def frame(self, question: CachedQuery, tables: Mapping[str, pa.Table]) -> DataFrame:
        """A frame that gives the question's answer over these tables, if it is asked before the next one is made."""
        given = {name: _fit(table) for name, table in tables.items()}
        files = {name: plan_inputs.encoded(table) for name, table in given.items()}
        length = plan_inputs.length_for(max(map(len, files.values()), default=0))
        for name, file in files.items():
            plan_inputs.write(self._path(name, length), file, length)
        rows = sum(table.num_rows for table in given.values())
        compiled = len(given) <= thresholds.COMPILED_TABLES_MAX or rows >= thresholds.COMPILED_TABLE_ROWS_MIN * len(
            given
        )
        key = (question, length, compiled, tuple((name, table.schema) for name, table in given.items()))
        if key in self._kept:
            self._kept.move_to_end(key)
            self.reused += 1
            return self._kept[key]
        self.spark.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
        for name, table in given.items():
            self._read(self._path(name, length), table.schema).createOrReplaceTempView(name)
        few = length == plan_inputs.SMALLEST_BYTES
        for name, sql in question.steps:
            self.spark.sql(in_one_task(sql, few=few)).createOrReplaceTempView(name)
        frame = self.spark.sql(in_one_task(question.sql, few=few))
        if "LIMIT" in question.sql.upper():
            frame = frame.coalesce(1)  # as the last step Spark has limits of another kind, which may exchange rows
        if is_forgetful(plan_of(frame)):
            self._kept[key] = frame
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return frame

    def _path(self, name: str, length: int) -> Path:
        folder = self.folder / str(length)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"leaf{name}.parquet"

    def _read(self, path: Path, schema: pa.Schema) -> DataFrame:
        reader = self.spark.read.options(**READ_OPTIONS).schema(to_ddl(schema))
        return reader.parquet(literal_path(path)).coalesce(1)


def _fit(table: pa.Table) -> pa.Table:
    return one_chunk(fitted(table, nullable(table.schema)))


def plan_of(frame: DataFrame) -> str:
    """The physical plan, as Spark prints it."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def is_forgetful(plan: str) -> bool:
    """Whether running the plan again reads everything again.

    >>> is_forgetful("*(1) Project [a#1]\\n+- *(1) ColumnarToRow\\n   +- FileScan parquet [a#1]")
    True
    >>> is_forgetful("*(2) Sort [a#1 ASC]\\n+- Exchange hashpartitioning(a#1, 1)\\n   +- FileScan parquet [a#1]")
    False
    """
    return all(
        (found := OPERATOR.match(line)) is not None and found[1] in FORGETFUL for line in plan.splitlines() if line
    )
