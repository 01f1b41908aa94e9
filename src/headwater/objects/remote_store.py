"""Remote store: an object store that is asked over a network.

What it is: ``RemoteStore``, from which stores on servers come. It repeats requests, and reads large objects in pieces.
Invariants: a request that fails is repeated with growing pauses for a bounded time, as long as its error is
``ObjectStoreUnavailable`` in our words; what is an answer (there is one of that name, there is none) and every other
error are raised at once.
Not here: the requests, and what an error of theirs means (``s3_store.py``, ``webhdfs_store.py``).
Read next: ``object_store.py``, ``s3_store.py``.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TypeVar

from headwater.backoff import Backoff
from headwater.errors import ObjectStoreUnavailable
from headwater.objects.object_store import CHUNK_BYTES, ObjectStore

RETRY_SECONDS_MAX = 30.0  # of one call, with all its attempts
PAUSE_FIRST_S, PAUSE_MOST_S = 0.05, 2.0

Answer = TypeVar("Answer")


class RemoteStore(ObjectStore):
    """An object store on a server."""

    answers: tuple[type[Exception], ...]  # what a client raises for an answer that is no failure
    failures: tuple[type[Exception], ...]  # what a client raises for a failure; an answer may be among these

    @abstractmethod
    def mapped(self, name: str, error: Exception, attempts: int) -> Exception:
        """A failure in our words; FileNotFoundError for a missing object."""

    def called(self, name: str, call: Callable[[], Answer]) -> Answer:
        """What a request gives, which is made again and again where that may help."""
        deadline, backoff, attempts = time.monotonic() + RETRY_SECONDS_MAX, Backoff(PAUSE_FIRST_S, PAUSE_MOST_S), 0
        while True:
            attempts += 1
            try:
                return call()
            except self.answers:
                raise
            except self.failures as error:
                mapped = self.mapped(name, error, attempts)
                pause = backoff.next()
                if not isinstance(mapped, ObjectStoreUnavailable) or time.monotonic() + pause > deadline:
                    raise mapped from error
                time.sleep(pause)

    def found(self, name: str, call: Callable[[], Answer]) -> Answer | None:
        """The same; None when there is no such object."""
        try:
            return self.called(name, call)
        except FileNotFoundError:
            return None

    def pieces(self, name: str, size: int) -> Iterator[bytes]:
        """The bytes of an object of this size."""
        # A request for each piece: the bound in time is one request's, and a piece that fails is asked for again.
        for start in range(0, size, CHUNK_BYTES):
            piece = self.get_range(name, start, min(CHUNK_BYTES, size - start))
            if piece is None:  # deleted meanwhile: the caller counts the bytes
                return
            yield piece
