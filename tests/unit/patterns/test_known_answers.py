"""Patterns with known answers: the examples of other systems' manuals, their bugs, and what SQL says of odd cases.

What it is: Oracle's stock ticker, empty and unmatched rows, RUNNING and FINAL, exclusion, absence, timed-out matches.
Invariants: the answers are written down by hand.
Not here: random patterns (``test_random_patterns.py``), malformed clauses (``test_malformed_patterns.py``).
Read next: ``docs/patterns.md``.
"""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import PatternFailed
from headwater.patterns import PatternProgram
from tests.unit.patterns.random_patterns import SECOND, compiled, measured, run_program

# The prices of ACME in Oracle's manual, 1 to 20 April 2011.
ACME = [12, 17, 19, 21, 25, 12, 15, 20, 24, 25, 19, 15, 25, 25, 14, 12, 14, 24, 23, 22]


def rows_of(values: list[int], times: list[int] | None = None) -> list[dict[str, Any]]:
    """Rows with x = the value, y = its place from 1, and a time in seconds."""
    times = list(range(len(values))) if times is None else times
    return [{"seq": at, "t": times[at] * SECOND, "x": x, "y": at + 1} for at, x in enumerate(values)]


def clause(body: str) -> PatternProgram:
    return compiled(f"t MATCH_RECOGNIZE (PARTITION BY k ORDER BY t, seq {body})")


def answers(program: PatternProgram, rows: list[dict[str, Any]], **options: Any) -> list[tuple[Any, ...]]:
    found = []
    for in_lockstep in (True, False):
        result, table = run_program(program, [rows], in_lockstep=in_lockstep, **options)
        found.append([tuple(row.values()) for row in measured(program, result, table)])
    assert found[0] == found[1]
    return found[0]


def test_oracles_v_shapes_are_found() -> None:
    program = clause(
        """MEASURES STRT.y AS start, LAST(DOWN.y) AS bottom, LAST(UP.y) AS finish AFTER MATCH SKIP TO LAST UP
        PATTERN (STRT DOWN+ UP+) DEFINE DOWN AS DOWN.x < PREV(DOWN.x), UP AS UP.x > PREV(UP.x)"""
    )

    assert answers(program, rows_of(ACME)) == [(5, 6, 10), (10, 12, 13), (14, 16, 18)]


def test_oracles_v_shapes_row_by_row() -> None:
    program = clause(
        """MEASURES y AS day, MATCH_NUMBER() AS number, CLASSIFIER() AS var, FINAL count(UP.*) AS ups,
        count(*) AS so_far, FINAL LAST(UP.x) AS top ALL ROWS PER MATCH AFTER MATCH SKIP TO LAST UP
        PATTERN (STRT DOWN+ UP+) DEFINE DOWN AS x < PREV(x), UP AS x > PREV(x)"""
    )

    found = answers(program, rows_of(ACME))

    assert found[:4] == [
        (5, 1, "STRT", 4, 1, 25),
        (6, 1, "DOWN", 4, 2, 25),
        (7, 1, "UP", 4, 3, 25),
        (8, 1, "UP", 4, 4, 25),
    ]
    assert found[6:8] == [(10, 2, "STRT", 1, 1, 25), (11, 2, "DOWN", 1, 2, 25)]


def test_a_fall_and_a_rise_above_the_start_as_trino_shows_it() -> None:
    program = clause(
        """MEASURES A.x AS start, LAST(B.x) AS bottom, LAST(U.x) AS top PATTERN (A B+ C+ D+) SUBSET U = (C, D)
        DEFINE B AS x < PREV(x), C AS x > PREV(x) AND x <= A.x, D AS x > PREV(x)"""
    )

    assert answers(program, rows_of([100, 200, 100, 8, 50, 120, 200, 250, 30])) == [(200, 8, 250)]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("SHOW EMPTY MATCHES", [(None, 1, None), (80, 2, "B"), (70, 2, "B"), (None, 3, None)]),
        ("OMIT EMPTY MATCHES", [(80, 2, "B"), (70, 2, "B")]),
        ("WITH UNMATCHED ROWS", [(None, 1, None), (80, 2, "B"), (70, 2, "B"), (None, 3, None)]),
    ],
)
def test_empty_matches_have_a_number_and_no_rows(mode: str, expected: list[Any]) -> None:
    program = clause(
        f"""MEASURES x AS value, MATCH_NUMBER() AS number, CLASSIFIER() AS var ALL ROWS PER MATCH {mode}
        PATTERN (B*) DEFINE B AS x < PREV(x)"""
    )

    assert answers(program, rows_of([90, 80, 70, 70])) == expected


