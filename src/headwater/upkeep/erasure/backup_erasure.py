"""Backups after an erasure: what is told to them, and when the person is gone from them.

What it is: a record of each erasure beside the backups of a home (``tell``), without the person, which a restore reads
and replays (``begin_replay``); and what a certificate says of the backups (``tell_places``).
Invariants: backups are never rewritten: one made before an erasure holds the person until it is pruned, and a restore
of it erases the person before the home can be used. A record is an object of its own, and never changed. Encrypted
backups are told with their key only; without it the place is pending, and the next backup, which has the key, tells it.
Not here: pruning (``upkeep/backup/repository_prune.py``).
Read next: ``person_erasure.py``; ``upkeep/backup/home_restore.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.clock import format_us
from headwater.encryption.encryption_key import KeySource
from headwater.errors import KeyRefused
from headwater.log.erasure.erasure_records import ErasureRecord, ErasureRecords
from headwater.upkeep.backup.backup_repository import BackupRepository
from headwater.upkeep.erasure.erasure_certificate import PlaceReport, PlaceState

if TYPE_CHECKING:
    from headwater.log.catalog.catalog import Catalog

ERASURES = "erasures/"


def tell(repository: BackupRepository, record: ErasureRecord) -> None:
    """Store one record beside the backups of a repository."""
    data = {"subject": record.subject, "salt": record.salt.hex(), "hash": record.hash, "at_us": record.requested_us}
    repository.store.create(_name(record), json.dumps(data).encode())


def tell_all(repository: BackupRepository, catalog: Catalog) -> None:
    """Store every record of a home beside its backups: each backup does so."""
    records = ErasureRecords(catalog).all()
    known = {each.name for each in repository.store.list(ERASURES)} if records else set()
    for record in records:
        if _name(record) not in known:
            tell(repository, record)


def told(repository: BackupRepository) -> list[dict[str, str | int]]:
    """The records beside the backups of a repository, oldest first."""
    names = [each.name for each in repository.store.list(ERASURES)]
    found = [json.loads(data) for name in names if (data := repository.store.get(name)) is not None]
    return sorted(found, key=lambda each: int(each["at_us"]))


def begin_replay(repository: BackupRepository, catalog: Catalog, *, now_us: int) -> int:
    """Enter the records beside the backups into the catalog of a home that is being restored; how many.

    They are in phase LOG: whoever opens the home ends them before its first tick.
    """
    records = ErasureRecords(catalog)
    found = told(repository)
    for each in found:
        records.begin(str(each["subject"]), bytes.fromhex(str(each["salt"])), str(each["hash"]), now_us=now_us)
    return len(found)


def tell_places(
    places: Sequence[str], record: ErasureRecord, keys: Mapping[str, KeySource], *, ever: bool
) -> list[PlaceReport]:
    """Tell the backups at these places, and say what a certificate says of them; ``ever``: there may be others."""
    found = []
    for place in places:
        try:
            repository = BackupRepository.at(place, keys.get(place), make=True)
        except KeyRefused as error:
            told = f"not told of the erasure: {error.message}; ask again with the key"
            found.append(PlaceReport(f"backups at {place}", PlaceState.PENDING, told))
            continue
        tell(repository, record)
        older = [each for each in repository.manifests() if each.cut_us <= record.requested_us]
        if not older:
            found.append(PlaceReport(f"backups at {place}", PlaceState.DONE, "none is older than the erasure"))
            continue
        found.append(
            PlaceReport(
                f"backups at {place}",
                PlaceState.PENDING,
                f"{len(older)} made before it, the last at {format_us(older[-1].cut_us)}, hold the person until they "
                "are pruned; a restore of them erases the person again",
            )
        )
    if not places and not ever:
        found.append(PlaceReport("backups", PlaceState.DONE, "none was ever made of this home"))
    elif not places:
        found.append(
            PlaceReport("backups", PlaceState.NOT_COVERED, "no place was named: headwater erase … --backups PLACE")
        )
    return found


def _name(record: ErasureRecord) -> str:
    return f"{ERASURES}{record.hash}.json"
