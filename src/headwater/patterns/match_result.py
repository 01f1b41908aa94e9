"""The answer of matching: output rows, what each of them picks, and from where it can be recomputed.

What it is: ``MatchPaths``, the matches as the search found them; ``MatchResult``, the output rows that the clause asks
for, with the picks of slots, the members of aggregates and the clean boundaries.
Invariants: output rows are in the order of their first rows; -1 is no row; a boundary is clean as ``MatchResult`` says.
Not here: the search (``row_matcher.py``); values of aggregates (``member_aggregates.py``).
Read next: ``member_aggregates.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.patterns.expressions.navigation import Anchor
from headwater.patterns.member_aggregates import computed

if TYPE_CHECKING:
    from headwater.patterns.expressions.measure_split import Aggregate
    from headwater.patterns.pattern_program import PatternProgram

MATCHED, EMPTY, UNMATCHED, TIMED_OUT = 0, 1, 2, 3


@dataclass(frozen=True)
class MatchPaths:
    """Matches in the order of their first rows; the rows of a match stand side by side."""

    start: np.ndarray
    stop: np.ndarray
    kind: np.ndarray
    number: np.ndarray
    path: np.ndarray  # the positions of all matches' rows

    @property
    def offset(self) -> np.ndarray:
        """Where the rows of each match begin in ``path``, and the end."""
        return np.concatenate(([0], np.cumsum(self.stop - self.start)))


@dataclass(frozen=True)
class Boundaries:
    """Where recomputing may begin: see ``MatchResult``."""

    clean: np.ndarray
    clean_end: np.ndarray
    settled: np.ndarray
    settled_end: np.ndarray
    wake_us: np.ndarray
    reach: np.ndarray


class MatchResult:
    """The output rows of a clause over some rows, as arrays with one element an output row.

    ``row``: the row it stands for (one row a match: the last; an empty match: where it was tried). ``partition``.
    ``first_row`` of its match. ``match_number``: 0 for none. ``kind``: MATCHED, EMPTY, UNMATCHED or TIMED_OUT.

    ``clean[p]``: row ``p`` is a *clean boundary*: an attempt began at it, and no attempt that began before it in its
    partition looked at a row from ``p`` on, at the end of the partition, or at a deadline that the watermark has not
    passed. So rows from ``p`` on may change in any way, and what began before ``p`` stays; and matching the rows from
    ``p`` on alone, with ``matches_before``, gives exactly the output rows whose first row is ``p`` or later. The first
    row of a partition is always clean. ``clean_end``: of each partition, whether its end is such a boundary.
    ``settled`` and ``settled_end``: the same if no row at or before the watermark comes any more.
    ``reach``: of each row at which an attempt began, the end of the rows that it looked at: one more than the end of
    the partition where it looked for a row behind the last; 0 of other rows.
    ``wake_us``: of each partition, the first deadline that waits for the watermark; the largest integer for none.
    """

    def __init__(
        self,
        program: PatternProgram,
        bounds: np.ndarray,
        matches: MatchPaths,
        unmatched: np.ndarray,
        boundaries: Boundaries,
        steps: int,
    ) -> None:
        self.program, self.matches, self.steps = program, matches, steps
        self.clean, self.clean_end = boundaries.clean, boundaries.clean_end
        self.settled, self.settled_end = boundaries.settled, boundaries.settled_end
        self.wake_us = boundaries.wake_us
        self.reach = boundaries.reach
        self._variable = np.asarray(program.automaton.variable, np.int64)
        self._offset = matches.offset
        if program.clause.rows_per_match == "one":
            of_match, row = self._one_row()
        else:
            of_match, row = self._all_rows(unmatched)
        self._match = of_match
        known = of_match >= 0
        self.row = row
        self.partition = np.searchsorted(bounds, row, side="right") - 1
        self.first_row = np.where(known, self._of(matches.start, -1), row)
        self.match_number = self._of(matches.number, 0)
        self.kind = self._of(matches.kind, UNMATCHED).astype(np.int8)
        # Where the rows of the match begin and end in the path, up to this row and in all.
        self._low = self._of(self._offset[:-1], 0)
        self._high = self._of(self._offset[1:], 0)
        here = np.where(self._high > self._low, self._low + row - self.first_row + 1, self._low)
        self._now = self._high if program.clause.rows_per_match == "one" else here

    def __len__(self) -> int:
        return len(self.row)

    def _of(self, values: np.ndarray, otherwise: int) -> np.ndarray:
        """A value of each output row's match."""
        if not len(values):
            return np.full(len(self._match), otherwise, np.int64)
        return np.where(self._match >= 0, values[self._match], otherwise)

    def _one_row(self) -> tuple[np.ndarray, np.ndarray]:
        matches = self.matches
        return np.arange(len(matches.start)), np.maximum(matches.stop - 1, matches.start)

    def _all_rows(self, unmatched: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        matches, clause = self.matches, self.program.clause
        sizes = matches.stop - matches.start
        of_match = np.repeat(np.arange(len(sizes)), sizes)
        row = np.arange(len(of_match)) - self._offset[of_match] + matches.start[of_match]
        excluded = np.asarray(self.program.automaton.excluded, bool)
        if excluded.any():
            shown = ~excluded[matches.path]
            of_match, row = of_match[shown], row[shown]
        empty = np.nonzero(matches.kind == EMPTY)[0] if clause.empty_matches else np.zeros(0, np.int64)
        unmatched = unmatched if clause.unmatched_rows else unmatched[:0]
        of_match = np.concatenate((of_match, empty, np.full(len(unmatched), -1, np.int64)))
        row = np.concatenate((row, matches.start[empty], unmatched))
        first = np.where(of_match >= 0, matches.start[of_match] if len(sizes) else 0, row)
        order = np.lexsort((row, first))
        return of_match[order], row[order]

    def _members(self, variables: tuple[int, ...] | None) -> tuple[np.ndarray, np.ndarray]:
        """Where in the path the rows of some variables are, and how many there are before each place."""
        if variables is None:
            size = len(self.matches.path)
            return np.arange(size), np.arange(size + 1)
        mine = np.isin(self._variable[self.matches.path], variables)
        return np.nonzero(mine)[0], np.concatenate(([0], np.cumsum(mine)))

    def _range(self, variables: tuple[int, ...] | None, final: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The members, and for each output row which of them it sees: from, to."""
        members, before = self._members(variables)
        return members, before[self._low], before[self._high if final else self._now]

    def _path_places(self, anchor: Anchor) -> np.ndarray:
        """The place in the path that an anchor names for each output row, -1 for none."""
        members, low, high = self._range(anchor.variables, anchor.final)
        at = low + anchor.offset if anchor.first else high - 1 - anchor.offset
        valid = (at >= low) & (at < high)
        return np.where(valid, members[np.where(valid, at, 0)] if len(members) else -1, -1)

    def _rows_at(self, places: np.ndarray) -> np.ndarray:
        return np.where(places >= 0, self.first_row + places - self._low, -1)

    def pick(self, slot_name: str) -> np.ndarray:
        """For a slot of kind ``row``: the row that each output row takes it from, -1 for null."""
        slot = next(each for each in self.program.slots if each.name == slot_name)
        assert slot.anchor is not None
        return self._rows_at(self._path_places(slot.anchor))

    def classifier(self, anchor: Anchor, physical: int = 0) -> pa.Array:
        """The variable of the row that an anchor names, some rows on."""
        places = self._path_places(anchor)
        moved = places + physical
        limit = self._high if anchor.final else self._now
        valid = (places >= 0) & (moved >= self._low) & (moved < limit)
        return self._names_at(np.where(valid, moved, -1))

    def _names_at(self, places: np.ndarray) -> pa.Array:
        names = pa.array(self.program.variables, pa.string())
        known = places >= 0
        codes = self._variable[self.matches.path[np.where(known, places, 0)]] if known.any() else np.zeros_like(places)
        return names.take(pa.array(codes, mask=~known))

    def members(self, aggregate_name: str) -> tuple[np.ndarray, np.ndarray]:
        """For an aggregate: (output row, member row), one pair each member row of each output row."""
        output, places = self._expanded(aggregate_name)
        return output, (self.first_row - self._low)[output] + places

    def _expanded(self, aggregate_name: str) -> tuple[np.ndarray, np.ndarray]:
        aggregate = next(each for each in self.program.aggregates if each.name == aggregate_name)
        members, low, high = self._range(aggregate.variables, aggregate.final)
        sizes = high - low
        output = np.repeat(np.arange(len(self)), sizes)
        within = np.arange(len(output)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return output, members[np.repeat(low, sizes) + within]

    def slot_table(self, rows: pa.Table) -> pa.Table:
        """The slots, the aggregates that the matcher computes, ``_row`` (0, 1, …) and ``_kind`` of the output rows."""
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            "_row": pa.array(np.arange(len(self))),
            "_kind": pa.array(self.kind.astype(np.int32)),
        }
        unmatched = self.kind == UNMATCHED
        for slot in self.program.slots:
            if slot.kind == "match_number":
                columns[slot.name] = pa.array(self.match_number, mask=self.match_number == 0)
            elif slot.kind == "match_status":
                status = pa.array(["matched", "timed out"])
                columns[slot.name] = status.take(pa.array((self.kind == TIMED_OUT).astype(np.int64), mask=unmatched))
            elif slot.kind == "classifier":
                assert slot.anchor is not None
                columns[slot.name] = self.classifier(slot.anchor, slot.physical)
            else:
                rows_picked = self.pick(slot.name)
                columns[slot.name] = rows.column(slot.column).take(pa.array(rows_picked, mask=rows_picked < 0))
        for aggregate in self.program.aggregates:
            if aggregate.shortcut:
                output, member = self.members(aggregate.name)
                column = None if aggregate.column is None else self._column(rows, aggregate)
                if aggregate.column == "_classifier":
                    member = np.arange(len(member))
                values = computed(aggregate.function, column, output, member, len(self))
                columns[aggregate.name] = pc.if_else(pa.array(unmatched), None, values)
        return pa.table(columns)

    def _column(self, rows: pa.Table, aggregate: Aggregate) -> pa.ChunkedArray:
        """What an aggregate is taken of: a column of the rows, or the variable of each member row."""
        if aggregate.column == "_classifier":
            return pa.chunked_array([self._names_at(self._expanded(aggregate.name)[1])])
        return rows.column(aggregate.column)

    def member_table(self, rows: pa.Table) -> pa.Table:
        """The member rows of the aggregates that Spark computes: ``_row``, ``_aggregate``, ``_classifier``, columns."""
        parts = []
        asked = [(at, each) for at, each in enumerate(self.program.aggregates) if not each.shortcut]
        names = sorted({name for _, each in asked for name in re.findall(r"\b_r\d+\b", each.sql)})
        for at, aggregate in asked:
            output, member = self.members(aggregate.name)
            _, places = self._expanded(aggregate.name)
            columns = {
                "_row": pa.array(output),
                "_aggregate": pa.array(np.full(len(output), at, np.int32)),
                "_classifier": self._names_at(places),
            }
            columns |= {name: rows.column(name).take(pa.array(member)) for name in names}
            parts.append(pa.table(columns))
        return pa.concat_tables(parts)
