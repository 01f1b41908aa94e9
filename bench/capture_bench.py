"""``python -m bench.capture_bench``: PostgreSQL captured, beside COPY and pg_recvlogical.

What it is: backfill, stream, latency, and what the server keeps; a table for people and ``bench/out/capture.json``.
Invariants: bars are ratios of two figures of one run, or limits that hold on any machine of two cores.
Not here: what is measured (``bench/capture/``).
Read next: ``bench/capture/postgres_parts.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.capture.scale import Scale
from bench.parts import parser_of, run

OUT = Path(__file__).parent / "out" / "capture.json"
PARTS = {name: ("bench.capture.postgres_parts", name) for name in ("backfill", "stream", "latency", "view", "kept")}


def main() -> None:
    """Run the parts, print tables, write the list."""
    arguments = parser_of(__doc__, PARTS, "a tenth of the rows; no bar is meant for it").parse_args()
    scale = Scale().quick() if arguments.quick else Scale()
    _, failed = run(arguments.parts or list(PARTS), PARTS, scale, arguments.directory, OUT)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
