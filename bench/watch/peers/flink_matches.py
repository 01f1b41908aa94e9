"""Flink's matches over files of CSV: start it, time it, check every match.

What it is: ``measure``, Flink SQL's MATCH_RECOGNIZE with the clauses that we are given too, and what reading alone
takes it.
What is timed: the clock starts when Flink first opens one of the files, and stops with its last output. Processor time
is counted from the job's start. One process does all runs of a pattern, and the first run warms up its JVM.
Invariants: a pattern's time counts only with the right matches. As many tasks as there are cores.
Not here: the program (``flink_match_program.py``), its process (``bench/peer_process.py``).
Read next: ``flink_match_program.py``.
"""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path

import numpy as np

from bench.peer_process import Opening, heard, interpreter, started
from bench.peer_servers import PeerUnavailable
from bench.time.peers.runs import give
from bench.views.memory import peak_of
from bench.views.scale import Lines
from bench.watch.pattern_scale import PROCESSOR_RATE, RATE, PatternScale
from bench.watch.payments import PATTERNS, Matches, Payments, difference, in_order, write_csv

HERE = Path(__file__).parent
RUN_SECONDS_MAX = 900.0
READING = "reading alone"


def measure(scale: PatternScale, folder: Path) -> Lines:
    """Events a second, by pattern."""
    lines = Lines()
    payments = Payments(scale.every, scale.cards)
    write_csv(payments, scale.events, folder / "csv", os.cpu_count() or 1)
    asked: list[tuple[str, str, Matches]] = [(READING, "", in_order([]))]
    asked += [(each.title, each.clause, payments.matches(each, scale.events)) for each in PATTERNS]
    for number, (title, clause, expected) in enumerate(asked):
        try:
            seconds, spent, peak_bytes = run(title, clause, folder / str(number), folder / "csv", expected, scale.runs)
        except PeerUnavailable as error:
            lines.missing(title, str(error))
            continue
        lines.figure(title, scale.events / statistics.median(seconds), RATE)
        lines.figure(title, scale.events / statistics.median(spent), PROCESSOR_RATE)
        lines.figure(f"{title}: matches", len(expected), "matches")
        lines.figure(f"{title}: peak memory", peak_bytes / 1e9, "GB")
    return lines


def run(
    title: str, clause: str, folder: Path, source: Path, expected: Matches, runs: int
) -> tuple[list[float], list[float], int]:
    """The seconds and the processor time of each run but the first, and the most memory that the processes held."""
    numbers = [str(number) for number in range(runs + 1)]
    for number in numbers:
        give(source, folder / f"run-{number}", number)
    (folder / "clause.sql").write_text(clause)
    opening = Opening([folder / f"run-{number}" for number in numbers])
    command = [str(interpreter("flink")), str(HERE / "flink_match_program.py"), str(folder), *numbers]
    with started(command, folder) as process:
        told = heard(process, "done", title, folder, RUN_SECONDS_MAX * len(numbers))
        peak_bytes = peak_of(process.pid)
    seconds = []
    for number, began, ended in zip(
        numbers, opening.firsts([f"{number}-" for number in numbers]), told["ends"], strict=True
    ):
        found = np.array(json.loads((folder / f"found-{number}.json").read_text()), np.int64).reshape(-1, 2)
        wrong = difference(found[np.lexsort((found[:, 1], found[:, 0]))], expected)
        if wrong is not None:
            raise PeerUnavailable(wrong)
        if began is None:
            raise PeerUnavailable("when it began to read is not known: that needs Linux")
        seconds.append(ended - began)
    return seconds[1:], told["spent"][1:], peak_bytes
