"""What encryption costs a backup: the same home backed up, verified and restored with a key and without.

What it is: a home of sealed segments that do not compress; a table for people and ``bench/out/encryption.json`` for
programs.
Invariants: both take turns, and who begins changes from round to round; figures are medians, ratios are of the same
run. The last lines are the cipher alone, in memory.
Not here: a backup beside ``cp`` and ``rsync`` (``backup_bench.py``).
Read next: ``src/headwater/upkeep/backup/encrypted_store.py``; ``docs/encryption.md``.

    make bench-encryption ARGS="--megabytes 200"
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import headwater as hw
from bench import report
from bench.backup_bench import made_home, timed
from bench.parts import show
from bench.views.scale import Lines
from headwater.encryption.data_key import DataKey
from headwater.encryption.encrypted_bytes import decrypted, encrypted
from headwater.encryption.encryption_key import KeySource, new_key_file
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home

OUT = Path(__file__).parent / "out" / "encryption.json"
MIB = 1 << 20
IN_MEMORY_MIB = 64
WORKS = ("backup", "backup again", "backup verify", "restore")


def measure(log: hw.Log, folder: Path, key: KeySource, rounds: int, lines: Lines) -> None:
    """All works with a key and without, by turns."""
    size = sum(path.stat().st_size for path in log.home.rglob("*") if path.is_file()) / MIB
    found: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for number in range(rounds):
        for with_key in (bool(number % 2), not number % 2):
            given, place = (key if with_key else None), folder / f"backups-{number}-{with_key}"
            works: tuple[Callable[[], object], ...] = (
                lambda given=given, place=place: create_backup(log, place, key=given),  # type: ignore[misc]
                lambda given=given, place=place: create_backup(log, place, key=given),  # type: ignore[misc]
                lambda given=given, place=place: BackupRepository.at(place, given).verify(),  # type: ignore[misc]
                lambda given=given, place=place: restore_home(place, folder / "again", key=given),  # type: ignore[misc]
            )
            for name, work in zip(WORKS, works, strict=True):
                found.setdefault((name, with_key), []).append(timed(work))
            for left in (place, folder / "again"):
                shutil.rmtree(left)
    for name in WORKS:
        for place, what in enumerate(("", ", processor")):
            plain, encrypted_ = (statistics.median(each[place] for each in found[name, key]) for key in (False, True))
            for word, seconds in (("without a key", plain), ("with a key", encrypted_)):
                lines.figure(f"{name}{what}: {word}", *((seconds, "s") if place else (size / seconds, "MiB/s")))
            lines.figure(f"{name}{what}: with beside without", encrypted_ / plain, "x the time")


def measure_cipher(rounds: int, lines: Lines) -> None:
    """The cipher in memory, on one thread."""
    key, data = DataKey.new(), os.urandom(IN_MEMORY_MIB * MIB)
    made = list(encrypted([data], key, "a"))
    for name, work in (
        ("encrypting in memory", lambda: list(encrypted([data], key, "a"))),
        ("decrypting in memory", lambda: list(decrypted(made, key, "a"))),
    ):
        seconds = statistics.median(timed(work)[1] for _ in range(2 * rounds))
        lines.figure(f"{name}, a processor", IN_MEMORY_MIB / seconds, "MiB/s")


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    given, lines = parser.parse_args(), Lines()
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    try:
        new_key_file(folder / "bench.key")
        with made_home(folder / "home", given.megabytes) as log:
            measure(log, folder, KeySource(file=folder / "bench.key"), given.rounds, lines)
        measure_cipher(given.rounds, lines)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show("encryption", lines.measurements)
    report.write(lines.measurements, OUT)


if __name__ == "__main__":
    main()
