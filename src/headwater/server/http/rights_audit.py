"""Rights audit: what each key of a server is good for, on record when the server begins and when its key file changes.

What it is: ``RightsAudit``, which is told of the entries of the key file before they count.
Invariants: what cannot be put on record does not count. No key and no hash is told. While the home has no trail nothing
is written; the one who begins it tells of the keys of that moment (``read_audit.py``).
Not here: the file (``keys.py``), the topic (``log/maintenance/audit_trail.py``).
Read next: ``keys.py``; ``docs/audit.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.log.maintenance.audit_trail import AuditEntry, note_audit
from headwater.server.http.keys import Keys

if TYPE_CHECKING:
    from headwater.app import App

Entry = dict[str, Any]


class RightsAudit:
    """The keys of one server."""

    def __init__(self, app: App, keys: Keys) -> None:
        self._app = app
        self._keys = keys
        keys.on_change = self._changed
        keys.entries()

    def tell_all(self) -> None:
        """Record every key as it is now: the trail has just begun."""
        self._changed([], self._keys.entries())

    def _changed(self, before: list[Entry], after: list[Entry]) -> None:
        who = _owner(self._keys)
        for name, detail in changes_of(before, after):
            note_audit(self._app.log.local, AuditEntry("rights", who, name, detail=detail))


def changes_of(before: Iterable[Entry], after: Iterable[Entry]) -> list[tuple[str, str]]:
    """The keys that differ, each with what it is good for now.

    >>> old = [{"name": "app", "scopes": ["query"], "hash": "a"}, {"name": "old", "scopes": ["admin"], "hash": "b"}]
    >>> new = [{"name": "app", "scopes": ["query"], "only": ["revenue"], "hash": "a"}]
    >>> changes_of(old, new)
    [('app', 'query; only revenue'), ('old', 'removed')]
    >>> changes_of(old[:1], [{**old[0], "hash": "c"}])
    [('app', 'renewed: query')]
    """
    had, has = ({each["name"]: each for each in entries} for entries in (before, after))
    found = []
    for name, entry in has.items():
        if entry != had.get(name):
            renewed = name in had and had[name]["hash"] != entry["hash"]
            found.append((name, ("renewed: " if renewed else "") + rights_text(entry)))
    return found + [(name, "removed") for name in had if name not in has]


def rights_text(entry: Entry) -> str:
    """What a key is good for, in words.

    >>> rights_text({"name": "a", "scopes": ["query"], "purposes": ["billing"], "claims": {"tenant": ["x", "y"]}})
    'query; purposes billing; claims tenant=x, tenant=y'
    """
    claims = [f"{claim}={value}" for claim, values in entry.get("claims", {}).items() for value in values]
    ends = entry.get("ends_us")
    parts = (
        ("", entry["scopes"]),
        ("only ", entry.get("only", ())),
        ("purposes ", entry.get("purposes", ())),
        ("claims ", claims),
        ("until ", [format_us(ends)] if ends is not None else ()),
    )
    return "; ".join(word + ", ".join(values) for word, values in parts if values)


def _owner(keys: Keys) -> str:
    """Only the file's owner can change it."""
    try:
        return f"local:{keys.path.owner()}"
    except (OSError, KeyError):  # the file is gone, or its owner has no name
        return "local:unknown"
