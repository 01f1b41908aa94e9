"""Keys: authentication of clients, and their scopes.

What it is: ``Keys`` reads a file of keys, each with a name and scopes; ``add`` and ``remove`` change it for ``headwater
key``.
Invariants: the file holds hashes; a key is shown once, when it is made. Keys are random (32 bytes), so a plain hash is
enough. Comparison takes constant time. Only its owner may read the file. A changed file is read again.
Not here: reading a request's key (``guard.py``).
Read next: ``guard.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.clock import Clock, format_us
from headwater.errors import InvalidDeclaration
from headwater.log.topic_settings import check_name

SCOPES = ("produce", "consume", "query", "admin")
PREFIX = "hw_"


@dataclass(frozen=True)
class Holder:
    """Whose a key is, and what it is good for. ``admin`` is good for everything."""

    name: str
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        """Whether the key is good for something.

        >>> Holder("app", frozenset({"query"})).may("produce"), Holder("me", frozenset({"admin"})).may("produce")
        (False, True)
        """
        return scope in self.scopes or "admin" in self.scopes


class Keys:
    """The keys of a file.

    >>> import tempfile
    >>> keys = Keys(Path(tempfile.mkdtemp()) / "keys.json")
    >>> key = keys.add("app", ["query"])
    >>> keys.holder(key).name, keys.holder("hw_wrong")
    ('app', None)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._known: list[dict[str, Any]] = []

    def holder(self, key: str) -> Holder | None:
        """The holder of a key; None when it is unknown."""
        given = hashed(key)
        found = None
        for each in self.entries():  # all of them, whichever it is
            if hmac.compare_digest(each["hash"], given):
                found = Holder(each["name"], frozenset(each["scopes"]))
        return found

    def entries(self) -> list[dict[str, Any]]:
        """The entries of the key file."""
        with self._lock:
            try:
                now = self.path.stat()
            except FileNotFoundError:
                self._seen, self._known = None, []
                return []
            seen = (now.st_mtime_ns, now.st_size, now.st_ino)
            if seen != self._seen:
                self._known, self._seen = _read(self.path), seen
            return list(self._known)

    def add(self, name: str, scopes: Collection[str], *, clock: Clock | None = None) -> str:
        """Make a key and return it; it cannot be shown again."""
        check_name("key", name)
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            what = f"no scope {unknown[0]!r}" if unknown else "a key needs a scope"
            raise InvalidDeclaration(f"there is {what}" if unknown else what, hint=f"Scopes: {', '.join(SCOPES)}.")
        known = self.entries()
        if any(each["name"] == name for each in known):
            raise InvalidDeclaration(f'there is a key "{name}" already', hint=f"Remove it: headwater key rm {name}")
        key = PREFIX + secrets.token_urlsafe(32)
        made = format_us((clock or Clock()).now_us())
        entry = {"name": name, "scopes": sorted(scopes), "hash": hashed(key), "made_at": made}
        self._write([*known, entry])
        return key

    def remove(self, name: str) -> None:
        """Take a key back. A running server refuses it from its next request on."""
        known = self.entries()
        left = [each for each in known if each["name"] != name]
        if len(left) == len(known):
            names = ", ".join(each["name"] for each in known) or "none"
            raise InvalidDeclaration(f'there is no key "{name}" in {self.path}', hint=f"There are: {names}.")
        self._write(left)

    def _write(self, entries: list[dict[str, Any]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(fd, "w", encoding="utf-8") as out:
                json.dump({"keys": entries}, out, indent=2)
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, self.path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            raise


def hashed(key: str) -> str:
    """The entry of a key in the file."""
    return hashlib.sha256(key.encode()).hexdigest()


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["keys"]
        for each in found:
            if not isinstance(each["name"], str) or not isinstance(each["hash"], str) or not each["scopes"]:
                raise ValueError(each)
        return list(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidDeclaration(
            f"{path} is no file of keys", hint="Make one: headwater key add NAME --scope query --key-file FILE"
        ) from error
