"""Loading, measured: an aggregate of a million events in a process that has not seen it.

What it is: a history of one account, its snapshot, some events after it; then processes that open the home and ask for
the state once, twice, and as it was after three events.
Invariants: each answer is compared with the number of events. Times are medians of several processes, by the clock and
by the processor. Pandas is imported before the clock starts: pyarrow imports it for the first rows that a process
touches, whatever they are.
Not here: commands (``commands_bench.py``). Read next: ``src/headwater/aggregates/aggregate_states.py``.

    python -m bench.decide.load_bench --events 1000000
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.aggregates import AggregateRepository, command, event

EVENTS = 1_000_000
AFTER_SNAPSHOT = 500
AT_ONCE = 10_000
PROCESSES = 3
BAR_S = 0.05
NAMES = {
    "first": "load in a new process",
    "again": "load once more",
    "earlier": "the state after three events, in a new process",
}


class Account:
    """An account that only grows."""

    cents = 0

    @command
    def deposit(self) -> None:
        self.deposited()

    @event
    def deposited(self) -> None:
        self.cents += 1


def accounts_of(home: Path) -> AggregateRepository:
    """The accounts of a home."""
    return hw.App("bank", home=home).aggregate("account", Account)


def fill(home: Path, events: int) -> None:
    """One account with so many events; the last ones came after its snapshot."""
    accounts = accounts_of(home)
    before = events - AFTER_SNAPSHOT
    for start in range(0, before, AT_ONCE):
        accounts.store.append([("deposited", {})] * min(AT_ONCE, before - start), stream="7")
    accounts.get("7")
    for _ in range(AFTER_SNAPSHOT):
        accounts.send("7", "deposit")


def looked(home: Path, events: int) -> dict[str, tuple[float, float]]:
    """What the questions of one process take, by the clock and by the processor."""
    import pandas as pd  # noqa: F401

    accounts = accounts_of(home)
    took = {
        "first": timed(lambda: accounts.get("7").cents, events),
        "again": timed(lambda: accounts.get("7").cents, events),
    }
    earlier = accounts_of(home)
    return {**took, "earlier": timed(lambda: earlier.get("7", version=3).cents, 3)}


def timed(ask: Callable[[], int], expected: int) -> tuple[float, float]:
    """The seconds of a question, its answer checked."""
    began, used = time.perf_counter(), time.process_time()
    found = ask()
    seconds = time.perf_counter() - began, time.process_time() - used
    assert found == expected, f"{found} events instead of {expected}"
    return seconds


def figures(events: int = EVENTS) -> list[dict[str, Any]]:
    """What was measured: name, value, unit, bar (None: told beside), and whether it holds."""
    with tempfile.TemporaryDirectory(prefix="load-bench-") as folder:
        fill(Path(folder), events)
        script = [sys.executable, "-m", "bench.decide.load_bench", "--events", str(events), "--home", folder]
        said = [json.loads(subprocess.run(script, check=True, stdout=subprocess.PIPE).stdout) for _ in range(PROCESSES)]
    found = []
    for key, name in NAMES.items():
        seconds, processor = (statistics.median(each[key][of] for each in said) for of in (0, 1))
        bar = BAR_S if key != "earlier" else None
        holds = None if bar is None else seconds <= bar
        what = f"load: an aggregate of {events:,} events: {name}"
        found.append({"name": what, "value": seconds, "unit": "s", "bar": bar, "holds": holds})
        found.append({"name": f"{what}: processor time", "value": processor, "unit": "s", "bar": None, "holds": None})
    return found


def main() -> None:
    """Measure and print; with a home, ask it and print JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--home", type=Path, help="of a run that measures: this process only looks")
    given = parser.parse_args()
    if given.home is not None:
        print(json.dumps(looked(given.home, given.events)))
        return
    for each in figures(given.events):
        bar = "" if each["bar"] is None else f"  (at most {each['bar']:g}: {'holds' if each['holds'] else 'missed'})"
        print(f"{each['name']}: {each['value']:.4f} {each['unit']}{bar}")


if __name__ == "__main__":
    main()
