"""``python -m bench.server_bench``: the server under load, over loopback.

What it is: appends, point reads, queries, hundreds of subscribers and slow ones; a table for people and
``bench/out/server.json`` for programs.
Invariants: one real server process, one bounded client; both on the same machine. No bars: the figures are for
information, since client and server share the cores.
Not here: what is measured (``bench/server/parts.py``).
Read next: ``bench/server/parts.py``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.parts import run
from bench.server.parts import Scale

OUT = Path(__file__).parent / "out" / "server.json"
PARTS = {name: ("bench.server.parts", name) for name in ("requests", "subscribers", "slow")}


def main() -> None:
    """Run the parts, print tables, write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all of them when none is named"
    )
    parser.add_argument("--quick", action="store_true", help="a fifth of the time")
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
