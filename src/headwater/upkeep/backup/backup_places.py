"""Backup places: where backups of a home are, as its catalog knows.

What it is: ``BackupPlaces``, the table ``backup_places``: the address of every repository that a backup was made at,
and what is still to be erased there.
Invariants: an address is noted before the first backup there is of the home, so that whoever erases a person knows all
of them, also those that no app declares; no key is kept. What is pending is told until it is done, or the place is
forgotten by somebody who knows that it is gone.
Not here: erasing (``upkeep/erasure/erased_places.py``). Read next: ``backup_writer.py``.
"""

from __future__ import annotations

from headwater.log.catalog.catalog import Catalog


class BackupPlaces:
    """The places of one home's backups.

    >>> import headwater as hw, tempfile
    >>> places = BackupPlaces(hw.Log(tempfile.mkdtemp()).catalog)
    >>> places.note("s3://safe/shop")
    >>> places.set_pending("s3://safe/shop", "it does not answer")
    >>> places.known()
    {'s3://safe/shop': 'it does not answer'}
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def known(self) -> dict[str, str | None]:
        """The addresses, each with what is pending there: None when nothing is."""
        return {row["address"]: row["pending"] for row in self.catalog.read("SELECT * FROM backup_places")}

    def note(self, address: str) -> None:
        """A backup is about to be made there."""
        if address not in self.known():
            with self.catalog.write(durable=True) as db:
                db.execute("INSERT OR IGNORE INTO backup_places (address) VALUES (?)", (address,))

    def set_pending(self, address: str, why: str | None) -> None:
        """Something is still to be erased there, or not any more."""
        known = self.known()
        if known.get(address) != why:
            with self.catalog.write(durable=True) as db:
                db.execute("INSERT OR REPLACE INTO backup_places (address, pending) VALUES (?, ?)", (address, why))

    def forget(self, address: str) -> bool:
        """The place is gone; whether it was known."""
        with self.catalog.write(durable=True) as db:
            return db.execute("DELETE FROM backup_places WHERE address = ?", (address,)).rowcount > 0
