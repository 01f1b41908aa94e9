"""Event condition: what an append to a history expects, checked under the partition's lock.

What it is: ``EventCondition``: the version of a stream, a query that must find nothing after a position, and the
request's id.
Invariants: of two writers with conditions that exclude each other one is refused, over all processes. A request that
was written before is recognised before anything else is checked.
Not here: retrying (``event_store.py`` leaves it to the caller; ``aggregates/aggregate_repository.py`` does it).
Read next: ``event_store.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.aggregates.events.event_index import EventIndex
from headwater.aggregates.events.event_query import Query
from headwater.aggregates.events.event_rows import EventDraft
from headwater.errors import AppendConflict, OffsetOutOfRange, VersionConflict
from headwater.log.commits.append_request import AppendDeclined


class RequestKnown(AppendDeclined):
    """A request with this id was written before."""

    def __init__(self, offset: int, count: int) -> None:
        super().__init__("this request was written before")
        self.offset = offset
        self.count = count


@dataclass(frozen=True)
class EventCondition:
    """The condition of one append of ``drafts`` to one partition."""

    history: str
    index: EventIndex
    drafts: Sequence[EventDraft]
    stream: str | None = None
    expected: int | None = None
    fail_if: Query | None = None
    after: int = 0
    request_id: str | None = None
    keep: bool = False  # the events that are written, in memory

    def check(self, end: int) -> None:
        """Raise unless it holds for the events before ``end``."""
        index = self.index
        index.catch_up(end)
        if self.request_id is not None and (known := index.request(self.stream, self.request_id)) is not None:
            raise RequestKnown(*known)
        if (
            self.expected is not None
            and self.stream is not None
            and (now := index.version(self.stream)) != self.expected
        ):
            raise VersionConflict(
                f'"{self.stream}" of "{self.history}" has version {now}; expected was {self.expected}',
                detail="Another writer came first. Nothing was written.",
                hint="Read it again, decide again, and append with the version that you have seen.",
                history=self.history,
                stream=self.stream,
                version=now,
                expected=self.expected,
            )
        if self.after > end:
            raise OffsetOutOfRange(
                f'"{self.history}" ends at position {end}; an append cannot expect what came after {self.after}',
                detail="Nothing was written.",
                hint="Give the head that read has returned. Is it of another history, or was this one restored?",
                history=self.history,
                position=end,
                after=self.after,
            )
        if self.fail_if is not None and (found := index.first_match(self.fail_if, self.after)) is not None:
            raise AppendConflict(
                f'"{self.history}" has an event that the append must not find: {self.fail_if}, at position {found + 1}',
                detail=f"It came after position {self.after}. Nothing was written.",
                hint="Read again, decide again, and append with after= the head that you have read.",
                history=self.history,
                position=found + 1,
                after=self.after,
            )

    def took(self, end: int, rows: int) -> None:
        """The append was written."""
        if rows == len(self.drafts):
            self.index.took(self.drafts, end, keep=self.keep)
