"""Recorder: the persistence module for users of the Python library ``eventsourcing``.

``PERSISTENCE_MODULE=headwater.aggregates.recorder`` and ``HEADWATER_HOME=…`` are all that an application needs. Read
``stored_events.py`` (their events as a history), ``recorders.py`` (the library's recorders over it),
``tag_recorder.py`` (those of its package ``dcb``), then ``recorder_factory.py``. The chapter is
``docs/eventsourcing.md``.
"""

from __future__ import annotations

from headwater.errors import MissingExtra

with MissingExtra.raised_for("the persistence module for the library eventsourcing", "eventsourcing"):
    from headwater.aggregates.recorder.recorder_factory import HeadwaterFactory
    from headwater.aggregates.recorder.recorders import (
        HeadwaterAggregateRecorder,
        HeadwaterApplicationRecorder,
        HeadwaterProcessRecorder,
        HeadwaterTrackingRecorder,
    )
    from headwater.aggregates.recorder.tag_recorder import HeadwaterDCBRecorder

Factory = HeadwaterFactory  # the library finds the factory of a persistence module by its class; the name is customary
EventSourcingRecorder = HeadwaterProcessRecorder  # the one that does it all: events, notifications, tracking

__all__ = [
    "EventSourcingRecorder",
    "Factory",
    "HeadwaterAggregateRecorder",
    "HeadwaterApplicationRecorder",
    "HeadwaterDCBRecorder",
    "HeadwaterFactory",
    "HeadwaterProcessRecorder",
    "HeadwaterTrackingRecorder",
]
