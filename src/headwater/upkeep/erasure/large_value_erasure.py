"""Large values: what captures remember of long texts by key, to fill in where a database sends none.

What it is: ``forget_large`` lets go of those of some tables.
Invariants: they are looked up in the database again when they are needed, so nothing is lost. The file is written anew:
no free page of it holds one.
Not here: captures (``capture/``). Read next: ``person_erasure.py``.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection
from pathlib import Path

from headwater.log.catalog.sqlite_file import rewritten
from headwater.upkeep.backup.backup_cut import CAPTURES


def forget_large(home: Path, topics: Collection[str]) -> dict[Path, bool]:
    """Forget the large values of these topics; by file, whether it could be written anew: no reader keeps its log."""
    done = {}
    for path in sorted((home / CAPTURES).glob("*.sqlite")):
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as db:
            db.executemany("DELETE FROM large WHERE name = ?", [(name,) for name in topics])
            done[path] = rewritten(db)
    return done
