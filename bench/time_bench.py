"""``python -m bench.time_bench``: windows by event time, beside Structured Streaming, Flink SQL and Pathway.

What it is: sums by minute and country over ten million events, one in twenty of them up to 30 s late; the systems one
after the other, each in processes of its own; a table for people and ``bench/out/time.json`` for programs.
Invariants: every system's answer is checked, group by group, before its time counts; the best of a peer's variants is
what a bar is held against. A part that fails is reported with its reason, the others still run; the command then ends
with 1.
Not here: what is measured (``bench/time/``).
Read next: ``bench/time/scale.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench import report
from bench.parts import parser_of, run, show
from bench.time.scale import Scale, bars

OUT = Path(__file__).parent / "out" / "time.json"
QUICK_EVENTS = 200_000

# By name, so that a part's modules are imported in its own process only.
PARTS = {
    "own": ("bench.time.own", "measure"),
    "streaming": ("bench.time.streaming", "measure"),
    "flink": ("bench.time.peers.runs", "measure_flink"),
    "pathway": ("bench.time.peers.runs", "measure_pathway"),
}


def main() -> None:
    """Run the parts, print tables, write the list."""
    parser = parser_of(__doc__, PARTS, f"{QUICK_EVENTS:,} events; no bar is meant for it")
    parser.add_argument("--events", type=int, help="so many events; the peers outside Spark get 2 million at most")
    arguments = parser.parse_args()
    if arguments.events is not None and arguments.events < 1:
        parser.error(f"--events is {arguments.events}; there must be at least one")
    scale = Scale()
    if arguments.quick or arguments.events:
        scale = scale.with_events(arguments.events or QUICK_EVENTS)
    parts = arguments.parts or list(PARTS)
    found, failed = run(parts, PARTS, scale, arguments.directory, OUT)
    standing = bars(found, parts)
    if standing:
        show("bars", standing)
        report.write([*found, *standing], OUT)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
