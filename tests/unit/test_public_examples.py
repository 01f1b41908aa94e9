"""Every public name has an example that runs.

What it is: a walk over what ``headwater`` exports, and over the handles that its methods return; each public class,
function, method and property must be used on a ``>>>`` line of its class's docstrings, which ``make test`` runs.
Invariants: what no user calls stands in ``NOT_CALLED_BY_USERS`` with the reason; an entry that is not needed fails.
Not here: that examples are right (``--doctest-modules``); errors, each with a test of the call that raises it
(``test_errors.py``).
Read next: ``CONTRIBUTING.md``, rule 10.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import headwater as hw
from headwater.aggregates import (
    AggregateRepository,
    CommandContext,
    Constraint,
    EventSourcingRecorder,
    EventStore,
    EventType,
    Process,
    ProcessRecord,
    Service,
    StepResult,
)
from headwater.app import App
from headwater.capture import Debezium, MySQL, Outbox, Postgres
from headwater.inlets import AmqpPublisher, Webhook
from headwater.inlets.inlet import Inlet, InletDeclaration
from headwater.log.groups.consumer import Consumer
from headwater.log.groups.worker import Worker
from headwater.log.home import Log
from headwater.log.producer import Producer
from headwater.log.table import Table
from headwater.log.topic import Topic
from headwater.sinks import Email
from headwater.sinks.runner.declared_sinks import SinkHandle
from headwater.sinks.sink import Sink
from headwater.views.view import View

HANDLES = (View, Table, Consumer, Worker, SinkHandle)

# Members that no user calls, by the class that declares them, each group with its reason.
NOT_CALLED_BY_USERS: dict[type | tuple[type, ...], tuple[str, ...]] = {
    Sink: ("layout", "open"),  # the sink runner calls them; shown in docs/sinks.md
    InletDeclaration: ("open", "topic_on"),  # App.inlet and the inlets call them
    # App.table calls them
    (Debezium, MySQL, Outbox, Postgres): ("capture_name", "server", "table", "keys", "columns", "door"),
    Inlet: ("pass_by",),  # InletDeclaration.taking, when it is opened
    Outbox: ("metadata_columns",),  # its capture asks for them
    Webhook: ("checked",),  # the running webhook asks for it
    Email: ("send",),  # the alert sink calls it; an example would need a mail server
    AmqpPublisher: ("start", "stop"),  # an example would need a broker; tests/services/inlets has one
    # Called by readers, writers, groups and maintenance: other rooms of the log.
    Log: (
        *("opened", "check_open", "mark_dirty", "note_recovery", "settle_commits", "wake_maintenance"),
        # Of the contract of a log (log/contract.py): asked by views, sinks and the server.
        *(
            "address",
            "capabilities",
            "find_topic",
            "has_local",
            "limited_cut",
            "local",
            "multiset",
            "shown",
            "topic_names",
        ),
    ),
    Topic: (
        *("after_fork", "clock", "close", "directory", "id", "json_batch", "new_reader", "open_partitions"),
        *("partition", "read_partition", "reader", "refresh", "row", "row_batch", "row_for_reading", "wait"),
        # Of the contract of a log, and what captures, inlets and Spark ask.
        *("append_messages", "change_settings", "check_bounds", "count_dropped", "known_ids", "lag", "layout"),
        *("append_if", "end_offset", "places", "progress", "read_unlocked"),
        *("ranges", "remove", "rows_most", "sealed_at", "start_moved_us", "sync", "watched_by", "whole_after"),
    ),
    # Called by a transaction, for its parts, and by a subscription.
    Producer: ("require_newest",),
    Table: ("upserts", "inserts", "deletes"),
    Consumer: ("commit_in", "is_pending"),
    Worker: ("accept_in",),
    # Called by the threads that run processes, constraints and services, by the command line and by the server.
    App: ("runners",),
    # Called by the app, by the threads that run with it, and by the rooms beside them.
    AggregateRepository: ("close", "has_tentative"),
    CommandContext: ("forget",),
    EventStore: ("append_drafts", "index", "indexes", "partition_of"),
    EventType: ("upcast",),
    # Called by the library eventsourcing, whose own test cases run over them.
    EventSourcingRecorder: (
        *("insert_tracking", "max_tracking_id", "recording", "select_events", "select_notifications", "subscribe"),
    ),
    Constraint: ("advance", "seen", "topic"),
    Process: ("advance", "from_json", "seen", "topic"),
    (ProcessRecord, StepResult): ("of",),
    Service: ("from_json", "is_late", "reply_id", "reply_row", "transaction"),
}


def exported() -> Iterator[Any]:
    """What the package exports, modules opened, with the handles that its methods return."""
    for name in hw.__all__:
        found = getattr(hw, name)
        if isinstance(found, ModuleType):
            names = getattr(found, "__all__", vars(found))
            members = [getattr(found, member) for member in names if not member.startswith("_")]
            yield from (each for each in members if getattr(each, "__module__", "").startswith("headwater"))
        else:
            yield found
    yield from HANDLES


def examples(found: Any) -> str:
    """The lines of its docstring's examples."""
    lines = (inspect.getdoc(found) or "").splitlines()
    return "\n".join(line for line in lines if line.startswith((">>>", "...")))


def members(found: type) -> dict[str, Any]:
    """The public methods and properties of a class and its bases in this package."""
    return {
        name: member
        for base in reversed(found.__mro__)
        if base.__module__.startswith("headwater")
        for name, member in vars(base).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, property | staticmethod | classmethod))
    }


def not_called(found: type) -> set[str]:
    """The members of a class that no user calls."""
    return {name for declaring, names in NOT_CALLED_BY_USERS.items() if issubclass(found, declaring) for name in names}


def test_every_public_name_is_used_in_an_example() -> None:
    missing = []
    for found in exported():
        if not inspect.isclass(found):
            missing += [found.__name__] if inspect.isfunction(found) and not examples(found) else []
        elif not issubclass(found, Exception):
            shown = "\n".join([examples(found), *(examples(member) for member in members(found).values())])
            wanted = set(members(found)) - not_called(found)
            missing += [f"{found.__name__}.{name}" for name in wanted if not re.search(rf"\.{name}\b", shown)]
            missing += [] if shown else [found.__name__]

    assert missing == []


def test_every_exception_names_a_member() -> None:
    for declaring, names in NOT_CALLED_BY_USERS.items():
        classes = declaring if isinstance(declaring, tuple) else (declaring,)
        known = {name for each in classes for name in members(each)}
        assert set(names) <= known
