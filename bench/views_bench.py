"""``python -m bench.views_bench``: views kept up to date with Spark, beside recomputation, Flink SQL and Pathway.

What it is: the parts of the benchmark, one after the other, each in a process of its own; a table for people and
``bench/out/views.json`` for programs.
Invariants: each part starts with a fresh Python and a fresh JVM of 4 GB, so that none profits or suffers from the one
before; a part that fails is reported with its reason, and the others still run; the command then ends with 1.
Not here: what is measured (``bench/views/``).
Read next: ``bench/views/scale.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.parts import parser_of, run
from bench.views.scale import Scale

OUT = Path(__file__).parent / "out" / "views.json"

# By name, so that a part's modules are imported in its own process only.
PARTS = {
    "latency": ("bench.views.latency", "measure"),
    "parts": ("bench.views.tick_parts", "measure"),
    "growth": ("bench.views.growth", "measure"),
    "throughput": ("bench.views.throughput", "measure"),
    "catch-up": ("bench.views.throughput", "measure_catch_up"),
    "manifests": ("bench.views.manifests", "measure"),
    "tpch": ("bench.views.tpch", "measure"),
}


def main() -> None:
    """Run the parts, print tables, write the list."""
    parser = parser_of(__doc__, PARTS, "a twentieth of everything; no bar is meant for it")
    parser.add_argument("--rows", type=int, help="orders of the largest shop; everything else in proportion")
    arguments = parser.parse_args()
    scale = Scale()
    if arguments.quick or arguments.rows:
        scale = scale.divided(max(1, scale.large_orders // arguments.rows) if arguments.rows else 20)
    _, failed = run(arguments.parts or list(PARTS), PARTS, scale, arguments.directory, OUT)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
