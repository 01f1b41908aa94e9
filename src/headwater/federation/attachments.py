"""Attachments: foreign stores that queries of a home may read, by name.

What it is: ``Attachment``, and ``Attachments``, which keeps them in the home's catalog.
Invariants: a name is not that of a topic or table. The catalog keeps addresses as given: variables stay names.
Not here: the content of a store (``store.py``). Read next: ``address.py``, ``docs/federation.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.durations import Duration, to_seconds
from headwater.errors import DeclarationConflict, InvalidDeclaration
from headwater.federation.address import Address
from headwater.hints import suggestion

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

ROWS_MAX = 2_000_000
TIMEOUT_SECONDS = 60.0
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
RESERVED = {"ls"}  # `headwater attach ls` lists them


@dataclass(frozen=True)
class Attachment:
    """One attached store. ``rows_max`` is for each table of a query, ``timeout`` for each statement, in seconds.

    >>> Attachment.declared("crm", "postgresql://reader:secret@db.example/crm")
    Attachment(crm: postgresql://reader:***@db.example/crm)
    """

    name: str
    address: Address
    rows_max: int = ROWS_MAX
    timeout: float = TIMEOUT_SECONDS

    @staticmethod
    def declared(name: str, url: str, *, rows_max: int = ROWS_MAX, timeout: Duration = TIMEOUT_SECONDS) -> Attachment:
        seconds = to_seconds(timeout, what="timeout")
        if not NAME.fullmatch(name) or name.lower() in RESERVED:
            raise InvalidDeclaration(
                f'a store cannot be attached as "{name}"',
                hint="Use letters, digits and '_', beginning with a letter, as it stands in SQL.",
                name=name,
            )
        if rows_max < 1 or seconds <= 0:
            raise InvalidDeclaration("rows_max and timeout must be above zero", hint="Leave them out for the defaults.")
        return Attachment(name, Address.read(url), rows_max, seconds)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.address.kind,
            "url": self.address.shown,
            "rows_max": self.rows_max,
            "timeout": self.timeout,
        }

    def __repr__(self) -> str:
        return f"Attachment({self.name}: {self.address.shown})"


class Attachments(Mapping[str, Attachment]):
    """The attachments of a home, by name, and those of this process, which take precedence.

    >>> import headwater as hw, tempfile
    >>> attachments = Attachments(hw.Log(tempfile.mkdtemp()))
    >>> attachments.add(Attachment.declared("prices", "prices.csv"))
    >>> list(attachments), attachments["prices"].address.kind
    (['prices'], 'csv')
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._own: dict[str, Attachment] = {}

    def add(self, attachment: Attachment, *, keep: bool = True) -> None:
        """Attach a store, or change an attachment. Without ``keep`` it is known to this process only."""
        name = attachment.name
        if any(topic.lower() == name.lower() for topic in self._log.topic_names()):
            raise DeclarationConflict(
                f'"{name}" is a topic or table of this home already',
                hint="Attach the store under another name.",
                name=name,
            )
        if not keep:
            self._own[name.lower()] = attachment
            return
        if self._all().get(name.lower()) == attachment:  # an app that declares it with every run writes once
            return
        with self._log.local.catalog.write() as db:
            db.execute("DELETE FROM attachments WHERE lower(name) = lower(?)", (name,))
            db.execute(
                "INSERT INTO attachments (name, url, rows_max, timeout_ms, attached_us) VALUES (?, ?, ?, ?, ?)",
                (
                    name,
                    attachment.address.url,
                    attachment.rows_max,
                    round(attachment.timeout * 1000),
                    self._log.clock.now_us(),
                ),
            )

    def remove(self, name: str) -> None:
        """Remove an attachment. The store itself is not touched."""
        if name not in self:
            raise InvalidDeclaration(f'no store is attached as "{name}"', hint=suggestion(name, list(self)), name=name)
        self._own.pop(name.lower(), None)
        with self._log.local.catalog.write() as db:
            db.execute("DELETE FROM attachments WHERE lower(name) = lower(?)", (name,))

    def _all(self) -> dict[str, Attachment]:
        if not self._log.local.catalog.read("SELECT 1 FROM sqlite_master WHERE name = 'attachments'"):
            return dict(self._own)  # a read-only home without the table
        rows = self._log.local.catalog.read("SELECT name, url, rows_max, timeout_ms FROM attachments ORDER BY name")
        kept = {
            row["name"].lower(): Attachment(
                row["name"], Address.read(row["url"]), row["rows_max"], row["timeout_ms"] / 1000
            )
            for row in rows
        }
        return {**kept, **self._own}

    def __getitem__(self, name: str) -> Attachment:
        return self._all()[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter([each.name for each in self._all().values()])

    def __len__(self) -> int:
        return len(self._all())
