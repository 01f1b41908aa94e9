"""How much a trigger takes, and which task reads what: plain arithmetic, so plain properties."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.log.storage.file_listing import Range
from headwater.views.source.offset_ranges import admit, tasks

partitions = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6)


@given(partitions, st.integers(1, 60))
def test_a_trigger_takes_exactly_what_it_may(sizes: list[tuple[int, int]], rows_max: int):
    start = {number: low for number, (low, _) in enumerate(sizes)}
    end = {number: low + more for number, (low, more) in enumerate(sizes)}

    until = admit(start, end, rows_max)

    assert all(start[number] <= until[number] <= end[number] for number in start)
    assert sum(until.values()) - sum(start.values()) == min(rows_max, sum(more for _, more in sizes))


@given(partitions, st.integers(1, 10))
def test_no_partition_waits_for_another(sizes: list[tuple[int, int]], rows_max: int):
    position = {number: low for number, (low, _) in enumerate(sizes)}
    end = dict.fromkeys(position, 10_000)

    seen: set[int] = set()
    for _ in range(len(sizes)):
        until = admit(position, end, rows_max)
        seen |= {number for number in position if until[number] > position[number]}
        position = until

    assert seen == set(position)


@given(partitions)
def test_without_a_limit_a_trigger_takes_everything(sizes: list[tuple[int, int]]):
    start = {number: low for number, (low, _) in enumerate(sizes)}
    end = {number: low + more for number, (low, more) in enumerate(sizes)}

    assert admit(start, end, None) == end


ranges = st.lists(st.integers(0, 3_000_000), max_size=12).map(
    lambda sizes: [Range(number, 7, 7 + size) for number, size in enumerate(sizes)]
)


@given(ranges, st.integers(1, 16))
def test_tasks_cover_each_offset_once(wanted: list[Range], cores: int):
    planned = [part for task in tasks(wanted, cores=cores) for part in task]

    assert all(part.start < part.stop for part in planned)
    for whole in wanted:
        parts = [part for part in planned if part.partition == whole.partition]
        edges = [whole.start, *(part.stop for part in parts)]
        assert [part.start for part in parts] == edges[:-1]
        assert edges[-1] == whole.stop


def test_many_small_ranges_are_one_task():
    wanted = [Range(number, 0, 100) for number in range(50)]

    assert len(tasks(wanted, cores=2)) == 1
