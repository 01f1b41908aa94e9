"""Input times: who tells of the event times of a tick's rows.

What it is: ``begun``, the times of a tick before its views are evaluated; ``told``, what the driver has seen of them
while it read the rows for the views.
Invariants: of a log without files the rows of a tick are read once, unless a view has to know their times before it
is evaluated; files say it by their statistics.
Not here: the times themselves (``views/event_time/tick_times.py``).
Read next: ``views/event_time/tick_times.py``, ``inputs.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.log.event_time.producer_progress import ProducerProgress
from headwater.views.event_time.progress import EventTimeProgress
from headwater.views.event_time.tick_times import TickTimes
from headwater.views.source.offset_ranges import Frontier
from headwater.views.state.state_store import StateStore
from headwater.views.tick.inputs import InputRelation


def begun(
    store: StateStore,
    inputs: Mapping[str, InputRelation],
    before: EventTimeProgress,
    begin: Frontier,
    stop: Frontier,
    *,
    needed: bool,
) -> TickTimes:
    """The times of a tick over these rows; ``needed``: views must know them before they are evaluated."""
    by_tasks = set()
    for name, base in inputs.items():
        topic = base.topic.name
        by_executors = not base.is_log_backed and store.place_of(name) is not None
        if base.is_for_tasks(begin[topic], stop[topic], by_executors=by_executors):
            by_tasks.add(topic)
    by_driver = {base.topic.name for base in inputs.values() if not base.is_in_files} - by_tasks
    topics = [base.topic for base in inputs.values()]
    return TickTimes(
        store.spark,
        before,
        topics,
        begin,
        stop,
        by_tasks=by_tasks,
        by_driver=() if needed else by_driver,
        needed=needed,
    )


def told(inputs: Mapping[str, InputRelation]) -> dict[str, dict[int, ProducerProgress]]:
    """How far producers are in what the driver has read for this tick, by topic."""
    return {base.topic.name: base.progress for base in inputs.values() if base.progress is not None}
