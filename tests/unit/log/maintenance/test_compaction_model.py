"""Whatever happens in whatever order, a compacted topic tells the same story in the end."""

from __future__ import annotations

import tempfile

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from headwater.log.home import Log
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.topic import Topic
from headwater.testing import ManualClock
from tests.unit.weighted_rows import thorough

KEYS = st.tuples(st.integers(0, 3), st.sampled_from("ab"))
STEPS = st.one_of(
    st.tuples(st.just("upsert"), st.lists(KEYS, min_size=1, max_size=4)),
    st.tuples(st.just("delete"), st.lists(KEYS, min_size=1, max_size=2)),
    st.tuples(st.just("roll"), st.none()),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("maintain"), st.none()),
    st.tuples(st.just("advance"), st.sampled_from([1, 30, 61])),
    st.tuples(st.just("read"), st.none()),
)


def apply(state: dict[tuple[int, str], int], topic: Topic, start: int) -> int:
    """Read on from ``start``, as somebody does who keeps a table up to date; returns where to go on."""
    last = start - 1
    for batch in topic.read(start, columns=["_offset", "id", "code", "value", "_deleted"]):
        for row in batch.to_pylist():
            assert row["_offset"] > last
            last = row["_offset"]
            state.pop((row["id"], row["code"]), None)
            if not row["_deleted"]:
                state[row["id"], row["code"]] = row["value"]
    return topic.end_offsets()[0]


@settings(max_examples=thorough(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=25))
def test_a_new_reader_and_one_that_read_everything_end_with_the_same_table(steps: list[tuple[str, object]]) -> None:
    clock = ManualClock()
    model: dict[tuple[int, str], int] = {}
    follower: dict[tuple[int, str], int] = {}
    position = value = 0
    with tempfile.TemporaryDirectory() as home, Log(home, clock=clock, maintenance_interval=None) as log:
        topic = log.topic(
            "t",
            "id INT, code STRING, value INT",
            key=["id", "code"],
            compact=True,
            tombstone_grace="1 minute",
            fsync="never",
            segment_bytes_max=6_000,
        )
        for action, argument in steps:
            if action == "upsert":
                rows = []
                for key in argument:  # type: ignore[attr-defined]
                    value += 1
                    model[key] = value
                    rows.append({"id": key[0], "code": key[1], "value": value})
                topic.append(rows)
            elif action == "delete":
                for key in argument:  # type: ignore[attr-defined]
                    model.pop(key, None)
                topic.delete([{"id": key[0], "code": key[1]} for key in argument])  # type: ignore[attr-defined]
            elif action == "roll":
                topic.partition(0).roll()
            elif action == "compact":
                compact_partition(topic, 0, force=bool(argument), wait=True)
            elif action == "maintain":
                assert log.maintain().ok
            elif action == "advance":
                # Who falls behind by more than the grace may miss a delete: the follower keeps up.
                position = apply(follower, topic, position)
                clock.advance(float(str(argument)))
            else:
                position = apply(follower, topic, position)

        apply(follower, topic, position)
        newcomer: dict[tuple[int, str], int] = {}
        apply(newcomer, topic, 0)

        assert newcomer == model
        assert follower == model
        assert log.check().problems == ()
