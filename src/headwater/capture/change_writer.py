"""Change writer: transactions of the stream in, appends and markers out.

What it is: ``ChangeWriter`` collects the rows of each table, appends whole transactions in batches, and writes markers.
Invariants: a row is appended once: rows of transactions that the topic has, that the last marker covers, or that a
chunk's snapshot saw, are skipped. The marker is written when all rows of the batch are durable, and only positions that
a marker covers are confirmed to the database.
Not here: reading the stream (``capture/postgres/replication.py``), the loop around it (``capture.py``).
Read next: ``table_follower.py``, ``capture.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from headwater.capture.capture_state import FOLLOWING, CaptureState
from headwater.capture.database import CapturedDatabase, SourceTable
from headwater.capture.table_follower import PART_BYTES, PART_ROWS, TableFollower, belongs
from headwater.log.commits.sequence_ranges import CHUNKS_PER_SEQUENCE
from headwater.log.event_time.capture_markers import Markers

BATCH_ROWS = PART_ROWS
BATCH_BYTES = PART_BYTES // 2


class ChangeWriter:
    """The received changes of one connection of the stream that are not in the log yet."""

    def __init__(
        self,
        server: CapturedDatabase,
        followers: Mapping[str, TableFollower],
        markers: Markers,
        state: CaptureState,
        since: int = 0,
    ) -> None:
        self.server = server
        self.followers = followers  # by the table's name in its database
        self.markers = markers
        self.state = state
        self.position = 0  # all before it was handed over
        self.committed_us = 0
        last = markers.last()
        # Markers before ``since`` are of another slot: their offsets hold, their positions mean nothing here.
        self.marked = 0 if last is None or last.offset < since else last.number
        self._ends = {} if last is None else dict(last.ends)
        for follower in followers.values():
            if follower.following:
                follower.passed = self.marked
            if follower.streams:
                follower.note_unmarked(self._ends.get(follower.name))
        self._place = self._number = 0  # of the current transaction
        self._whole_place = 0  # of the last one that is whole
        self._in_parts = False  # some topic has a part of the current one
        # Up to here some topic has rows that the last marker does not name: until the stream is past them, the topics
        # do not hold the state of one moment, and no marker is written.
        self._settled = max((each.last // CHUNKS_PER_SEQUENCE for each in followers.values()), default=-1)
        self._commit = 0  # where its commit record is
        self.to_refill: set[str] = set()  # tables whose old rows have values that only a backfill can read
        self.transactions = 0  # whole ones that wait to be appended
        self._moved = any(each.end() > self._ends.get(each.name, 0) for each in followers.values() if each.streams)

    # Called by the stream

    def begin(self, commit: int, number: int) -> None:
        """A transaction begins; its commit record is at ``commit``."""
        self._commit, self._number = commit, number
        self._place = self.server.place(commit)
        for follower in self.followers.values():
            follower.parts = 0

    def verdict(self, follower: TableFollower) -> bool | None:
        """Whether the rows of the current transaction count for a table; None: it depends on the row."""
        if not follower.streams or self._commit < follower.passed or follower.has(self._place):
            return False
        if follower.name in self.to_refill:  # its backfill will have them, with all that their rows are now
            return False
        saw = belongs(follower.chunks, self._number) if follower.chunks else False
        return None if saw is None else not saw

    def counts(self, follower: TableFollower, key: str) -> bool:
        """Whether a single row counts, by its first key column: the snapshot of its chunk has not seen it."""
        for chunk, snapshot in follower.chunks:
            if self.server.in_chunk(follower.shape, chunk, key):
                return not snapshot.saw(self._number)
        return True

    def cut(self, follower: TableFollower) -> None:
        """Append a transaction that grows too large in parts."""
        while (size := follower.part()) is not None:
            if not self._in_parts:
                self.mark()
            self._in_parts = True
            follower.append(size, self._place, part=True)

    def reshape(self, follower: TableFollower, shape: SourceTable) -> None:
        """A table has other columns from here on."""
        follower.reshape(shape)
        # Changes that the topic already has are streamed with older columns: a backfill that saw them is newer.
        if self.verdict(follower) is not False and has_new_values(self.server, self.state, follower.name, shape):
            self.to_refill.add(follower.name)

    def empty(self, follower: TableFollower) -> None:
        """TRUNCATE: delete what the table holds, but for chunks that were read after it."""
        self.append_whole()  # so that the topic holds all that was before this transaction
        by_row = self.verdict(follower) is None
        follower.empty(self._place, (lambda key: self.counts(follower, str(key[0]))) if by_row else None)
        self.cut(follower)

    def commit(self, end: int, committed_us: int) -> None:
        touched = [follower for follower in self.followers.values() if follower.segments]
        for follower in touched:  # all of them first: cutting appends what was whole before this transaction
            self.cut(follower)
        for follower in touched:
            count = follower.count()
            if count != follower.whole or follower.parts:
                follower.whole = count
                self._whole_place = self._place
                self.transactions += 1
        self._in_parts = False
        # Only now: a marker that was written before the first part must not cover this transaction.
        self.position, self.committed_us = max(self.position, end), committed_us

    def passed(self, position: int) -> None:
        """Note that the database's log has no further changes before this position."""
        self.position = max(self.position, position)

    # Called by the capture

    @property
    def waiting(self) -> bool:
        """Whether some change is not in the log and marked yet."""
        return self.transactions > 0 or self._moved or self._in_parts

    @property
    def has_unnamed(self) -> bool:
        """Whether some table that streams is in no marker yet."""
        return any(each.streams and not each.following for each in self.followers.values())

    @property
    def has_idle(self) -> bool:
        """Whether some table did not stream when this began, because its backfill was not done."""
        return any(not each.streams for each in self.followers.values())

    @property
    def full(self) -> bool:
        """Whether there are enough rows for an append."""
        return any(
            follower.whole >= BATCH_ROWS or follower.bytes() >= BATCH_BYTES for follower in self.followers.values()
        )

    def append_whole(self) -> None:
        self._moved |= self.transactions > 0
        for follower in self.followers.values():
            if follower.whole:
                follower.append(follower.whole, self._whole_place)
        self.transactions = 0

    def mark(self) -> bool:
        """Append the complete transactions and write the marker; whether one was needed."""
        if self._in_parts:
            return False
        self.append_whole()
        if self.server.place(self.position) <= self._settled:
            return False
        arrived = [
            each
            for each in self.followers.values()
            if each.streams and not each.following and self.position >= each.reach
        ]
        if not self._moved and not arrived:
            return False
        self._moved = False
        for follower in self.followers.values():
            follower.sync()
            follower.large.save()
            if follower.losses.values:
                self.state.add_losses(follower.name, follower.losses.values)
                follower.losses.values = 0
        shown = [each for each in self.followers.values() if each.following or each in arrived]
        self._ends = {**self._ends, **{each.name: each.end() for each in shown}}
        committed = dt.datetime.fromtimestamp(self.committed_us / 1e6, dt.UTC) if self.committed_us else None
        self.marked = max(self.marked, self.position)
        self.markers.append(self.server.text(self.marked), self.marked, committed, self._ends)
        for follower in arrived:
            self.state.change_table(follower.name, phase=FOLLOWING)
            self.state.forget_chunks(follower.name)
            follower.chunks, follower.following = [], True
        return True


def has_new_values(server: CapturedDatabase, state: CaptureState, name: str, shape: SourceTable) -> bool:
    """Whether a change of a table's columns gave new values to stored rows, which the stream does not send.

    So for a new column with a DEFAULT, and for one that may have been renamed. Otherwise the columns are stored.
    """
    known, now = state.columns(name), [column.name for column in shape.taken]
    new = [column for column in now if known is not None and column not in known]
    if new and known is not None and (not known <= set(now) or server.filled(shape.table, new)):
        return True
    if known != set(now):
        state.know_columns(name, now)
    return False
