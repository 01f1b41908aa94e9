"""A thread's memory: what conditions need to know of the rows that a thread of the search has taken.

What it is: ``ThreadMemory``, made of the trackers of a program. A memory is a tuple, one state a tracker; ``take``
gives the memory after one more row, ``values`` what the glue reads.
Invariants: a memory never changes, so that threads share them; two threads with equal memories at one place have one
future, so that a place which failed once with a memory need not be tried again with it.
Not here: the conditions (``glue.py``), the search (``row_search.py``).
Read next: ``row_search.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from headwater.errors import PatternFailed
from headwater.patterns.expressions.condition_split import Tracker
from headwater.patterns.expressions.glue_types import BIGINT, DOUBLE, NUMERIC, STRING, GlueType, arithmetic, order

Memory = tuple[Any, ...]
Step = Callable[[Any, int, int], Any]  # (state, row, variable) → state


class ThreadMemory:
    """How memories begin, change and are read, for rows whose columns are given."""

    def __init__(
        self,
        trackers: Sequence[Tracker],
        variables: Sequence[str],
        columns: Mapping[str, list[Any]],
        types: Mapping[str, GlueType],
    ) -> None:
        self.names = variables
        self.types = [tracked_type(each, types) for each in trackers]
        parts = [self.part(each, columns, kind) for each, kind in zip(trackers, self.types, strict=True)]
        self.empty: Memory = tuple(start for start, _, _ in parts)
        self.reads = [read for _, _, read in parts]
        # For each variable, what changes when a row is mapped to it.
        self.changes: list[list[tuple[int, Step]]] = [
            [
                (at, step)
                for at, (tracker, (_, step, _)) in enumerate(zip(trackers, parts, strict=True))
                if tracker.variables is None or code in tracker.variables
            ]
            for code in range(len(variables))
        ]

    def take(self, memory: Memory, row: int, variable: int) -> Memory:
        """The memory after a row that is mapped to a variable."""
        changes = self.changes[variable]
        if not changes:
            return memory
        changed = list(memory)
        for at, step in changes:
            changed[at] = step(changed[at], row, variable)
        return tuple(changed)

    def values(self, memory: Memory) -> list[Any]:
        """What the glue reads: row numbers (-1: none), labels, running aggregates."""
        return [read(state) for read, state in zip(self.reads, memory, strict=True)]

    def part(self, tracker: Tracker, columns: Mapping[str, list[Any]], kind: GlueType) -> tuple[Any, Step, Any]:
        """A tracker's first state, its step and how it is read."""
        if tracker.kind.startswith(("first", "last")):
            return self.navigated(tracker)
        values = columns[tracker.column] if tracker.column is not None else None
        if tracker.kind == "count":
            return 0, (lambda state, row, _: state + (values is None or values[row] is not None)), same
        assert values is not None
        known = values
        if tracker.kind in ("min", "max"):
            wanted = 1 if tracker.kind == "max" else -1

            def extreme(state: Any, row: int, _: int) -> Any:
                value = known[row]
                return value if value is not None and (state is None or order(value, state) == wanted) else state

            return None, extreme, same
        add = arithmetic("+", kind if tracker.kind == "sum" or kind.kind == "decimal" else DOUBLE)
        widen: Callable[[Any], Any] = float if tracker.kind == "avg" and kind.kind == "float" else same

        def total(state: tuple[int, Any], row: int, _: int) -> tuple[int, Any]:
            value = known[row]
            if value is None:
                return state
            return state[0] + 1, widen(value) if not state[0] else add(state[1], widen(value))

        if tracker.kind == "sum":
            return (0, None), total, lambda state: state[1]
        return (0, None), total, lambda state: average(state, kind)

    def navigated(self, tracker: Tracker) -> tuple[Any, Step, Any]:
        keep, label = tracker.offset + 1, tracker.kind.endswith("label")
        missing = None if label else -1

        def value_of(row: int, variable: int) -> Any:
            return self.names[variable] if label else row

        if tracker.kind.startswith("first"):
            return (
                (),
                lambda state, row, variable: state if len(state) == keep else (*state, value_of(row, variable)),
                lambda state: state[-1] if len(state) == keep else missing,
            )
        if keep == 1:
            return missing, (lambda _, row, variable: value_of(row, variable)), same
        return (
            (),
            lambda state, row, variable: (*state, value_of(row, variable))[-keep:],
            lambda state: state[0] if len(state) == keep else missing,
        )


def same(value: Any) -> Any:
    return value


def tracked_type(tracker: Tracker, types: Mapping[str, GlueType]) -> GlueType:
    """The type of what a tracker gives to the glue, as Spark types the aggregate."""
    if tracker.kind.endswith("label"):
        return STRING
    if tracker.kind in ("first", "last", "count"):
        return BIGINT
    source = types[str(tracker.column)]
    if tracker.kind in ("min", "max"):
        return source
    if source.kind not in (*NUMERIC, "interval") or (source.kind == "interval" and tracker.kind == "avg"):
        raise PatternFailed(
            f"a condition cannot take {tracker.kind} of a column of type {source}",
            hint="Cast the column to a number inside the aggregate.",
        )
    if source.kind == "decimal":
        more = 10 if tracker.kind == "sum" else 4
        digits = 0 if tracker.kind == "sum" else 4
        return GlueType("decimal", 128, min(38, source.precision + more), source.scale + digits)
    if tracker.kind == "avg":
        return DOUBLE
    return GlueType(source.kind, 64)


def average(state: tuple[int, Any], kind: GlueType) -> Any:
    count, total = state
    if not count:
        return None
    if kind.kind == "decimal":
        return (Decimal(total) / count).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    return total / count
