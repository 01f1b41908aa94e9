"""The demo's replica: a view rebuilt from its change feed alone.

What it is: ``Replica`` follows a view's changes as any other process would, and keeps the rows they add up to.
Invariants: it reads the feed from where it left off and nothing else; a row that leaves without being there, a row
that comes twice, and a tick that comes again or out of order, are problems, each a sentence.
Not here: the feed (``views/serving/change_feed.py``).
Read next: ``scenario.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.views.serving.change_feed import CHANGE_TYPE, DELETE, PREIMAGE, TIMESTAMP_COLUMN, VERSION

if TYPE_CHECKING:
    from headwater.views.serving.change_feed import ChangeFeed

OWN = (CHANGE_TYPE, VERSION, TIMESTAMP_COLUMN)


class Replica:
    """The rows of a view with a key, from its changes. ``counts`` tells which changes count as corrections.

    >>> replica = Replica(["country"])
    >>> replica.take([{"country": "DE", "orders": 1, "_change_type": "insert", "_commit_version": 1}])
    >>> replica.take([{"country": "DE", "orders": 1, "_change_type": "delete", "_commit_version": 2}])
    >>> replica.rows, replica.ticks, replica.problems
    ({}, 2, [])
    """

    def __init__(self, key: Sequence[str], counts: Callable[[Mapping[str, Any]], bool] | None = None) -> None:
        self.key = tuple(key)
        self.counts = counts
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.tick = 0
        self.ticks = 0
        self.changes = 0
        self.corrections = 0
        self.problems: list[str] = []

    def follow(self, feed: ChangeFeed) -> None:
        """Take every tick that was committed since the last call."""
        for table in feed.read(self.tick + 1):
            self.take(table.to_pylist())

    def take(self, changes: Sequence[Mapping[str, Any]]) -> None:
        """Take the changes of one tick."""
        tick = changes[0][VERSION]
        if tick <= self.tick:
            self.problems.append(f"the change feed gave tick {tick} after tick {self.tick}")
        self.tick = tick
        self.ticks += 1
        self.changes += len(changes)
        for change in changes:
            self._apply(change)
            self.corrections += self.counts is not None and change[CHANGE_TYPE] != PREIMAGE and self.counts(change)

    def _apply(self, change: Mapping[str, Any]) -> None:
        row = {name: value for name, value in change.items() if name not in OWN}
        key = tuple(row[name] for name in self.key)
        if change[CHANGE_TYPE] in (DELETE, PREIMAGE):
            if self.rows.pop(key, None) != row:
                self.problems.append(f"in tick {self.tick} of the change feed a row left that was not there: {row}")
        else:
            if key in self.rows:
                self.problems.append(f"in tick {self.tick} of the change feed a row came twice: {row}")
            self.rows[key] = row
