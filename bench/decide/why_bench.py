"""Why, measured: the events behind a row of views over a million events.

What it is: an app of a million orders in a topic with a key, and a million clicks in one without; views that join and
group them; ``view.why`` of a small group and of a large one, in an app whose Spark is started.
Invariants: each answer's count is compared with a count in plain Python before its time counts. Times are medians of
several calls after one that warms Java; processor time (Python and Java) is told beside the clock's.
Not here: commands of aggregates (other modules of ``bench/decide``).
Read next: ``src/headwater/views/provenance/why.py``, ``docs/why.md``.

    python -m bench.decide.why_bench --events 1000000
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headwater as hw
from bench.processor_time import processor_seconds

EVENTS = 1_000_000
USERS = 20_000
COUNTRIES = 400
BAR_S = 2.0
CALLS = 5


def filled(home: Path, events: int) -> tuple[hw.App, dict[str, int]]:
    """The app after its first tick, and how many events are behind each row that is asked for."""
    app = hw.App("why", home=home)
    users = app.table("users", "id BIGINT, country STRING", key="id", fsync="never")
    orders = app.topic(
        "orders", "order_id BIGINT, user_id BIGINT, amount DOUBLE", key="order_id", partitions=2, fsync="never"
    )
    clicks = app.topic("clicks", "user_id BIGINT, page STRING, n BIGINT", partitions=2, fsync="never")
    app.view(
        "revenue",
        "SELECT u.country, sum(o.amount) AS revenue, count(*) AS orders FROM orders o JOIN users u "
        "ON o.user_id = u.id GROUP BY u.country",
    )
    app.view("rich", "SELECT country, revenue FROM revenue WHERE revenue > 0")
    app.view("pages", "SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
    chance = np.random.default_rng(7)
    # Half of the users are of one country; the others are spread over many.
    of = np.where(np.arange(USERS) % 2 == 0, 0, chance.integers(1, COUNTRIES, USERS))
    users.upsert(pa.table({"id": np.arange(USERS), "country": [f"c{number}" for number in of]}))
    who = chance.integers(0, USERS, events)
    for start in range(0, events, 100_000):
        part = who[start : start + 100_000]
        orders.append(
            pa.table(
                {"order_id": np.arange(start, start + len(part)), "user_id": part, "amount": chance.random(len(part))}
            )
        )
        clicks.append(
            pa.table({"user_id": part, "page": [f"p{each % 1000}" for each in part], "n": np.arange(len(part))})
        )
    app.tick()
    countries = of[who]
    return app, {
        "c1": int((countries == 1).sum()),
        "c0": int((countries == 0).sum()),
        "p7": int((who % 1000 == 7).sum()),
    }


def figures(events: int = EVENTS) -> list[dict[str, Any]]:
    """What was measured: name, value, unit, bar (None: told beside), and whether it holds."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="why-bench-") as folder:
        app, counts = filled(Path(folder) / "home", events)
        asked = [
            ("a group of a join", "revenue", "c1", "orders"),
            ("half of all events, by a join", "revenue", "c0", "orders"),
            ("a view over a view", "rich", "c1", "orders"),
            ("a group of a topic without a key", "pages", "p7", "clicks"),
        ]
        for name, view, key, topic in asked:
            seconds, processor = measured(app, view, key, topic, counts[key])
            what = f"why: {name}, {counts[key]:,} of {events:,} events behind it"
            found.append({"name": what, "value": seconds, "unit": "s", "bar": BAR_S, "holds": seconds <= BAR_S})
            beside = f"{what}: processor time"
            found.append({"name": beside, "value": processor, "unit": "s", "bar": None, "holds": None})
        app.close()
    return found


def measured(app: hw.App, view: str, key: str, topic: str, count: int) -> tuple[float, float]:
    """The median times of a question, by the clock and by the processor, its answer checked."""
    seconds, processor = [], []
    for call in range(CALLS + 1):
        began, used = time.perf_counter(), processor_seconds()
        found = app.get_view(view).why(key)
        took, spent = time.perf_counter() - began, processor_seconds() - used
        (told,) = [each.count for each in found.inputs if each.topic == topic]
        assert told == count, f"{view} {key}: {told} events of {topic}, and there are {count}"
        if call:
            seconds.append(took)
            processor.append(spent)
    return statistics.median(seconds), statistics.median(processor)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    for each in figures(parser.parse_args().events):
        bar = "" if each["bar"] is None else f"  (at most {each['bar']:g}: {'holds' if each['holds'] else 'missed'})"
        print(f"{each['name']}: {each['value']:.2f} {each['unit']}{bar}")


if __name__ == "__main__":
    main()
