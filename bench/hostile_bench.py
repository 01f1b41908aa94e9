"""``python -m bench.hostile_bench``: a server under a key that may only query, and means harm.

What it is: the siege of ``bench/server/hostile.py`` for ten minutes, or ``--seconds``; a table for people and
``bench/out/hostile.json`` for programs.
Invariants: every bar is about the honest: that ticks go on, the server is ready and memory bounded, whatever is asked.
Not here: the queries and what is looked at (``bench/server/hostile.py``).
Read next: ``bench/server/hostile.py``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench import report
from bench.parts import show
from bench.server.hostile import Siege, hostile

OUT = Path(__file__).parent / "out" / "hostile.json"


def main() -> None:
    """Run it, print the table, write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long; default: ten minutes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-hostile-") as folder:
        lines = hostile(Siege(seconds=arguments.seconds), Path(folder))
    show("hostile", lines.measurements)
    report.write(lines.measurements, OUT)
    sys.exit(0 if all(line.holds is not False for line in lines.measurements) else 1)


if __name__ == "__main__":
    main()
