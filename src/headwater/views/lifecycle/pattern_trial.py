"""Trying a pattern: which recorded rows match which variable, without declaring anything.

What it is: ``try_pattern``, behind ``headwater pattern test``: the first MATCH_RECOGNIZE of a text, in one batch over
the log as it is, with ALL ROWS PER MATCH WITH UNMATCHED ROWS.
Invariants: nothing is written. The conditions, the order and the skipping are those of the text; its own measures,
and which rows it shows, are left out.
Not here: views with patterns (``views/stages/match_run.py``).
Read next: ``views/stages/match_rows.py``.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import InvalidDeclaration
from headwater.log.contract import EventLog
from headwater.log.schema.row_conversion import to_rows
from headwater.patterns import find_clauses
from headwater.views.compiler.frontend.match_text import split_matches
from headwater.views.compiler.match_compiler import match_stage
from headwater.views.serving.snapshot import RelationSnapshot
from headwater.views.spark.analysis_cache import AnalysisCache
from headwater.views.spark.topic_scan import quoted
from headwater.views.stages.match_rows import match_frame
from headwater.views.stages.stage_schemas import Analyser
from headwater.views.stages.view_sessions import ViewSessions
from headwater.views.state.algebra import SHOWN
from headwater.views.state.manifest import Manifest
from headwater.views.tick.prepare import relations_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "pattern_test"
MATCH, VARIABLE = "match__", "variable__"
SHOWN_MEASURES = (
    f"t MATCH_RECOGNIZE (ORDER BY a MEASURES MATCH_NUMBER() AS {MATCH}, CLASSIFIER() AS {VARIABLE} PATTERN (a))"
)


def tried(log: EventLog, sql: str, spark: SparkSession, only: str | None, limit: int) -> dict[str, Any]:
    """The same for programs: partition and order by name, the variables, and the rows."""
    split = split_matches(NAME, sql)
    rows = try_pattern(log, sql, spark, partition=only, limit=limit)
    assert split is not None
    clause = split.mentions[0].clause
    return {
        "pattern": " ".join(clause.text[slice(*clause.pattern_span)].split()),
        "partition": [sql.strip("`") for sql in clause.partition_by],
        "variables": list(clause.variables),
        "rows": [{"match": row.pop(MATCH), "variable": row.pop(VARIABLE), "row": row} for row in rows],
    }


def try_pattern(
    log: EventLog, sql: str, spark: SparkSession, *, partition: str | None = None, limit: int = 1_000
) -> list[dict[str, Any]]:
    """The rows of the pattern's input in order, each with the number of its match and its variable; None for none.

    ``partition``: only rows whose PARTITION BY columns have this text.
    """
    from pyspark.sql import functions as f

    split = split_matches(NAME, sql)
    if split is None:
        raise InvalidDeclaration(
            "the text has no MATCH_RECOGNIZE", hint="Write a query: SELECT * FROM payments MATCH_RECOGNIZE (…)."
        )
    mention = split.mentions[0]
    if mention.clause.absent or "{-" in mention.clause.text[slice(*mention.clause.pattern_span)]:
        raise InvalidDeclaration(
            "a pattern with absence or exclusion cannot be shown row by row",
            hint="Leave [^…] or {- -} out to see which rows match the rest.",
        )
    shown = replace(
        mention.clause,
        rows_per_match="all",
        empty_matches=True,
        unmatched_rows=True,
        timed_out=False,
        measures=find_clauses(SHOWN_MEASURES)[0].measures,
    )
    with tempfile.TemporaryDirectory() as folder:
        contents = RelationSnapshot(log, Path(folder), Manifest(), spark)
        analyser = Analyser(ViewSessions(spark, Path(folder) / "scratch"), AnalysisCache(None, spark.version))
        plan, stage = match_stage(split, replace(mention, clause=shown), relations_of(log), analyser.describe)
        for name in plan.reads:
            contents.from_log(name).createOrReplaceTempView(quoted(name))
        frame = match_frame(stage, contents.spark.sql(stage.input)).where(SHOWN)
        if partition is not None:
            frame = frame.where(f.concat_ws(", ", *map(quoted, stage.partition_names)) == partition)
        order = [f.expr(item.sql).desc() if item.descending else f.expr(item.sql) for item in shown.order_by]
        rows = frame.orderBy(*(f.col(quoted(name)) for name in stage.partition_names), *order).limit(limit)
        table = rows.select(*(quoted(column.name) for column in stage.columns)).toArrow()
        return [row for batch in table.to_batches() for row in to_rows(batch)]
