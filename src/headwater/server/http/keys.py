"""Keys: authentication of clients, and their rights.

What it is: ``Keys`` reads a file of keys, each with a name, scopes, perhaps the names of topics and views that it is
limited to, and perhaps an end; ``add``, ``rotate`` and ``remove`` change it for ``headwater key``.
Invariants: the file holds hashes; a key is shown once, when it is made. Keys are random (32 bytes), so a plain hash is
enough. Comparison takes constant time. Only its owner may read the file. A changed file is read again. A key is refused
from the moment on at which it ends.
Not here: reading a request's key, and which names a request is about (``guard.py``).
Read next: ``guard.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from headwater.clock import Clock, format_us
from headwater.errors import InvalidDeclaration, Unauthenticated
from headwater.log.schema.personal_columns import Personal
from headwater.log.schema.row_claims import declared_rows_by
from headwater.log.topic_settings import check_name
from headwater.views.privacy.personal_data import SEES_ALL, PrivacyRights

SCOPES = ("produce", "consume", "query", "personal", "rows", "admin")
PREFIX = "hw_"
CLAIM_VALUES_MAX, CLAIM_LENGTH_MAX = 100, 1000
NAME_PATTERN = re.compile(r"[\w.\-*?]{1,200}")  # a name of the log, with wildcards


@dataclass(frozen=True)
class Holder:
    """Whose a key is, and what it is good for. ``admin`` is good for everything that ``only`` names."""

    name: str
    scopes: frozenset[str]
    only: tuple[str, ...] = ()  # names of topics, views and so on, with wildcards; empty: all
    purposes: tuple[str, ...] = ()  # personal columns of these purposes are not masked
    claims: frozenset[tuple[str, str]] = frozenset()  # names and values: whose rows it sees, where they are told apart

    def may(self, scope: str) -> bool:
        """Whether the key is good for something.

        >>> Holder("app", frozenset({"query"})).may("produce"), Holder("me", frozenset({"admin"})).may("produce")
        (False, True)
        """
        return scope in self.scopes or "admin" in self.scopes

    @property
    def privacy(self) -> PrivacyRights:
        """What it may see of personal columns, and which rows.

        >>> rights = Holder("app", frozenset({"query", "rows"}), purposes=("billing",)).privacy
        >>> rights.everything, rights.every_row
        (False, True)
        """
        if self.may("personal") and self.may("rows"):
            return SEES_ALL
        return PrivacyRights(self.may("personal"), frozenset(self.purposes), self.may("rows"), self.claims)

    def may_touch(self, name: str) -> bool:
        """Whether the key is good for a topic, a view or another thing of this name.

        >>> Holder("app", frozenset({"query"}), ("revenue", "shop_*")).may_touch("shop_orders")
        True
        """
        return not self.only or any(fnmatchcase(name, pattern) for pattern in self.only)


class Keys:
    """The keys of a file.

    >>> import tempfile
    >>> keys = Keys(Path(tempfile.mkdtemp()) / "keys.json")
    >>> key = keys.add("app", ["query"])
    >>> keys.holder(key).name, keys.holder("hw_wrong")
    ('app', None)
    """

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._known: list[dict[str, Any]] = []
        self.on_change: Callable[[list[dict[str, Any]], list[dict[str, Any]]], None] | None = None

    def holder(self, key: str) -> Holder | None:
        """The holder of a key; None when it is unknown, ``Unauthenticated`` when it has ended."""
        given, now = hashed(key), self._clock.now_us()
        found, ended = None, None
        for each in self.entries():  # all of them, whichever it is
            if hmac.compare_digest(each["hash"], given):
                found, ended = each, each.get("ends_us")
            before = each.get("before")
            if before is not None and hmac.compare_digest(before["hash"], given):
                found, ended = each, before["ends_us"]
        if found is None:
            return None
        if ended is not None and now >= ended:
            raise Unauthenticated(
                f'the key of "{found["name"]}" has ended: {format_us(ended)}',
                hint=f"Make a new one: headwater key rotate {found['name']} --key-file FILE",
            )
        return Holder(
            found["name"],
            frozenset(found["scopes"]),
            tuple(found.get("only", ())),
            tuple(found.get("purposes", ())),
            frozenset((claim, value) for claim, values in found.get("claims", {}).items() for value in values),
        )

    def entries(self) -> list[dict[str, Any]]:
        """The entries of the key file. A changed one counts once ``on_change`` was told of the old and the new ones."""
        with self._lock:
            try:
                now = self.path.stat()
            except FileNotFoundError:
                self._take([], None)
                return []
            seen = (now.st_mtime_ns, now.st_size, now.st_ino)
            if seen != self._seen:
                self._take(_read(self.path), seen)
            return list(self._known)

    def _take(self, found: list[dict[str, Any]], seen: tuple[int, int, int] | None) -> None:
        if self.on_change is not None and found != self._known:
            self.on_change(self._known, found)
        self._known, self._seen = found, seen

    def add(
        self,
        name: str,
        scopes: Collection[str],
        *,
        only: Sequence[str] = (),
        purposes: Sequence[str] = (),
        claims: Mapping[str, Collection[str]] | None = None,
        lasts_s: float | None = None,
    ) -> str:
        """Make a key and return it; it cannot be shown again.

        ``only``: the names of topics, views and so on that it is good for, with ``*`` and ``?`` for a part of a name.
        ``purposes``: it sees the values of masked columns of these purposes. ``claims``: of topics and views whose rows
        are told apart, it sees those with these values. ``lasts_s``: after so many seconds it ends.
        """
        check_name("key", name)
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            what = f"no scope {unknown[0]!r}" if unknown else "a key needs a scope"
            raise InvalidDeclaration(f"there is {what}" if unknown else what, hint=f"Scopes: {', '.join(SCOPES)}.")
        for pattern in only:
            if NAME_PATTERN.fullmatch(pattern) is None:
                raise InvalidDeclaration(
                    f"a key cannot be limited to {pattern!r}",
                    hint="Write the name of a topic or a view; * stands for any part of a name: shop_*",
                )
        for purpose in purposes:
            Personal("person", purpose=purpose)  # refuses what is no word
        given = {claim: sorted(set(values)) for claim, values in (claims or {}).items()}
        _check_claims(given)
        known = self.entries()
        if any(each["name"] == name for each in known):
            raise InvalidDeclaration(
                f'there is a key "{name}" already',
                hint=f"Replace it: headwater key rotate {name}. Or remove it: headwater key rm {name}",
            )
        entry: dict[str, Any] = {"name": name, "scopes": sorted(scopes)}
        if only:
            entry["only"] = sorted(set(only))
        if purposes:
            entry["purposes"] = sorted(set(purposes))
        if given:
            entry["claims"] = given
        key = self._renew(entry, lasts_s)
        self._write([*known, entry])
        return key

    def rotate(self, name: str, *, grace_s: float = 0.0, lasts_s: float | None = None) -> str:
        """A new key in place of an old one, with the same rights; the old one is good for ``grace_s`` seconds more."""
        known = [dict(each) for each in self.entries()]
        entry = next((each for each in known if each["name"] == name), None)
        if entry is None:
            raise self._unknown(name, known)
        entry.pop("before", None)
        if grace_s > 0:
            ends = self._clock.now_us() + round(grace_s * 1e6)
            entry["before"] = {"hash": entry["hash"], "ends_us": min(ends, entry.get("ends_us", ends))}
        key = self._renew(entry, lasts_s)
        self._write(known)
        return key

    def _renew(self, entry: dict[str, Any], lasts_s: float | None) -> str:
        """Give an entry a new key."""
        key, now = PREFIX + secrets.token_urlsafe(32), self._clock.now_us()
        entry |= {"hash": hashed(key), "made_at": format_us(now)}
        entry.pop("ends_us", None)
        if lasts_s is not None:
            entry["ends_us"] = now + round(lasts_s * 1e6)
        return key

    def _unknown(self, name: str, known: list[dict[str, Any]]) -> InvalidDeclaration:
        names = ", ".join(each["name"] for each in known) or "none"
        return InvalidDeclaration(f'there is no key "{name}" in {self.path}', hint=f"There are: {names}.")

    def remove(self, name: str) -> None:
        """Take a key back. A running server refuses it from its next request on."""
        known = self.entries()
        left = [each for each in known if each["name"] != name]
        if len(left) == len(known):
            raise self._unknown(name, known)
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


def _check_claims(claims: Mapping[str, Sequence[str]]) -> None:
    for claim, values in claims.items():
        declared_rows_by({"column": claim})  # refuses what is no name
        for value in values:
            if not isinstance(value, str) or not value or len(value) > CLAIM_LENGTH_MAX or not value.isprintable():
                raise InvalidDeclaration(
                    f"claim {claim} cannot be {value!r}", hint=f"Use a text of at most {CLAIM_LENGTH_MAX} characters."
                )
        if not 1 <= len(values) <= CLAIM_VALUES_MAX:
            raise InvalidDeclaration(
                f"claim {claim} has {len(values)} values", hint=f"Give one, and at most {CLAIM_VALUES_MAX}."
            )


def hashed(key: str) -> str:
    """The entry of a key in the file."""
    return hashlib.sha256(key.encode()).hexdigest()


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["keys"]
        for each in found:
            if not isinstance(each["name"], str) or not isinstance(each["hash"], str) or not each["scopes"]:
                raise ValueError(each)
            # An end or a limit that cannot be read would be none at all.
            ends = [each.get("ends_us", 0), each.get("before", {"ends_us": 0})["ends_us"]]
            lists = all(isinstance(each.get(name, []), list) for name in ("only", "purposes"))
            lists = lists and all(isinstance(values, list) for values in each.get("claims", {}).values())
            if not all(isinstance(end, int) for end in ends) or not lists:
                raise ValueError(each)
        return list(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidDeclaration(
            f"{path} is no file of keys", hint="Make one: headwater key add NAME --scope query --key-file FILE"
        ) from error
