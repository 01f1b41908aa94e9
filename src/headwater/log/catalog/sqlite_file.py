"""SQLite errors, mapped to Headwater's.

What it is: ``DatabaseFile`` names a SQLite file; ``translated`` maps SQLite's errors; ``immediate`` is a writing
transaction.
Invariants: a full disk, a damaged file, a held lock and missing permissions give the same errors for every SQLite file
of a home. Other errors (a mistake in SQL) pass through unchanged.
Not here: connections (``catalog.py``, ``views/serving/serving_file.py``); other files (``log/storage/files.py``).
Read next: ``catalog.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.errors import CatalogBusy, DiskFull, HeadwaterError, ReadOnlyHome, Unavailable
from headwater.log.storage.file_descriptors import exhausted

BUSY_TIMEOUT_S = 30.0
DAMAGED = ("malformed", "not a database", "decode")  # said by errors that have no code


@contextmanager
def immediate(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A transaction that holds the write lock from its beginning.

    >>> db = sqlite3.connect(":memory:", isolation_level=None)
    >>> with immediate(db):
    ...     _ = db.execute("CREATE TABLE t (x)")
    >>> db.execute("SELECT count(*) FROM t").fetchone()
    (0,)
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def rewritten(db: sqlite3.Connection) -> bool:
    """Write a file anew, without what its free pages and its log hold of rows that are gone; False while that is read.

    >>> rewritten(sqlite3.connect(":memory:", isolation_level=None))
    True
    """
    db.execute("VACUUM")
    return not db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


@dataclass(frozen=True)
class DatabaseFile:
    """The name, and the advice for its errors, of a SQLite file.

    >>> from headwater.errors import Corruption
    >>> store = DatabaseFile("the store shop.sqlite", Corruption, "It holds copies only.", "Delete it.")
    >>> with store.translated():
    ...     _ = sqlite3.connect("/no/such/folder/shop.sqlite")
    Traceback (most recent call last):
        ...
    headwater.errors.ReadOnlyHome: the store shop.sqlite cannot be opened: unable to open database file
      Hint: Check the owner and the permissions of its directory.
    """

    title: str  # "the catalog /data/catalog.sqlite"
    damage: type[HeadwaterError]
    damage_detail: str
    damage_hint: str

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Map SQLite's errors inside the block."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._mapped(error) from error

    def _mapped(self, error: sqlite3.Error | UnicodeDecodeError) -> Exception:
        name = getattr(error, "sqlite_errorname", "") or ""
        text = str(error)
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_IOERR")) and (full := exhausted()) is not None:
            return full
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or any(sign in text for sign in DAMAGED):
            return self.damage(f"{self.title} is damaged: {text}", detail=self.damage_detail, hint=self.damage_hint)
        if name.startswith("SQLITE_FULL"):
            return DiskFull(
                f"no space left on the disk for {self.title}",
                detail="The change was rolled back.",
                hint="Free some space and try again; a running app retries by itself.",
            )
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return ReadOnlyHome(
                f"{self.title} cannot be opened: {text}", hint="Check the owner and the permissions of its directory."
            )
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return CatalogBusy(
                f"{self.title} was held by another process for more than {BUSY_TIMEOUT_S:.0f} s",
                hint="Find a stopped process that has the file open (lsof), then try again.",
            )
        if name.startswith("SQLITE_IOERR"):
            return Unavailable(
                f"the disk refused to read or write {self.title}: {text}",
                detail="The change was rolled back.",
                hint="Check the disk's health, its free space and the limits of this process, and try again.",
            )
        return error
