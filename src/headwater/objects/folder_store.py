"""Folder store: objects as files of a folder that several machines share.

What it is: ``FolderStore``. An object is a file; it gets its name by a hard link (``create``) or a rename (``put``) of
a complete, synced temporary file.
Invariants: those of ``object_store.py``, as far as the file system keeps them: a hard link is made by one of several
machines, and a file that was named is seen by the others. Local disks and NFS do; a file system without hard links is
refused when the first object is created.
Not here: addresses (``object_address.py``).
Read next: ``object_store.py``.
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.errors import DiskFull, HeadwaterError, ObjectStoreRefused, ObjectStoreUnavailable
from headwater.log.storage.files import Files
from headwater.objects.object_store import CHUNK_BYTES, ObjectStore, StoredObject

TEMPORARY = ".temporary"  # the folder of files that have no name yet
LEFT_SECONDS = 86_400  # no write of a file takes so long


class FolderStore(ObjectStore):
    """A folder as an object store.

    >>> import tempfile
    >>> store = FolderStore(Path(tempfile.mkdtemp()))
    >>> store.create("ticks/1", b"one"), store.create("ticks/1", b"two"), store.get("ticks/1")
    (True, False, b'one')
    >>> [found.name for found in store.list("ticks/")]
    ['ticks/1']
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown = f"file://{folder}"
        self._files = Files()
        self._folders: set[Path] = set()  # those that are known to be there

    def create(self, name: str, data: bytes) -> bool:
        """See ``ObjectStore.create``."""
        with self._translated(name), self._temporary(data) as temporary:
            target = self._place(name)
            try:
                os.link(temporary, target)
            except FileExistsError:
                # NFS repeats a request whose answer was lost, and then says that the name is there: it is ours.
                return os.stat(temporary).st_nlink == 2
            self._files.sync_dir(target.parent, label="object.create")
        return True

    def put(self, name: str, data: bytes | Path | Iterable[bytes]) -> None:
        """See ``ObjectStore.put``."""
        with self._translated(name), self._temporary(data) as temporary:
            target = self._place(name)
            self._files.rename(temporary, target, label="object.put")
            self._files.sync_dir(target.parent, label="object.put")

    def copy(self, name: str, other: str) -> None:
        """See ``ObjectStore.copy``."""
        source = self.folder / name
        if not source.exists():
            raise FileNotFoundError(name)
        self.put(other, source)

    def get(self, name: str) -> bytes | None:
        """See ``ObjectStore.get``."""
        with self._translated(name):
            try:
                return (self.folder / name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):  # below what is a file nothing is
                return None

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        """See ``ObjectStore.get_range``."""
        with self._translated(name):
            try:
                with (self.folder / name).open("rb") as file:
                    file.seek(start)
                    return file.read(length)
            except (FileNotFoundError, NotADirectoryError):  # below what is a file nothing is
                return None

    def read(self, name: str) -> Iterator[bytes] | None:
        """See ``ObjectStore.read``."""
        with self._translated(name):
            try:
                file = (self.folder / name).open("rb")
            except (FileNotFoundError, NotADirectoryError):  # below what is a file nothing is
                return None
        return self._pieces(name, file)

    def _pieces(self, name: str, file: object) -> Iterator[bytes]:
        with self._translated(name), file as opened:  # type: ignore[attr-defined]
            while piece := opened.read(CHUNK_BYTES):
                yield piece

    def list(self, prefix: str) -> list[StoredObject]:
        """See ``ObjectStore.list``."""
        found = []
        with self._translated(prefix):
            for place, _, names in os.walk(self.folder / prefix):
                for path in (Path(place) / name for name in names):
                    try:
                        stat = path.stat()
                    except FileNotFoundError:  # deleted meanwhile
                        continue
                    found.append(StoredObject(str(path.relative_to(self.folder)), stat.st_size, stat.st_mtime))
        return sorted(found, key=lambda each: each.name)

    def delete(self, name: str) -> None:
        """See ``ObjectStore.delete``."""
        with self._translated(name):
            self._files.unlink(self.folder / name, label="object.delete")

    def _place(self, name: str) -> Path:
        target = self.folder / name
        if target.parent not in self._folders or not target.parent.exists():  # a disk may have been replaced
            self._files.make_dir(target.parent, label="object.make_directory")
            self._folders.add(target.parent)
            if target.parent.name == TEMPORARY:
                self._sweep()
        return target

    def remove_unfinished(self, before_s: float) -> None:
        """See ``ObjectStore.remove_unfinished``."""
        with self._translated(TEMPORARY):
            for path in (self.folder / TEMPORARY).glob("*"):
                with suppress(FileNotFoundError):  # its owner was quicker
                    if path.stat().st_mtime < before_s:
                        self._files.unlink(path, label="object.sweep")

    def _sweep(self) -> None:
        """Remove what processes have left that were killed."""
        self.remove_unfinished(time.time() - LEFT_SECONDS)

    @contextmanager
    def _temporary(self, data: bytes | Path | Iterable[bytes]) -> Iterator[Path]:
        """A complete and synced file that has no name among the objects yet."""
        path = self._place(f"{TEMPORARY}/{uuid.uuid4().hex}")
        try:
            with path.open("xb") as file:
                for piece in _pieces_of(data):
                    file.write(piece)
                file.flush()
                self._files.sync(file.fileno(), label="object.sync")
            yield path
        finally:
            self._files.unlink(path, label="object.unlink")

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, HeadwaterError) as told:
            # ``Files`` tells of the home: this is another folder.
            error = told if isinstance(told, OSError) else told.__cause__
            if not isinstance(error, OSError):
                raise
            reason = os.strerror(error.errno) if error.errno else str(error)
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK) and error.filename2:
                raise ObjectStoreRefused(
                    f"the folder {self.folder} cannot be an object store: its file system makes no hard links",
                    detail=reason,
                    hint="Use a folder of a local disk or of NFS, or an S3 bucket.",
                    address=self.shown,
                ) from error
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise ObjectStoreRefused(
                    f"the folder {self.folder} cannot be written: {reason}",
                    detail=f"It was asked for {name}.",
                    hint="Check its owner and permissions.",
                    address=self.shown,
                ) from error
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(
                    f"no space is left in {self.folder}",
                    detail="Nothing of what was under way counts; what was committed before it is safe.",
                    hint="Free some space there and run it again.",
                ) from error
            raise ObjectStoreUnavailable(
                f"the folder {self.folder} does not answer: {reason}",
                detail=f"It was asked for {name}.",
                hint="Is it mounted? Run it again when it is there again: it goes on where it was.",
                address=self.shown,
            ) from error


def _pieces_of(data: bytes | Path | Iterable[bytes]) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield data
    elif isinstance(data, Path):
        with data.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece
    else:
        yield from data
