"""``python -m bench.server_bench``: the server under load, over loopback.

What it is: appends, point reads, queries, commands, hundreds of subscribers, slow ones, a browser that looks; a table
for people and ``bench/out/server.json`` for programs.
Invariants: one real server process, one bounded client; both on the same machine. One bar, that of the browser: the
other figures are for information, since client and server share the cores.
Not here: what is measured (``bench/server/parts.py``).
Read next: ``bench/server/parts.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.parts import parser_of, run
from bench.server.parts import Scale

OUT = Path(__file__).parent / "out" / "server.json"
PARTS = {
    **{name: ("bench.server.parts", name) for name in ("requests", "subscribers", "slow")},
    "commands": ("bench.server.commands", "commands"),
    "screen": ("bench.server.screen", "screen"),
}


def main() -> None:
    """Run the parts, print tables, write the list."""
    arguments = parser_of(__doc__, PARTS, "a fifth of the time").parse_args()
    scale = Scale().quick() if arguments.quick else Scale()
    _, failed = run(arguments.parts or list(PARTS), PARTS, scale, arguments.directory, OUT)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
