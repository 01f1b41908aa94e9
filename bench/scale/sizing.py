"""A model of an app on a cluster: how many nodes, partitions, bytes and requests a load needs.

What it is: ``Costs``, what one event, change, task and tick costs; ``Load``, what an app must take in; ``Cluster``;
``simulate``, a day of ticks, one after the other, with a peak and the loss of a node in the middle of it; and
``largest``, the rate that a cluster cannot exceed.
Invariants: what arrives is what is processed plus what waits. A tick takes in all that waits when it begins, so its
time depends on the one before; a load that the cluster cannot bear shows as ticks that grow without end. Costs are
those of ``bench/out/scale.json`` where it has them, ``MEASURED`` where not; ``ASSUMED`` ones were measured nowhere.
Not here: the measuring (``sources.py``, ``cluster_ticks.py``). Read next: ``docs/sizing.md``.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.scale.sizes import Sizes
from bench.scale.sources import PER_PROCESSOR
from bench.views.scale import Lines

OUT = Path(__file__).parents[1] / "out" / "scale.json"
DAY_S = 86_400.0
TASK_WORK_S = 0.1  # Spark is asked for no more tasks than have so much to do
STALE_S = 30.0  # so old may a view be, for 99 % of the rows, where nodes are asked for
TICK_S_MAX = 600.0  # a tick that takes longer: the load is not borne


@dataclass(frozen=True)
class Costs:
    """Processor seconds, seconds, bytes and requests. See ``docs/sizing.md`` for where each comes from."""

    event_s: float = 1 / 1_000_000  # of a processor, for each view: an event of Kafka (Arrow) read and summed up
    change_s: float = 1 / 150_000  # of a processor, for each view: a changed row of a table with a key, joined, summed
    tick_s: float = 0.03  # of the driver: a tick at the least
    small_rows: int = 20_000  # below it a tick stays on the driver
    job_s: float = 0.3  # of the driver: a tick that goes to executors at the least
    event_bytes: float = 28.0  # in Kafka, lz4
    row_bytes: float = 40.0  # of state, for a row of a table and its place in a join
    # Assumed, not measured here
    scan_s: float = 1 / 5_000_000  # of a processor: a row of the tables that a large tick looks through for old rows
    task_s: float = 0.002  # of the driver, for each task
    commit_s: float = 0.05  # two requests to a store over a network, one after the other
    skew: float = 1.3  # the busiest task beside the mean
    efficiency: float = 0.8  # of a cluster's cores: what is left beside shuffles, waiting and garbage collection


@dataclass(frozen=True)
class Load:
    """What comes in a day."""

    events: float = 1e9  # of topics without a key
    changes: float = 1e8  # rows of tables with a key that change
    rows: float = 1e8  # that the tables hold
    peak: float = 3.0  # four hours of the day bring so many times the mean
    interval_s: float = 1.0  # a tick begins at most this often
    views: int = 20
    views_each: int = 5  # that an event or a change reaches
    replicas: int = 3
    kept_days: float = 7.0


@dataclass(frozen=True)
class Cluster:
    """Nodes that run executors; the driver and the brokers are beside them."""

    nodes: int
    cores: int = 8
    network_bytes_s: float = 1.25e9  # ten gigabit
    lost: int = 1  # nodes that are lost in the peak, for the rest of it

    def slots(self, *, after_loss: bool = False) -> int:
        """Tasks that run at once.

        >>> Cluster(3).slots(), Cluster(3).slots(after_loss=True)
        (24, 16)
        """
        return max(1, self.nodes - (self.lost if after_loss else 0)) * self.cores


@dataclass(frozen=True)
class Day:
    """What a day was like."""

    borne: bool
    tick_p50_s: float = math.inf
    tick_p99_s: float = math.inf
    stale_p99_s: float = math.inf  # from an event's arrival to its view, at worst within a tick
    ticks: int = 0
    large_ticks: int = 0
    waiting_max: float = math.inf
    processed: float = 0.0
    left: float = 0.0
    busy: float = 1.0  # of the cores, over the day


def rate_at(load: Load, second: float) -> float:
    """Events and changes a second: ``peak`` times the mean from 18 to 22 o'clock, the rest of the day what is left.

    >>> load = Load(events=86_400.0, changes=0.0, peak=3.0)
    >>> rate_at(load, 19 * 3600.0), round(rate_at(load, 0.0), 2)
    (3.0, 0.6)
    """
    mean = (load.events + load.changes) / DAY_S
    share = 4 / 24
    return mean * load.peak if 18 <= second / 3600 < 22 else mean * (1 - load.peak * share) / (1 - share)


def work_of_each(costs: Costs, load: Load) -> float:
    """Processor seconds of an event or a change, as the load mixes them."""
    share = load.changes / (load.events + load.changes)
    return load.views_each * ((1 - share) * costs.event_s + share * costs.change_s)


def tick_seconds(costs: Costs, load: Load, cluster: Cluster, waiting: float, *, after_loss: bool) -> float:
    """How long a tick over so many events and changes takes.

    >>> tick_seconds(Costs(), Load(), Cluster(4), 1_000, after_loss=False) < 0.2
    True
    """
    changes = waiting * load.changes / (load.events + load.changes)
    work = waiting * work_of_each(costs, load)
    if changes >= costs.small_rows:
        work += load.rows * costs.scan_s
    if waiting < costs.small_rows:
        return costs.tick_s + work + costs.commit_s
    slots = cluster.slots(after_loss=after_loss)
    tasks = min(slots, math.ceil(work / TASK_WORK_S))
    driver = costs.job_s + 2 * tasks * costs.task_s  # as many to read as to sum up
    network = waiting * (costs.event_bytes + costs.row_bytes) / (slots / cluster.cores * cluster.network_bytes_s)
    return driver + work * costs.skew / (tasks * costs.efficiency) + network + costs.commit_s


def simulate(costs: Costs, load: Load, cluster: Cluster) -> Day:
    """A day of ticks. The node is lost at 19 o'clock, in a tick that is then repeated; it is back at 22.

    >>> simulate(Costs(), Load(), Cluster(2)).borne, simulate(Costs(), Load(events=1e13), Cluster(2)).borne
    (True, False)
    """
    now, waiting, arrived = 0.0, 0.0, 0.0
    took: list[tuple[float, float]] = []  # seconds, and the rows they were for
    stale: list[tuple[float, float]] = []
    most, large, spent, lost = 0.0, 0, 0.0, False
    while now < DAY_S:
        after_loss = 19 <= now / 3600 < 22
        seconds = tick_seconds(costs, load, cluster, waiting, after_loss=after_loss)
        if after_loss and not lost:
            seconds, lost = seconds * 2, True
        if seconds > TICK_S_MAX:
            return Day(borne=False)
        large += waiting >= costs.small_rows
        most = max(most, waiting)
        spent += waiting
        pause = max(seconds, load.interval_s)
        came = rate_at(load, now) * pause
        took.append((seconds, waiting))
        # What arrives just after a tick began waits for its end, and then for the tick that takes it in.
        stale.append((pause + tick_seconds(costs, load, cluster, came, after_loss=after_loss), came))
        arrived += came
        waiting, now = came, now + pause
    work = spent * work_of_each(costs, load)
    return Day(
        borne=True,
        tick_p50_s=weighted(took, 0.5),
        tick_p99_s=weighted(took, 0.99),
        stale_p99_s=weighted(stale, 0.99),
        ticks=len(took),
        large_ticks=large,
        waiting_max=most,
        processed=spent,
        left=waiting,
        busy=work / (cluster.slots() * DAY_S),
    )


def weighted(values: list[tuple[float, float]], share: float) -> float:
    """The value that this share of the rows does not exceed: of a day with few long ticks most rows are in those.

    >>> weighted([(1.0, 10.0), (9.0, 90.0)], 0.5)
    9.0
    """
    wanted, seen = share * sum(weight for _, weight in values), 0.0
    for value, weight in sorted(values):
        seen += weight
        if seen >= wanted:
            return value
    return values[-1][0]


def largest(costs: Costs, load: Load, cluster: Cluster) -> float:
    """The events and changes a second that ticks of any length cannot exceed, were they long enough to hide all else.

    >>> one, two = (largest(Costs(), Load(), Cluster(nodes)) for nodes in (1, 2))
    >>> round(two / one, 1)
    2.0
    """
    by_cores = work_of_each(costs, load) * costs.skew / (cluster.slots() * costs.efficiency)
    by_network = (costs.event_bytes + costs.row_bytes) / (cluster.nodes * cluster.network_bytes_s)
    return 1 / (by_cores + by_network)


def partitions(costs: Costs, load: Load, cluster: Cluster) -> int:
    """Partitions of a topic: as many as tasks can run, and enough that one core keeps up with each in the peak.

    >>> partitions(Costs(), Load(), Cluster(2)), partitions(Costs(), Load(events=1e12), Cluster(2))
    (16, 348)
    """
    peak = load.events / DAY_S * load.peak
    return max(cluster.slots(), math.ceil(peak * costs.event_s * load.views_each / 0.5))


def smallest(costs: Costs, load: Load, *, stale_s: float = STALE_S, nodes_max: int = 1_000) -> int | None:
    """The fewest nodes with which 99 % of the rows are seen in time, with one node lost in the peak."""

    def enough(nodes: int) -> bool:
        return simulate(costs, load, Cluster(nodes)).stale_p99_s <= stale_s

    low, high = 1, nodes_max
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def dollars(load: Load, day: Day, costs: Costs) -> tuple[float, float, float]:
    """Requests to the store in a day, what they cost in a day, and what the state costs in a month.

    A tick is a PUT and a GET; a large one writes and reads a file of each view and slot's worth of rows beside them
    (eight of each, merged later). $0.005 for 1 000 PUTs, $0.0004 for 1 000 GETs, $0.023 for a GB and month.
    """
    files = 8 * load.views
    puts, gets = day.ticks + day.large_ticks * files, day.ticks + day.large_ticks * files * 2
    state = load.rows * costs.row_bytes * 2  # beside the merged runs those of the ticks that are kept
    return puts + gets, puts * 0.005e-3 + gets * 0.0004e-3, state / 1e9 * 0.023


def known_costs(path: Path = OUT) -> Costs:
    """The costs of the last run of the benchmark, where it has them."""
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    figures = {(line["name"], line["unit"]): line["value"] for line in found if line["value"]}
    costs = Costs()
    if rate := figures.get(("sources: Kafka, Arrow", PER_PROCESSOR)):
        costs = replace(costs, event_s=1 / rate)
    if spent := figures.get(("cluster: 1,000,000 changes, processor", "ms")):
        costs = replace(costs, change_s=spent / 1e3 / 1e6)
    if tick := figures.get(("cluster: 1,000 changes", "ms")):
        costs = replace(costs, tick_s=tick / 1e3)
    return costs


def measure(sizes: Sizes, folder: Path) -> Lines:
    """The model's tables: nodes for loads, and what a hundred nodes bear."""
    del sizes, folder
    lines, costs = Lines(), known_costs()
    lines.figure("cost of an event", costs.event_s * 1e6, "µs of a processor")
    lines.figure("cost of a change", costs.change_s * 1e6, "µs of a processor")
    for events in (1e9, 1e10, 1e11):
        load = Load(events=events, changes=events / 10, rows=events / 10)
        nodes = smallest(costs, load)
        title = f"{events:.0e} events a day".replace("e+", "e")
        if nodes is None:
            lines.missing(title, "more than 1,000 nodes")
            continue
        day = simulate(costs, load, Cluster(nodes))
        requests, paid, _ = dollars(load, day, costs)
        lines.figure(f"{title}: nodes of 8 cores", nodes, "nodes")
        lines.figure(f"{title}: a tick, median", day.tick_p50_s, "s")
        lines.figure(f"{title}: a view's age, 99 %", day.stale_p99_s, "s")
        lines.figure(f"{title}: partitions", partitions(costs, load, Cluster(nodes)), "partitions")
        lines.figure(f"{title}: on brokers", events * costs.event_bytes * load.kept_days * load.replicas / 1e12, "TB")
        lines.figure(f"{title}: state", load.rows * costs.row_bytes / 1e9, "GB")
        lines.figure(f"{title}: requests to the store", requests, "a day")
        lines.figure(f"{title}: requests to the store", paid, "dollars a day")
    hundred, load = Cluster(100), Load()
    lines.figure("100 nodes at most", largest(costs, load, hundred) * DAY_S, "events and changes a day")
    day = simulate(costs, load, hundred)
    lines.figure("100 nodes, 1e9 events a day: a tick, median", day.tick_p50_s, "s")
    lines.figure("100 nodes, 1e9 events a day: cores in use", day.busy * 100, "%")
    return lines
