"""Random patterns over random rows: the matcher finds what the enumeration of all mappings finds.

What it is: thousands of clauses from the whole grammar, with conditions over the row and over the match, all skip
modes and row modes, deadlines, absences and timed-out matches; both searches; clean boundaries by recomputing.
Invariants: the oracle is ``brute_force.py``, which shares no code with the matcher.
Not here: examples with known answers (``test_known_answers.py``), malformed clauses (``test_malformed_patterns.py``).
Read next: ``brute_force.py``.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest

from headwater.errors import InvalidPattern, PatternFailed
from headwater.patterns.search.row_matcher import match_rows
from tests.unit.patterns.brute_force import Enumeration, SkipRefused, output_rows
from tests.unit.patterns.random_patterns import (
    Case,
    compiled,
    measured,
    random_case,
    random_rows,
    row_table,
    run_program,
)

CASES = 100 * int(os.environ.get("HEADWATER_THOROUGH", "1"))
KINDS = {"row": (False, False), "match": (True, False), "row in time": (False, True), "match in time": (True, True)}


def expected(case: Case) -> list[dict[str, Any]] | None:
    """What the enumeration gives; None where AFTER MATCH SKIP is refused."""
    try:
        return [
            {"partition": at, **row}
            for at, rows in enumerate(case.partitions)
            for row in output_rows(case.clause, rows, case.watermark)
        ]
    except SkipRefused:
        return None


def answer(case: Case, program: Any, partitions: Any, *, in_lockstep: bool | None = None, **options: Any) -> Any:
    result, table = run_program(program, partitions, watermark_us=case.watermark, in_lockstep=in_lockstep, **options)
    starts = [0]
    for rows in partitions:
        starts.append(starts[-1] + len(rows))
    rows = [
        {"partition": int(part), "row": int(row) - starts[part], "first": int(first) - starts[part], **values}
        for part, row, first, values in zip(
            result.partition, result.row, result.first_row, measured(program, result, table), strict=True
        )
    ]
    return rows, result, starts


def cases(kind: str) -> Any:
    history, timed = KINDS[kind]
    for seed in range(CASES):
        case = random_case(seed * 7 + len(kind), history=history, timed=timed)
        with suppress(InvalidPattern):  # a skip that would loop for ever is known beforehand
            yield seed, case, compiled(case.sql)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_lockstep", [True, False])
def test_the_matcher_finds_what_enumeration_finds(kind: str, in_lockstep: bool) -> None:
    compared = 0
    for seed, case, program in cases(kind):
        wanted = expected(case)
        if wanted is None:
            with pytest.raises(PatternFailed, match="AFTER MATCH SKIP"):
                answer(case, program, case.partitions, in_lockstep=in_lockstep)
            continue
        found, _, _ = answer(case, program, case.partitions, in_lockstep=in_lockstep)
        assert found == wanted, (seed, case.sql, case.partitions, case.watermark)
        compared += 1
    assert compared > CASES // 2


@pytest.mark.parametrize("kind", KINDS)
def test_recomputing_from_a_clean_boundary_gives_the_same(kind: str) -> None:
    boundaries = 0
    for seed, case, program in islice(cases(kind), CASES // 2):
        if expected(case) is None:
            continue
        found, result, starts = answer(case, program, case.partitions, in_lockstep=seed % 2 == 0)
        for at, rows in enumerate(case.partitions):
            mine = [row for row in found if row["partition"] == at]
            for p in range(len(rows)):
                if result.clean[starts[at] + p]:
                    boundaries += p > 0
                    check_boundary(case, program, rows, p, mine, seed)
    assert boundaries > CASES // 8


@pytest.mark.parametrize("kind", ["row in time", "match in time"])
def test_later_rows_change_nothing_before_a_settled_boundary(kind: str) -> None:
    boundaries = 0
    for seed, case, program in cases(kind):
        if case.watermark is None or expected(case) is None:
            continue
        found, result, starts = answer(case, program, case.partitions)
        for at, rows in enumerate(case.partitions):
            settled = [*result.settled[starts[at] : starts[at + 1]], result.settled_end[at]]
            clean = [*result.clean[starts[at] : starts[at + 1]], result.clean_end[at]]
            assert not any(boundary and not settled[p] for p, boundary in enumerate(clean)), (seed, case.sql)
            for p in [p for p, boundary in enumerate(settled) if boundary and p]:
                boundaries += not clean[p]
                base = max(case.watermark, rows[p - 1]["t"]) + 1
                later = [
                    {**row, "t": row["t"] + base, "seq": 100 + row["seq"]} for row in random_rows(random.Random(p))
                ]
                kept = None
                with suppress(PatternFailed):
                    kept, _, _ = answer(case, program, [rows[:p] + later])
                old = [{**row, "partition": 0} for row in found if row["partition"] == at and row["first"] < p]
                if kept is not None:
                    assert [row for row in kept if row["first"] < p] == old, (seed, p, case.sql, rows, later)
    assert boundaries > CASES // 20


def numbered_before(case: Case, rows: Any, p: int) -> int:
    """How many matches begin before a row, by the enumeration."""
    search = Enumeration(case.clause, rows, case.watermark)
    start, count = 0, 0
    while start < p:
        search.number = count + 1
        mapping = search.attempt(start)
        if mapping is None:
            start += 1
            continue
        count += 1
        start = search.skip_to(start, mapping)
    return count


def check_boundary(case: Case, program: Any, rows: Any, p: int, mine: Any, seed: int) -> None:
    """Rows from p on alone give what begins there; other rows from p on leave what began before."""
    before = numbered_before(case, rows, p)
    table, _ = row_table(program, [rows])
    tail = match_rows(
        program,
        table.slice(p),  # with the row columns of the whole: lag has looked before p
        [0, len(rows) - p],
        watermark_us=case.watermark,
        matches_before={0: before},
        first_of_partition=[p == 0],
        budget=200_000,
        keys=None,
    )
    values = measured(program, tail, table.slice(p))
    found = [
        {"row": int(row) + p, "first": int(first) + p, **each}
        for row, first, each in zip(tail.row, tail.first_row, values, strict=True)
    ]
    wanted = [{name: row[name] for name in row if name != "partition"} for row in mine if row["first"] >= p]
    assert found == wanted, (seed, p, case.sql, rows)
    rng = random.Random(seed * 100 + p)
    other = random_rows(rng)
    base = rows[p - 1]["t"] if p else 0
    changed = rows[:p] + [{**row, "t": row["t"] + base, "seq": row["seq"] + 100} for row in other]
    kept = None
    with suppress(PatternFailed):  # the other rows may give matches that cannot be skipped from
        kept, _, _ = answer(case, program, [changed])
    if kept is None:
        return
    old = [row for row in mine if row["first"] < p]
    new = [{**row, "partition": old[0]["partition"] if old else 0} for row in kept if row["first"] < p]
    assert new == old, (seed, p, case.sql, rows, changed)
