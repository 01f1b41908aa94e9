"""A peer's run over twenty files of JSON: start it, time it, check its answer.

What it is: the variants of Flink SQL and Pathway, and ``measure_flink`` and ``measure_pathway``.
What is timed: the clock starts when the peer first opens one of the files, and stops with its last output. So its
start-up, and a job's, are not in the figure. Flink does all runs in one process, where the first warms up its JVM;
Pathway, which is compiled, has a process for each run, and its first one is not counted either.
Invariants: a variant's time counts only with the right answer; the others are reported with what was wrong. These
peers get fewer events than Spark: a rate is what is compared.
Not here: the programs (``flink_program.py``, ``pathway_program.py``), their processes (``bench/peer_process.py``).
Read next: ``flink_program.py``.
"""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

from bench.peer_process import Opening, heard, interpreter, started
from bench.peer_servers import PeerUnavailable
from bench.time.events import Answer, Events, difference, write_json
from bench.time.scale import RATE, Scale
from bench.views.memory import peak_of
from bench.views.scale import Lines

HERE = Path(__file__).parent
RUN_SECONDS_MAX = 600.0


@dataclass(frozen=True)
class Variant:
    """One way to ask a peer: what its program is told, and whether one process does all the runs."""

    title: str
    environment: str
    arguments: tuple[str, ...]
    one_process: bool


FLINK = (
    Variant("window TVF", "flink", ("windows", "0"), one_process=True),
    Variant("window TVF, mini-batches of 20 000", "flink", ("windows", "20000"), one_process=True),
    Variant("GROUP BY, mini-batches of 20 000", "flink", ("groups", "20000"), one_process=True),
)
PATHWAY = (
    Variant("windowby", "pathway", ("windowby",), one_process=False),
    Variant("groupby", "pathway", ("groupby",), one_process=False),
)


def measure_flink(scale: Scale, folder: Path) -> Lines:
    """Events a second, by variant."""
    return _measure(FLINK, scale, folder)


def measure_pathway(scale: Scale, folder: Path) -> Lines:
    """Events a second, by variant."""
    return _measure(PATHWAY, scale, folder)


def _measure(variants: tuple[Variant, ...], scale: Scale, folder: Path) -> Lines:
    lines = Lines()
    events = Events(scale.peer_events)
    expected = events.answer()
    write_json(events, folder / "json")
    for number, variant in enumerate(variants):
        title = f"{variant.title}, {scale.peer_events:,} events"
        try:
            seconds, peak_bytes = run(variant, folder / str(number), folder / "json", expected, scale.runs)
        except PeerUnavailable as error:
            lines.missing(title, str(error))
            continue
        lines.figure(title, scale.peer_events / statistics.median(seconds), RATE)
        lines.figure(f"{title}, peak memory", peak_bytes / 1e9, "GB")
    return lines


def run(variant: Variant, folder: Path, source: Path, expected: Answer, runs: int) -> tuple[list[float], int]:
    """The seconds of each run but the first, and the most memory that the peer's processes held."""
    python = interpreter(variant.environment)
    numbers = [str(number) for number in range(runs + 1)]
    for number in numbers:
        give(source, folder / f"run-{number}", number)
    program = HERE / f"{variant.environment}_program.py"
    seconds, peaks = [], []
    for together in [numbers] if variant.one_process else [[number] for number in numbers]:
        opening = Opening([folder / f"run-{number}" for number in together])
        command = [str(python), str(program), str(folder), *variant.arguments, *together]
        with started(command, folder) as process:
            ends = heard(process, "done", variant.title, folder, RUN_SECONDS_MAX * len(together))["ends"]
            peaks.append(peak_of(process.pid))
        opened = opening.firsts([f"{number}-" for number in together])
        for number, began, ended in zip(together, opened, ends, strict=True):
            wrong = difference(read_answer(folder / f"found-{number}.json"), expected)
            if wrong is not None:
                raise PeerUnavailable(wrong)
            if began is None:
                raise PeerUnavailable("when it began to read is not known: that needs Linux")
            seconds.append(ended - began)
    return seconds[1:], max(peaks)


def give(source: Path, folder: Path, number: str) -> None:
    """The same files once more, by hard links whose names begin with the run's number."""
    folder.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        os.link(path, folder / f"{number}-{path.name}")


def read_answer(path: Path) -> Answer:
    """What a program wrote: a list of minute, country, amount and events."""
    rows = json.loads(path.read_text())
    return {(minute, country): (amount, events) for minute, country, amount, events in rows}
