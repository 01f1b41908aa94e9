"""Captured position: a place in another database's log, as what a view's reader waits for.

What it is: ``lsn`` and ``gtid`` make a ``CapturedPosition``; ``found`` is the token of the rows up to it, once the log
has them. So a program that writes to the database reads its own write from a view: ``at_least=hw.lsn("0/16B3748")``.
Invariants: a position is in the log when a marker is at it or beyond, or when the capture has noted that it read up to
it and nothing of its tables was there; and only while no table of the capture is being backfilled. The note is read
before the marker, since it is written after it.
Not here: writing markers (``change_writer.py``), waiting for the tick (``views/runtime.py``).
Read next: ``capture_state.py``, ``log/event_time/capture_markers.py``.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.backoff import Backoff
from headwater.capture.capture_state import FOLLOWING, StoredState, stored_state
from headwater.capture.position import to_number
from headwater.errors import InvalidDeclaration, Misuse, NotYetCovered
from headwater.log.event_time.capture_markers import Marker, Markers
from headwater.log.token import Token

if TYPE_CHECKING:
    from headwater.log.contract import EventLog

LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
GTID = re.compile(r"\d{1,10}-\d{1,10}-\d{1,19}")
TEXT = re.compile(r"(lsn|gtid):([^@]+)(?:@(.+))?")
POSTGRES_IDENTITY = re.compile(r"\d+/.*", re.DOTALL)  # the system's number and the database's name
GTID_IDENTITY = re.compile(r"domain (\d+)/.*", re.DOTALL)


@dataclass(frozen=True)
class CapturedPosition:
    """A position in the log of a captured database; ``capture`` names which, where a home has several.

    >>> str(CapturedPosition.parse("gtid:0-1-42@shop")), CapturedPosition.parse("orders:0=5")
    ('gtid:0-1-42@shop', None)
    """

    kind: str  # "lsn" or "gtid"
    text: str
    capture: str | None = None

    @staticmethod
    def parse(text: str) -> CapturedPosition | None:
        """The position of a text that ``str(position)`` wrote; None for another text, such as a token's."""
        parts = TEXT.fullmatch(text)
        if parts is None:
            return None
        return (lsn if parts[1] == "lsn" else gtid)(parts[2], capture=parts[3])

    def token(self, log: EventLog, timeout: float) -> Token:
        """The token of the rows up to it; waits until the log has them."""
        deadline = time.monotonic() + timeout
        backoff = Backoff(0.005, 0.05)
        while True:
            token = self.found(log)
            if token is not None:
                return token
            if time.monotonic() > deadline:
                raise self.not_reached(log, timeout)
            time.sleep(backoff.next())

    def found(self, log: EventLog) -> Token | None:
        """The token of the rows up to it; None when the log does not have them yet."""
        name, state = self._captured(log)
        if any(phase != FOLLOWING for phase in state.phases.values()):
            return None  # what is being backfilled is shown when that is done
        wanted = self._number(name, state)
        markers = Markers.find(log, name)
        since = int(state.facts.get("since", "0"))
        marker = None if markers is None else markers.first_at(wanted, since)
        if marker is None and int(state.facts.get("confirmed", "0")) >= wanted:
            marker = None if markers is None else markers.last()
            return _token(marker)
        return None if marker is None else _token(marker)

    def not_reached(self, log: EventLog, timeout: float) -> NotYetCovered:
        """The error of a wait that was too short."""
        name, state = self._captured(log)
        markers = Markers.find(log, name)
        last = None if markers is None else markers.last()
        filling = [table for table, phase in state.phases.items() if phase != FOLLOWING]
        return NotYetCovered(
            f'capture "{name}" has not reached {self.text} after {timeout:g} s',
            detail=f"Its table {filling[0]} is still being read."
            if filling
            else f"It is at {last.position if last else 'no position yet'}.",
            hint="Is it running? `headwater run APP.py` follows captured databases.",
            capture=name,
        )

    def _captured(self, log: EventLog) -> tuple[str, StoredState]:
        """The capture that is meant."""
        found = {name: state for name, state in _captures(log.home) if _kind(state) == self.kind}
        database, example = DATABASES[self.kind], f'hw.{self.kind}("{self.text}", capture="…")'
        if self.capture is not None:
            if self.capture not in found:
                others = f"Captures of {database}: {', '.join(found)}." if found else f"None follows {database}."
                raise Misuse(f'no capture "{self.capture}" follows {database} into this home', detail=others)
            return self.capture, found[self.capture]
        if not found:
            raise Misuse(
                f"no capture follows {database} into this home, so {self.text} means nothing here",
                hint="A capture is known once it has begun: declare a table with its source, and run the app.",
            )
        if len(found) > 1:
            raise Misuse(
                f"{self.text} could be a position of several captures: {', '.join(found)}", hint=f"Say which: {example}"
            )
        return next(iter(found.items()))

    def _number(self, name: str, state: StoredState) -> int:
        if self.kind == "lsn":
            return to_number(self.text)
        domain = GTID_IDENTITY.fullmatch(state.facts["identity"])
        assert domain is not None
        for each in self.text.split(","):
            mine, _, sequence = each.split("-")
            if int(mine) == int(domain[1]):
                return int(sequence) + 1  # a position is the first transaction that was not seen
        raise Misuse(
            f'capture "{name}" follows GTIDs of domain {domain[1]}, and {self.text} has none of it',
            hint="Give the GTID of the server's own domain: SELECT @@last_gtid.",
        )

    def __str__(self) -> str:
        return f"{self.kind}:{self.text}{f'@{self.capture}' if self.capture else ''}"


