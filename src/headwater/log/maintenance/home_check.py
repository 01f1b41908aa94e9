"""Home check: verification of everything that was written.

What it is: ``check`` verifies every segment's bytes, that segments follow each other without gaps from each partition's
start to its end, the catalog, and that groups and producers fit the log; ``check_home`` does so for a directory that
may be too damaged to open.
Invariants: it changes no data and may run while other processes append, seal, compact and retain: a segment that
changed meanwhile is checked again, later appends are left out. Every finding is a ``Problem``, never an exception;
obstacles (no descriptors, a held catalog) are raised. A damaged segment is also an alert.
Not here: the bytes of one segment (``segment_check.py``), repair (``log/storage/recovery.py`` repairs tails; the rest
comes from a backup). Read next: ``segment_check.py``.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import CatalogBusy, HeadwaterError, TooManyFiles, UnknownTopic
from headwater.log.catalog.registry import TopicRow
from headwater.log.maintenance.alerts import note_corruption, publish, resolve_corruption
from headwater.log.maintenance.segment_check import (
    MEND,
    Problem,
    SegmentFinding,
    Severity,
    has_frames,
    inspect_arrow,
    inspect_bare_parquet,
    inspect_sealed,
)
from headwater.log.proof.checkpoints import Checkpoints
from headwater.log.storage.active_segment import segment_name
from headwater.log.storage.files import translated
from headwater.log.storage.locks import FileLock
from headwater.log.storage.partition_layout import (
    LOOKS_MAX,
    PartitionLayout,
    layout_of,
    maintenance_lock,
    partition_directory,
)

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.log.topic import Topic

CATALOG_HINT = "Stop all processes on this home and restore catalog.sqlite from a backup."
CANNOT_LOOK = (TooManyFiles, CatalogBusy)
STRAY_HINT = "No data is in it: sealing removes it, or you may."


@dataclass(frozen=True)
class CheckReport:
    """The result of ``Log.check``.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> _ = log.topic("clicks", "url STRING").append([{"url": "/"}])
    >>> report = log.check()
    >>> report.ok, report.rows, report.problems
    (True, 1, ())
    """

    problems: tuple[Problem, ...]
    topics: int
    partitions: int
    segments: int
    rows: int
    bytes: int
    seconds: float
    state_files: int = 0  # below views/, which ``headwater check`` looks at too

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings cost only space."""
        return not any(problem.severity == "error" for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "ok": self.ok, "problems": [problem.to_dict() for problem in self.problems]}

    def __str__(self) -> str:
        head = (
            f"{self.topics} topics, {self.partitions} partitions, {self.segments} segments, {self.rows} rows, "
            f"{self.bytes} bytes in {self.seconds:.2f} s"
        )
        return "\n".join([f"{'All is well' if self.ok else 'Damaged'}: {head}", *map(str, self.problems)])


def check(log: Log, *, progress: Callable[[int, int], None] | None = None) -> CheckReport:
    """Verify an open home. ``progress`` is called with the bytes done and the total."""
    with translated(f"check {log.home}"):
        return _HomeCheck(log.home, progress).run(log)


def check_home(
    home: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
    also: Callable[[Log, CheckReport], CheckReport] = lambda _, report: report,
) -> CheckReport:
    """Verify a home that may be too damaged to open. ``also`` adds to the report, if it can be opened.

    >>> import headwater as hw, tempfile
    >>> home = tempfile.mkdtemp()
    >>> hw.Log(home).close()
    >>> check_home(home).ok
    True
    """
    from headwater.log.home import Log

    path = Path(home).expanduser().absolute()
    try:
        with translated(f"check {path}"):
            log = Log(path, create=False, maintenance_interval=None)
    except CANNOT_LOOK:
        raise
    except (HeadwaterError, sqlite3.Error) as error:
        return _HomeCheck(path, progress).run_without_catalog(error)
    with log:
        return also(log, check(log, progress=progress))


class _SegmentMoved(Exception):
    """The layout changed meanwhile: check again."""


