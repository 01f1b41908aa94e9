"""Sinks whose process is killed, with ``kill -9``, in the middle of what they do.

What it is: for each sink, processes that bring it along and die at places spread over the whole delivery: before the
first row, between two statements, between the last one and the commit, after it.
Invariants: what is there is the view at the tick before or at this one, never between; after a restart it is the view.
Not here: the rest of the contract (``test_conformance.py``).
Read next: ``mortal.py``.
"""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path
from typing import Any

import pytest

from headwater.sinks.status import State
from tests.crash.ledger import many
from tests.services.sinks.mortal import deliver
from tests.services.sinks.places import Place
from tests.services.sinks.synthetic import SyntheticView, bag_of

KILLS = 6
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.services.sinks.mortal", "tests.services.sinks.places"])


def run(home: Path, place: Place, view: SyntheticView, die_at: int | None) -> int | None:
    """One process; returns how many places it passed, or None when it died."""
    told: Any = PROCESSES.SimpleQueue()
    process = PROCESSES.Process(target=deliver, args=(home, place.sink, view, die_at, told))
    process.start()
    process.join(60)
    if process.exitcode == -signal.SIGKILL:
        return None
    assert process.exitcode == 0
    passed, state, error = told.get()
    assert state == State.FOLLOWING, error
    return int(passed)


@pytest.mark.parametrize("key", [("id",), ()], ids=["key", "bag"])
def test_a_delivery_that_dies_anywhere_is_there_whole_or_not_at_all(
    tmp_path: Path, place: Place, key: tuple[str, ...]
) -> None:
    view = SyntheticView("id BIGINT, word STRING", key=key)
    home = tmp_path / "home"
    passed = run(home, place, view, None)  # the first full copy, of nothing
    kills = 0

    for number in range(many(KILLS)):
        before = view.bag()
        fresh = [{"id": 10 * number + place, "word": f"w{number}"} for place in range(3)]
        view.change(add=fresh, remove=view.rows_now()[:1])
        if number % 3 == 2:
            view.forget()  # so that this one is a full copy
        counted = passed or 100
        died = run(home, place, view, max(1, counted * (number % KILLS + 1) // (KILLS + 1))) is None
        if died:
            kills += 1
            if place.atomic:
                assert bag_of(place.read(view)) in (before, view.bag())
            passed = run(home, place, view, None)
        assert bag_of(place.read(view)) == view.bag()

    assert kills >= many(KILLS) // 2
