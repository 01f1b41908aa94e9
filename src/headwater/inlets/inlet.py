"""Inlet: a source connector that appends foreign messages to a topic.

What it is: the contract. ``InletDeclaration`` is the user's declaration (frozen, starts nothing); ``open`` makes an
``Inlet`` of it, which holds the socket or connection, runs in its own threads, and counts.
Invariants: ``start`` returns when messages can arrive (a server listens), or at once where a broker has to be reached
first; ``stop`` appends the received messages, then closes; both may be called again. A transient failure (no broker, a
full disk) is a ``problem``, reported and retried; only ``stop`` ends an inlet.
Not here: conversion to rows (``ingest.py``), counting (``counters.py``), apps (``declared_inlets.py``).
Read next: ``ingest.py``, then ``inlets/webhook/webhook_inlet.py``.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headwater.backoff import Backoff
from headwater.capture.door import Door
from headwater.errors import HeadwaterError, InvalidDeclaration, Unavailable, UnknownTopic
from headwater.inlets.counters import WRITE_EVERY_S, Counters, CounterStore
from headwater.log.contract import EventLog, EventTopic
from headwater.log.schema.personal_columns import Mask
from headwater.log.table import Table
from headwater.log.topic_settings import check_name

if TYPE_CHECKING:
    from typing import Self


logger = logging.getLogger("headwater.inlets")

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0


class InletDeclaration(ABC):
    """The declaration of an inlet; subclasses are frozen dataclasses with a ``topic``."""

    kind: ClassVar[str]
    topic: EventTopic | Table | str

    @abstractmethod
    def open(self, log: EventLog, name: str, *, app: str = "") -> Inlet:
        """The inlet of this declaration on a log. It does not run yet."""

    def taking(
        self,
        *,
        columns: Sequence[str] | None = None,
        mask: Mapping[str, Mask] | None = None,
        hash: Sequence[str] = (),
        hash_key: str | None = None,
    ) -> InletDeclaration:
        """The same inlet, of whose messages no more than this is kept. See ``docs/privacy.md``.

        >>> import headwater as hw, tempfile
        >>> app = hw.App("shop", home=tempfile.mkdtemp())
        >>> pushes = app.topic("pushes", "repository STRING, author STRING")
        >>> app.inlet("github", hw.inlets.Webhook(pushes, path="/github").taking(mask={"author": "redact"}))
        <Inlet github (webhook) into pushes: not started>
        """
        from headwater.inlets.message_door import TakingInlet

        return TakingInlet(self, Door.declared(columns, mask, hash, hash_key))

    def topic_on(self, log: EventLog, schema: str | None = None, **settings: Any) -> EventTopic:
        """The target topic; created if it is missing and the inlet has a ``schema``."""
        name = self.topic if isinstance(self.topic, str) else self.topic.name
        try:
            return log.get_topic(name)
        except UnknownTopic:
            if schema is None:
                raise
            return log.topic(name, schema, **settings)


class Inlet(ABC):
    """A running inlet. Subclasses open their resources in ``_open`` and start threads by ``_begin``.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> _ = app.topic("pushes", "repository STRING")
    >>> github = app.inlet("github", hw.inlets.Webhook("pushes", path="/github", port=0))
    >>> github.start()
    >>> github.running, github.problem, github.lag, github.counters.received, github.address
    (True, None, None, 0, 'http://127.0.0.1:.../github')
    >>> github.stop()
    """

    kind: ClassVar[str]

    def __init__(self, log: EventLog, name: str, topic: EventTopic, *, app: str = "") -> None:
        check_name("inlet", name)
        self.log = log
        self.name = name
        self.topic = topic
        self.counter_store = CounterStore(log, app, name)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def counters(self) -> Counters:
        """The counters since the inlet was opened; ``headwater inlet ls`` adds up all runs."""
        return self.counter_store.counters

    @property
    def address(self) -> str | None:
        """The address it listens on or is connected to; known after the start."""
        return self.counter_store.address

    @property
    def problem(self) -> str | None:
        """The present failure; None without one."""
        return self.counter_store.problem

    @property
    def lag(self) -> int | None:
        """How many messages wait in the other system, where it counts them; None elsewhere."""
        return None

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return bool(self._threads) and not self._stopping.is_set()

    def pass_by(self, door: Door | None) -> None:
        """Keep no more of messages than a door lets in. Called before the start."""
        raise InvalidDeclaration(
            f'inlet "{self.name}" ({self.kind}) has no door', hint="Leave columns, mask and hash out.", door=bool(door)
        )

    def start(self) -> None:
        """Receive messages in the background. A second call does nothing."""
        if self._threads:
            return
        self._stopping.clear()
        self._open()
        self._begin(self._count, "counters")
        self.counter_store.write()

    def stop(self) -> None:
        """Append the received messages, and close."""
        self._stopping.set()
        self._close()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self.counter_store.problem = None
        if not self.log.closed:
            self.counter_store.write()

    @abstractmethod
    def _open(self) -> None:
        """Open sockets and begin threads."""

    @abstractmethod
    def _close(self) -> None:
        """Wake threads that wait; called once ``_stopping`` is set, before they are joined."""

    def _begin(self, work: Callable[[], None], what: str) -> None:
        thread = threading.Thread(target=work, name=f"headwater-inlet-{self.name}-{what}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _count(self) -> None:
        while not self._stopping.wait(WRITE_EVERY_S):
            try:
                self.counter_store.write_if_due()
            except HeadwaterError as error:  # a busy catalog: written a second later
                logger.warning('inlet "%s" could not store its counters: %s', self.name, error.message)

    def _has_problem(self, problem: str | None) -> None:
        """Log a problem when it begins and when it ends."""
        if problem != self.counter_store.problem:
            if problem is not None:
                logger.warning('inlet "%s": %s', self.name, problem)
            elif self.counter_store.problem is not None:
                logger.info('inlet "%s" goes on', self.name)
            self.counter_store.problem = problem

    def _until_it_works(self, attempt: Callable[[], Any], *, meanwhile: Callable[[], None] | None = None) -> bool:
        """Call ``attempt`` until it is not ``Unavailable``; False when the inlet was stopped before it worked."""
        backoff = Backoff(BACKOFF_FIRST_S, BACKOFF_MAX_S)
        while True:
            try:
                attempt()
                self._has_problem(None)
                return True
            except Unavailable as error:
                self._has_problem(error.message)
            if self._stopping.wait(backoff.next()):
                return False
            if meanwhile is not None:
                meanwhile()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Inlet {self.name} ({self.kind}) into {self.topic.name}: {self.address or 'not started'}>"
