"""A shop of which one view can fail, and a process that runs it until somebody kills it.

What it is: the app of ``test_views_pause_killed.py``, what its views should show, and
``python -m tests.crash.pause_shop HOME run | resume``, with a line for each tick, or before and after resuming.
Invariants: a line is written after what it tells of was committed.
Not here: the killing (``test_views_pause_killed.py``).
Read next: ``test_views_pause_killed.py``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import headwater as hw
from headwater.views.serving.serving_store import ServingStore, store_path
from tests.crash.view_shop import Bag, Replay, bag

VIEWS = ("shares", "total", "parts")


def declare(home: Path | str) -> hw.App:
    app = hw.App("shop", home=home, on_error="pause")
    app.table("orders", "id BIGINT, amount BIGINT, parts BIGINT", key="id")
    app.view("shares", "SELECT id, amount DIV parts AS share FROM orders")
    app.view("total", "SELECT sum(share) AS share, count(*) AS orders FROM shares")
    app.view("parts", "SELECT parts, count(*) AS orders FROM orders GROUP BY parts")
    return app


def expected(orders: Mapping[int, tuple[int, int]]) -> dict[str, Bag]:
    """What the views should show of these orders, none of which has no parts."""
    shares = {(number, amount // parts): 1 for number, (amount, parts) in orders.items()}
    return {
        "shares": Counter(shares),
        "total": Counter([(sum(share for _, share in shares), len(shares))]),
        "parts": counts(orders),
    }


def counts(orders: Mapping[int, tuple[int, int]]) -> Bag:
    return Counter(Counter(parts for _, parts in orders.values()).items())


def judge(app: hw.App, wanted: Mapping[str, Bag], replay: Replay) -> None:
    """State, serving store and change feed are what is wanted."""
    replay.go_on(app)
    with ServingStore(store_path(app.log.home, app.name)) as store:
        assert {view: bag(store.query(f"SELECT * FROM {view}")) for view in VIEWS} == wanted
    assert replay.rows == wanted
    assert all(found.equal for found in app.verify())


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    app = declare(sys.argv[1])
    if sys.argv[2] == "run":
        app.run(on_tick=lambda report: say(f"tick {report.tick}"))
    app.tick()
    say("resuming")
    app.get_view("shares").resume()
    say("resumed")
    sys.stdin.read()  # until it is killed
