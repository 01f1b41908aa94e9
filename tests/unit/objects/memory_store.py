"""An object store in memory, for tests that need thousands of them, or one whose every call can be held up.

What it is: ``MemoryStore`` keeps the contract of ``objects/object_store.py`` in a dict.
Invariants: as the contract says, within one process.
Not here: the stores that apps use (``objects/``), which pass the same suite.
Read next: ``test_conformance.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from headwater.objects.object_store import ObjectStore, StoredObject


class MemoryStore(ObjectStore):
    def __init__(self) -> None:
        self.shown = "memory"
        self.objects: dict[str, bytes] = {}

    def create(self, name: str, data: bytes) -> bool:
        if name in self.objects:
            return False
        self.objects[name] = data
        return True

    def put(self, name: str, data: bytes | Path | Iterable[bytes]) -> None:
        whole = data.read_bytes() if isinstance(data, Path) else data
        self.objects[name] = whole if isinstance(whole, bytes) else b"".join(whole)

    def copy(self, name: str, other: str) -> None:
        if name not in self.objects:
            raise FileNotFoundError(name)
        self.objects[other] = self.objects[name]

    def get(self, name: str) -> bytes | None:
        return self.objects.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        found = self.objects.get(name)
        return None if found is None else found[start : start + length]

    def read(self, name: str) -> Iterator[bytes] | None:
        found = self.objects.get(name)
        return None if found is None else iter([found])

    def list(self, prefix: str) -> list[StoredObject]:
        return [
            StoredObject(name, len(self.objects[name]), 0.0) for name in sorted(self.objects) if name.startswith(prefix)
        ]

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)
