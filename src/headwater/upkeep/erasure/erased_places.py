"""Erased places: the backups of a home, wherever they are, after people were erased.

What it is: ``erase_place`` rewrites the backups at one place and says what a certificate says of it; ``ErasureRetries``
does so again for what was pending, beside the ticks of an app; ``scan_place`` searches backups for a person.
Invariants: a place that cannot be reached, opened or written is pending, never an error and never done, and is kept as
such in the catalog. A place where backups were made and where none is found is pending too: a disk may not be mounted.
Not here: rewriting (``backup_erasure.py``). Read next: ``backup_erasure.py``, ``person_erasure.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from headwater.encryption.encryption_key import KeySource
from headwater.errors import HeadwaterError, NotBackedUp
from headwater.log.erasure.erasure_records import LOG, ErasureRecord, ErasureRecords
from headwater.log.erasure.log_erasure import LogErasure
from headwater.log.erasure.personal_rows import PersonalRows
from headwater.log.erasure.segment_erasure import find_in_sealed
from headwater.upkeep.backup.backup_places import BackupPlaces
from headwater.upkeep.backup.backup_repository import BackupRepository, address_of
from headwater.upkeep.backup.unpacked_backup import UnpackedBackup
from headwater.upkeep.erasure.backup_erasure import BackupErasure
from headwater.upkeep.erasure.erasure_certificate import PlaceReport, PlaceState
from headwater.upkeep.erasure.residue_scan import (
    Residue,
    ScanReport,
    SoughtPerson,
    scan,
    scan_batches,
    scan_bytes,
    scan_file,
)
from headwater.upkeep.erasure.told_erasures import unmarked
from headwater.upkeep.routine import Routine

if TYPE_CHECKING:
    from headwater.log.home import Log

logger = logging.getLogger("headwater.backup")

SCRATCH = "erasure.scratch"  # in the home: one backup at a time, unpacked
RETRY_SECONDS = 300.0
WHOLE = (".sqlite", ".arrow")  # files that are searched with the home that they are part of
FOLDERS = ("backups/", "objects/", "erasures/", "erased/", "turns/", "removals/")


def erase_place(
    log: Log,
    place: str,
    key: KeySource | None = None,
    *,
    record: ErasureRecord | None = None,
    value: str | None = None,
    wait_s: float = 0.0,
) -> PlaceReport:
    """Erase a person, and everybody else who is still to be erased there, from the backups at a place.

    Without ``record`` only those others; with ``value``, the person's id, backups made since are searched too.
    """
    address, places = address_of(place), BackupPlaces(log.catalog)
    name = f"backups at {place}"
    try:
        if address in places.known() and not BackupRepository.at(place, key).ids():
            raise NotBackedUp(
                "backups of this home were made there, and none is found: is it mounted?",
                hint="If the place is gone for good: headwater backup erase --from PLACE --gone",
            )
        repository = BackupRepository.at(place, key, make=True)
        every = [each for each in ErasureRecords(log.catalog).all() if each.phase != LOG]
        records = unmarked(repository, every)
        if record is not None and record.hash not in {each.hash for each in records}:
            records.append(record)
        declared = {topic.id: topic.privacy for topic in log.topics()}
        values = {} if record is None or value is None else {record.hash: value}
        done = BackupErasure(
            repository,
            records,
            _scratch(log, address),
            values=values,
            declared=declared,
            clock=log.clock,
            wait_s=wait_s,
        ).run()
    except (HeadwaterError, OSError) as error:
        return _pending(places, address, name, error.message if isinstance(error, HeadwaterError) else str(error))
    if done.problems:
        return _pending(places, address, name, str(done))
    if done.backups:
        places.note(address)
    places.set_pending(address, None)
    return PlaceReport(name, PlaceState.DONE, str(done), done.rows)


def _pending(places: BackupPlaces, address: str, name: str, why: str) -> PlaceReport:
    places.set_pending(address, why)
    told = f"not rewritten: {why}; tried again while an app of the home runs, and when asked again"
    return PlaceReport(name, PlaceState.PENDING, told)


def _scratch(log: Log, address: str) -> Path:
    return log.home / SCRATCH / xxhash.xxh3_64_hexdigest(address.encode())


def erase_places(
    log: Log, given: Sequence[str], keys: Mapping[str, KeySource], record: ErasureRecord, value: str, *, wait_s: float
) -> list[PlaceReport]:
    """Erase a person from the backups at these places, and at all others that the home knows."""
    return [
        erase_place(log, place, keys.get(place), record=record, value=value, wait_s=wait_s)
        for place in places_of(log, given)
    ]


def places_of(log: Log, given: Sequence[str]) -> list[str]:
    """These places, and the others that the home knows."""
    named = {address_of(place): place for place in given}
    return [*named.values(), *(each for each in BackupPlaces(log.catalog).known() if each not in named)]


def forget_place(log: Log, place: str) -> bool:
    """A place is gone for good: nothing is pending there any more; whether it was known."""
    return BackupPlaces(log.catalog).forget(address_of(place))


def retry_pending(log: Log, keys: Mapping[str, KeySource | None]) -> list[PlaceReport]:
    """Erase what is still to be erased from backups; ``keys``: of encrypted places, by address."""
    if not ErasureRecords(log.catalog).all():
        return []
    return [report for place in BackupPlaces(log.catalog).known() if (report := _retried(log, place, keys)) is not None]


def _retried(log: Log, place: str, keys: Mapping[str, KeySource | None]) -> PlaceReport | None:
    pending = BackupPlaces(log.catalog).known()[place]
    if pending is None:
        try:
            repository = BackupRepository.at(place, keys.get(place))
            settled = [each for each in ErasureRecords(log.catalog).all() if each.phase != LOG]
            if not repository.ids() or not unmarked(repository, settled):
                return None
        except HeadwaterError:
            return None  # nobody asked for anything there: backups tell of it
    return erase_place(log, place, keys.get(place))


class ErasureRetries(Routine):
    """The thread that ends erasures in backups which could not be ended at once."""

    def __init__(self, log: Callable[[], Log], keys: Mapping[str, KeySource | None]) -> None:
        super().__init__("headwater-backup-erasure", RETRY_SECONDS)
        self._log = log
        self.keys = {address_of(place): key for place, key in keys.items()}

    def step(self) -> None:
        """Try what is pending."""
        try:
            for report in retry_pending(self._log(), self.keys):
                logger.info("%s: %s", report.place, report.detail)
        except Exception as error:  # told, and tried again: it never ends the app
            logger.warning("an erasure in backups failed: %s", error)


# Looking again


def scan_place(log: Log, place: str, key: KeySource | None, sought: SoughtPerson, report: ScanReport) -> None:
    """Search the backups at a place, as they would be restored, and what no backup names; add to a report."""
    known = BackupPlaces(log.catalog).known()
    pending = known.get(address_of(place))
    if pending is not None:
        report.unread.append(f"backups at {place}: the erasure is pending: {pending}")
    try:
        repository = BackupRepository.at(place, key)
        if not repository.ids():
            if pending is None and address_of(place) in known:
                report.unread.append(f"backups at {place}: backups were made there, and none is found")
            return
        _scan_repository(repository, sought, report, _scratch(log, address_of(place)))
    except (HeadwaterError, OSError) as error:
        said = error.message if isinstance(error, HeadwaterError) else str(error)
        report.unread.append(f"backups at {place}: {said}")


def _scan_repository(repository: BackupRepository, sought: SoughtPerson, report: ScanReport, scratch: Path) -> None:
    seen, named = set[str](), set[str]()  # objects
    for manifest in repository.manifests():
        mine = ScanReport()
        with UnpackedBackup(repository, manifest, scratch).unpacked() as backup:
            _scan_topics(backup, sought, mine, seen)
            for file in manifest.files:
                if file.path.endswith(WHOLE) or file.pieces[0].name in seen:
                    continue
                path = backup.fetch(file)
                scan_file(path, sought, mine)
                path.unlink()
                seen.add(file.pieces[0].name)
            backup.log.close()
            rest = scan([backup.home], sought)
        title = f"{repository.shown} backup {manifest.id}"
        for found in (mine, rest):
            report.files, report.bytes = report.files + found.files, report.bytes + found.bytes
            report.unread += [f"{title}: {path}" for path in found.unread]
            report.found += [replace(each, path=each.path.replace(str(scratch), title)) for each in found.found]
        named |= {piece.name for piece in manifest.pieces()}
    for stored in (each for folder in FOLDERS for each in repository.store.list(folder)):
        data = None if stored.name in named else repository.store.get(stored.name)
        if data is not None:
            scan_bytes(f"{repository.shown}/{stored.name}", data, sought, report)


def _scan_topics(backup: UnpackedBackup, sought: SoughtPerson, report: ScanReport, seen: set[str]) -> None:
    """Sealed segments that were not seen yet, and the rows of Arrow segments, by value."""
    log = backup.log
    rules_of = [(people, dict[str, list[PersonalRows]]()) for people in sought.people]
    for people, rules in rules_of:
        rules |= {topic.name: found for topic, found in LogErasure(log, people).topics()}
    for topic in log.topics():
        for number in range(topic.settings.partitions):
            rows, end = 0, topic.start_offsets()[number]
            for segment in log.registry.sealed(topic.id, number, topic.directory / str(number)):
                end, file = segment.next_offset, backup.file_of(segment.path)
                if file.pieces[0].name in seen:
                    continue
                path = backup.fetch(file)
                scan_file(path, sought, report)
                rows += sum(
                    find_in_sealed(segment, each, people) for people, of in rules_of for each in of.get(topic.name, ())
                )
                path.unlink()
                seen.add(file.pieces[0].name)
            batches = [batch.data for batch in topic.read_partition(number, end)]
            scan_batches(f"{topic.directory}/{number}/{end}.arrow", batches, sought, report)
            for people, of in rules_of:
                rows += sum(
                    int(each.found_in(data, people).sum()) for each in of.get(topic.name, ()) for data in batches
                )
            if rows:
                report.found.append(Residue(f"{topic.directory}/{number}", "rows", rows))
