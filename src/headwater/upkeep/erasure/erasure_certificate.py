"""Erasure certificate: place by place, what became of a person's values.

What it is: ``ErasureCertificate``, the answer of an erasure, kept with its record; ``PlaceReport``, one place.
Invariants: no value of the person is in it, only the salted hash. A place that was not looked at is named, as
``not covered``: a certificate without such lines would say too much.
Not here: the work (``person_erasure.py``).
Read next: ``person_erasure.py``; ``docs/erasure.md``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from headwater.clock import format_us


class PlaceState(StrEnum):
    """What became of a place."""

    DONE = "done"
    WOULD = "would be erased"  # of a dry run
    PENDING = "pending"  # it will be done, and the line says when or by whom
    IMPOSSIBLE = "impossible"  # nobody can, and the line says why
    NOT_COVERED = "not covered"  # nobody looked


@dataclass(frozen=True)
class PlaceReport:
    """One place."""

    place: str
    state: PlaceState
    detail: str
    rows: int | None = None


@dataclass(frozen=True)
class ErasureCertificate:
    """What an erasure has done.

    >>> done = PlaceReport("topic orders", PlaceState.DONE, "2 rows in 1 segment", 2)
    >>> mail = PlaceReport("sink news", PlaceState.IMPOSSIBLE, "mails that were sent cannot be called back")
    >>> certificate = ErasureCertificate("user_id", "9f86d081", 0, (done, mail))
    >>> print(certificate)
    user_id 9f86d081, 1970-01-01T00:00:00.000Z: 1 done, 1 impossible
      done        topic orders  2 rows in 1 segment
      impossible  sink news     mails that were sent cannot be called back
    >>> certificate.complete, ErasureCertificate.from_json(certificate.to_json()) == certificate
    (True, True)
    """

    subject: str
    hash: str
    at_us: int
    places: tuple[PlaceReport, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be done."""
        return all(place.state in (PlaceState.DONE, PlaceState.IMPOSSIBLE) for place in self.places)

    def to_dict(self) -> dict[str, Any]:
        """The shape programs get."""
        places = [{**asdict(place), "state": str(place.state)} for place in self.places]
        return {
            "subject": self.subject,
            "hash": self.hash,
            "at": format_us(self.at_us),
            "complete": self.complete,
            "places": places,
        }

    def to_json(self) -> str:
        """The text that is kept."""
        return json.dumps({**self.to_dict(), "at_us": self.at_us})

    @staticmethod
    def from_json(text: str) -> ErasureCertificate:
        """The certificate that ``to_json`` wrote."""
        values = json.loads(text)
        places = tuple(PlaceReport(**{**each, "state": PlaceState(each["state"])}) for each in values["places"])
        return ErasureCertificate(values["subject"], values["hash"], values["at_us"], places)

    def __str__(self) -> str:
        counts = [(sum(place.state == state for place in self.places), state) for state in PlaceState]
        head = f"{self.subject} {self.hash[:16]}, {format_us(self.at_us)}: "
        lines = [head + (", ".join(f"{count} {state}" for count, state in counts if count) or "nothing to erase")]
        return "\n".join([*lines, *table_of(self.places)])


def table_of(places: Sequence[PlaceReport]) -> list[str]:
    """The places as lines of a table."""
    state = max((len(place.state) for place in places), default=0)
    name = max((len(place.place) for place in places), default=0)
    return [f"  {place.state:<{state}}  {place.place:<{name}}  {place.detail}" for place in places]
