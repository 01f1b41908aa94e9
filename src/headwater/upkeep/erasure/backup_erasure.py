"""Backup erasure: people are removed from every backup of a repository, and every backup stays.

What it is: ``BackupErasure`` unpacks one backup after the other, erases the people in it as in a home, and commits what
is left as a further revision of the backup; then the objects that no backup needs any more go.
Invariants: a backup is what it was but for the people: its moment, token, offsets and points in time stay. The new
revision counts when all of its objects are there; the old one goes after it, and objects last. So a process that was
killed leaves of each backup the old form or the new one, and the next one goes on: a catalog says who was erased. A
sealed segment that holds nobody is read once, whatever the number of backups that share it. A view over topics with
rows of the people is not kept, but computed from the log after a restore: nothing here knows its query.
Not here: one home (``log/erasure/``), which places and when (``backup_places.py``), marks (``told_erasures.py``).
Read next: ``upkeep/backup/unpacked_backup.py``, ``told_erasures.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa

from headwater.clock import Clock
from headwater.errors import BackupDamaged
from headwater.log.catalog.catalog import Catalog
from headwater.log.erasure.erased_people import ErasedPeople
from headwater.log.erasure.erasure_records import TABLES_ERASURES, VIEWS, ErasureRecord
from headwater.log.erasure.log_erasure import LogErasure, names_of
from headwater.log.erasure.personal_rows import PersonalRows
from headwater.log.erasure.segment_erasure import find_in_sealed
from headwater.log.home import Log
from headwater.log.schema.personal_columns import Personal
from headwater.log.storage.partition_layout import partition_directory
from headwater.log.storage.sealed_segment import SealedSegment
from headwater.log.topic import Topic
from headwater.upkeep.backup.backup_cut import CATALOG
from headwater.upkeep.backup.backup_manifest import BackupManifest
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.backup.home_restore import forget_app, keep_one_tick
from headwater.upkeep.backup.repository_turn import RepositoryTurn
from headwater.upkeep.backup.unpacked_backup import UnpackedBackup
from headwater.upkeep.erasure.large_value_erasure import forget_large
from headwater.upkeep.erasure.told_erasures import is_settled, mark, tell

Declared = Mapping[int, Mapping[str, Personal]]  # by the topic's number: what the home declares now


@dataclass
class ErasedBackups:
    """What an erasure did in a repository."""

    backups: int = 0
    rewritten: int = 0
    rows: int = 0  # in all backups that were rewritten
    objects: int = 0  # that were removed
    problems: list[str] = field(default_factory=list)  # backups that could not be rewritten

    def __str__(self) -> str:
        if self.problems:
            return f"{len(self.problems)} of {self.backups} could not be rewritten: {self.problems[0]}"
        if not self.backups:
            return "there are none"
        return f"{self.rewritten} of {self.backups} rewritten, {self.rows:,} rows; {self.objects:,} objects removed"


class BackupErasure:
    """Some people and one repository.

    >>> import headwater as hw, tempfile
    >>> from headwater.upkeep.backup.backup_writer import create_backup
    >>> from headwater.log.erasure.log_erasure import erase_person
    >>> log, place = hw.Log(tempfile.mkdtemp()), tempfile.mkdtemp()
    >>> visits = log.topic("visits", "user_id BIGINT", privacy={"user_id": hw.Personal("user_id")})
    >>> _ = visits.append([{"user_id": 7}, {"user_id": 8}])
    >>> _ = create_backup(log, place)
    >>> record, _ = erase_person(log, "user_id", "7")
    >>> print(BackupErasure(BackupRepository.at(place), [record], Path(tempfile.mkdtemp())).run())
    1 of 1 rewritten, 1 rows; 2 objects removed
    """

    def __init__(
        self,
        repository: BackupRepository,
        records: Sequence[ErasureRecord],
        scratch: Path,
        *,
        values: Mapping[str, str] = MappingProxyType({}),
        declared: Declared = MappingProxyType({}),
        clock: Clock | None = None,
        wait_s: float = 0.0,
    ) -> None:
        self.repository = repository
        self.records = records
        self.scratch = scratch
        self.values = values  # ids that are known, by the hash of their records: these are searched for anew
        self.declared = declared
        self.clock = clock or Clock()
        self.wait_s = wait_s  # for another process that writes there
        self.done = ErasedBackups()
        self._clean: dict[tuple[str, str, tuple[str, ...]], bool] = {}  # object, hash, columns that name the person
        self._learnt: dict[str, str] = {}  # ids by hash

    def run(self) -> ErasedBackups:
        """Rewrite what holds the people."""
        with self.repository.turn("an erasure", wait_s=self.wait_s) as turn:
            began_s = turn.began_s()
            for record in self.records:
                tell(self.repository, record)
            for manifest in self.repository.manifests():
                self.done.backups += 1
                try:
                    self._rewrite(manifest, turn)
                except BackupDamaged as error:  # the others can be rewritten
                    self.done.problems.append(f"backup {manifest.id}: {error.message}")
            self._remove_old(turn)
            self.repository.store.remove_unfinished(began_s)
            if not self.done.problems:
                turn.check()
                mark(self.repository, self.records)
        return self.done

    # One backup

    def _rewrite(self, manifest: BackupManifest, turn: RepositoryTurn) -> None:
        with UnpackedBackup(self.repository, manifest, self.scratch, self.clock).unpacked() as backup:
            with closing(Catalog(backup.home / CATALOG, tables=(TABLES_ERASURES,))) as catalog:
                pending = [each for each in self.records if not self._is_settled(catalog, each, manifest)]
            if not pending:
                return
            erasing = _Erasing(self, backup)
            rows = sum(erasing.erase(record) for record in pending)
            erasing.forget_views(pending)
            erasing.note(pending)
            backup.log.catalog.vacuum()
            new = backup.pack()
            if new.files != manifest.files:
                self.repository.commit(replace(new, revision=max(turn.number, manifest.revision + 1)), turn)
                self.done.rewritten += 1
                self.done.rows += rows

    def _is_settled(self, catalog: Catalog, record: ErasureRecord, manifest: BackupManifest) -> bool:
        """Whether the backup's own catalog says that the person is gone; one who is asked for may have come back."""
        return is_settled(catalog, record) and not (
            record.hash in self.values and manifest.cut_us > record.requested_us
        )

    def people(self, record: ErasureRecord) -> ErasedPeople:
        """The person of a record; by the id, if it is known, since that is faster."""
        value = self.values.get(record.hash) or self._learnt.get(record.hash)
        return record.people if value is None else ErasedPeople.of(record.subject, value, record.salt)

    def is_clean(
        self, backup: UnpackedBackup, segment: SealedSegment, rules: PersonalRows, record: ErasureRecord
    ) -> bool:
        """Whether a sealed segment of a backup holds nothing of a person; else it is there now."""
        file = backup.file_of(segment.path)
        key = (file.pieces[0].name, record.hash, rules.read_columns)
        if key not in self._clean:
            backup.fetch(file)
            self._clean[key] = not find_in_sealed(segment, rules, self.people(record))
            if not self._clean[key] and not self.people(record).values:
                self._learn(segment, rules, record)
        return self._clean[key]

    def _learn(self, segment: SealedSegment, rules: PersonalRows, record: ErasureRecord) -> None:
        """Remember, while this works, the id that a hash was found to be of: comparing is faster than hashing."""
        for chunk in segment.read(segment.base_offset, segment.next_offset, rules.read_columns):
            for rule in rules.rules:
                if rule.by in chunk.batch.schema.names and not rules.letters_of:
                    column = chunk.batch.column(rule.by)
                    found = column.filter(pa.array(record.people.found_in(column)))
                    if len(found):
                        self._learnt[record.hash] = found[:1].cast(pa.string())[0].as_py()
                        return

    # What is left

    def _remove_old(self, turn: RepositoryTurn) -> None:
        """Remove older revisions, and what no backup needs: as a prune does, and also what killed backups have left."""
        manifests = self.repository.manifests()
        needed = {piece.name for manifest in manifests for piece in manifest.pieces()}
        unneeded = sorted(self.repository.objects().keys() - needed)
        removal = self.repository.begin_removal(turn.number, unneeded)
        turn.check()
        for manifest in manifests:
            self.repository.remove(manifest.id, older=True)
        for name in unneeded:
            self.repository.store.delete(name)
        self.repository.store.delete(removal)
        self.done.objects = len(unneeded)


