"""Declaring event sourcing: histories of events, and the aggregates whose commands write them.

What it is: ``AppAggregates``, a part of what an app declares; ``App`` comes from it.
Invariants: a declaration opens the log and starts nothing else; what makes no sense is refused at once.
Not here: topics, views and what stands beside them (``app_declarations.py``).
Read next: ``aggregates/aggregate_repository.py``; ``docs/aggregates.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import UnknownAggregate
from headwater.hints import closest
from headwater.log.contract import EventLog

if TYPE_CHECKING:
    from headwater.aggregates.aggregate_repository import AggregateRepository
    from headwater.aggregates.events.event_store import EventStore
    from headwater.views.declared_views import DeclaredViews


class AppAggregates:
    """The histories and aggregates of an app."""

    aggregates: dict[str, AggregateRepository]  # by name, as they were declared
    _views: DeclaredViews

    @property
    def log(self) -> EventLog:
        """The app's log."""
        raise NotImplementedError

    def event_store(
        self, name: str, types: Mapping[str, Any], *, partitions: int = 1, personal: str | None = None
    ) -> EventStore:
        """Declare a history of events: a topic that is appended to under conditions. See ``docs/aggregates.md``.

        ``types`` are the columns of each type of event: DDL or a dataclass. One partition decides conditions over all
        events; with several, every event has a stream, which decides its partition. ``personal`` is the subject whose
        ids the streams are, as in ``hw.Personal``: see ``docs/erasure.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("bank", home=tempfile.mkdtemp())
        >>> app.event_store("bookings", {"paid": "cents BIGINT", "refunded": "cents BIGINT, reason STRING"})
        EventStore(bookings, paid, refunded)
        """
        from headwater.aggregates.events.event_store import EventStore
        from headwater.aggregates.events.event_types import EventType

        self._views.check_free(name)
        declared = [
            given if isinstance(given, EventType) else EventType.declared(kind, given) for kind, given in types.items()
        ]
        return EventStore(self.log, name, declared, partitions=partitions, personal=personal)

    def aggregate(
        self, name: str, declared: type, *, partitions: int = 8, snapshot_every: int = 1000, personal: str | None = None
    ) -> AggregateRepository:
        """Declare a kind of aggregate: its commands are decided one by one, and its events are its state.

        The class is plain: methods with ``@command`` validate, raise ``Rejected`` or call methods with ``@event``,
        which change the state. The events are rows of the topic ``name``, which views read: the columns ``stream``,
        ``version``, ``type`` and ``at``, and one column for each type. See ``docs/aggregates.md``. ``personal`` is the
        subject whose ids are the aggregates', as in ``hw.Personal``: see ``docs/erasure.md``.

        >>> import headwater as hw, tempfile
        >>> from headwater.aggregates import Rejected, command, event
        >>> class Order:
        ...     paid = False
        ...     @command
        ...     def pay(self, cents: int) -> None:
        ...         if self.paid:
        ...             raise Rejected("it is paid already")
        ...         self.was_paid(cents)
        ...     @event
        ...     def was_paid(self, cents: int) -> None:
        ...         self.paid = True
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> orders = app.aggregate("orders", Order)
        >>> orders.send("17", "pay", cents=950).version, orders.get("17").paid
        (1, True)
        >>> _ = app.view("income", "SELECT sum(was_paid.cents) AS cents FROM orders WHERE type = 'was_paid'")
        """
        from headwater.aggregates.aggregate_repository import AggregateRepository

        self._views.check_free(name)
        made = AggregateRepository(
            self.log, name, declared, partitions=partitions, snapshot_every=snapshot_every, personal=personal
        )
        self.aggregates[name] = made
        return made

    def get_aggregate(self, name: str) -> AggregateRepository:
        """The aggregates that were declared under this name.

        >>> import headwater as hw, tempfile
        >>> hw.App("shop", home=tempfile.mkdtemp()).get_aggregate("order")
        Traceback (most recent call last):
            ...
        headwater.errors.UnknownAggregate: no aggregate "order" was declared
          Hint: Declare it: app.aggregate("order", Order).
        """
        known = self.aggregates.get(name)
        if known is None:
            near = closest(name, list(self.aggregates))
            declare = f'Declare it: app.aggregate("{name}", {name.title()}).'
            raise UnknownAggregate(
                f'no aggregate "{name}" was declared',
                hint=f'Did you mean "{near}"?' if near else declare,
                aggregate=name,
            )
        return known
