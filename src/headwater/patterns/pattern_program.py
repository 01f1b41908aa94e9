"""The program of a clause: its expressions split between Spark and the matcher, its pattern as an automaton.

What it is: ``compile_pattern`` and ``PatternProgram``: which columns Spark computes before matching, what the matcher
does with them, and which SQL Spark computes over its answer.
Invariants: no expression over one row is evaluated here; the program holds no rows and may be used again and by
several threads.
Not here: the steps of matching (``row_matcher.py``), the answer (``match_result.py``).
Read next: ``row_matcher.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.patterns.clause.match_clause import MatchClause
from headwater.patterns.clause.pattern_scanner import refuse
from headwater.patterns.expressions.condition_split import Tracker, VariableCondition, split_condition
from headwater.patterns.expressions.measure_split import Aggregate, MeasureColumn, MeasureSplitter, Slot
from headwater.patterns.expressions.navigation import Navigator, RowColumn, RowColumns
from headwater.patterns.expressions.row_expression import parse_expression
from headwater.patterns.match_result import MatchResult
from headwater.patterns.search.automaton import Automaton, build_automaton
from headwater.patterns.search.row_matcher import DEFAULT_BUDGET, match_rows


@dataclass(frozen=True)
class PatternProgram:
    """A compiled clause.

    >>> from headwater.patterns import find_clauses
    >>> program = compile_pattern(find_clauses('''t MATCH_RECOGNIZE (
    ...     PARTITION BY card ORDER BY at MEASURES A.amount AS small, B.amount * 2 AS twice
    ...     PATTERN (A B) DEFINE A AS amount < 1, B AS amount > 10 * A.amount AND place <> PREV(place))''')[0])
    >>> for column in program.row_columns: print(column.name, column.sql)
    _r0 amount < 1
    _r1 (place <> lag(place, 1) OVER __w)
    _r2 amount
    _r3 10 * amount
    >>> [(measure.alias, measure.sql) for measure in program.measures]
    [('small', '_s0'), ('twice', '_s1 * 2')]
    >>> rows = pa.table({"_r0": [True, False], "_r1": [None, True], "_r2": [0.5, 20.0], "_r3": [5.0, 200.0]})
    >>> program.match(rows, np.array([0, 2])).slot_table(rows).select(["_s0", "_s1"]).to_pylist()
    [{'_s0': 0.5, '_s1': 20.0}]
    """

    clause: MatchClause
    automaton: Automaton
    variables: tuple[str, ...]
    conditions: tuple[VariableCondition, ...]  # one a variable
    trackers: tuple[Tracker, ...]
    row_columns: tuple[RowColumn, ...]
    time_column: str | None
    prev_rows: int
    next_rows: int
    slots: tuple[Slot, ...]
    aggregates: tuple[Aggregate, ...]
    measures: tuple[MeasureColumn, ...]

    @property
    def measures_need_spark(self) -> bool:
        """False when every measure is one slot or one aggregate that the matcher computes."""
        return any(measure.plain is None for measure in self.measures) or self.aggregates_need_spark

    @property
    def aggregates_need_spark(self) -> bool:
        """Whether an aggregate is none of count, sum, min, max and avg."""
        return not all(aggregate.shortcut for aggregate in self.aggregates)

    @property
    def plain_measures(self) -> dict[str, str]:
        """Alias → slot or aggregate, of the measures that are nothing else."""
        return {measure.alias: measure.plain for measure in self.measures if measure.plain is not None}

    @property
    def conditions_sql(self) -> tuple[str, ...]:
        """The conditions over several rows, as SQL over row columns: for Spark to check names and types once."""
        return tuple(condition.sql for condition in self.conditions if condition.sql is not None)

    @property
    def asks_for_the_past(self) -> bool:
        """Whether a match may depend on rows that came long before it: on their being there (^), or on the number of
        their matches."""
        automaton = self.automaton
        ways = {automaton.follow[automaton.beginning(first_of_partition=first)] for first in (True, False)}
        start, stop = self.clause.span
        return len(ways) > 1 or "match_number" in self.clause.text[start:stop].lower()

    @property
    def looks_behind_deadline(self) -> bool:
        """Whether a row behind the deadline of WITHIN may still change a match: by NEXT, or by its being there ($)."""
        return self.next_rows > 0 or self.automaton.asks_for_the_end

    def aggregate_sql(self, *, outputs: str = "o", members: str = "m") -> str:
        """The query of the aggregates that Spark computes.

        ``outputs`` is ``MatchResult.slot_table``, ``members`` is ``MatchResult.member_table``. FILTER gives an
        aggregate over no rows its own value (a count is 0).
        """
        columns = [
            f"{aggregate.sql} FILTER (WHERE {members}._aggregate = {at}) AS {aggregate.name}"
            for at, aggregate in enumerate(self.aggregates)
            if not aggregate.shortcut
        ]
        grouped = (
            f"SELECT {outputs}._row AS _row, {{}} FROM {outputs} "
            f"LEFT JOIN {members} ON {outputs}._row = {members}._row GROUP BY {outputs}._row"
        )
        # Spark 4.3 fails to run WITHIN GROUP beside DISTINCT in one GROUP BY: each aggregate is its own query then.
        written = " ".join(columns).upper()
        if "WITHIN GROUP" in written and "DISTINCT" in written:
            return "SELECT * FROM " + " NATURAL JOIN ".join(f"({grouped.replace('{}', each)})" for each in columns)
        return grouped.replace("{}", ", ".join(columns))

    def match(
        self,
        rows: pa.Table,
        bounds: np.ndarray,
        *,
        watermark_us: int | None = None,
        matches_before: Mapping[int, int] | None = None,
        first_of_partition: np.ndarray | None = None,
        budget: int = DEFAULT_BUDGET,
        keys: Callable[[int], str] | None = None,
    ) -> MatchResult:
        """Match the pattern over rows that are sorted by partition, then by the clause's order.

        ``bounds[i]:bounds[i + 1]`` are the rows of partition ``i``. ``watermark_us`` decides absences and time-outs
        whose deadline is before it. ``matches_before`` has the matches of a partition before its first row here,
        ``first_of_partition`` whether that is its first row of all: both are for recomputing from a clean boundary.
        ``budget`` bounds the steps of one attempt; ``keys`` names a partition in errors.
        """
        return match_rows(
            self,
            rows,
            bounds,
            watermark_us=watermark_us,
            matches_before=matches_before or {},
            first_of_partition=first_of_partition,
            budget=budget,
            keys=keys,
        )


def compile_pattern(clause: MatchClause, input_columns: Collection[str] | None = None) -> PatternProgram:
    """The program of a clause.

    ``input_columns`` are the columns and aliases that may stand before a dot; without them, what is neither a variable
    nor a subset is refused there.

    >>> from headwater.patterns import find_clauses
    >>> compile_pattern(find_clauses("t MATCH_RECOGNIZE (ORDER BY at PATTERN (A) DEFINE A AS PREV(sum(x)) > 1)")[0])
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidPattern: PREV cannot be taken of an aggregate, at line 1, column 61
      t MATCH_RECOGNIZE (ORDER BY at PATTERN (A) DEFINE A AS PREV(sum(x)) > 1)
                                                                  ^^^^^^
      Hint: Inside PREV and NEXT stands an expression over one row, or FIRST or LAST of one.
    """
    columns = RowColumns()
    navigator = Navigator(clause, columns, input_columns)
    trackers: dict[Tracker, int] = {}
    codes = navigator.names.code
    conditions = [VariableCondition(code) for code in range(len(clause.variables))]
    for item in clause.define:
        code = codes[item.name.casefold()]
        conditions[code] = split_condition(navigator, code, parse_expression(item.piece), trackers)
    splitter = MeasureSplitter(navigator, unmatched_rows=clause.unmatched_rows)
    measures = tuple(splitter.split(item) for item in clause.measures)
    time_column = None if clause.within_us is None else columns.name_of(clause.order_by[0].sql)
    automaton = build_automaton(
        clause.pattern,
        codes,
        waits=clause.absent is not None,
        refuse=lambda span, message, hint: refuse(clause.text, span, message, hint),
    )
    return PatternProgram(
        clause,
        automaton,
        clause.variables,
        tuple(conditions),
        tuple(trackers),
        tuple(columns.listed.values()),
        time_column,
        columns.prev_rows,
        columns.next_rows,
        tuple(splitter.slots.values()),
        tuple(splitter.aggregates.values()),
        measures,
    )
