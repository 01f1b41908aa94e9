"""``python -m bench.decide_bench``: events and commands, beside ``eventsourcing`` with its own recorders.

Invariants: all in one run and by turns; figures are medians of the rounds, and processor time is told beside them. Two
levels of durability, each the same for all (``bench/decide/contenders.py``). The bar is twice the better of SQLite and
PostgreSQL, each as it comes; ratios at equal levels are told beside it.
Not here: plain appends (``log_bench.py``), transactions (``writes_bench.py``). Read next: ``docs/eventsourcing.md``.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench import report
from bench.decide import commands_bench, recorders_bench
from bench.decide.contenders import contenders
from bench.decide.turns import Act, Turns, progress
from bench.report import Measurement

OUT = Path("bench/out/decide.json")
LEAST = 2.0
ALONE = {"load": "bench.decide.load_bench", "why": "bench.decide.why_bench"}  # parts without contenders


def measure(folder: Path, *, rounds: int, seconds: float, cold: int, part: str | None) -> list[Measurement]:
    """All acts by turns; then what is measured alone."""
    turns = Turns(LEAST)
    acts: list[Act] = []
    if part not in ALONE:
        with contenders(folder) as found:
            for contender in found:
                progress(f"preparing {contender.name}, {contender.level}")
                if part in (None, "recorders"):
                    acts += recorders_bench.acts(contender)
                if part in (None, "commands"):
                    acts += commands_bench.acts(contender, folder, cold=cold)
            acts.sort(key=lambda act: (act.what, act.contender.level))  # those that are compared follow each other
            turns.run(acts, rounds=rounds, seconds=seconds)
    lines = turns.lines()
    for name, module in ALONE.items():
        if part in (None, name):
            progress(f"{name}: a million events")
            lines += [Measurement(**figure) for figure in importlib.import_module(module).figures()]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", nargs="?", choices=["recorders", "commands", *ALONE], help="all when none is named")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each act in a round")
    parser.add_argument("--cold", type=int, default=commands_bench.COLD, help="accounts that commands go to in turn")
    asked = parser.parse_args()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(Path(folder), rounds=asked.rounds, seconds=asked.seconds, cold=asked.cold, part=asked.part)
    table = Table("what", "value", "unit", "bar")
    for line in lines:
        shown = f"{line.value:,.2f}" if line.unit in ("x", "s") else f"{line.value:,.0f}"
        sign = "≤" if line.unit == "s" else "≥"
        held = "" if line.holds is None else f"{'holds' if line.holds else 'NOT HELD'} ({sign} {line.bar:g})"
        table.add_row(line.name, shown, line.unit, held)
    Console(width=150).print(table)
    report.write(lines, OUT)


if __name__ == "__main__":
    main()
