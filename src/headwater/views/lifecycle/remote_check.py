"""Remote check: verification of an app's state on an object store.

What it is: ``RemoteFiles`` compares the files of runs on the store with what manifests list, and the store's commits
with their copy in the catalog. It is a part of ``headwater check``.
Invariants: it changes nothing, here or there. A file of which a sound copy is here is not read from the store again: it
must be there, with its size. Every other one is read whole and compared with its checksum.
Not here: what is in the home (``views_check.py``).
Read next: ``views_check.py``, ``views/state/remote/run_cache.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import xxhash

from headwater.log.catalog.catalog import Catalog
from headwater.log.storage.checksums import has_checksum, signed
from headwater.objects.object_address import ObjectAddress
from headwater.views.state.remote.commit_log import CommitLog, CommitPosition
from headwater.views.state.remote.stored_file import RUNS
from headwater.views.state.run import RunFile


class RemoteFiles:
    """The files of an app's runs on its object store."""

    def __init__(self, catalog: Catalog, app: str) -> None:
        row = catalog.read("SELECT address, position FROM remote_states WHERE app = ?", (app,))[0]
        self.store = ObjectAddress.parse(row["address"]).open()
        self._position = CommitPosition(**json.loads(row["position"]))
        self._sizes = {found.name: found.bytes for found in self.store.list(RUNS)}

    def problem(self, copy: Path, file: RunFile) -> str | None:
        """What is wrong with a file on the store; ``copy`` is where one may be here."""
        name = f"{RUNS}{copy.parent.name}/{copy.name}"
        if name not in self._sizes:
            return "the object is missing"
        if self._sizes[name] != file.bytes:
            return f"the object has {self._sizes[name]} bytes, and was written with {file.bytes}"
        try:
            if has_checksum(copy, file.checksum, size=file.bytes):
                return None
        except FileNotFoundError:
            pass
        hasher = xxhash.xxh3_64()
        for piece in self.store.read(name) or ():
            hasher.update(piece)
        return None if signed(hasher.intdigest()) == file.checksum else "the object is damaged: its checksum is another"

    def behind(self) -> int:
        """How many commits of the store are not in the catalog's copy."""
        return CommitLog(self.store).after(self._position).head(self._position).number - self._position.number
