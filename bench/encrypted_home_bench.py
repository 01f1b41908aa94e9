"""What an encrypted volume costs a home: the same work over a home on gocryptfs and over one on the disk below it.

What it is: appends, sealing, ticks on Spark and reads; a table for people and ``bench/out/encrypted_home.json`` for
programs.
Invariants: both homes are on the same disk, in one process with one Spark, and take turns; who begins changes from turn
to turn. Processor time is that of this process and all of its children, the one that encrypts among them. Times by
the clock are medians, those of the processor means, since the kernel counts them in hundredths of a second; ratios are
of the same run.
Not here: backups with a key (``encryption_bench.py``). LUKS encrypts in the kernel, below the page cache: it is not
measured, since it needs a device.
Read next: ``src/headwater/log/catalog/encrypted_volume.py``; ``docs/encryption.md``.

    make bench-encrypted-home ARGS="--rows 200000 --rounds 5"
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import headwater as hw
from bench import report
from bench.parts import show
from bench.processor_time import processor_seconds
from bench.views.scale import Lines
from headwater.testing.gocryptfs_volume import GocryptfsVolume

OUT = Path(__file__).parent / "out" / "encrypted_home.json"
SMALL_APPENDS, ONE_ROWS, SMALL_TICKS, LOOKS = 200, 50, 5, 300
COUNTRIES = 50


class Shop:
    """An app over one home."""

    def __init__(self, home: Path, rows: int) -> None:
        self.app = hw.App("shop", home=home)
        self.rows, self.numbers = rows, itertools.count()
        self.orders = self.app.topic("orders", "id BIGINT, country STRING, note STRING, cents BIGINT")
        self.safe = self.app.topic("safe", "id BIGINT", fsync="always")
        self.app.view("cents", "SELECT country, sum(cents) AS cents, count(*) AS n FROM orders GROUP BY country")
        self.large = self.table(rows)
        self.works: dict[str, tuple[Callable[[], object], int]] = {
            "append of 100 rows": (lambda: self.append(100), SMALL_APPENDS),
            "append of a row, synced": (lambda: self.safe.append([{"id": next(self.numbers)}]), ONE_ROWS),
            f"append of {rows:,} rows": (lambda: self.orders.append(self.large), 1),
            "sealing them": (self.seal, 1),
            "tick over them": (self.app.tick, 1),
            "append and tick of 10 rows": (self.small_tick, SMALL_TICKS),
            "reading the whole topic": (lambda: sum(each.data.num_rows for each in self.orders.read()), 1),
            "a row of the view": (lambda: self.app.get_view("cents").get("c7"), LOOKS),
        }

    def table(self, rows: int) -> pa.Table:
        ids = [next(self.numbers) for _ in range(rows)]
        notes = [f"{number * 2_654_435_761 % 2**32:08x} on the {number % 31}." for number in ids]
        countries = [f"c{number % COUNTRIES}" for number in ids]
        return pa.table({"id": ids, "country": countries, "note": notes, "cents": ids})

    def append(self, rows: int) -> None:
        self.orders.append(self.table(rows))

    def seal(self) -> None:
        self.orders.partition(0).roll()
        self.app.log.maintain()

    def small_tick(self) -> None:
        self.append(10)
        self.app.tick()


def measure(shops: dict[str, Shop], rounds: int, lines: Lines) -> None:
    """Every work over both homes, by turns."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(rounds + 1):
        for name in next(iter(shops.values())).works:
            for kind in sorted(shops, reverse=bool(number % 2)):
                work, times = shops[kind].works[name]
                began, busy = time.perf_counter(), processor_seconds()
                for _ in range(times):
                    work()
                spent = (time.perf_counter() - began) / times, (processor_seconds() - busy) / times
                if number:  # the first round prepares Spark
                    found.setdefault((name, kind), []).append(spent)
    for name in next(iter(shops.values())).works:
        for place, (what, middle) in enumerate((("", statistics.median), (", processor", statistics.fmean))):
            plain, encrypted = (middle([each[place] for each in found[name, kind]]) for kind in shops)
            lines.figure(f"{name}{what}: plain", plain * 1000, "ms")
            lines.figure(f"{name}{what}: gocryptfs", encrypted * 1000, "ms")
            if plain:
                lines.figure(f"{name}{what}: gocryptfs beside plain", encrypted / plain, "x the time")


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="the disk that both are on; default: the temporary folder")
    given, lines = parser.parse_args(), Lines()
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-", dir=given.directory))
    try:
        with GocryptfsVolume(folder / "volume") as volume:
            shops = {"plain": Shop(folder / "plain", given.rows), "gocryptfs": Shop(volume.plain / "home", given.rows)}
            try:
                measure(shops, given.rounds, lines)
            finally:
                for shop in shops.values():
                    shop.app.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show("encrypted home", lines.measurements)
    report.write(lines.measurements, OUT)


if __name__ == "__main__":
    main()
