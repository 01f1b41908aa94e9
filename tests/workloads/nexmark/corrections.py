"""Corrections to Nexmark's people, auctions and side input, for views must bear more than new events.

What it is: ``Stream``, which gives tick after tick: the next events and, beside them, people who move, auctions that
are changed or withdrawn, side inputs that change or go.
Invariants: the same seed gives the same ticks. Bids are never corrected: they are events. The oracle is told each
tick before it is returned.
Not here: the events (``server/realtime/status_events.py``).
Read next: ``tests/spark/test_nexmark.py``.
"""

from __future__ import annotations

import datetime as dt
import random

from tests.workloads.nexmark.events import AUCTION, BID, CATEGORIES, FIRST_CATEGORY, PERSON, SIDE_INPUT, STATES, Events
from tests.workloads.oracle import Oracle
from tests.workloads.tables import Changes, Draft, Row, Tick


class Stream:
    """Events in order, with corrections to what came before."""

    def __init__(self, oracle: Oracle, events: Events, *, side_inputs: int) -> None:
        self.oracle, self.events = oracle, events
        self.random = random.Random(events.seed)
        self._next_event = 0
        self._side_inputs = side_inputs

    def tick(self, events: int, *, corrections: int) -> Tick:
        """The next so many events, with that many corrections to each table."""
        start, stop = self._next_event, self._next_event + events
        drafts = {table.name: Draft(table) for table in (PERSON, AUCTION, SIDE_INPUT)}
        for name, change in (("person", self._move), ("auction", self._reopen), ("side_input", self._rename)):
            self._correct(drafts[name], corrections, change)
        for person in self.events.people(start, stop).to_pylist():
            drafts["person"].put(person)
        for auction in self.events.auctions(start, stop).to_pylist():
            drafts["auction"].put(auction)
        if start == 0:
            for row in self.events.side_input(self._side_inputs).to_pylist():
                drafts["side_input"].put(row)
        tick = {name: draft.changes() for name, draft in drafts.items() if draft.rows}
        tick["bid"] = Changes(self.events.bids(start, stop), BID.schema.empty_table())
        self.oracle.apply(tick)
        self._next_event = stop
        return tick

    def _correct(self, draft: Draft, count: int, change) -> None:  # type: ignore[no-untyped-def]
        rows = self.oracle.ask(f"SELECT * FROM {draft.table.name} ORDER BY {draft.table.key[0]}").to_pylist()
        for place, row in enumerate(self.random.sample(rows, min(count, len(rows)))):
            if place % 5 == 4:
                draft.drop(row)
            else:
                draft.put(change(row))

    def _move(self, person: Row) -> Row:
        return {**person, "state": self.random.choice(STATES)}

    def _reopen(self, auction: Row) -> Row:
        category = FIRST_CATEGORY + self.random.randrange(CATEGORIES)
        expires = auction["expires"] + dt.timedelta(seconds=self.random.randint(-5, 5))
        return {**auction, "category": category, "expires": expires}

    def _rename(self, row: Row) -> Row:
        return {**row, "value": f"value {self.random.randrange(1_000_000)}"}