class _Erasing:
    """One backup, unpacked."""

    def __init__(self, erasure: BackupErasure, backup: UnpackedBackup) -> None:
        self.erasure = erasure
        self.backup = backup
        self.log: Log = backup.log
        self.touched: set[str] = set()  # topics whose views may hold the people
        self._declare()

    def _declare(self) -> None:
        """What is personal may have been declared after the backup."""
        for topic in self.log.topics():
            own, names = topic.privacy, set(topic.schema.names)
            later = {
                column: each
                for column, each in self.erasure.declared.get(topic.id, {}).items()
                if column not in own and {column, each.by or column} <= names
            }
            if later and not topic.settings.proof:  # of which the parts of a row were hashed as they were declared
                self.log.registry.change_settings(topic.id, topic.settings.with_changes({"privacy": {**own, **later}}))
                topic.refresh()

    def erase(self, record: ErasureRecord) -> int:
        """Erase a person in the log; how many rows."""
        people, topics = self.erasure.people(record), self._topics(record)
        clean: set[Path] = set()
        for topic, rules in topics:
            for number in range(topic.settings.partitions):
                clean |= self._clean_segments(topic, number, rules, record)
        found = LogErasure(self.log, people, lambda segment: segment.path in clean).run()
        self.touched |= set(names_of(found)) | {topic.name for topic, _ in topics if self._has_dropped(topic)}
        forget_large(self.backup.home, [topic.name for topic, _ in topics if topic.settings.captured_by is not None])
        return sum(each.erased.rows for each in found)

    def _topics(self, record: ErasureRecord) -> list[tuple[Topic, list[PersonalRows]]]:
        return list(LogErasure(self.log, record.people).topics())

    def _clean_segments(
        self, topic: Topic, number: int, rules: Sequence[PersonalRows], record: ErasureRecord
    ) -> set[Path]:
        """The sealed segments that need not be opened; all others are fetched."""
        clean, directory = set(), partition_directory(topic, number)
        for segment in self.log.registry.sealed(topic.id, number, directory):
            if segment.path.exists():  # rewritten for another person
                continue
            if all(self.erasure.is_clean(self.backup, segment, each, record) for each in rules):
                clean.add(segment.path)
                if topic.settings.proof:  # of which checkpoints may have to be made
                    self.backup.fetch(self.backup.file_of(segment.path))
                else:
                    segment.path.unlink(missing_ok=True)
            else:
                self.backup.fetch(self.backup.file_of(segment.path))
        return clean

    def _has_dropped(self, topic: Topic) -> bool:
        """Whether rows are gone from a topic that views may have taken in."""
        starts = topic.start_offsets()
        return any(
            starts[number] or any(each.compacted for each in self.log.registry.sealed(topic.id, number, Path()))
            for number in range(topic.settings.partitions)
        )

    def forget_views(self, records: Sequence[ErasureRecord]) -> None:
        """Forget the views of apps that read topics with rows of the people, and the earlier ticks of all."""
        catalog, apps = self.log.catalog, self.backup.manifest.apps
        with catalog.write(durable=True) as db:
            for name, tick, address in db.execute(
                "SELECT name, tick, address FROM apps LEFT JOIN remote_states ON app = name"
            ).fetchall():
                reads = set(apps[name].frontier) if name in apps else set()
                if address is not None or (reads & self.touched and not self._followed(db, name, records)):
                    forget_app(db, name)  # of a state on a store the catalog has a copy, which no restore uses
                elif tick:
                    keep_one_tick(catalog, db, name, tick)

    @staticmethod
    def _followed(db: sqlite3.Connection, app: str, records: Sequence[ErasureRecord]) -> bool:
        """Whether the views of an app had followed the erasures when the backup was made."""
        rows = db.execute(
            "SELECT hash, requested_us FROM erasures JOIN erasures_followed ON erasure = id"
            " WHERE app = ? AND forgotten = 1",
            (app,),
        ).fetchall()
        followed = {row["hash"]: row["requested_us"] for row in rows}
        return all(followed.get(record.hash, -1) >= record.requested_us for record in records)

    def note(self, records: Sequence[ErasureRecord]) -> None:
        """Enter the erasures into the backup's catalog: a restore need not replay them, a second run finds them."""
        with self.log.catalog.write(durable=True) as db:
            for record in records:
                db.execute(
                    "INSERT INTO erasures (subject, salt, hash, requested_us, phase) VALUES (?, ?, ?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET phase = excluded.phase, requested_us = excluded.requested_us",
                    (record.subject, record.salt, record.hash, record.requested_us, VIEWS),
                )
                db.execute(
                    "INSERT OR REPLACE INTO erasures_followed (app, erasure, tick, forgotten)"
                    " SELECT apps.name, erasures.id, apps.tick, 1 FROM apps, erasures"
                    " WHERE subject = ? AND salt = ? AND hash = ?",
                    (record.subject, record.salt, record.hash),
                )
