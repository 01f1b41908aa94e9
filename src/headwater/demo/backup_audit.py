"""Backup audit: the demo's home is backed up while the shop is open, encrypted, and a home is made of it at the end.

What it is: ``BackupAudit``: ``make``, ``restore`` and ``forget``, and what is different, in sentences.
Invariants: the rows of every topic up to the backup's moment are compared by their digests, and every byte of the
restored home is checked. Then a customer is erased from that home and from the backup, and of another home that is made
of the backup every row is compared with what it should be by hand. Backup and restored homes are in a folder of their
own, which goes away.
Not here: the views (``headwater backup drill`` verifies those too). Read next: ``upkeep/backup/backup_writer.py``.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from headwater.demo.audit import check_problems
from headwater.encryption.encryption_key import KeySource, new_key_file
from headwater.log.home import Log
from headwater.upkeep.backup.backup_writer import BackupReport, create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.erasure.erasure_certificate import PlaceState
from headwater.upkeep.erasure.person_erasure import PersonErasure
from headwater.upkeep.log_checksum import checksum_of

SUBJECT = "customer_id"
OF_A_CUSTOMER = {"customers": "id", "orders": SUBJECT, "page_views": SUBJECT, "searches": SUBJECT}


class BackupAudit:
    """One backup of a home."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-backup-")
        self._key = KeySource(file=Path(self._folder.name) / "shop.key")
        self._made: BackupReport | None = None

    def make(self) -> BackupReport:
        """Back the home up, whatever goes on in it."""
        new_key_file(Path(self._folder.name) / "shop.key")
        self._made = create_backup(self.log, self._place, key=self._key)
        return self._made

    @property
    def _place(self) -> Path:
        return Path(self._folder.name) / "backups"

    def restore(self) -> tuple[dict[str, Any], list[str]]:
        """Make a home of the backup; its figures, and what is not as it was."""
        if self._made is None:
            return {}, ["no backup was made"]
        report = restore_home(self._place, self._restored, key=self._key)
        with Log(report.home, maintenance_interval=None) as restored:
            wrong = [
                f"topic {name} of the restored home differs from the home's"
                for name, ends in report.token.frontier.items()
                if checksum_of(restored.get_topic(name)) != checksum_of(self.log.get_topic(name), ends)
            ]
            wrong += [f"the restored home: {each}" for each in check_problems(restored)]
        facts = {
            "rows": report.rows,
            "bytes": self._made.manifest.size,
            "backup_seconds": round(self._made.seconds, 2),
            "restore_seconds": round(report.seconds, 2),
        }
        return facts, wrong

    def forget(self) -> tuple[dict[str, Any], list[str]]:
        """Erase the customer with the most orders from the restored home and from the backup; what is left of them."""
        if not self._restored.exists():
            return {}, ["there is no home to erase somebody from"]
        begun, place = time.monotonic(), str(self._place)
        with Log(self._restored, maintenance_interval=None) as restored:
            before = rows_of_customers(restored)
            customer = before["orders"].most_common(1)[0][0]
            work = PersonErasure(restored, SUBJECT, str(customer), backups=[place], keys={place: self._key}, wait_s=0)
            certificate = work.run()
        seconds = time.monotonic() - begun
        again = restore_home(self._place, Path(self._folder.name) / "forgotten", key=self._key)
        with Log(again.home, maintenance_interval=None) as log:
            after = rows_of_customers(log)
            wrong = [f"the home without a customer: {each}" for each in check_problems(log)]
        of_backups = [each for each in certificate.places if each.place.startswith("backups")]
        if [each.state for each in of_backups] != [PlaceState.DONE]:
            wrong.append(f"the backup was not rewritten: {'; '.join(each.detail for each in of_backups)}")
        for name, counts in before.items():
            if after[name] != Counter({id: count for id, count in counts.items() if id != customer}):
                wrong.append(f"a customer was erased, and {name} of the home made of the backup is not as it should be")
        erased = sum(counts[customer] for counts in before.values())
        return {"customer": customer, "rows": erased, "seconds": round(seconds, 2)}, wrong

    @property
    def _restored(self) -> Path:
        return Path(self._folder.name) / "restored"

    def close(self) -> None:
        """Remove the backup."""
        self._folder.cleanup()


def rows_of_customers(log: Log) -> dict[str, Counter[int]]:
    """How many records each customer has in each topic; blanked ones are nobody's."""
    found = {}
    for name, column in OF_A_CUSTOMER.items():
        batches = log.get_topic(name).read("earliest", columns=[column])
        ids = (id for batch in batches for id in batch.data.column(column).to_pylist())
        found[name] = Counter(id for id in ids if id is not None)
    return found
