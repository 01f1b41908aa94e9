"""The buffer of leading rows: what it becomes when rows come and leave, and when it must be filled anew."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.views.compiler.plan import LeadingStage, PlanColumn, StageKind
from headwater.views.stages.leading_buffer import BufferMerge, filled

HIDDEN = (PlanColumn("_c0", "BIGINT"), PlanColumn("_shown", "BOOLEAN"))


def stage(last: int, spare: int, *, number: str = "row_number", first: int = 1) -> LeadingStage:
    return LeadingStage(
        *("v", StageKind.LEADING, (), HIDDEN, "first rows"), number=number, first=first, last=last, spare=spare
    )


def merge(of: LeadingStage, held: dict[int, int], changes: dict[int, int]) -> BufferMerge:
    """Values with their weights, in the order of the values: what ``LeadingStage.merge`` yields."""
    rows = sorted(
        [(value, weight, True) for value, weight in held.items()] + [(*one, False) for one in changes.items()]
    )
    values = [value for value, _, _ in rows]
    places = [1 + sum(other < value for other in values) for value in values]
    table = {"_c0": values, "_weight": [row[1] for row in rows], "_held": [row[2] for row in rows]}
    table |= {"_place": places, "_peer": places, "_rows": [len(rows)] * len(rows)}
    return BufferMerge(of, pa.table(table, schema=SCHEMA))


SCHEMA = pa.schema(
    [
        *(("_c0", pa.int64()), ("_weight", pa.int64()), ("_held", pa.bool_())),
        *(("_place", pa.int32()), ("_peer", pa.int32()), ("_rows", pa.int64())),
    ]
)


def rows(buffer: pa.Table | None) -> list[tuple[int, int, int, bool]]:
    assert buffer is not None
    names = ("_c0", "_weight", "_number", "_shown")
    return list(zip(*(buffer.column(name).to_pylist() for name in names), strict=True))


def test_a_change_behind_the_buffer_does_not_reach_it() -> None:
    assert merge(stage(2, 5), {1: 1, 2: 1, 3: 1}, {9: 1, 8: -1}).is_unreached
    assert not merge(stage(2, 5), {1: 1, 2: 1, 3: 1}, {2: -1}).is_unreached
    assert not merge(stage(2, 5), {1: 1, 2: 1}, {9: 1}).is_unreached  # it is all there is: the row is taken in


def test_rows_that_come_before_the_last_one_are_taken_in() -> None:
    found = merge(stage(2, 5), {10: 1, 20: 1, 30: 1}, {15: 1, 40: 1}).buffer()

    assert rows(found) == [(10, 1, 1, True), (15, 1, 2, True), (20, 1, 3, False), (30, 1, 4, False)]


def test_a_buffer_without_a_row_to_spare_is_filled_anew() -> None:
    assert merge(stage(2, 5), {10: 1, 20: 1, 30: 1}, {10: -1}).buffer() is None


def test_a_buffer_that_is_all_there_is_may_become_empty() -> None:
    assert rows(merge(stage(2, 5), {10: 1, 20: 1}, {10: -1, 20: -1}).buffer()) == []


def test_a_row_that_is_there_more_often_than_in_the_buffer_may_leave_more_often() -> None:
    found = merge(stage(1, 2), {10: 2, 20: 1}, {20: -7}).buffer()

    assert rows(found) == [(10, 1, 1, True), (10, 1, 2, False)]


def test_thousands_of_millions_of_equal_rows_are_not_written_out() -> None:
    found = merge(stage(2, 3), {10: 1, 20: 1}, {15: 10**10}).buffer()

    assert rows(found) == [(10, 1, 1, True), (15, 1, 2, True), *((15, 1, number, False) for number in (3, 4, 5))]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("rank", [(10, 3, 1, True), (20, 1, 4, False), (30, 1, 5, False)]),
        ("dense_rank", [(10, 3, 1, True), (20, 1, 2, True), (30, 1, 3, False), (40, 1, 4, False)]),
    ],
)
def test_ranks_count_equal_rows_as_often_as_they_are_there(
    number: str, expected: list[tuple[int, int, int, bool]]
) -> None:
    found = merge(stage(2, 2, number=number), {10: 1, 20: 1, 30: 1, 40: 1}, {10: 2}).buffer()

    assert rows(found) == expected


def test_a_filled_buffer_has_the_rows_up_to_the_last_and_some_to_spare() -> None:
    found = filled(stage(2, 1, first=2), pa.table({"_c0": [5, 4, 3, 2], "_place": [4, 3, 2, 1]}))

    assert rows(found) == [(2, 1, 1, False), (3, 1, 2, True), (4, 1, 3, False)]
