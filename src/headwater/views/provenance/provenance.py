"""The provenance of a row: what ``view.why`` gives.

What it is: ``Provenance``: the rows that were asked for, the steps down through the stages, and the input events by
topic; for programs (``to_dict``) and for people (``str``).
Invariants: nothing here reads anything. A topic's ``count`` is of all its events, ``events`` are the first of them by
place, or by key.
Not here: finding them (``why.py``).
Read next: ``why.py``, ``docs/why.md``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headwater.log.schema.json_lines import json_line

ROW_CHARACTERS = 160  # of a row are shown to people


class Precision(StrEnum):
    """How far a step could be narrowed down."""

    EXACT = "exact"  # the rows that gave the row, and no others
    KEY = "key"  # the rows that have the same key, or lie in the same partition
    ALL = "all"  # every row that the stage reads


@dataclass(frozen=True)
class ProvenanceStep:
    """One stage on the way down."""

    view: str
    stage: str
    kind: str  # of the stage: linear, bilinear, …
    what: str  # as ``headwater explain`` has it
    rule: str  # which rows of its inputs are behind the row
    precision: Precision
    reads: tuple[str, ...]  # the relations that it led to
    absent: tuple[str, ...] = ()  # relations that matter by what is not there: a row of theirs would change the answer

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        listed = {"reads": list(self.reads), "absent": list(self.absent), "precision": str(self.precision)}
        return {**vars(self), **listed}


@dataclass(frozen=True)
class InputEvent:
    """A record behind the row.

    >>> event = InputEvent("orders", 0, 17, None, "importer", None, None, None, None, {"id": 1})
    >>> str(event)
    'orders[0]@17'
    """

    topic: str
    partition: int
    offset: int
    appended_at: dt.datetime | None
    producer: str | None
    actor: str | None
    correlation_id: str | None
    causation_id: str | None
    request_id: str | None
    row: dict[str, Any]
    weight: int = 1  # -1: a row of a multiset was taken away

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"

    @property
    def author(self) -> str:
        """Who wrote it, as far as that was said."""
        said = [
            ("producer", self.producer),
            ("actor", self.actor),
            ("request", self.request_id),
            ("correlation", self.correlation_id),
            ("cause", self.causation_id),
        ]
        return ", ".join(f"{name} {value}" for name, value in said if value is not None)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {**vars(self), "record": str(self)}


@dataclass(frozen=True)
class ProvenanceInput:
    """The events of one topic."""

    topic: str
    count: int  # of all events; of a table with a key: of all its rows, each of which has one
    events: tuple[InputEvent, ...]
    lost: int = 0  # rows among those shown whose event retention has taken from the log

    @property
    def left_out(self) -> int:
        """How many are not shown."""
        return self.count - len(self.events) - self.lost

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        events = [event.to_dict() for event in self.events]
        return {"topic": self.topic, "count": self.count, "lost": self.lost, "events": events}


@dataclass(frozen=True)
class Provenance:
    """The input events behind a row of a view, stage by stage.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> users = app.table("users", "id BIGINT, country STRING", key="id")
    >>> countries = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
    >>> _ = users.upsert([{"id": 1, "country": "DE"}], metadata=hw.Metadata(actor="anna"))
    >>> _ = app.tick()
    >>> print(countries.why("DE"))  # doctest: +ELLIPSIS
    countries at tick 1
      {"country":"DE","users":1}
    countries: group by users.country: count(*)
      the rows of its group, from users
    users: 1 event
      users[0]@0  ...  actor anna  {"id":1,"country":"DE"}
    """

    view: str
    tick: int
    committed_at: dt.datetime
    rows: tuple[dict[str, Any], ...]
    steps: tuple[ProvenanceStep, ...]
    inputs: tuple[ProvenanceInput, ...]
    notes: tuple[str, ...] = field(default=())
    queries: tuple[tuple[str, str | None], ...] = ()  # of the view and those below it; None: a function

    @property
    def events(self) -> list[InputEvent]:
        """The events of all topics that were taken."""
        return [event for each in self.inputs for event in each.events]

    @property
    def exact(self) -> bool:
        """Whether every step led to the rows that gave the row, and to no others."""
        return all(step.precision is Precision.EXACT for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "view": self.view,
            "tick": self.tick,
            "committed_at": self.committed_at,
            "rows": list(self.rows),
            "exact": self.exact,
            "steps": [step.to_dict() for step in self.steps],
            "inputs": [each.to_dict() for each in self.inputs],
            "notes": list(self.notes),
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.view} at tick {self.tick}"
        yield from (f"  {json_line(row)}" for row in self.rows)
        for step in self.steps:
            yield f"{step.stage}: {step.what}"
            yield f"  {step.rule}, from {', '.join(step.reads)}" if step.reads else f"  {step.rule}"
            yield from (f"  nothing of {name} meets it" for name in step.absent)
        for each in self.inputs:
            yield f"{each.topic}: {each.count:,} event{'s' * (each.count != 1)}"
            yield from (f"  {_line(event)}" for event in each.events)
            if each.left_out > 0:
                yield f"  … and {each.left_out:,} more"
            if each.lost:
                yield f"  of {each.lost:,} more rows retention has taken the event from the log"
        yield from self.notes

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _line(event: InputEvent) -> str:
    at = "" if event.appended_at is None else event.appended_at.strftime("%Y-%m-%d %H:%M:%S.%fZ")
    sign = "" if event.weight == 1 else f"{event.weight:+d} × "
    row = json_line(event.row)
    row = row if len(row) <= ROW_CHARACTERS else f"{row[:ROW_CHARACTERS]}…"
    parts = (str(event), at, event.author, sign + row)
    return "  ".join(part for part in parts if part)