class _HomeCheck:
    def __init__(self, home: Path, progress: Callable[[int, int], None] | None) -> None:
        self.home = home
        self.began = time.monotonic()
        self.problems: list[Problem] = []
        self.topics = self.partitions = self.segments = self.rows = self.bytes = 0
        self._on_progress = progress
        self._done = self._total = 0

    # The whole

    def run(self, log: Log) -> CheckReport:
        self._total = sum(path.stat().st_size for path in _files(self.home) if path.exists())
        with self._guard("catalog.sqlite", CATALOG_HINT):
            for problem in log.catalog.integrity_problems():
                self._add("error", "catalog.sqlite", problem, CATALOG_HINT)
        directories = {path.name for path in (self.home / "topics").glob("*")}
        names: list[str] = []
        with self._guard("catalog.sqlite", CATALOG_HINT):
            names = log.registry.names()
        known = set()
        for name in names:
            with self._guard(f'topic "{name}"', CATALOG_HINT):
                try:
                    topic = log.get_topic(name)
                except UnknownTopic:
                    continue  # deleted meanwhile
                known.add(topic.directory.name)
                self.topics += 1
                self._topic(topic)
        for name in sorted(directories - known) if self.topics == len(names) else []:
            if (self.home / "topics" / name).exists():
                self._add("warning", f"topics/{name}", "no topic in the catalog has this directory", STRAY_HINT)
        return self.report()

    def run_without_catalog(self, error: Exception) -> CheckReport:
        """Report that the catalog cannot be opened, and check the segments without it."""
        message = error.message if isinstance(error, HeadwaterError) else str(error)
        hint = (error.hint if isinstance(error, HeadwaterError) else None) or CATALOG_HINT
        self._add("error", str(self.home), message, hint)
        self._total = sum(path.stat().st_size for path in _files(self.home))
        for path in _files(self.home):
            with self._guard(str(path), CATALOG_HINT):
                if path.suffix == ".arrow":
                    self._count(inspect_arrow(path.parent, int(path.stem), progress=self._progress))
                elif path.suffix == ".parquet":
                    self._count(inspect_bare_parquet(path))
        return self.report()

    def report(self) -> CheckReport:
        return CheckReport(
            tuple(self.problems),
            self.topics,
            self.partitions,
            self.segments,
            self.rows,
            self.bytes,
            time.monotonic() - self.began,
        )

    # One topic

    def _topic(self, topic: Topic) -> None:
        where = f'topic "{topic.name}"'
        with self._guard(where):
            topic.open_partitions()  # as any reader does: the tail is recovered first
        if sorted(topic.row().schemas) != list(range(1, topic.schema_version + 1)):
            self._add("error", where, "a schema version is missing in the catalog", CATALOG_HINT)
        damaged: set[tuple[int, str]] = set()
        producers: set[int] = set()
        seen = 0
        for number in range(topic.settings.partitions):
            self.partitions += 1
            with self._guard(f"{topic.name}[{number}]"):
                for finding in self._partition(topic, number):
                    producers |= finding.producers
                    if finding.problems:
                        damaged.add((number, finding.where))
                seen += 1
            with self._guard(f"{topic.name}[{number}]"):
                self._strays(topic, number)
        with self._guard(where, CATALOG_HINT):
            self._catalog_rows(topic, producers)
        with self._guard(where, CATALOG_HINT):
            self._groups(topic)
        self._alert(topic, damaged, whole=seen == topic.settings.partitions)

    def _partition(self, topic: Topic, number: int) -> list[SegmentFinding]:
        verified: dict[str, SegmentFinding] = {}
        for look in range(LOOKS_MAX):
            layout = layout_of(topic, number)
            problems: list[Problem] = []
            try:
                findings = self._walk(topic, number, layout, verified, problems)
            except _SegmentMoved:
                continue
            if problems and look == 0:
                continue  # a second look, before a gap is reported
            break
        else:
            self._add("warning", f"{topic.name}[{number}]", "it changed too fast to be checked", "Run the check again.")
            return list(verified.values())
        self.problems += problems
        for finding in findings:
            self._count(finding)
        return findings

    def _walk(
        self,
        topic: Topic,
        number: int,
        layout: PartitionLayout,
        verified: dict[str, SegmentFinding],
        problems: list[Problem],
    ) -> list[SegmentFinding]:
        """Check each segment, and that it begins where the one before ended."""
        where = f"{topic.name}[{number}]"
        directory = partition_directory(topic, number)
        findings: list[SegmentFinding] = []
        position = layout.start_offset

        def follow(base: int) -> None:
            if base != position:
                kind = "are missing" if base > position else "are there twice"
                low, high = sorted((base, position))
                message = f"offsets {low} to {high - 1} {kind}"
                problems.append(Problem("error", where, message, "Restore the missing file from a backup."))

        for segment in layout.sealed:
            follow(segment.base_offset)
            position = segment.next_offset
            finding = verified.get(segment.path.name)
            if finding is None:
                row = topic.row_for_reading(segment.schema_version)
                finding = self._sealed(topic, number, segment, row)
                verified[segment.path.name] = finding
            findings.append(finding)
        for base in layout.arrow:
            follow(base)
            finding = self._arrow(topic, number, directory, base, active=base == layout.arrow[-1])
            position = finding.next_offset
            if finding.next_base is None and base != layout.arrow[-1] and not finding.problems:
                finding.error("it is not the last segment, but its index has no end")
            findings.append(finding)
            if finding.problems:
                position = next((b for b in layout.arrow if b > base), position)
        return findings

    def _sealed(self, topic: Topic, number: int, segment: Any, row: TopicRow) -> SegmentFinding:
        finding = SegmentFinding(str(segment.path), segment.next_offset)
        try:
            finding = inspect_sealed(segment, row, progress=self._progress)
        except FileNotFoundError:
            finding.error("the file is missing", "Restore it from a backup or the archive.")
        if finding.problems:
            registry = topic.log.registry
            now = registry.sealed_at(topic.id, number, segment.path.parent, segment.base_offset)
            if now != segment:
                raise _SegmentMoved
        return finding

    def _arrow(self, topic: Topic, number: int, directory: Path, base: int, *, active: bool) -> SegmentFinding:
        try:
            finding = inspect_arrow(directory, base, progress=self._progress)
            if finding.problems and active and not topic.log.read_only:
                # A write or a recovery may be under way; the lock excludes both.
                with FileLock(directory / "lock"):
                    finding = inspect_arrow(directory, base, progress=self._progress)
            return finding
        except FileNotFoundError:
            if base not in layout_of(topic, number).arrow:
                raise _SegmentMoved from None
            finding = SegmentFinding(str(directory / f"{segment_name(base)}.index"), base)
            if not active or has_frames(directory, base):  # without any, the pair is being created
                finding.error("the file is missing", MEND)
            return finding

    def _strays(self, topic: Topic, number: int) -> None:
        """Report unused files. Only while no sealing or compaction runs: their new files are not listed yet."""
        directory = partition_directory(topic, number)
        if topic.log.read_only or not directory.exists():
            return
        with maintenance_lock(directory) as got:
            if not got:
                return
            layout = layout_of(topic, number)
            listed = {segment.path.name for segment in layout.sealed} | self._commitments(topic, number)
            for path in sorted(directory.iterdir()):
                sound = path.name in listed or path.name in ("lock", "seal.lock")
                if path.suffix in (".arrow", ".index"):
                    sound = path.with_suffix(".arrow").exists() and int(path.stem) >= layout.sealed_end
                if not sound and path.exists():
                    self._add("warning", str(path), "no catalog row and no segment needs this file", STRAY_HINT)

    def _commitments(self, topic: Topic, number: int) -> set[str]:
        """Compare the files of checkpoints with their checksums; returns their names."""
        for each in Checkpoints.of(topic, number).all():
            if each.file is not None:
                with self._guard(str(each.file.path)):
                    for _ in each.read():
                        break  # the checksum is of the whole file
        return Checkpoints.of(topic, number).names()

    # The catalog, groups and producers

    def _catalog_rows(self, topic: Topic, producers: set[int]) -> None:
        read, count = topic.log.catalog.read, topic.settings.partitions
        where = f'topic "{topic.name}"'
        rows = read("SELECT partition FROM partitions WHERE topic_id = ? ORDER BY partition", (topic.id,))
        if [row["partition"] for row in rows] != list(range(count)):
            self._add("error", where, f"the catalog does not list its {count} partitions", CATALOG_HINT)
        for table in ("segments", "producer_sequences JOIN producers ON producers.id = producer_id"):
            rows = read(f"SELECT count(*) FROM {table} WHERE topic_id = ? AND partition >= ?", (topic.id, count))
            if rows[0][0]:
                self._add("error", where, f"{rows[0][0]} rows of {table.split()[0]} name no partition", CATALOG_HINT)
        known = {row["id"] for row in read("SELECT id FROM producers WHERE topic_id = ? AND epoch > 0", (topic.id,))}
        for producer in sorted(producers - known):
            self._add("error", where, f"rows of producer {producer}, which is not in the catalog", CATALOG_HINT)

    def _groups(self, topic: Topic) -> None:
        read = topic.log.catalog.read
        rows = read(
            "SELECT groups.name, groups.kind, positions.partition, positions.offset, work_partitions.next,"
            " (SELECT count(*) FROM work_messages AS m WHERE m.group_id = groups.id"
            "  AND m.partition = positions.partition AND (m.offset < positions.offset OR m.offset >= next)) AS astray"
            " FROM groups LEFT JOIN positions ON positions.group_id = groups.id LEFT JOIN work_partitions"
            " ON work_partitions.group_id = groups.id AND work_partitions.partition = positions.partition"
            " WHERE groups.topic_id = ? ORDER BY groups.name, positions.partition",
            (topic.id,),
        )
        # The bounds are read after the positions, so a group at the end cannot seem to be beyond it.
        ends, starts = topic.end_offsets(), topic.start_offsets()
        seen: dict[str, list[int | None]] = {}
        for row in rows:
            seen.setdefault(row["name"], []).append(row["partition"])
            self._position(topic, row, starts, ends)
        for name, partitions in seen.items():
            if partitions != list(range(topic.settings.partitions)):
                where = f'group "{name}" of topic "{topic.name}"'
                self._add("error", where, f"it has positions for {partitions} only", CATALOG_HINT)

    def _position(self, topic: Topic, row: sqlite3.Row, starts: dict[int, int], ends: dict[int, int]) -> None:
        number, offset = row["partition"], row["offset"]
        if number not in ends:
            return
        where = f'group "{row["name"]}" of {topic.name}[{number}]'
        reset = f"headwater group reset {row['name']} --topic {topic.name} --to earliest"
        if offset > ends[number] or (row["next"] or 0) > ends[number]:
            self._add("error", where, f"its position {offset} is after the end, {ends[number]}", f"Reset it: {reset}")
        elif offset < starts[number]:
            message = f"its position {offset} is before the start, {starts[number]}: retention has overtaken it"
            self._add("warning", where, message, f"Reset it: {reset}")
        if row["kind"] == "work" and row["next"] is not None and (row["astray"] or row["next"] < offset):
            self._add("error", where, "its leases do not fit its position", f"Reset it: {reset}")

    # Reporting

    def _alert(self, topic: Topic, damaged: set[tuple[int, str]], *, whole: bool) -> None:
        if topic.log.read_only:
            return
        with self._guard(f'alerts of topic "{topic.name}"'):
            for number, file in sorted(damaged):
                message = f'a segment of topic "{topic.name}" partition {number} is damaged: {file}'
                note_corruption(topic, number, file, message)
            if whole:
                resolve_corruption(topic, damaged)
            publish(topic.log)

    def _count(self, finding: SegmentFinding) -> None:
        self.segments += 1
        self.rows += finding.rows
        self.bytes += finding.bytes
        self.problems += finding.problems

    def _add(self, severity: Severity, where: str, message: str, hint: str) -> None:
        self.problems.append(Problem(severity, where, message, hint))

    def _progress(self, fresh: int) -> None:
        self._done = min(self._done + fresh, self._total)
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)

    @contextmanager
    def _guard(self, where: str, hint: str = "") -> Iterator[None]:
        """Record any exception of a step as a problem, and go on."""
        try:
            with translated(where):
                yield
        except CANNOT_LOOK:
            raise
        except HeadwaterError as error:
            self._add("error", where, error.message, error.hint or hint)
        except (OSError, ValueError, KeyError, TypeError, AssertionError, sqlite3.Error, pa.ArrowException) as error:
            self._add("error", where, f"{type(error).__name__}: {error}", hint)


def _files(home: Path) -> list[Path]:
    """Every segment file of a home."""
    return sorted(path for end in ("arrow", "parquet") for path in (home / "topics").glob(f"*/*/*.{end}"))
