"""Sinks whose process is killed, with ``kill -9``, in the middle of what they do.

What it is: for each sink, processes that bring it along and die at places spread over the whole delivery: before the
first row, between two statements, between the last one and the commit, after it; every other one a little later,
so that also a commit that is under way is cut.
Invariants: what is there is the view at the tick before or at this one, never between; after a restart it is the view.
Not here: the rest of the contract (``test_conformance.py``).
Read next: ``mortal.py``.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from headwater.sinks.runner.sink_status import SinkState
from tests.crash.ledger import many
from tests.services.sinks.mortal import WARNINGS, deliver
from tests.services.sinks.places import Place
from tests.services.sinks.synthetic import SyntheticView, bag_of

KILLS = 6  # in deliveries, and as many in full copies
LATER_S = 0.005  # a delivery to SQLite in memory takes little longer
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.services.sinks.mortal", "tests.services.sinks.places"])


def run(home: Path, place: Place, view: SyntheticView, die_at: int | None, later_s: float = 0.0) -> int | None:
    """One process; returns how many places it passed, or None when it died."""
    told: Any = PROCESSES.SimpleQueue()
    process = PROCESSES.Process(target=deliver, args=(home, place.sink, view, die_at, later_s, told))
    process.start()
    process.join(60)
    if process.exitcode == -signal.SIGKILL:
        return None
    assert process.exitcode == 0
    passed, state, error = told.get()
    assert state == SinkState.FOLLOWING, error
    return int(passed)


@pytest.mark.parametrize("key", [("id",), ()], ids=["key", "bag"])
def test_a_delivery_that_dies_anywhere_is_there_whole_or_not_at_all(
    tmp_path: Path, place: Place, key: tuple[str, ...]
) -> None:
    view = SyntheticView("id BIGINT, word STRING", key=key)
    home, chance = tmp_path / "home", random.Random(7)
    run(home, place, view, None)  # the first full copy, of nothing
    places = {}
    for filling in (False, True):
        change(view, 10_000 + filling)
        if filling:
            view.forget()  # so that it is a full copy
        places[filling] = run(home, place, view, None) or 0
    held, more = [view.bag()], itertools.count(1_000)

    kills = many(KILLS)
    for filling in (False, True):
        for number in reversed(range(kills)):
            if number % 3:  # else the same again: what the killed one left behind is in its way
                change(view, 1 + 2 * number + filling)
                if filling:
                    view.forget()
                held.append(view.bag())
            # Spread over the whole way, the last places first: what waits grows, and with it the way.
            die_at = 1 + int((number + chance.random()) * places[filling] / kills)
            later_s = number % 2 * LATER_S * chance.random()
            while run(home, place, view, die_at, later_s) is not None:  # it had ended before: once more, and earlier
                change(view, next(more))
                if filling:
                    view.forget()
                held.append(view.bag())
                die_at, later_s = max(1, die_at // 2), 0.0
            if place.atomic:
                assert bag_of(place.read(view)) in held
        run(home, place, view, None)
        assert bag_of(place.read(view)) == view.bag()
        held = [view.bag()]

    warnings = tmp_path / WARNINGS
    assert not warnings.exists() or "takes a full copy" not in warnings.read_text()


def change(view: SyntheticView, number: int) -> None:
    """Rows that come, change and leave; without a key also equal ones."""
    fresh = [{"id": 10 * number + place, "word": f"w{number}"} for place in range(3)]
    again = [{"id": -1, "word": "again" if view.key == () else f"again {number}"}]
    leaving = view.rows_now()[:1] if number % 3 else []  # what is brought twice must not be hidden by what leaves
    view.change(add=[*fresh, *again], remove=leaving)