def test_unmatched_rows_have_no_measures_and_an_empty_match_counts_nothing() -> None:
    program = clause(
        """MEASURES count(*) AS n, MATCH_NUMBER() AS number ALL ROWS PER MATCH WITH UNMATCHED ROWS
        PATTERN (B+) DEFINE B AS x < PREV(x)"""
    )
    empty = clause("MEASURES count(*) AS n, sum(x) AS total PATTERN ()")

    assert answers(program, rows_of([90, 80, 70, 70])) == [(None, None), (1, 1), (2, 1), (None, None)]
    assert answers(empty, rows_of([1, 2])) == [(0, None), (0, None)]


def test_excluded_rows_are_matched_and_counted_but_not_shown() -> None:
    program = clause(
        "MEASURES y AS at, count(*) AS n ALL ROWS PER MATCH PATTERN (A {- B+ -} C+) DEFINE B AS x = 2, C AS x = 3"
    )

    assert answers(program, rows_of([1, 2, 2, 3, 3])) == [(1, 1), (4, 4), (5, 5)]


def test_reluctant_takes_as_few_rows_as_it_can_and_greedy_as_many() -> None:
    greedy = clause("MEASURES count(A.*) AS a, count(B.*) AS b PATTERN (A+ B+) DEFINE A AS x > 0, B AS x > 0")
    reluctant = clause("MEASURES count(A.*) AS a, count(B.*) AS b PATTERN (A+? B+?) DEFINE A AS x > 0, B AS x > 0")

    assert answers(greedy, rows_of([1, 1, 1, 1])) == [(3, 1)]
    assert answers(reluctant, rows_of([1, 1, 1, 1])) == [(1, 1), (1, 1)]


def test_permute_prefers_the_order_of_its_list() -> None:
    program = clause("MEASURES CLASSIFIER() AS var ALL ROWS PER MATCH PATTERN (PERMUTE(A, B, C)) DEFINE C AS x = 3")

    assert answers(program, rows_of([3, 1, 2])) == [("C",), ("A",), ("B",)]
    assert answers(program, rows_of([3, 3, 3])) == [("A",), ("B",), ("C",)]


def test_anchors_stand_at_the_ends_of_the_partition() -> None:
    at_start = clause("MEASURES y AS at PATTERN (^ A) DEFINE A AS x = 1")
    at_end = clause("MEASURES FIRST(y) AS begin PATTERN (A+ $) DEFINE A AS x = 1")

    assert answers(at_start, rows_of([1, 1])) == [(1,)]
    assert answers(at_start, rows_of([2, 1])) == []
    assert answers(at_end, rows_of([1, 2, 1, 1])) == [(3,)]


# Bugs that other systems had.


def test_a_match_is_not_held_back_by_an_earlier_partial_one() -> None:
    """Flink 11009 and 21920: a completed match waited for an earlier attempt that was still open."""
    program = clause("MEASURES FIRST(y) AS begin PATTERN (A A Z | A B) DEFINE A AS x = 1, B AS x = 2, Z AS x = 9")

    assert answers(program, rows_of([1, 1, 2])) == [(2,)]


def test_a_greedy_head_gives_one_longest_match() -> None:
    """Flink 6124: a greedy quantifier at the head gave shorter matches too."""
    program = clause("MEASURES count(A.*) AS n PATTERN (A+ B) DEFINE A AS x = 1, B AS x = 2")

    assert answers(program, rows_of([1, 1, 1, 2])) == [(3,)]


def test_a_skip_leaves_a_beginning_for_the_next_match() -> None:
    """Flink 4331: after a skip no start state was left."""
    program = clause("MEASURES FIRST(y) AS begin PATTERN (A B) DEFINE A AS x = 1, B AS x = 2")

    assert answers(program, rows_of([1, 2, 1, 2, 1, 2])) == [(1,), (3,), (5,)]


def test_an_absence_at_the_end_is_decided_by_the_watermark() -> None:
    """Flink 6234: notFollowedBy could not stand at the end."""
    program = clause("MEASURES A.y AS at PATTERN (A [^B]) WITHIN INTERVAL 10 SECONDS DEFINE A AS x = 1, B AS x = 2")
    rows = rows_of([1, 3, 1, 2, 1], [0, 5, 20, 25, 40])

    assert answers(program, rows, watermark_us=None) == []
    assert answers(program, rows, watermark_us=10 * SECOND) == []  # a row at the deadline may still come
    assert answers(program, rows, watermark_us=10 * SECOND + 1) == [(1,)]
    assert answers(program, rows, watermark_us=60 * SECOND) == [(1,), (5,)]


def test_an_absence_may_ask_about_the_match() -> None:
    program = clause(
        "MEASURES A.y AS at PATTERN (A [^B]) WITHIN INTERVAL 10 SECONDS DEFINE A AS x > 0, B AS x = A.x + 100"
    )

    assert answers(program, rows_of([1, 2, 101], [0, 1, 2]), watermark_us=60 * SECOND) == [(2,), (3,)]


