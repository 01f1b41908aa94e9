"""Violations: which rows of a constraint's view are there, and which of them were compensated.

What it is: ``ViolationBook``, an aggregate class; one instance has all violations of one constraint, and the tick up to
which they are known. Its events are rows of the topic ``<view>_violations``.
Invariants: a violation that appears is entered with a new number in the same append as the tick, so no tick is counted
twice and none by a process that was replaced. What is entered stays pending until its compensation was done or refused.
A violation that went and came back has another number.
Not here: following the view (``constraint_sink.py``), calling the function (``constraint.py``).
Read next: ``constraint_sink.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.aggregates.aggregate_class import command, event
from headwater.aggregates.command_arguments import from_text
from headwater.errors import Rejected

NOT_KNOWN = -1
BOOK = "book"  # the only stream of its topic


@dataclass(frozen=True)
class Violation:
    """One occurrence of a violation. ``status``: "pending", "compensated" or "refused"."""

    id: str
    row: dict[str, Any]
    status: str = "pending"
    reason: str | None = None


class ViolationBook:
    """The violations of one constraint."""

    def __init__(self) -> None:
        self.tick = NOT_KNOWN
        self.epoch = 0
        self.version = ""
        self.numbered = 0
        self.open: dict[str, tuple[str, int]] = {}  # by key: the id, and how many rows the view has of it
        self.pending: dict[str, str] = {}  # by id: the row
        self.refusals: dict[str, tuple[str, str]] = {}  # by id: the row, and why

    @command
    def follow(self, name: str, tick: int, epoch: int, version: str, changes: list[Any], whole: bool = False) -> None:
        """Take what a tick changed: for each key, by how many rows, and one of them. ``whole``: all there is."""
        now = {key: count for key, (_, count) in self.open.items()}
        after = {} if whole else dict(now)
        rows = {}
        for key, count, row in changes:
            after[key] = after.get(key, 0) + count
            rows[key] = row
        touched = False
        for key in [key for key in now if after.get(key, 0) <= 0]:
            self.gone(key, self.open[key][0])
            touched = True
        for key, count in after.items():
            if count <= 0 or now.get(key) == count:
                continue
            touched = True
            if key in now:
                self.counted(key, count)
            else:
                self.found(key, f"{name}/{self.numbered + 1}", count, rows[key])
        if touched or whole:
            self.reached(tick, epoch, version)

    @command
    def settle(self, id: str, reason: str | None = None) -> None:
        """The function was called: it has compensated, or was refused."""
        if id in self.pending:
            self.refused(id, reason) if reason is not None else self.compensated(id)

    @command
    def retry(self, id: str) -> None:
        """Let one that was refused be tried again, under another id: the first answer of a request is its answer."""
        if id not in self.refusals:
            raise Rejected(f'violation "{id}" was not refused', id=id)
        name, _, numbers = id.rpartition("/")  # a name may have the mark, too
        number, _, attempt = numbers.partition("#")
        self.retried(id, f"{name}/{number}#{int(attempt or 1) + 1}")

    @event
    def found(self, key: str, id: str, count: int, row: str) -> None:
        """A violation appeared."""
        self.numbered += 1
        self.open[key] = (id, count)
        self.pending[id] = row

    @event
    def counted(self, key: str, count: int) -> None:
        """The view has another number of rows of a violation."""
        self.open[key] = (self.open[key][0], count)

    @event
    def gone(self, key: str, id: str) -> None:  # noqa: ARG002 (a column of the event)
        """A violation disappeared."""
        del self.open[key]

    @event
    def compensated(self, id: str) -> None:
        """The function has done its work."""
        self.pending.pop(id, None)

    @event
    def refused(self, id: str, reason: str) -> None:
        """The function's command was rejected."""
        self.refusals[id] = (self.pending.pop(id), reason)

    @event
    def retried(self, id: str, again: str) -> None:
        """Somebody asks that a refused one be tried again."""
        self.pending[again] = self.refusals.pop(id)[0]

    @event
    def reached(self, tick: int, epoch: int, version: str) -> None:
        """All of the view up to a tick is known."""
        self.tick, self.epoch, self.version = tick, epoch, version

    def listed(self) -> list[Violation]:
        """Those that are pending, and those that were refused."""
        waiting = [Violation(id, from_text(row)) for id, row in self.pending.items()]
        return waiting + [Violation(id, from_text(row), "refused", why) for id, (row, why) in self.refusals.items()]
