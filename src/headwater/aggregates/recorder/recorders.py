"""Recorders: the recorders of the library ``eventsourcing`` over a log.

What it is: recorders of aggregates' events and snapshots, of an application's notifications, of tracking, and of all
three; ``HistorySubscription``, an iterator that waits for further notifications.
Invariants: notification ids are positions of a history of one partition: without gaps, and committed in order, so no
follower passes over one. Events and tracking are committed together. A version that is there, and a tracking that is
not after the last one, are the library's ``IntegrityError``.
Not here: the index and the condition (``stored_events.py``), settings (``recorder_factory.py``).
Read next: ``recorder_factory.py``, ``docs/eventsourcing.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    IntegrityError,
    Notification,
    OperationalError,
    ProcessRecorder,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
)

from headwater.aggregates.events.event_query import Query
from headwater.aggregates.recorder.history_wait import HistoryWaits
from headwater.aggregates.recorder.stored_events import KeptEvent, StoredEventHistory
from headwater.errors import Conflict, Unavailable
from headwater.log.commits.stored_positions import PositionMoved
from headwater.log.contract import EventLog, EventTransaction

SELECT_MAX = 500  # notifications that a subscription fetches at once


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Raise the library's errors for ours: its applications know how to go on after them."""
    try:
        yield
    except Conflict as error:
        raise IntegrityError(str(error)) from error
    except PositionMoved as error:
        raise IntegrityError(f"another process has recorded tracking of {error} meanwhile") from error
    except Unavailable as error:
        raise OperationalError(str(error)) from error


