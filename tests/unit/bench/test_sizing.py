"""The model of a cluster: what comes in is processed or waits, and more nodes never bear less."""

from __future__ import annotations

import pytest

from bench.scale.sizing import DAY_S, Cluster, Costs, Load, largest, rate_at, simulate, smallest, tick_seconds


@pytest.mark.parametrize("peak", [1.0, 3.0, 5.5])
def test_a_day_brings_what_the_load_says(peak: float):
    load = Load(events=2e9, changes=3e8, peak=peak)

    brought = sum(rate_at(load, minute * 60.0) * 60.0 for minute in range(24 * 60))

    assert brought == pytest.approx(2.3e9)


def test_what_arrives_is_processed_or_waits():
    load = Load(events=5e9, changes=5e8)

    day = simulate(Costs(), load, Cluster(4))

    assert day.borne
    assert day.processed + day.left == pytest.approx(5.5e9, rel=0.01)  # the last tick may reach into the next day


def test_a_load_above_what_the_cores_can_do_is_not_borne():
    costs, cluster = Costs(), Cluster(2)
    most = largest(costs, Load(peak=1.0), cluster) * DAY_S

    above = Load(events=most, changes=most / 10, peak=1.5)

    needed = smallest(costs, above)
    assert not simulate(costs, above, cluster).borne
    assert needed is None or needed > 2


def test_more_nodes_never_take_longer_for_a_tick():
    costs, load = Costs(task_s=0.0), Load()

    took = [tick_seconds(costs, load, Cluster(nodes), 1e8, after_loss=False) for nodes in (1, 2, 5, 20, 100)]

    assert took == sorted(took, reverse=True)
