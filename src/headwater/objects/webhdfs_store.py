"""WebHDFS store: objects as files of HDFS, by the HTTP interface that every NameNode has.

What it is: ``WebHdfsStore``. An object is a complete file that is given its name by a rename, which the NameNode does
for one of several callers; with the option that replaces for ``put``.
Invariants: those of ``object_store.py``. A file is closed before it has its name, so nobody sees a part of it. Requests
that are not answered, or that a NameNode in safe mode or on standby turns away, are repeated with growing pauses for a
bounded time; what rights are to blame for is ``ObjectStoreRefused`` at once.
Not here: addresses (``object_address.py``); Kerberos, TLS and a second NameNode, which are not offered.
Read next: ``object_store.py``, ``remote_store.py``; ``docs/scale.md``.

Why not Arrow's client: it loads ``libhdfs`` and a whole Hadoop, which nothing that we install brings, and cannot rename
only where there is no such file.
"""

from __future__ import annotations

import functools
import getpass
import http.client
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from headwater.errors import DiskFull, ObjectStoreRefused, ObjectStoreUnavailable
from headwater.objects.object_store import CHUNK_BYTES, StoredObject
from headwater.objects.remote_store import RemoteStore

USER = "HADOOP_USER_NAME"  # Hadoop's own variable
TEMPORARY = ".temporary"  # the folder of files that have no name yet
LEFT_SECONDS = 86_400  # no write of a file takes so long
REQUEST_SECONDS_MAX = 20.0
REFUSED = {"AccessControlException", "SecurityException", "InvalidPathException", "UnsupportedOperationException"}
FULL = {"DSQuotaExceededException", "NSQuotaExceededException", "QuotaByStorageTypeExceededException"}
OUT_OF_RANGE = "out of the range"  # a read that begins behind the end

Body = bytes | Iterable[bytes] | None


