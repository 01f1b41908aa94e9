"""Executor inputs: the changes of many records of a topic, computed by the executors of a cluster.

What it is: ``changes_by_executors``, what a range of offsets changes in an input relation whose state is on an object
store: executors read the records, look for the rows that they replace and write the changes as files.
Invariants: the changes are those of ``InputRelation.changes``; no record passes the driver.
Not here: ranges that are small enough for the driver, and what the kinds of inputs mean (``inputs.py``).
Read next: ``inputs.py``, ``views/state/remote/executor_files.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.views.compiler.frontend.as_of import DELETED, OFFSET
from headwater.views.compiler.plan import WEIGHT
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import select, union, weighted_schema, with_weight
from headwater.views.state.delta import Delta
from headwater.views.state.omissions import frame_without
from headwater.views.state.sql_equality import same_value
from headwater.views.state.state_trace import StateTrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.views.tick.inputs import InputRelation

LATEST = "_latest"


def changes_by_executors(
    base: InputRelation,
    start: Mapping[int, int],
    stop: Mapping[int, int],
    trace: StateTrace | None,
    sessions: ViewSessions,
) -> Delta:
    """What the records from ``start`` up to ``stop`` change in the state ``trace``, as files on the store."""
    begin = {number: start.get(number, 0) for number in stop}
    names, schema = base.schema.names, weighted_schema(base.schema)
    base.rows_taken = base.topic.rows_most(begin, stop)

    def records(*more: str) -> DataFrame:
        columns = list(dict.fromkeys([*names, *more]))
        return frame_without(sessions.large, base.topic, begin, stop, columns, base.omitted, by_workers=True)

    if base.key:
        latest = _latest(records(DELETED, OFFSET), base.key)
        return sessions.write(_replaced(latest, base, trace, sessions), schema)
    if WEIGHT in base.topic.schema.names:
        return sessions.write(select(records(WEIGHT), names), schema)
    return sessions.write(with_weight(records(), 1), schema)


def _latest(records: DataFrame, key: Sequence[str]) -> DataFrame:
    """The last record of each key. A key has one partition, so its offsets can be compared."""
    by_key = ", ".join(map(quoted, key))
    ranked = records.selectExpr("*", f"row_number() OVER (PARTITION BY {by_key} ORDER BY {OFFSET} DESC) AS {LATEST}")
    return ranked.where(f"{LATEST} = 1").drop(LATEST)


def _replaced(latest: DataFrame, base: InputRelation, trace: StateTrace | None, sessions: ViewSessions) -> DataFrame:
    """Old rows of the keys with -1, the last records that are no tombstones with +1."""
    names = list(map(quoted, base.schema.names))
    there = trace is not None and trace.rows > 0
    # Both sides read them, and the log is to be read once.
    latest = sessions.kept(latest) if there else latest
    new = with_weight(latest.where(f"NOT coalesce({DELETED}, false)").select(*names), 1)
    if not there:
        return new
    assert trace is not None
    spark = sessions.large
    types: dict[str, pa.DataType] = {field.name: field.type for field in base.schema}
    latest.select(*map(quoted, base.key)).createOrReplaceTempView("_keys")
    trace.bag(spark).createOrReplaceTempView("_every")
    on = " AND ".join(same_value(f"e.{quoted(name)}", f"k.{quoted(name)}", types[name]) for name in base.key)
    old = spark.sql(f"SELECT e.* FROM _every e LEFT SEMI JOIN _keys k ON {on}").select(*names)
    return union(new, with_weight(old, -1))
