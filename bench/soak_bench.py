"""``python -m bench.soak_bench``: an app of eight views that runs for an hour: does anything grow?

What it is: the loop of ``app.run`` over a shop whose tables keep their sizes (``bench/soak/steady_shop.py``), with
appends 20 times a second; every ten seconds memory of Python and Java, the heap after a collection, handles, threads,
files, the catalog, and the time of ticks. For people as a table and a picture, for programs in ``bench/out/soak.json``
and, every sample, in ``bench/out/soak_samples.json``.
Invariants: judged is how much each figure grows an hour over the last two thirds of the run, and the time of ticks in
the last tenth beside the second one. A bar is claimed only for a run of half an hour or more: a slope of minutes says
little about an hour. At the end the views over tables are verified against the log.
Not here: a million ticks without Spark (``bench/ticks_bench.py``).
Read next: ``bench/soak/samples.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

import headwater as hw
from bench import report
from bench.report import Measurement
from bench.soak.plot import Line, Panel, drawn
from bench.soak.samples import Sampler, SoakSample, growth, last_beside_second
from bench.soak.steady_shop import VIEWS, Changes, declared
from headwater.views.tick.reports import TickReport

OUT = Path(__file__).parent / "out" / "soak.json"
SAMPLES, PICTURE = OUT.with_name("soak_samples.json"), OUT.with_suffix(".svg")
JUDGED_MINUTES_MIN = 30
SLOWER_MAX = 1.2
FIGURES = {  # name: attribute, unit, the most that it may grow in an hour: in percent, or in its unit if that is more
    "memory of Python": ("python_megabytes", "MB", 5.0, 20.0),
    "memory of Java": ("java_megabytes", "MB", 5.0, 50.0),
    "Java's memory beside its heap": ("java_beside_heap_megabytes", "MB", 5.0, 20.0),
    "Java's heap after a collection": ("heap_megabytes", "MB", 5.0, 10.0),
    "handles": ("handles", "", 2.0, 5.0),
    "threads": ("threads", "", 2.0, 5.0),
    "files below views": ("view_files", "", 5.0, 20.0),
    "files below topics": ("log_files", "", 5.0, 20.0),
    "catalog": ("catalog_megabytes", "MB", 5.0, 2.0),
    "serving store": ("serving_megabytes", "MB", 5.0, 2.0),
    "log": ("log_megabytes", "MB", 5.0, 5.0),
}
TICKS = {"p50": "tick_ms", "p95": "tick_ms_p95", "processor time": "tick_processor_ms"}


def soak(home: Path, *, minutes: float, rate: float, every: float, memory: str, console: Console) -> list[SoakSample]:
    """Run the app for so long; returns what was seen."""
    with hw.App("soak", home=home, spark={"spark.driver.memory": memory}) as app:
        changes = Changes(*declared(app), rate=rate)
        changes.fill()
        app.tick()
        sampler, stop = Sampler(app._runtime.spark, home, every=every), threading.Event()

        def ticked(tick: TickReport) -> None:
            if tick.moved:
                sampler.ticked(tick.tick, tick.seconds)

        def look() -> None:
            while not stop.wait(every):
                seen = sampler.look()
                if len(sampler.samples) % 6 == 0:
                    console.print(_told(seen), highlight=False)

        looker = threading.Thread(target=look, name="soak-samples", daemon=True)
        changes.start()
        looker.start()
        began = time.monotonic()
        app.run(timeout=minutes * 60, on_tick=ticked)
        seconds = time.monotonic() - began
        stop.set()
        looker.join()
        changes.stop()
        console.print(
            f"{changes.appends:,} appends in {seconds:,.0f} s ({changes.appends / seconds:.1f}/s; "
            f"{changes.dropped:,} were left out), {sampler.samples[-1].tick:,} ticks"
        )
        while app.tick().behind:
            pass
        for name in VIEWS:  # the other view's rows go from the log by retention
            if not app.get_view(name).verify().equal:
                raise AssertionError(f"{name} is not what its query gives over the log")
        return sampler.samples


def _told(seen: SoakSample) -> str:
    return (
        f"{seen.seconds / 60:5.1f} min, tick {seen.tick:,}: {seen.ticks_a_second:.1f}/s, p50 {seen.tick_ms:.0f} ms, "
        f"p95 {seen.tick_ms_p95:.0f} ms; Python {seen.python_megabytes:.0f} MB, Java {seen.java_megabytes:.0f} MB, "
        f"heap {seen.heap_megabytes:.0f} MB; {seen.handles} handles, {seen.threads} threads; files {seen.view_files} + "
        f"{seen.log_files}; catalog {seen.catalog_megabytes:.1f} MB, log {seen.log_megabytes:.1f} MB"
    )


def judged(samples: Sequence[SoakSample]) -> list[Measurement]:
    """The growth of each figure an hour, and the time of ticks."""
    claimed = samples[-1].seconds >= JUDGED_MINUTES_MIN * 60 * 0.95
    found = [
        Measurement("length", round(samples[-1].seconds / 60, 1), "minutes"),
        Measurement("ticks", samples[-1].tick, ""),
        Measurement("ticks a second", round(samples[-1].tick / samples[-1].seconds, 2), "1/s"),
    ]
    for name, (attribute, unit, percent, amount) in FIGURES.items():
        grown = growth(samples, attribute)
        bar = max(amount, percent / 100 * grown.median)
        holds = grown.an_hour <= bar if claimed else None
        found.append(Measurement(f"{name}, median", round(grown.median, 2), unit))
        found.append(Measurement(f"{name}, growth an hour", round(grown.percent_an_hour, 2), "%"))
        unit = f"{unit} an hour, at most".strip()
        found.append(Measurement(f"{name}, growth", round(grown.an_hour, 2), unit, round(bar, 2), holds))
    for name, attribute in TICKS.items():
        ratio = last_beside_second(samples, attribute)
        found.append(Measurement(f"tick {name}, median", round(growth(samples, attribute).median, 1), "ms"))
        holds = ratio <= SLOWER_MAX if claimed else None
        what = f"tick {name}, last tenth beside the second"
        found.append(Measurement(what, round(ratio, 3), "x, at most", SLOWER_MAX, holds))
    return found


def picture(samples: Sequence[SoakSample]) -> str:
    """The samples as SVG."""

    def line(name: str, attribute: str) -> Line:
        return Line(name, [float(getattr(sample, attribute)) for sample in samples])

    rate = samples[-1].tick / samples[-1].seconds
    return drawn(
        f"Eight views for {samples[-1].seconds / 60:.0f} minutes, {samples[-1].tick:,} ticks ({rate:.1f} a second)",
        [sample.seconds / 60 for sample in samples],
        [
            Panel("ms", [line("a tick: median", "tick_ms"), line("95 of 100", "tick_ms_p95")]),
            Panel(
                "MB",
                [
                    line("memory: Python", "python_megabytes"),
                    line("Java", "java_megabytes"),
                    line("Java's heap after a collection", "heap_megabytes"),
                ],
            ),
            Panel("", [line("handles", "handles"), line("threads", "threads")]),
            Panel("", [line("files of views", "view_files"), line("files of the log", "log_files")]),
            Panel("MB", [line("catalog", "catalog_megabytes"), line("log", "log_megabytes")]),
        ],
    )


def show(found: Sequence[Measurement], console: Console) -> None:
    """Print the table for people: a line for each figure."""
    lines = {line.name: line for line in found}
    table = Table(title="what an hour adds, by the last two thirds", title_justify="left")
    table.add_column("what")
    for heading in ("median", "growth, % an hour", "growth an hour", "at most"):
        table.add_column(heading, justify="right")
    table.add_column("holds")
    for name, (_, unit, _, _) in FIGURES.items():
        median, percent, grown = (lines[f"{name}, {what}"] for what in ("median", "growth an hour", "growth"))
        table.add_row(
            f"{name}{unit and f', {unit}'}",
            *(f"{line.value:,.1f}" for line in (median, percent, grown)),
            f"{grown.bar:,.1f}",
            _verdict(grown),
        )
    for which in TICKS:
        beside = lines[f"tick {which}, last tenth beside the second"]
        median = lines[f"tick {which}, median"]
        table.add_row(
            f"tick {which}, ms; last tenth beside the second",
            f"{median.value:,.1f}",
            "",
            f"{beside.value:,.2f} x",
            f"{SLOWER_MAX} x",
            _verdict(beside),
        )
    console.print(table)
    told = ", ".join(
        f"{lines[name].value:,} {lines[name].unit or name}" for name in ("length", "ticks", "ticks a second")
    )
    console.print(told, highlight=False)


def _verdict(line: Measurement) -> str:
    return {True: "[green]yes", False: "[bold red]no", None: "too short a run"}[line.holds]


def main() -> None:
    """Run the soak, print the table, write the list and the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=20, help="appends a second")
    parser.add_argument("--every", type=float, default=10, help="seconds between two samples")
    parser.add_argument("--memory", default="1g", help="of Spark's driver")
    parser.add_argument("--svg", type=Path, default=PICTURE, help="where the picture goes")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    with tempfile.TemporaryDirectory(prefix="headwater-bench-soak-") as folder:
        samples = soak(
            Path(folder) / "home",
            minutes=given.minutes,
            rate=given.rate,
            every=given.every,
            memory=given.memory,
            console=console,
        )
    found = judged(samples)
    show(found, console)
    report.write(found, OUT)
    SAMPLES.write_text("[\n" + ",\n".join(json.dumps(asdict(sample)) for sample in samples) + "\n]\n")
    given.svg.parent.mkdir(parents=True, exist_ok=True)
    given.svg.write_text(picture(samples))
    console.print(f"{OUT}, {given.svg}")


if __name__ == "__main__":
    main()
