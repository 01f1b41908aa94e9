"""What a backup costs: beside cp and rsync, for the second time, and for those who append meanwhile.

What it is: a home of sealed segments is backed up, verified and restored, beside copies of the same directory; then
rows are appended to it while another process backs it up, and while none does.
Invariants: all take turns, round by round, so that what else the machine does falls on all of them; figures are
medians. Copies end on the disk (``sync``), as backups do.
Not here: whether a backup is right (``tests/unit/upkeep/backup/``).
Read next: ``src/headwater/upkeep/backup/backup_writer.py``; ``docs/backup.md``.

    make bench-backup ARGS="--megabytes 400"
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pyarrow as pa

import headwater as hw
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home

BATCH_ROWS = 50_000


def made_home(home: Path, megabytes: int) -> hw.Log:
    """A home with so many MB of sealed segments, which do not compress, and one active segment."""
    log = hw.Log(home, maintenance_interval=None)
    topic = log.topic("events", "id BIGINT, a DOUBLE, b DOUBLE, c DOUBLE", segment_bytes_max=32 << 20)
    chance = np.random.default_rng(1)
    while sum(path.stat().st_size for path in home.rglob("*.parquet")) < megabytes << 20:
        for _ in range(20):
            topic.append(batch_of(chance))
        log.maintain()
    return log


def batch_of(chance: np.random.Generator) -> pa.RecordBatch:
    columns = [np.arange(BATCH_ROWS), *(chance.random(BATCH_ROWS) for _ in range(3))]
    return pa.RecordBatch.from_arrays([pa.array(each) for each in columns], names=["id", "a", "b", "c"])


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor with those of children."""
    before, began = os.times(), time.perf_counter()
    work()
    after = os.times()
    return time.perf_counter() - began, sum(after[:4]) - sum(before[:4])


def copies(log: hw.Log, folder: Path, rounds: int) -> None:
    """Full copies by turns."""
    size = sum(path.stat().st_size for path in log.home.rglob("*") if path.is_file()) / (1 << 20)
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds):
        place = folder / f"backups-{number}"
        works: dict[str, Callable[[], object]] = {
            "cp -a, sync": lambda: _copied(["cp", "-a", str(log.home), str(folder / "copy")], folder / "copy"),
            "backup": lambda place=place: create_backup(log, place),  # type: ignore[misc]
            "backup again": lambda place=place: create_backup(log, place),  # type: ignore[misc]
            "backup verify": lambda place=place: BackupRepository.at(place).verify(),  # type: ignore[misc]
            "restore": lambda place=place: restore_home(place, folder / "restored"),  # type: ignore[misc]
        }
        if shutil.which("rsync"):
            words = ["rsync", "-a", f"{log.home}/", f"{folder / 'copy'}/"]
            works["rsync -a, sync"] = lambda words=words: _copied(words, folder / "copy")  # type: ignore[misc]
        for name, work in works.items():
            found.setdefault(name, []).append(timed(work))
            for left in ("copy", "restored"):
                shutil.rmtree(folder / left, ignore_errors=True)
        shutil.rmtree(place)
    print(f"\n{size:.0f} MB, {rounds} rounds, medians\n")
    print(f"{'':16} {'MB/s':>8} {'seconds':>8} {'processor s':>12}")
    for name, each in found.items():
        seconds, processor = (statistics.median(values) for values in zip(*each, strict=True))
        print(f"{name:16} {size / seconds:8.0f} {seconds:8.2f} {processor:12.2f}")


def _copied(words: list[str], target: Path) -> None:
    subprocess.run(words, check=True)
    for path in target.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def back_up_again_and_again(home: str, folder: str, going: Event, over: Event, busy: Event) -> None:
    """In a process of its own: full backups as long as ``going`` is set."""
    with hw.Log(home, maintenance_interval=None) as log:
        number = 0
        while not over.is_set():
            if not going.wait(0.02):
                busy.clear()
                continue
            busy.set()
            create_backup(log, Path(folder) / f"during-{number}")
            shutil.rmtree(Path(folder) / f"during-{number}")
            number += 1


def appends(log: hw.Log, folder: Path, rounds: int, seconds: float, fsync: str) -> None:
    """Appends of 1 000 rows with and without a backup, by turns."""
    context = multiprocessing.get_context("spawn")
    going, over, busy = context.Event(), context.Event(), context.Event()
    child = context.Process(target=back_up_again_and_again, args=(str(log.home), str(folder), going, over, busy))
    child.start()
    topic = log.topic(f"appended_{fsync}", "id BIGINT, a DOUBLE, b DOUBLE, c DOUBLE", fsync=fsync)
    rows = batch_of(np.random.default_rng(2)).slice(0, 1000)
    rates: dict[bool, list[float]] = {False: [], True: []}
    processor: dict[bool, list[float]] = {False: [], True: []}
    try:
        for number in range(2 * rounds):
            during = bool(number % 2)
            if during:
                going.set()
                busy.wait(60)
            else:
                going.clear()
                while busy.is_set():
                    time.sleep(0.01)
            done, began, before = 0, time.perf_counter(), time.process_time()
            while time.perf_counter() - began < seconds:
                topic.append(rows)
                done += 1
            rates[during].append(done / (time.perf_counter() - began))
            processor[during].append((time.process_time() - before) / done)
    finally:
        over.set()
        child.join()
    without, within = (statistics.median(rates[each]) for each in (False, True))
    cpu_without, cpu_within = (statistics.median(processor[each]) * 1e6 for each in (False, True))
    print(
        f'fsync="{fsync}": {without:,.0f} appends/s, during backups {within:,.0f}: {1 - within / without:+.1%} slower; '
        f"processor {cpu_without:.0f} µs an append, during {cpu_within:.0f}: {cpu_within / cpu_without - 1:+.1%}"
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of one window of appends")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    try:
        log = made_home(folder / "home", given.megabytes)
        copies(log, folder, given.rounds)
        print(f"\nappends of 1 000 rows, {2 * given.rounds} windows, by turns, full backups in another process\n")
        for fsync in ("interval", "always"):
            appends(log, folder, 2 * given.rounds, given.seconds, fsync)
        log.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