def test_a_partial_match_that_runs_out_of_time_is_a_row() -> None:
    program = clause(
        """MEASURES A.y AS at, C.y AS done, MATCH_STATUS() AS status, MATCH_NUMBER() AS number
        ONE ROW PER MATCH WITH TIMED OUT MATCHES PATTERN (A X*? C) WITHIN INTERVAL 10 SECONDS
        DEFINE A AS x = 1, X AS x = 0, C AS x = 2"""
    )
    rows = rows_of([1, 0, 0, 1, 2, 1, 5, 1], [0, 1, 30, 31, 32, 40, 41, 100])

    assert answers(program, rows, watermark_us=None) == [(4, 5, "matched", 1)]
    # The first waits in vain; the third meets a row that is neither; the last is not decided yet.
    assert answers(program, rows, watermark_us=105 * SECOND) == [(1, None, "timed out", None), (4, 5, "matched", 1)]
    assert answers(program, rows, watermark_us=111 * SECOND)[-1] == (8, None, "timed out", None)


def test_the_result_says_when_the_watermark_decides_more() -> None:
    program = clause("MEASURES A.y AS at PATTERN (A [^B]) WITHIN INTERVAL 10 SECONDS DEFINE A AS x = 1, B AS x = 2")

    result, _ = run_program(program, [rows_of([1, 3, 1], [0, 5, 7]), rows_of([3])], watermark_us=11 * SECOND)

    assert result.wake_us.tolist() == [17 * SECOND, 2**63 - 1]
    assert result.clean_end.tolist() == [False, True]


# Bounds.


@pytest.mark.parametrize("pattern", ["(A*)* B", "((A | A)*)* B", "((A+)+)+ B", "((A?)*){3} B", "A* A* A* A* A* B"])
def test_nested_loops_take_no_more_than_rows_times_edges(pattern: str) -> None:
    program = clause(f"MEASURES count(*) AS n PATTERN ({pattern}) DEFINE A AS x = 1, B AS x = 2")

    assert answers(program, rows_of([1] * 400)) == []
    assert answers(program, rows_of([1] * 400 + [2])) == [(401,)]


def test_a_pattern_whose_conditions_need_every_mapping_ends_with_a_sentence() -> None:
    program = clause(
        "MEASURES count(*) AS n PATTERN ((A | B)* C) DEFINE A AS x > 0, B AS x > 0, C AS sum(A.x) = sum(B.x) - 7"
    )

    with pytest.raises(PatternFailed) as caught:
        run_program(program, [rows_of([2**at for at in range(1, 40)])], budget=20_000, keys=lambda _: "k=7")
    assert str(caught.value) == (
        "PATTERN ((A | B)* C): the attempt at partition k=7, row 1 needs more than 20,000 steps\n"
        "  Conditions that look at the match can make it try every way of mapping the rows.\n"
        "  Hint: Add WITHIN, bound a quantifier ({,20}), or compare with the row alone or with PREV."
    )


def test_a_place_that_failed_is_not_tried_again_with_the_same_memory() -> None:
    program = clause("MEASURES count(*) AS n PATTERN ((A | B)* C) DEFINE A AS x > 0, B AS x > 0, C AS x > FIRST(x) + 5")

    assert answers(program, rows_of([1] * 60), budget=2_000) == []


def test_eight_in_any_order_are_matched() -> None:
    names = [f"V{at}" for at in range(8)]
    define = ", ".join(f"{name} AS x = {at}" for at, name in enumerate(names))
    program = clause(
        f"MEASURES CLASSIFIER() AS var ALL ROWS PER MATCH PATTERN (PERMUTE({', '.join(names)})) DEFINE {define}"
    )

    assert answers(program, rows_of([5, 3, 7, 0, 1, 6, 2, 4])) == [(f"V{at}",) for at in (5, 3, 7, 0, 1, 6, 2, 4)]


def test_a_skip_to_the_first_row_or_to_none_is_an_error_with_the_place() -> None:
    first = clause("MEASURES count(*) AS n AFTER MATCH SKIP TO LAST B PATTERN (A? B) DEFINE A AS x = 1, B AS x = 2")
    missing = clause("MEASURES count(*) AS n AFTER MATCH SKIP TO B PATTERN (A B?) DEFINE A AS x = 1, B AS x = 2")

    with pytest.raises(PatternFailed, match=r"partition 0, row 2 would go on at its first row, for ever"):
        answers(first, rows_of([9, 2]))
    with pytest.raises(PatternFailed, match=r"SKIP TO LAST B: the match at partition 0, row 1 has no such row"):
        answers(missing, rows_of([1, 1]))
