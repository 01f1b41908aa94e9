"""Flow slices: the groups that many rows touch, computed by all cores in the driver lane.

What it is: ``touched_groups``: the ``partial`` of an accumulating stage, whose flow is cut into slices, one for each
core; what they give is added up (``compiler/united_groups.py``). The plans are kept from tick to tick: a Spark job of
the same rows is planned anew each time, and for that Java needs as long as for the rows.
Invariants: each pair of rows that a term joins is in one slice, since it is cut by a leaf that it is linear in, never
by a branch of a union, whose other branches would be in every slice. Rows that are not on the driver, or in files that
it can read, or too many, are left to a Spark job.
Not here: that job (``large_groups.py``); what is done with the groups (``stage_run.py``).
Read next: ``stage_run.py``, ``views/spark/plans/plan_cache.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headwater.log.schema.ddl import spark_type
from headwater.views import thresholds
from headwater.views.compiler.plan import Term
from headwater.views.compiler.united_groups import PARTS, united
from headwater.views.spark.plans.arrow_leaves import LeafRows
from headwater.views.spark.plans.file_leaves import FileRows, row_ranges
from headwater.views.spark.plans.plan_cache import CachedQuery, Question
from headwater.views.stages.relation import BoundRows
from headwater.views.stages.view_sessions import ViewSessions

BoundTerm = tuple[Term, Mapping[str, BoundRows]]  # a term, and what its leaves are


def touched_groups(
    terms: Sequence[BoundTerm], partial_sql: str, schema: pa.Schema, sessions: ViewSessions
) -> BoundRows | None:
    """The rows of ``partial`` over these terms; None where slices would gain nothing, or cannot be made."""
    leaves = [rows for _, bound in terms for rows in bound.values()]
    rows = sum(each.count for each in leaves)
    if not thresholds.SLICED_ROWS_MIN <= rows <= thresholds.LANE_ROWS_MAX or not sessions.has_lane:
        return None
    sql = united(partial_sql, {field.name: spark_type(field.type) for field in schema})
    if sql is None:
        return None
    held = _held(terms)
    if held is None:
        return None
    questions = [
        Question(CachedQuery(partial_sql, (("_flow", f"({term})"),)), tables, files)
        for term, tables, files in slices(held, sessions.cores)
    ]
    parts = sessions.collect_all(questions, schema)
    if parts is None or len(parts) == 1:
        return None if parts is None else BoundRows.of(parts[0])
    return BoundRows.of(sessions.collect(sql, {PARTS: BoundRows.of(pa.concat_tables(parts))}, schema))


@dataclass(frozen=True)
class HeldTerm:
    """A term whose rows can be had: all of its leaves as tables, but for the one that is cut, which may be in files."""

    sql: str
    tables: Mapping[str, pa.Table]
    cut_by: str  # the largest leaf that the term is linear in
    files: tuple[Path, ...]  # of this leaf, where it has no table
    schema: pa.Schema  # of this leaf
    rows: int  # of this leaf

    def cut(self, rows_max: int) -> list[tuple[pa.Table | None, FileRows | None]]:
        """The leaf that is cut, in pieces of so many rows."""
        if self.files:
            return [(None, part) for path in self.files for part in row_ranges(path, self.schema, rows_max)]
        table = self.tables[self.cut_by]
        return [(table.slice(at, rows_max), None) for at in range(0, self.rows, rows_max)]


def _held(terms: Sequence[BoundTerm]) -> list[HeldTerm] | None:
    """The terms with their rows read; None when these are elsewhere, or too large."""
    found: list[HeldTerm] = []
    size = 0
    for term, bound in terms:
        cut_by = max(sorted(term.linear_in), key=lambda name: bound[name].count)
        files, tables = bound[cut_by].files, dict[str, pa.Table]()
        for name, rows in bound.items():
            if name == cut_by and files:
                continue
            table = rows.fetched()
            size += 0 if table is None else table.nbytes
            if table is None or size > thresholds.LANE_BYTES_MAX:
                return None
            tables[name] = table
        found.append(HeldTerm(term.sql, tables, cut_by, files, bound[cut_by].schema, bound[cut_by].count))
    return found


def slices(terms: Sequence[HeldTerm], most: int) -> list[tuple[str, dict[str, LeafRows], dict[str, FileRows]]]:
    """The terms, each cut into as many slices as are its share of ``most``; one at least.

    >>> orders, users = (pa.table({"id": range(rows)}) for rows in (9, 2))
    >>> term = HeldTerm("SELECT 1", {"o": orders, "u": users}, "o", (), orders.schema, 9)
    >>> [tables["o"].table.num_rows for _, tables, _ in slices([term], 2)]
    [5, 4]
    """
    rows = sum(term.rows for term in terms)
    found: list[tuple[str, dict[str, LeafRows], dict[str, FileRows]]] = []
    for term in terms:
        # Encoded once for all slices.
        others = {name: LeafRows(table) for name, table in term.tables.items() if name != term.cut_by}
        for table, file in term.cut(-(-term.rows // max(1, round(most * term.rows / rows)))):
            tables = others if table is None else {**others, term.cut_by: LeafRows(table)}
            found.append((term.sql, tables, {} if file is None else {term.cut_by: file}))
    return found
