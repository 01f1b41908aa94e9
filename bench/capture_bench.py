"""``python -m bench.capture_bench``: PostgreSQL captured, beside COPY and pg_recvlogical.

What it is: backfill, stream, latency, and what the server keeps; a table for people and ``bench/out/capture.json``.
Invariants: bars are ratios of two figures of one run, or limits that hold on any machine of two cores.
Not here: what is measured (``bench/capture/``).
Read next: ``bench/capture/postgres_parts.py``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.capture.scale import Scale
from bench.parts import run

OUT = Path(__file__).parent / "out" / "capture.json"
PARTS = {name: ("bench.capture.postgres_parts", name) for name in ("backfill", "stream", "latency", "view", "kept")}


def main() -> None:
    """Run the parts, print tables, write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all of them when none is named"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows; no bar is meant for it")
    parser.add_argument("--directory", type=Path, help="where all data goes; default: the temporary one")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    scale = Scale().quick() if arguments.quick else Scale()
    _, failed = run(arguments.parts or list(PARTS), PARTS, scale, arguments.directory, OUT)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
