"""Told erasures: what is kept beside the backups of a home of the people who were erased.

What it is: a record of each erasure, ``erasures/HASH.json``, without the person, which a restore reads and replays; and
a mark, ``erased/HASH.json``, once no backup of the repository holds the person any more.
Invariants: a mark is made when every backup was looked at, and taken back before a backup counts that was made while
the home still held something of the person. A mark is of one request: who comes back and is erased again needs another.
Not here: rewriting backups (``backup_erasure.py``), which places there are (``backup_places.py``).
Read next: ``backup_erasure.py``; ``upkeep/backup/home_restore.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.log.erasure.erasure_records import VIEWS, ErasureRecord, ErasureRecords
from headwater.upkeep.backup.backup_repository import BackupRepository

if TYPE_CHECKING:
    from headwater.log.catalog.catalog import Catalog

ERASURES = "erasures/"
MARKS = "erased/"


def tell(repository: BackupRepository, record: ErasureRecord) -> None:
    """Store one record beside the backups of a repository."""
    data = {"subject": record.subject, "salt": record.salt.hex(), "hash": record.hash, "at_us": record.requested_us}
    known = repository.store.get(_name(ERASURES, record))
    if known is None or json.loads(known)["at_us"] < record.requested_us:
        repository.store.put(_name(ERASURES, record), json.dumps(data).encode())


def tell_all(repository: BackupRepository, catalog: Catalog) -> None:
    """Store every record of a home beside its backups: each backup does so, before it counts.

    The marks of people whom the home still holds, as in views that have not followed, are taken back.
    """
    records = ErasureRecords(catalog).all()
    known = {each.name for each in repository.store.list(ERASURES)} if records else set()
    marks = {each.name for each in repository.store.list(MARKS)} if records else set()
    for record in records:
        if _name(ERASURES, record) not in known:
            tell(repository, record)
        if _name(MARKS, record) in marks and not is_settled(catalog, record):
            repository.store.delete(_name(MARKS, record))


def told(repository: BackupRepository) -> list[dict[str, str | int]]:
    """The records beside the backups of a repository, oldest first."""
    names = [each.name for each in repository.store.list(ERASURES)]
    found = [json.loads(data) for name in names if (data := repository.store.get(name)) is not None]
    return sorted(found, key=lambda each: int(each["at_us"]))


def begin_replay(repository: BackupRepository, catalog: Catalog) -> int:
    """Enter the records beside the backups into the catalog of a home that is being restored; how many are replayed.

    They are in phase LOG: whoever opens the home ends them before its first tick. A backup that was rewritten has them
    already.
    """
    records, begun = ErasureRecords(catalog), 0
    for each in told(repository):
        subject, salt, hashed = str(each["subject"]), bytes.fromhex(str(each["salt"])), str(each["hash"])
        record = ErasureRecord(0, subject, salt, hashed, int(each["at_us"]), VIEWS)
        if not is_settled(catalog, record):
            records.begin(subject, salt, hashed, now_us=int(each["at_us"]))
            begun += 1
    return begun


def is_settled(catalog: Catalog, record: ErasureRecord) -> bool:
    """Whether the home of a catalog holds nothing of a person any more: log, views and earlier ticks."""
    found = catalog.read(
        "SELECT id FROM erasures WHERE subject = ? AND salt = ? AND hash = ? AND phase = ? AND requested_us >= ?",
        (record.subject, record.salt, record.hash, VIEWS, record.requested_us),
    )
    if not found:
        return False
    waiting = catalog.read(
        "SELECT 1 FROM apps WHERE name NOT IN (SELECT app FROM remote_states) AND name NOT IN"
        " (SELECT app FROM erasures_followed WHERE erasure = ? AND forgotten = 1) LIMIT 1",
        (found[0]["id"],),
    )
    return not waiting


def mark(repository: BackupRepository, records: Sequence[ErasureRecord]) -> None:
    """Note that no backup holds these people."""
    for record in unmarked(repository, records):
        repository.store.put(_name(MARKS, record), json.dumps({"at_us": record.requested_us}).encode())


def unmarked(repository: BackupRepository, records: Sequence[ErasureRecord]) -> list[ErasureRecord]:
    """Those of whom a backup may hold something."""
    there = {each.name for each in repository.store.list(MARKS)} if records else set()
    return [each for each in records if _name(MARKS, each) not in there or not _is_marked(repository, each)]


def _is_marked(repository: BackupRepository, record: ErasureRecord) -> bool:
    data = repository.store.get(_name(MARKS, record))
    return data is not None and int(json.loads(data)["at_us"]) >= record.requested_us


def _name(folder: str, record: ErasureRecord) -> str:
    return f"{folder}{record.hash}.json"
