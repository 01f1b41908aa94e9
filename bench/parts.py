"""A benchmark's parts: each in a process of its own, and the table of what it found.

What it is: ``parser_of`` and ``run``, which the benchmarks of several parts share: their options, and the parts one
after the other, shown and written.
Invariants: each part starts with a fresh Python, hence a fresh JVM, so that none profits or suffers from the one
before; a part that fails gives its reason instead of lines. Its folder goes away with it.
Not here: what is measured (``bench/views/``, ``bench/time/``, ``bench/capture/``, ``bench/server/``).
Read next: ``views_bench.py``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import report
from bench.report import Measurement
from bench.views.scale import Lines


def parser_of(doc: str | None, parts: Mapping[str, tuple[str, str]], quick: str) -> argparse.ArgumentParser:
    """The options that all benchmarks of parts have."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    known = ", ".join(parts)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", type=_one_of(parts), help=f"of {known}; all of them when none is named"
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--directory", type=Path, help="where all data goes; default: the temporary one")
    return parser


def _one_of(parts: Mapping[str, tuple[str, str]]) -> Callable[[str], str]:
    def named(name: str) -> str:
        if name not in parts:
            raise argparse.ArgumentTypeError(f"no part {name}; there are {', '.join(parts)}")
        return name

    return named


def run(
    names: Sequence[str], parts: Mapping[str, tuple[str, str]], scale: Any, directory: Path | None, out: Path
) -> tuple[list[Measurement], bool]:
    """Run some parts, show each and write what is known so far; gives everything, and whether a part failed."""
    found: list[Measurement] = []
    failed = False
    for name in names:
        lines, error = in_own_process(parts[name], scale, directory)
        failed |= error is not None
        if error is not None:
            lines.missing(name, error)
        show(name, lines.measurements)
        found += [replace(line, name=f"{name}: {line.name}") for line in lines.measurements]
        report.write(found, out)
    return found, failed


def in_own_process(place: tuple[str, str], scale: Any, directory: Path | None) -> tuple[Lines, str | None]:
    """The lines of the function at ``place`` (its module and name); or none, and why."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        try:
            return pool.submit(run_part, place, scale, directory).result(), None
        except Exception as error:
            return Lines(), f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def run_part(place: tuple[str, str], scale: Any, directory: Path | None) -> Lines:
    """Run in the part's own process."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    module, function = place
    measure: Callable[[Any, Path], Lines] = getattr(import_module(module), function)
    name = module.rpartition(".")[2]
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"headwater-bench-{name}-", dir=directory) as folder:
        return measure(scale, Path(folder))


def show(name: str, measurements: Sequence[Measurement]) -> None:
    """Print a part's table for people."""
    table = Table(title=name, title_justify="left")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_column("unit")
    table.add_column("bar", justify="right")
    table.add_column("holds")
    for line in measurements:
        value = "–" if line.value is None else f"{line.value:,}"
        bar = "" if line.bar is None else f"{line.bar:g}"
        table.add_row(
            line.name, value, line.unit, bar, {True: "[green]yes", False: "[bold red]no", None: ""}[line.holds]
        )
    Console().print(table)