DATABASES = {"lsn": "a PostgreSQL database", "gtid": "a MariaDB server by GTIDs"}


def lsn(text: str, *, capture: str | None = None) -> CapturedPosition:
    """A position in PostgreSQL's log, as ``pg_current_wal_lsn()`` gives it after a commit, for ``at_least``.

    >>> import headwater as hw
    >>> str(hw.lsn("0/16B3748"))
    'lsn:0/16B3748'
    >>> hw.lsn("16B3748")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: '16B3748' is not an LSN
      Hint: It looks like 0/16B3748; ask for it after the commit: SELECT pg_current_wal_lsn().
    """
    if not isinstance(text, str) or LSN.fullmatch(text) is None:
        raise InvalidDeclaration(
            f"{text!r} is not an LSN",
            hint="It looks like 0/16B3748; ask for it after the commit: SELECT pg_current_wal_lsn().",
        )
    return CapturedPosition("lsn", text, capture)


def gtid(text: str, *, capture: str | None = None) -> CapturedPosition:
    """A transaction of MariaDB, as ``SELECT @@last_gtid`` gives it after a commit, for ``at_least``.

    >>> import headwater as hw
    >>> str(hw.gtid("0-1-42", capture="shop"))
    'gtid:0-1-42@shop'
    >>> hw.gtid("42")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: '42' is not a GTID of MariaDB
      Hint: It looks like 0-1-42 (domain, server, sequence); ask for it after the commit: SELECT @@last_gtid.
    """
    if not isinstance(text, str) or not all(GTID.fullmatch(each) for each in text.split(",")):
        raise InvalidDeclaration(
            f"{text!r} is not a GTID of MariaDB",
            hint="It looks like 0-1-42 (domain, server, sequence); ask for it after the commit: SELECT @@last_gtid.",
        )
    return CapturedPosition("gtid", text, capture)


def _captures(home: Path) -> list[tuple[str, StoredState]]:
    """The captures of a home that have begun, by name."""
    return [(path.stem, stored_state(path)) for path in sorted((home / "captures").glob("*.sqlite"))]


def _kind(state: StoredState) -> str | None:
    identity = state.facts.get("identity", "")
    if GTID_IDENTITY.fullmatch(identity):
        return "gtid"
    return "lsn" if POSTGRES_IDENTITY.fullmatch(identity) else None


def _token(marker: Marker | None) -> Token:
    return Token({} if marker is None else {name: {0: end} for name, end in marker.ends.items()})
