"""``python -m bench.watch_bench``: patterns, sketches and stored searches, one benchmark after the other.

What it is: the command behind ``make bench-watch``. Each benchmark is a command of its own too
(``python -m bench.watch.patterns``), with options of its own and a list in ``bench/out``.
Invariants: each runs in a process of its own; one that fails, or is not there, is told, and the others still run; the
command then ends with 1.
Not here: what is measured (``bench/watch/``).
Read next: ``watch/patterns.py``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

# By name: the benchmark's options for a short run, for which no bar is meant.
QUICK = {
    "patterns": ("--quick",),
    "sketches": ("--rows", "200000", "--ticks", "5"),
    "searches": ("--searches", "5000", "--rounds", "2"),
}


def command(name: str, *, quick: bool) -> list[str]:
    """What runs a benchmark.

    >>> command("patterns", quick=True)[1:]
    ['-m', 'bench.watch.patterns', '--quick']
    """
    return [sys.executable, "-m", f"bench.watch.{name}", *(QUICK[name] if quick else ())]


def main() -> None:
    """Run some, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(QUICK)}; all of them when none is named"
    )
    parser.add_argument("--quick", action="store_true", help="short runs; no bar is meant for them")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in QUICK]
    if unknown:
        parser.error(f"no benchmark {unknown[0]}; there are {', '.join(QUICK)}")
    failed = []
    for name in given.names or QUICK:
        print(f"bench-watch: {name}", flush=True)
        if subprocess.run(command(name, quick=given.quick), check=False).returncode:
            failed.append(name)
    if failed:
        print(f"bench-watch: not as it should be: {', '.join(failed)}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
