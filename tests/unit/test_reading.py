"""Reading one partition and a whole topic: bounds, places, columns, joins of small frames, following."""

from __future__ import annotations

from headwater.log.compaction import compact_partition
from headwater.log.sealing import seal_partition


def test_a_handle_does_not_keep_reading_what_was_compacted_away(log):
    topic = log.topic("t", "k INT, v INT", key="k", compact=True)
    for v in range(3):
        topic.append([{"k": 1, "v": v}])
    reader = topic.reader(0)
    before = [chunk.batch.num_rows for chunk in reader.chunks(0, 3)]

    compact_partition(topic, 0, force=True, wait=True)

    assert sum(before) == 3
    assert sum(chunk.batch.num_rows for chunk in reader.chunks(0, 3)) == 1


def test_a_projection_reads_over_the_border_between_sealed_and_arrow_rows(log):
    topic = log.topic("t", "x INT, y INT, z INT")
    topic.append([{"x": 1, "y": 2, "z": 3}])
    topic.partition(0).roll()
    seal_partition(topic, 0)
    topic.append([{"x": 4, "y": 5, "z": 6}])

    rows = list(topic.rows(columns=["_offset", "z"]))

    assert rows == [{"_offset": 0, "z": 3}, {"_offset": 1, "z": 6}]
