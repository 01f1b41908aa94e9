"""``python -m bench.watch.patterns``: MATCH_RECOGNIZE in views, beside Flink SQL's.

What it is: five million payments of ten thousand cards and three patterns of three steps within ten minutes: events a
second in one catch-up, on both sides, and what a tick of new payments takes on top of it; a table for people and
``bench/out/patterns.json`` for programs.
Invariants: both sides get the same rows and the same clause, and every match of both is compared with a search by hand,
so both find the same ones, before a time counts. A part that fails is reported with its reason, the other still runs;
the command then ends with 1, and so it does when a bar does not hold in a run that is not ``--quick``.
Not here: what is measured (``pattern_ticks.py``, ``peers/``); the matcher alone (``docs/patterns.md``).
Read next: ``payments.py``.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from bench import report
from bench.parts import parser_of, run, show
from bench.watch.pattern_scale import PatternScale, bars

OUT = Path(__file__).parents[1] / "out" / "patterns.json"
QUICK_EVENTS = 200_000

# By name, so that a part's modules are imported in its own process only.
PARTS = {"own": ("bench.watch.pattern_ticks", "measure"), "flink": ("bench.watch.peers.flink_matches", "measure")}


def main() -> None:
    """Run the parts, print tables, write the list."""
    parser = parser_of(__doc__, PARTS, f"{QUICK_EVENTS:,} events; no bar is meant for it")
    parser.add_argument("--events", type=int, help="so many events in the catch-up")
    given = parser.parse_args()
    if given.events is not None and given.events < 1:
        parser.error(f"--events is {given.events}; there must be at least one")
    scale = PatternScale()
    if given.quick or given.events:
        scale = replace(scale, events=given.events or QUICK_EVENTS)
    parts = given.parts or list(PARTS)
    found, failed = run(parts, PARTS, scale, given.directory, OUT)
    standing = bars(found, parts)
    if standing:
        show("bars", standing)
        report.write([*found, *standing], OUT)
    missed = not given.quick and any(line.holds is False for line in standing)
    sys.exit(1 if failed or missed else 0)


if __name__ == "__main__":
    main()
