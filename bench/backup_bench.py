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
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pyarrow as pa

import headwater as hw
from headwater.log.topic import Topic
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_schedule import NICE
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


class Backups:
    """Full backups of a home, one when asked for: in a process of its own, or in a thread of this one."""

    def __init__(self, home: Path, folder: Path, *, inside: bool, rate: int | None) -> None:
        self.arguments = (str(home), str(folder), rate)
        self.inside = inside
        context = multiprocessing.get_context("spawn")
        self.asked, self.busy, self.over = (context.Event() for _ in range(3))
        given = (*self.arguments, self.asked, self.busy, self.over)
        self.worker = (
            threading.Thread(target=back_up_when_asked, args=given)
            if inside
            else context.Process(target=back_up_when_asked, args=given)
        )
        self.worker.start()

    def begin(self) -> None:
        """Begin one, and return when it has begun."""
        self.asked.set()
        self.busy.wait(60)

    def close(self) -> None:
        self.over.set()
        self.asked.set()
        self.worker.join()


def back_up_when_asked(home: str, folder: str, rate: int | None, asked: Event, busy: Event, over: Event) -> None:
    """A full backup whenever ``asked`` is set; ``busy`` tells how long it takes."""
    if multiprocessing.parent_process() is not None:
        os.nice(NICE)  # as the app's own backups
    with hw.Log(home, maintenance_interval=None) as log:
        number = 0
        while True:
            asked.wait()
            asked.clear()
            if over.is_set():
                return
            place = Path(folder) / f"during-{os.getpid()}-{number}"
            busy.set()
            create_backup(log, place, rate=rate)
            busy.clear()
            shutil.rmtree(place)
            number += 1


@dataclass
class Window:
    """Appends one after the other, for some time."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    processor: float = 0.0  # of the appending process

    def run(self, topic: Topic, rows: pa.RecordBatch, going: Callable[[], bool]) -> None:
        """Append as long as ``going``."""
        began, before = time.perf_counter(), time.process_time()
        while going():
            started = time.perf_counter()
            topic.append(rows)
            self.latencies.append(time.perf_counter() - started)
        self.seconds = time.perf_counter() - began
        self.processor = time.process_time() - before

    def figures(self) -> tuple[float, float, float, float]:
        """Appends a second; p50 and p99 in microseconds; processor time an append in microseconds."""
        p50, p99 = np.percentile(self.latencies, [50, 99]) * 1e6
        count = len(self.latencies)
        return count / self.seconds, float(p50), float(p99), self.processor / count * 1e6


def appends(log: hw.Log, rounds: int, fsync: str, backups: Backups, title: str) -> None:
    """Appends of 1 000 rows during one backup, and for as long without one, by turns; ratios of neighbours."""
    rows = batch_of(np.random.default_rng(2)).slice(0, 1000)
    pairs = []
    for number in range(rounds + 1):
        during, without = Window(), Window()
        schema = "id BIGINT, a DOUBLE, b DOUBLE, c DOUBLE"
        topic = log.topic("appended", schema, fsync=fsync, segment_bytes_max=64 << 30)  # begun anew, never sealed
        backups.begin()
        during.run(topic, rows, backups.busy.is_set)
        end = time.perf_counter() + during.seconds
        without.run(topic, rows, lambda end=end: time.perf_counter() < end)  # type: ignore[misc]
        log.delete_topic("appended")  # else each backup has more to copy than the one before
        if number:  # the first one warms up
            pairs.append((without.figures(), during.figures()))
    plain, ratios = [], []
    for place in range(4):
        plain.append(statistics.median(pair[0][place] for pair in pairs))
        ratios.append(statistics.median(pair[1][place] / pair[0][place] for pair in pairs))
    print(
        f"{title:38} {plain[0]:8,.0f} {ratios[0]:7.2f} {plain[1]:9,.0f} {ratios[1]:7.2f} {plain[2]:9,.0f} "
        f"{ratios[2]:7.2f} {plain[3]:9,.0f} {ratios[3]:7.2f}"
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, help="also backups that copy no more than so many bytes a second")
    parser.add_argument("--parts", default="copies,appends")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    try:
        log = made_home(folder / "home", given.megabytes)
        if "copies" in given.parts:
            copies(log, folder, given.rounds)
        if "appends" in given.parts:
            print(
                f"\nappends of 1 000 rows, {3 * given.rounds} full backups, one at a time, medians; × during a backup\n"
            )
            print(
                f"{'':38} {'a second':>8} {'×':>7} {'p50 µs':>9} {'×':>7} {'p99 µs':>9} {'×':>7} {'cpu µs':>9} {'×':>7}"
            )
            rates = [None, given.rate] if given.rate else [None]
            for inside, rate in [(False, None), *((False, each) for each in rates[1:]), (True, None)]:
                backups = Backups(log.home, folder, inside=inside, rate=rate)
                where = f"{'a thread' if inside else 'a process'}{f', {rate / 1e6:.0f} MB/s' if rate else ''}"
                for fsync in ("interval", "always"):
                    appends(log, 3 * given.rounds, fsync, backups, f'fsync="{fsync}", backup in {where}')
                backups.close()
        log.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
