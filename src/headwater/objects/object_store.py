"""Object store: named bytes that several machines share.

What it is: ``ObjectStore``, the contract: create if absent, put, copy, get, list, delete.
Invariants: of several ``create`` calls for one name exactly one returns True as long as the object is not deleted. What
was written is seen whole by every later ``get`` and ``list``, from every machine. A call that returns took effect; one
that raises ``ObjectStoreUnavailable`` may have taken effect, now or later. Every call ends within a bounded time.
Not here: how each store keeps it (``s3_store.py``, ``folder_store.py``); what the objects are
(``views/state/remote/``).
Read next: ``s3_store.py``, ``folder_store.py``; ``views/state/remote/commit_log.py``, which needs the invariants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class StoredObject:
    """An object as a listing shows it."""

    name: str
    bytes: int
    modified_s: float  # by the store's clock


class ObjectStore(ABC):
    """Named bytes below one address. Safe to share between threads."""

    shown: str  # the address, for messages: it has no secret

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one of that name; whether it was written.

        False may also mean that an earlier attempt of this same call was the one that wrote it, and its answer was
        lost: a caller that needs to know reads the object and compares.
        """

    @abstractmethod
    def put(self, name: str, data: bytes | Path | Iterable[bytes]) -> None:
        """Write an object, from memory, from a file or in pieces; one of that name is replaced.

        Pieces are not held in memory, and may be asked for again from the first one on: by ``iter``.
        """

    @abstractmethod
    def copy(self, name: str, other: str) -> None:
        """Write the bytes of an object under another name; FileNotFoundError when there is none.

        They do not pass this machine, where the store can do it by itself.
        """

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """The bytes of an object; None when there is none."""

    @abstractmethod
    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        """Some bytes of an object, fewer where it ends earlier; None when there is none."""

    @abstractmethod
    def read(self, name: str) -> Iterator[bytes] | None:
        """The bytes of a large object, piece by piece; None when there is none."""

    @abstractmethod
    def list(self, prefix: str) -> list[StoredObject]:
        """The objects whose names begin with ``prefix``, which ends with a slash; by name."""

    def remove_unfinished(self, before_s: float) -> None:  # noqa: B027
        """Remove what writers that were killed before a moment, by the store's clock, have left that is no object."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove an object; a missing one is no error."""
