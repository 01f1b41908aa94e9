"""``python -m bench.scale_bench``: Kafka, a Spark cluster, and how far they carry.

What it is: events from Kafka beside the embedded log, Spark's connector and Flink; ticks on a cluster beside local
ones; the driver's memory; and a model that extrapolates from what was measured. A table for people and
``bench/out/scale.json`` for programs.
Invariants: each part runs in a process of its own; a part that fails is reported with its reason, the others still
run; the command then ends with 1.
Not here: what is measured (``bench/scale/``).
Read next: ``bench/scale/sizes.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.parts import parser_of, run
from bench.scale.sizes import Sizes

OUT = Path(__file__).parent / "out" / "scale.json"
QUICK = 10

# By name, so that a part's modules are imported in its own process only.
PARTS = {
    "sources": ("bench.scale.sources", "measure"),
    "flink": ("bench.scale.peers.flink_on_kafka", "measure"),
    "local": ("bench.scale.cluster_ticks", "measure_local"),
    "cluster": ("bench.scale.cluster_ticks", "measure_cluster"),
    "worker": ("bench.scale.cluster_ticks", "measure_one_worker"),
    "memory": ("bench.scale.driver_memory", "measure"),
    "model": ("bench.scale.sizing", "measure"),
}


def main() -> None:
    """Run the parts, print tables, write the list."""
    parser = parser_of(__doc__, PARTS, "a tenth of the rows; no bar is meant for it")
    arguments = parser.parse_args()
    sizes = Sizes().divided(QUICK) if arguments.quick else Sizes()
    _, failed = run(arguments.parts or list(PARTS), PARTS, sizes, arguments.directory, OUT)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