class HeadwaterAggregateRecorder(AggregateRecorder):
    """Events, or snapshots, of aggregates in one history.

    >>> import headwater as hw, tempfile
    >>> from eventsourcing.persistence import StoredEvent
    >>> recorder = HeadwaterAggregateRecorder(hw.Log(tempfile.mkdtemp()), "accounts_snapshots", id_type="text")
    >>> recorder.insert_events([StoredEvent("7", 10, "Account.Snapshot", b"{}")])
    >>> [event.originator_version for event in recorder.select_events("7", desc=True, limit=1)]
    [10]
    """

    def __init__(self, log: EventLog, name: str = "stored_events", *, id_type: str = "uuid", **settings: Any) -> None:
        super().__init__()
        self.log = log
        self.history = StoredEventHistory(log, name, **settings)
        self.waits = HistoryWaits(self.history.topic)
        self._ids = UUID if id_type == "uuid" else str

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Append events, all or none; ``IntegrityError`` when one of their versions is there."""
        self._insert(stored_events, **kwargs)
        return None

    def _insert(self, stored_events: Sequence[StoredEvent], **_: Any) -> Sequence[int]:
        if not stored_events:
            return []
        with mapped_errors():
            end = self.history.append(_rows(stored_events))
        return range(end - len(stored_events) + 1, end + 1)

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """The events of an originator, by version."""
        with mapped_errors():
            found = self.history.select(str(originator_id), gt=gt, lte=lte, desc=desc, limit=limit)
        ids = self._ids
        return [StoredEvent(ids(event.originator), event.version, event.topic, event.state) for event in found]


class HeadwaterApplicationRecorder(HeadwaterAggregateRecorder, ApplicationRecorder):
    """Events of aggregates that are also an application's notifications.

    >>> import headwater as hw, tempfile
    >>> from eventsourcing.persistence import StoredEvent
    >>> recorder = HeadwaterApplicationRecorder(hw.Log(tempfile.mkdtemp()), id_type="text")
    >>> recorder.insert_events([StoredEvent("7", 1, "Opened", b"{}"), StoredEvent("8", 1, "Opened", b"{}")])
    [1, 2]
    >>> [notification.id for notification in recorder.select_notifications(start=2, limit=10)]
    [2]
    >>> with recorder.subscribe(gt=1) as subscription:
    ...     next(subscription).originator_id
    '8'
    """

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Append events, all or none; returns their notification ids."""
        return list(self._insert(stored_events, **kwargs))

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Notifications in order, from ``start`` up to ``stop``, at most ``limit``, of some topics or all."""
        after = 0 if start is None else max(0, start - inclusive_of_start)
        with mapped_errors():
            index = self.history.index
            head = index.catch_up()
            end = head if stop is None else min(stop, head)
            offsets: Sequence[int]
            if topics:
                offsets = index.matches(Query(types=topics), after)
                offsets = [offset for offset in offsets if offset < end][:limit]
            else:
                offsets = range(after, min(end, after + limit))
            return [self._notification(event) for event in index.kept(offsets)]

    def _notification(self, event: KeptEvent) -> Notification:
        # By position: keywords take twice as long, and followers make many of these.
        return Notification(self._ids(event.originator), event.version, event.topic, event.state, event.position)

    def max_notification_id(self) -> int | None:
        """The position of the last event; None when there is none."""
        with mapped_errors():
            return self.history.head or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> HistorySubscription:
        """Notifications after ``gt``, those that come later too. Appends of any process wake it."""
        return HistorySubscription(self, gt, topics)


class HistorySubscription(Subscription[HeadwaterApplicationRecorder]):
    """Notifications in order; after the last one it waits until the log wakes it."""

    def __init__(self, recorder: HeadwaterApplicationRecorder, gt: int | None, topics: Sequence[str]) -> None:
        super().__init__(recorder, gt, topics)
        self._fetched: Iterator[Notification] = iter(())
        self._seen = gt or 0  # up to here nothing is missing, whatever the topics are

    def stop(self) -> None:
        """End the iteration, also one that waits in another thread."""
        super().stop()
        self._recorder.waits.wake()

    def __next__(self) -> Notification:
        while not self._has_been_stopped:
            for notification in self._fetched:
                return notification
            head = self._recorder.history.head
            if head > self._seen:
                found = self._recorder.select_notifications(
                    self._seen, SELECT_MAX, head, self._topics, inclusive_of_start=False
                )
                self._seen = found[-1].id if len(found) == SELECT_MAX else head
                self._fetched = iter(found)
                continue
            self._recorder.waits.until_after(self._seen, lambda: self._has_been_stopped)
        raise StopIteration


class HeadwaterTrackingRecorder(TrackingRecorder):
    """How far a projection is, recorded together with what it writes.

    A projection's own rows go into tables and topics of the same home, in the block of ``recording``:

    >>> import headwater as hw, tempfile
    >>> from eventsourcing.persistence import Tracking
    >>> from headwater.log.table import declare_table
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> balances = declare_table(log, "balances", "account STRING, cents BIGINT", key="account")
    >>> recorder = HeadwaterTrackingRecorder(log, "balances_tracking")
    >>> with recorder.recording(Tracking("bank", 1)) as transaction:
    ...     transaction.upsert(balances, [{"account": "7", "cents": 5}])
    >>> recorder.max_tracking_id("bank"), recorder.max_tracking_id("shop")
    (1, None)
    """

    def __init__(self, log: EventLog, name: str = "stored_tracking", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.log = log
        self._tracking = name

    def insert_tracking(self, tracking: Tracking) -> None:
        """Record how far a projection is; ``IntegrityError`` unless that is after what was recorded before."""
        with self.recording(tracking):
            pass

    @contextmanager
    def recording(self, tracking: Tracking | None) -> Iterator[EventTransaction]:
        """A transaction that records tracking with all that is written in it."""
        with mapped_errors(), self.log.transaction() as transaction:
            if tracking is not None:
                reader = self._reader(tracking.application_name)
                before = self.log.stored_position(reader)
                if before is not None and int(before) >= tracking.notification_id:
                    raise IntegrityError(
                        f"tracking {tracking.notification_id} of {tracking.application_name} is not after {before}"
                    )
                transaction.store_position(reader, before=before, after=str(tracking.notification_id))
            yield transaction

    def max_tracking_id(self, application_name: str) -> int | None:
        """The last notification id that was recorded of an application."""
        with mapped_errors():
            position = self.log.stored_position(self._reader(application_name))
        return None if position is None else int(position)

    def _reader(self, application_name: str) -> str:
        return f"{self._tracking}/{application_name}"


class HeadwaterProcessRecorder(HeadwaterTrackingRecorder, HeadwaterApplicationRecorder, ProcessRecorder):
    """Events, notifications and tracking; those of one call are committed together.

    >>> import headwater as hw, tempfile
    >>> from eventsourcing.persistence import StoredEvent, Tracking
    >>> recorder = HeadwaterProcessRecorder(hw.Log(tempfile.mkdtemp()), "orders_events", id_type="text")
    >>> recorder.insert_events([StoredEvent("7", 1, "Order.Placed", b"{}")], tracking=Tracking("shop", 3))
    [1]
    >>> recorder.insert_events([StoredEvent("8", 1, "Order.Placed", b"{}")], tracking=Tracking("shop", 3))
    Traceback (most recent call last):
        ...
    eventsourcing.persistence.IntegrityError: tracking 3 of shop is not after 3
    >>> recorder.max_notification_id()
    1
    """

    def __init__(
        self, log: EventLog, name: str = "stored_events", *, tracking: str | None = None, **settings: Any
    ) -> None:
        HeadwaterApplicationRecorder.__init__(self, log, name, **settings)
        self._tracking = tracking or f"{name}_tracking"

    def _insert(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int]:
        tracking: Tracking | None = kwargs.get("tracking")
        if tracking is None:
            return super()._insert(stored_events)
        with self.recording(tracking) as transaction:
            if stored_events:
                self.history.append(_rows(stored_events), transaction=transaction)
        if not stored_events:
            return []
        end = transaction.token.frontier[self.history.name][0]
        return range(end - len(stored_events) + 1, end + 1)


def _rows(stored_events: Sequence[StoredEvent]) -> list[tuple[str, int, str, bytes]]:
    return [(str(one.originator_id), one.originator_version, one.topic, one.state) for one in stored_events]
