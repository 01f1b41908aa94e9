"""Aggregates: event sourcing over the log. Commands are checked and become events; the events are the truth.

``events/`` is the history: read ``events/event_store.py`` first. Then ``aggregate_class.py`` (how a plain class
becomes an aggregate) and ``aggregate_repository.py`` (how a command is decided). The chapter is ``docs/aggregates.md``.
``recorder/`` keeps the events of applications of the library ``eventsourcing``; it is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.aggregates.aggregate_class import command, event
from headwater.aggregates.aggregate_repository import AggregateRepository, Outcome
from headwater.aggregates.claims import Claim, Claims
from headwater.aggregates.command_context import CommandContext, PendingEvent
from headwater.aggregates.events.event_query import Query, QueryItem
from headwater.aggregates.events.event_store import AppendedEvents, EventStore, FoundEvents
from headwater.aggregates.events.event_types import Event, EventType, RecordedEvent
from headwater.aggregates.processes.constraint import Constraint
from headwater.aggregates.processes.process import Process, ProcessHandle
from headwater.aggregates.processes.process_run import ProcessContext
from headwater.aggregates.processes.process_state import ProcessRecord
from headwater.aggregates.processes.process_step import StepResult, step
from headwater.aggregates.services.service import Service, ServiceReply
from headwater.aggregates.services.service_runner import ServiceContext
from headwater.errors import Rejected

if TYPE_CHECKING:
    from headwater.aggregates.recorder import EventSourcingRecorder

__all__ = [
    "AggregateRepository",
    "AppendedEvents",
    "Claim",
    "Claims",
    "CommandContext",
    "Constraint",
    "Event",
    "EventSourcingRecorder",
    "EventStore",
    "EventType",
    "FoundEvents",
    "Outcome",
    "PendingEvent",
    "Process",
    "ProcessContext",
    "ProcessHandle",
    "ProcessRecord",
    "Query",
    "QueryItem",
    "RecordedEvent",
    "Rejected",
    "Service",
    "ServiceContext",
    "ServiceReply",
    "StepResult",
    "command",
    "event",
    "step",
]


def __getattr__(name: str) -> Any:
    if name == "EventSourcingRecorder":  # needs an extra, which most do not have
        from headwater.aggregates.recorder import EventSourcingRecorder

        return EventSourcingRecorder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
