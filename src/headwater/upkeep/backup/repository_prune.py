"""Repository prune: old backups go, and the objects that no other one needs.

What it is: ``KeepRule`` reads ``7d,4w,12m`` and says which backups stay; ``prune`` removes the others.
Invariants: the newest backup always stays. An object goes only when no manifest that stays names it, and all of them
were read: a damaged one stops everything. Manifests go before objects, so a prune that was killed leaves objects that
no manifest names, never a backup that lacks some. Only the holder of the turn prunes, so no backup is under way; what a
killed one has left stays for a day, for the next to use. A prune that stalls and goes on after others have taken the
turn removes what it had said before, and no backup since then uses those names (``BackupRepository.removals``). Its
list stays for 30 days, in case it goes on, unless it ends.
Not here: what a backup holds (``backup_manifest.py``). Read next: ``backup_repository.py``.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors import InvalidDeclaration
from headwater.upkeep.backup.backup_manifest import OBJECTS, BackupManifest
from headwater.upkeep.backup.backup_repository import BACKUPS, REMOVALS, BackupRepository
from headwater.upkeep.backup.repository_turn import GIVEN_UP

LEFT_SECONDS = 86_400.0  # objects of an unfinished backup
STALLED_SECONDS_MAX = 30 * 86_400.0  # lists of prunes that did not end: longer than any process stalls
FORM = "For example 7d,4w,12m: the newest of each of 7 days, 4 weeks and 12 months; 3 alone: the newest three."
PERIODS = {"h": "%Y-%m-%d %H", "d": "%Y-%m-%d", "w": "%G-%V", "m": "%Y-%m", "y": "%Y"}


@dataclass(frozen=True)
class KeepRule:
    """Which backups stay: the newest of each of so many hours, days, weeks, months and years that have one.

    >>> KeepRule.parse("7d,4w")
    KeepRule(counts=(('d', 7), ('w', 4)))
    >>> day = 86_400_000_000
    >>> rule = KeepRule.parse("2d,1m")
    >>> rule.kept({f"b{n}": 1_700_000_000_000_000 + n * day // 2 for n in range(6)}) == {"b5", "b4"}
    True
    """

    counts: tuple[tuple[str, int], ...]  # the unit, "" for the newest ones whatever their time

    @staticmethod
    def parse(text: str) -> KeepRule:
        """Read a rule; ``InvalidDeclaration`` says what is wrong with it."""
        counts = []
        for word in text.replace(" ", "").split(","):
            found = re.fullmatch(r"(\d+)([hdwmy]?)", word)
            if found is None or not int(found[1]):
                raise InvalidDeclaration(f"{text!r} does not say which backups to keep", hint=FORM)
            counts.append((found[2], int(found[1])))
        return KeepRule(tuple(counts))

    def kept(self, backups: dict[str, int]) -> set[str]:
        """Those of some backups (id, microsecond) that stay; the newest is always among them."""
        newest_first = sorted(backups, key=lambda each: (backups[each], each), reverse=True)
        kept = set(newest_first[:1])
        for unit, count in self.counts:
            if not unit:
                kept.update(newest_first[:count])
                continue
            periods: dict[str, str] = {}
            for each in newest_first:
                moment = dt.datetime.fromtimestamp(backups[each] / 1e6, dt.UTC)
                periods.setdefault(moment.strftime(PERIODS[unit]), each)
            kept.update(list(periods.values())[:count])
        return kept


@dataclass(frozen=True)
class PruneReport:
    """What a prune did, or would do."""

    kept: tuple[str, ...]
    removed: tuple[str, ...]
    objects: int
    bytes: int
    dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "kept": list(self.kept), "removed": list(self.removed)}

    def __str__(self) -> str:
        did = "would remove" if self.dry_run else "removed"
        return (
            f"{did} {len(self.removed)} of {len(self.kept) + len(self.removed)} backups, "
            f"{self.objects:,} objects, {self.bytes:,} bytes"
        )


def prune(repository: BackupRepository, keep: str, *, dry_run: bool = False, wait_s: float = 0.0) -> PruneReport:
    """Remove the backups that ``keep`` does not name, and what only they need."""
    rule = KeepRule.parse(keep)
    with repository.turn("a prune", wait_s=wait_s) as turn:
        manifests = repository.manifests()  # all of them, or an error: what a damaged one needs is not known
        kept = rule.kept({each.id: each.cut_us for each in manifests})
        going = [each for each in manifests if each.id not in kept]
        staying = [each for each in manifests if each.id in kept]
        needed = _objects(staying)
        there = repository.store.list(OBJECTS)
        now_s = max((each.modified_s for each in there), default=0.0)  # by the store's clock
        let_go = _objects(going)
        unneeded = [
            each
            for each in there
            if each.name not in needed and (each.name in let_go or now_s - each.modified_s > LEFT_SECONDS)
        ]
        if not dry_run:
            removal = repository.begin_removal(turn.number, (each.name for each in unneeded))
            turn.check()
            for manifest in going:
                repository.remove(manifest.id)
            for each in unneeded:
                repository.store.delete(each.name)
            lists = repository.store.list(REMOVALS)
            now_s = max(each.modified_s for each in lists)
            given_up = [each for each in repository.store.list(BACKUPS) if each.bytes == len(GIVEN_UP)]
            old = {each.name for each in (*lists, *given_up) if now_s - each.modified_s > STALLED_SECONDS_MAX}
            for name in {*old, removal}:
                repository.store.delete(name)
    return PruneReport(
        tuple(each.id for each in staying),
        tuple(each.id for each in going),
        len(unneeded),
        sum(each.bytes for each in unneeded),
        dry_run,
    )


def _objects(manifests: Sequence[BackupManifest]) -> set[str]:
    return {piece.name for manifest in manifests for piece in manifest.pieces()}
