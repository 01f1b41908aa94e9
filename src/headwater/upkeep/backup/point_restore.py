"""Point restore: a home as it was at a point in time, or when it had a token.

What it is: ``PointRestore`` takes the first backup that reaches to the point, and cuts its log off there.
Invariants: the log that is left is a cut (``point_cut.py``). What the catalog says of rows beyond it is taken back:
positions of groups, request ids. What cannot be told for that moment is forgotten, so that rows may come twice and none
is missing: sequences of producers in partitions whose sealed rows were cut, positions in foreign sources (those of an
older backup are taken, if there is one), and captures read their tables again. Views go on from the newest state that
some backup has of a tick up to the point; without one they are computed from the log.
Not here: the newest moment of a backup (``home_restore.py``). Read next: ``point_cut.py``, ``home_restore.py``.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.clock import Clock, format_us
from headwater.encryption.encryption_key import KeySource
from headwater.errors import NotBackedUp
from headwater.log.catalog.catalog import Catalog
from headwater.log.catalog.registry import Registry
from headwater.log.groups.groups import clamp_positions
from headwater.log.proof.checkpoints import TABLES_PROOF, Checkpoints
from headwater.log.proof.commitment_file import SUFFIX
from headwater.log.storage.files import Files
from headwater.log.storage.framing import stored_schema
from headwater.log.storage.sealed_segment import SealedSegment, write_sealed
from headwater.log.token import Token
from headwater.upkeep.backup.backup_cut import CATALOG
from headwater.upkeep.backup.backup_manifest import BackupManifest
from headwater.upkeep.backup.backup_repository import BackupRepository, Progress
from headwater.upkeep.backup.home_restore import (
    MANIFEST_TABLES,
    PART,
    HomeRestore,
    RestoreReport,
    forget_app,
    frames_of,
    keep_one_tick,
)
from headwater.upkeep.backup.point_cut import (
    BackedPartition,
    Ends,
    covers,
    cut_at_time,
    cut_marks,
    cut_of_token,
    ends_of,
    partitions_of,
)

OLDER = "older.sqlite"  # the catalog of an older backup, while a point is restored


def restore_at(
    source: str | os.PathLike[str],
    home: str | os.PathLike[str],
    *,
    at_us: int | None = None,
    token: Token | None = None,
    key: KeySource | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
) -> RestoreReport:
    """Make a home as it was at a moment, or as soon as it had all rows of a token."""
    repository = BackupRepository.at(source, key)
    manifests = repository.manifests()
    fitting = [
        each
        for each in manifests
        if (at_us is not None and each.cut_us >= at_us) or (token is not None and each.token.covers(token))
    ]
    if not fitting:
        asked = f"to {format_us(at_us)}" if at_us is not None else f"to the token {token}"
        newest = f"The newest one is of {format_us(manifests[-1].cut_us)}." if manifests else "There is none."
        raise NotBackedUp(f"no backup at {repository.shown} reaches {asked}", detail=newest)
    chosen = min(fitting, key=lambda each: each.cut_us)
    older = [each for each in manifests if each.cut_us < chosen.cut_us]
    restore = PointRestore(repository, chosen, Path(home), progress, clock or Clock(), files or Files())
    return restore.run_to(at_us, token, older)


class PointRestore(HomeRestore):
    """One restore to a point before the moment of a backup."""

    def run_to(self, at_us: int | None, token: Token | None, older: list[BackupManifest]) -> RestoreReport:
        """Restore; ``older`` are the backups before the chosen one, oldest first."""
        began = time.monotonic()
        self.begin(
            {
                "backup": self.manifest.id,
                **self.manifest.claim,
                "at_us": at_us,
                "token": None if token is None else str(token),
            }
        )
        self._files = {str(self.home / file.path): file for file in self.manifest.files}
        self.fetch([file for file in self.manifest.files if file.path.endswith((".sqlite", ".arrow", SUFFIX, "moved"))])
        catalog = self.home / (CATALOG + PART)
        with closing(sqlite3.connect(catalog)) as db:
            db.row_factory = sqlite3.Row
            partitions = partitions_of(db, self.home, lambda path: frames_of(path)[0])
        last = self.manifest.cut_number
        if at_us is not None:
            number = cut_at_time(partitions, at_us, last, self._fetch_path)
        else:
            assert token is not None
            number = cut_of_token(partitions, token, last)
        ends = ends_of(partitions, number, self.manifest.id)
        rows, newest_us = self._cut(catalog, partitions, ends)
        apps = self._take_views(catalog, ends, older)
        for path in sorted((self.home / "topics").glob("*/*/*.arrow")):
            self.index(path)
        self.roll_indexes()
        whole = ends == {name: dict(of) for name, of in self.manifest.token.frontier.items()}
        restored = Token(ends)
        identity = self.finish(catalog, restored, last, read_again=not whole)
        moment = self.manifest.cut_us if whole else at_us if at_us is not None else newest_us
        fetched, kept = self.fetched_bytes, self.kept_bytes
        seconds = time.monotonic() - began
        return RestoreReport(
            self.home,
            identity,
            self.manifest.id,
            restored,
            moment,
            rows - self.erased_rows,
            fetched,
            kept,
            apps,
            seconds,
        )

    def _fetch_path(self, path: Path) -> None:
        self.fetch([self._files[str(path)]])

    # The log

    def _cut(self, catalog: Path, partitions: list[BackedPartition], ends: Ends) -> tuple[int, int]:
        """Cut every partition off; returns how many rows are left, and the time of the newest."""
        rows, newest_us = 0, 0
        with closing(Catalog(catalog, tables=(TABLES_PROOF,))) as opened:
            registry = Registry(opened)
            for each in partitions:
                end = ends[each.topic][each.number]
                for segment, marks in each.sealed:
                    kept = self._cut_sealed(opened, registry, each, segment, marks, end)
                    if kept is not None:
                        rows += kept.rows
                        newest_us = max(newest_us, kept.appended_max) if kept.rows else newest_us
                for path in sorted(each.directory.glob("*.arrow")):
                    self._cut_arrow(path, end)
                left = [frame for frame in each.frames if frame.base_offset < end]
                rows += sum(frame.rows for frame in left)
                newest_us = max([newest_us, *(frame.appended_us for frame in left)])
                with opened.write() as db:
                    clamp_positions(db, each.topic_id, each.number, end)
                    Checkpoints(opened, each.topic_id, each.number).cut(db, end)
                    if end < each.sealed_end:
                        db.execute(
                            "DELETE FROM producer_sequences WHERE partition = ? AND producer_id IN"
                            " (SELECT id FROM producers WHERE topic_id = ?)",
                            (each.number, each.topic_id),
                        )
            if ends != self.manifest.token.frontier:
                self._forget_requests(opened, ends, newest_us)
        return rows, newest_us

    def _cut_sealed(
        self, catalog: Catalog, registry: Registry, of: BackedPartition, segment: SealedSegment, marks: Any, end: int
    ) -> SealedSegment | None:
        if segment.next_offset <= end:
            self._fetch_path(segment.path)
            return segment
        place = (of.topic_id, of.number, segment.base_offset)
        kept = None
        if segment.base_offset < end:
            self._fetch_path(segment.path)
            row = registry.find(of.topic)
            assert row is not None
            count = int(segment.path.stem.partition("-c")[2] or 0)
            kept = write_sealed(
                of.directory,
                (replace(chunk, marks=None) for chunk in segment.read(segment.base_offset, end, None)),
                stored_schema(row.schemas[segment.schema_version], row),
                base_offset=segment.base_offset,
                next_offset=end,
                partition=of.number,
                schema_version=segment.schema_version,
                event_time=row.settings.event_time,
                files=self.files,
                suffix=f"-c{count + 1}",  # the name of a rewritten segment
                gaps=segment.gaps,
                metadata=segment.has_metadata,
            )
        with catalog.write(durable=True) as db:
            if kept is not None:
                registry.replace_segments(of.topic_id, [segment], kept, cut_marks(marks, end))
            else:
                db.execute("DELETE FROM segments WHERE topic_id = ? AND partition = ? AND base_offset = ?", place)
        self.files.unlink(segment.path, label="restore.cut_segment")
        return kept

    def _cut_arrow(self, path: Path, end: int) -> None:
        if int(path.stem) >= end:
            self.files.unlink(path, label="restore.cut_segment")
            return
        kept = [frame for frame in frames_of(path)[0] if frame.base_offset < end]
        fd = self.files.create(path, label="restore.open")
        try:
            if path.stat().st_size > kept[-1].end:
                self.files.truncate(fd, kept[-1].end, label="restore.cut_frames")
                self.files.sync(fd, label="restore.sync")
        finally:
            os.close(fd)

    def _forget_requests(self, catalog: Catalog, ends: Ends, newest_us: int) -> None:
        """Forget the ids of requests whose rows were cut off, and positions in foreign sources."""
        gone = [
            (row["scope"], row["id"])
            for row in catalog.read("SELECT scope, id, token, appended_us FROM request_ids")
            if (
                not covers(ends, Token.parse(row["token"]).frontier) if row["token"] else row["appended_us"] > newest_us
            )
        ]
        with catalog.write() as db:
            db.executemany("DELETE FROM request_ids WHERE scope = ? AND id = ?", gone)
            db.execute("DELETE FROM stored_positions")

    # Views, and what else an older backup tells

    def _take_views(self, catalog: Path, ends: Ends, older: list[BackupManifest]) -> dict[str, int]:
        """Give each app the newest state that a backup has of it within the cut; returns their ticks."""
        apps = self.adapt(catalog)
        wanted = {name for name, content in self.manifest.apps.items() if not self._fits(content.frontier, ends)}
        kept = tuple(f"views/{name}/" for name in self.manifest.apps if name not in wanted)
        self.fetch([file for file in self.manifest.files if file.path.startswith(kept)])
        before = next((each for each in reversed(older) if covers(ends, each.token.frontier)), None)
        with closing(sqlite3.connect(catalog)) as db, db:
            for name in wanted:
                forget_app(db, name)
                apps[name] = 0
        if before is not None and (wanted or ends != self.manifest.token.frontier):
            self._take_from(before, catalog, ends, wanted, apps)
        return apps

    def _fits(self, frontier: Any, ends: Ends) -> bool:
        """Whether a state goes on in this log: it is within the cut, and no row after it was dropped."""
        starts = {name: topic.start for name, topic in self.manifest.topics.items()}
        return covers(ends, frontier) and all(
            starts.get(topic, {}).get(p, 0) <= at for topic, of in frontier.items() for p, at in of.items()
        )

    def _take_from(
        self, before: BackupManifest, catalog: Path, ends: Ends, wanted: set[str], apps: dict[str, int]
    ) -> None:
        older = self.home / OLDER
        (stored,) = (file for file in before.files if file.path == CATALOG)
        self.fetch([replace(stored, path=OLDER)])
        with closing(Catalog(older)):  # its tables are those of today
            pass
        taken = {
            name: content
            for name, content in before.apps.items()
            if name in wanted and content.frontier and self._fits(content.frontier, ends)
        }
        with closing(Catalog(catalog)) as opened:
            opened.read("ATTACH DATABASE ? AS older", (str(older),))
            with opened.write(durable=True) as db:
                if ends != self.manifest.token.frontier:
                    db.execute("INSERT INTO stored_positions SELECT * FROM older.stored_positions")
                for name, content in taken.items():
                    for table in (*MANIFEST_TABLES, "app_positions", "app_signs"):
                        column = "name" if table == "apps" else "app"
                        db.execute(f"INSERT INTO {table} SELECT * FROM older.{table} WHERE {column} = ?", (name,))
                    keep_one_tick(opened, db, name, content.tick)
                    apps[name] = content.tick
            opened.read("DETACH DATABASE older")
            opened.read("PRAGMA wal_checkpoint(TRUNCATE)")
            opened.read("PRAGMA journal_mode = DELETE")
        self.fetch([f for f in before.files if f.path.startswith(tuple(f"views/{name}/" for name in taken))])
        self.files.unlink(older, label="restore.remove_older")