class _Told(Exception):
    """What a server answered that is no success."""

    def __init__(self, status: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.status, self.kind, self.text = status, kind, text


class WebHdfsStore(RemoteStore):
    """A folder of HDFS as an object store; ``server`` is the NameNode's HTTP address, ``host:9870``.

    >>> WebHdfsStore("namenode:9870", "lake/shop").shown
    'webhdfs://namenode:9870/lake/shop'
    """

    answers = (FileNotFoundError, FileExistsError)
    failures = (OSError, http.client.HTTPException, _Told)

    def __init__(self, server: str, prefix: str) -> None:
        self.server = server
        self.shown = f"webhdfs://{server}/{prefix}"
        self._top = f"/{prefix}" if prefix else ""
        self._user = os.environ.get(USER) or getpass.getuser()
        self._folders: set[str] = set()  # those that are known to be there

    def create(self, name: str, data: bytes) -> bool:
        """See ``ObjectStore.create``."""
        temporary = self._uploaded(name, lambda: data, len(data))
        try:
            self._named(temporary, name, "NONE")
        except FileExistsError:
            self.delete(temporary)
            return False
        return True

    def put(self, name: str, data: bytes | Path | Iterable[bytes]) -> None:
        """See ``ObjectStore.put``."""
        if isinstance(data, bytes):
            temporary = self._uploaded(name, lambda: data, len(data))
        elif isinstance(data, Path):
            temporary = self._uploaded(name, lambda: _pieces_of(data), data.stat().st_size)
        else:  # made twice: a request says how long it is before it begins
            temporary = self._uploaded(name, lambda: iter(data), sum(map(len, data)))
        self._named(temporary, name, "OVERWRITE")

    def copy(self, name: str, other: str) -> None:
        """See ``ObjectStore.copy``. HDFS cannot do it by itself: the bytes pass this machine, piece by piece."""
        size = self._size(name)
        if size is None:
            raise FileNotFoundError(name)
        self._named(self._uploaded(other, lambda: self.pieces(name, size), size), other, "OVERWRITE")

    def get(self, name: str) -> bytes | None:
        """See ``ObjectStore.get``."""
        return self.found(name, lambda: self._opened(name))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        """See ``ObjectStore.get_range``."""
        return self.found(name, lambda: self._opened(name, offset=start, length=length))

    def read(self, name: str) -> Iterator[bytes] | None:
        """See ``ObjectStore.read``."""
        size = self._size(name)
        return None if size is None else self.pieces(name, size)

    def list(self, prefix: str) -> list[StoredObject]:
        """See ``ObjectStore.list``."""
        found, waiting = [], [prefix.rstrip("/")]
        while waiting:
            folder = waiting.pop()
            for entry in self.found(folder, functools.partial(self._entries, folder)) or ():
                name = f"{folder}/{entry['pathSuffix']}"
                if entry["type"] == "DIRECTORY":
                    waiting.append(name)
                else:
                    found.append(StoredObject(name, entry["length"], entry["modificationTime"] / 1000))
        return sorted(found, key=lambda each: each.name)

    def delete(self, name: str) -> None:
        """See ``ObjectStore.delete``."""
        self.called(name, lambda: self._ask("DELETE", name, "DELETE"))

    # The operations of WebHDFS

    def _size(self, name: str) -> int | None:
        status = self.found(name, lambda: self._ask("GET", name, "GETFILESTATUS"))
        return None if status is None else int(status["FileStatus"]["length"])

    def _opened(self, name: str, **part: int) -> bytes:
        try:
            return self._through_datanode("GET", name, "OPEN", None, 0, **part)
        except _Told as told:
            if OUT_OF_RANGE in told.text:
                return b""
            raise

    def _entries(self, folder: str) -> Sequence[dict[str, Any]]:
        """What is in a folder, and not below those in it."""
        found: Sequence[dict[str, Any]] = self._ask("GET", folder, "LISTSTATUS")["FileStatuses"]["FileStatus"]
        return found

    def _uploaded(self, name: str, body: Callable[[], Body], size: int) -> str:
        """A complete file that has no name among the objects yet; the folder of ``name`` is made."""
        temporary = f"{TEMPORARY}/{uuid.uuid4().hex}"

        def attempt() -> None:
            for folder in (TEMPORARY, name.rpartition("/")[0]):
                if folder not in self._folders:
                    self._ask("PUT", folder, "MKDIRS")
                    self._folders.add(folder)
                    if folder == TEMPORARY:
                        self._sweep()
            self._through_datanode("PUT", temporary, "CREATE", body(), size, overwrite="true")

        self.called(name, attempt)
        return temporary

    def _sweep(self) -> None:
        """Remove what processes have left that were killed."""
        for entry in self._entries(TEMPORARY):
            if time.time() - entry["modificationTime"] / 1000 > LEFT_SECONDS:
                self._ask("DELETE", f"{TEMPORARY}/{entry['pathSuffix']}", "DELETE")

    def _named(self, temporary: str, name: str, option: str) -> None:
        """Give a file its name; FileExistsError where that is taken, unless the option replaces."""
        settings = {"destination": f"{self._top}/{name}", "renameoptions": option}
        try:
            self.called(name, lambda: self._ask("PUT", temporary, "RENAME", **settings))
        except FileNotFoundError as error:
            if self._size(temporary) is None:
                return  # nobody else renames it: an earlier attempt did, whose answer was lost
            self._folders.clear()  # somebody has removed the folder
            raise self.mapped(name, error) from error

    def _ask(self, method: str, name: str, operation: str, **settings: Any) -> dict[str, Any]:
        """One request to the NameNode, which answers in JSON."""
        _, text = self._request(method, self.server, self._path(name, operation, **settings))
        try:
            answer: dict[str, Any] = json.loads(text or b"{}")
        except ValueError as error:
            raise _Told(502, "", f"it does not answer as a NameNode does: {text[:80]!r}") from error
        return answer

    def _through_datanode(
        self, method: str, name: str, operation: str, body: Body, size: int, **settings: Any
    ) -> bytes:
        """A request about a file's bytes: the NameNode says which DataNode has them, or takes them."""
        path = self._path(name, operation, **settings)
        place, text = self._request(method, self.server, path)
        if place is None:
            raise _Told(502, "", f"it names no DataNode: {text[:80]!r}")
        parts = urlsplit(place)
        return self._request(method, parts.netloc, f"{parts.path}?{parts.query}", body, size)[1]

    def _path(self, name: str, operation: str, **settings: Any) -> str:
        asked = urlencode({"op": operation, "user.name": self._user, **settings})
        return f"/webhdfs/v1{quote(f'{self._top}/{name}'.rstrip('/') or '/')}?{asked}"

    def _request(
        self, method: str, server: str, path: str, body: Body = None, size: int = 0
    ) -> tuple[str | None, bytes]:
        """Where a request was sent on to, and what was answered."""
        connection = http.client.HTTPConnection(server, timeout=REQUEST_SECONDS_MAX)
        try:
            headers = (
                {"Content-Length": str(size), "Content-Type": "application/octet-stream"} if method == "PUT" else {}
            )
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status == http.client.TEMPORARY_REDIRECT:
            return answer.getheader("Location"), text
        if answer.status >= http.client.MULTIPLE_CHOICES:
            raise _refusal(answer.status, text)
        return None, text

    # Failures

    def mapped(self, name: str, error: Exception, attempts: int = 1) -> Exception:
        """See ``RemoteStore.mapped``."""
        text = " ".join(str(error).split())[:300]
        if isinstance(error, _Told) and (error.kind in REFUSED or error.status == http.client.UNAUTHORIZED):
            return ObjectStoreRefused(
                f"{self.shown} forbids it to {self._user}: {name}",
                detail=text,
                hint=f"Give this user the right to read and write there, or name another one by {USER}.",
                address=self.shown,
            )
        if isinstance(error, _Told) and error.kind in FULL:
            return DiskFull(
                f"no space is left at {self.shown}: a quota is used up",
                detail="Nothing of what was under way counts; what was committed before it is safe.",
                hint="Free some space there, or raise its quota, and run it again.",
            )
        return ObjectStoreUnavailable(
            f"{self.shown} does not answer",
            detail=f"Asked was {name}, {attempts} time{'s' if attempts > 1 else ''}. {text}",
            hint="Run it again when the store is there again: it goes on where it was."
            " The address is the NameNode's HTTP address, whose port is 9870 as a rule.",
            address=self.shown,
        )


def _refusal(status: int, text: bytes) -> Exception:
    """A refusal as it was told; FileNotFoundError and FileExistsError where that is what it says."""
    kind, said = "", text.decode("utf-8", "replace")
    with suppress(ValueError, KeyError, TypeError):
        about = json.loads(text)["RemoteException"]
        kind, said = about["exception"], about["message"]
    if kind == "FileNotFoundException":
        return FileNotFoundError(said)
    if kind == "FileAlreadyExistsException":
        return FileExistsError(said)
    return _Told(status, kind, f"{status} {kind} {said}")


def _pieces_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece
