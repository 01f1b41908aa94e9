"""An inlet: what lets foreign messages into a topic.

What it is: the contract. ``InletDeclaration`` is what a user writes (frozen, starts nothing); ``open`` makes an
``Inlet`` of it, which holds the socket or connection, runs in threads of its own, and counts.
Invariants: ``start`` returns when messages can come (a server listens), or at once where a broker has to be reached
first; ``stop`` takes what was received so far into the log, then lets go; both may be called again. What stops messages
for now (no broker, a full disk) is a ``problem``, told and tried again; nothing ends an inlet but ``stop``.
Not here: how messages become rows (``ingest.py``), counting (``counters.py``), what apps do with them
(``declared_inlets.py``).
Read next: ``ingest.py``, then ``inlets/webhook/webhook_inlet.py``.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from headwater.errors import HeadwaterError, Unavailable, UnknownTopic
from headwater.inlets.counters import WRITE_EVERY_S, Counters, CounterStore
from headwater.log.topic import Topic
from headwater.log.topic_settings import check_name

if TYPE_CHECKING:
    from typing import Self

    from headwater.log.home import Log

logger = logging.getLogger("headwater.inlets")

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0


class InletDeclaration(ABC):
    """What a user declares; subclasses are frozen dataclasses with a ``topic``."""

    kind: ClassVar[str]
    topic: Topic | str

    @abstractmethod
    def open(self, log: Log, name: str, *, app: str = "") -> Inlet:
        """The inlet of this declaration on a log. It does not run yet."""

    def topic_on(self, log: Log, schema: str | None = None, **settings: Any) -> Topic:
        """The topic that is written; one with a ``schema`` of ours is declared when it is missing."""
        name = self.topic if isinstance(self.topic, str) else self.topic.name
        try:
            return log.get_topic(name)
        except UnknownTopic:
            if schema is None:
                raise
            return log.topic(name, schema, **settings)


class Inlet(ABC):
    """An inlet at work. Subclasses open what they need in ``_open`` and give their threads to ``_begin``."""

    kind: ClassVar[str]

    def __init__(self, log: Log, name: str, topic: Topic, *, app: str = "") -> None:
        check_name("inlet", name)
        self.log = log
        self.name = name
        self.topic = topic
        self.tally = CounterStore(log, app, name)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def counters(self) -> Counters:
        """What this inlet has counted since it was opened; ``headwater inlet ls`` adds up all runs."""
        return self.tally.counters

    @property
    def address(self) -> str | None:
        """Where it listens, or what it is connected to; known once it is started."""
        return self.tally.address

    @property
    def problem(self) -> str | None:
        """Why nothing comes at present; None when all is well."""
        return self.tally.problem

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return bool(self._threads) and not self._stopping.is_set()

    def start(self) -> None:
        """Let messages in, in the background. Started already, it does nothing."""
        if self._threads:
            return
        self._stopping.clear()
        self._open()
        self._begin(self._count, "counters")
        self.tally.write()

    def stop(self) -> None:
        """Take what was received into the log, and let go."""
        self._stopping.set()
        self._close()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self.tally.problem = None
        if not self.log.closed:
            self.tally.write()

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
                self.tally.write_if_due()
            except HeadwaterError as error:  # a busy catalog: the next second will do
                logger.warning('inlet "%s" could not store its counters: %s', self.name, error.message)

    def _has_problem(self, problem: str | None) -> None:
        """Tell a problem when it begins, and that it has ended."""
        if problem != self.tally.problem:
            if problem is not None:
                logger.warning('inlet "%s": %s', self.name, problem)
            elif self.tally.problem is not None:
                logger.info('inlet "%s" goes on', self.name)
            self.tally.problem = problem

    def _until_it_works(self, attempt: Callable[[], Any], *, meanwhile: Callable[[], None] | None = None) -> bool:
        """Call ``attempt`` until it is not ``Unavailable``; False when the inlet was stopped before it worked."""
        backoff = BACKOFF_FIRST_S
        while True:
            try:
                attempt()
                self._has_problem(None)
                return True
            except Unavailable as error:
                self._has_problem(error.message)
            if self._stopping.wait(backoff):
                return False
            backoff = min(2 * backoff, BACKOFF_MAX_S)
            if meanwhile is not None:
                meanwhile()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Inlet {self.name} ({self.kind}) into {self.topic.name}: {self.address or 'not started'}>"
