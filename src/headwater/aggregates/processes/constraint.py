"""Constraint: a rule that is checked afterwards, by a view whose rows are violations.

What it is: ``Constraint``, made by ``app.constraint``: which violations wait, and calling the function for them.
Invariants: a violation is in the book, under an id, before the function is called, and settled after it. So after a
crash the function is called again with the same id, and its command, sent with that id, happens once. One that fails is
tried again and does not keep others from being compensated; one whose command is rejected is kept, with an alert.
Not here: how violations come into the book (``constraint_sink.py``), the thread (``process_runner.py``).
Read next: ``violations.py``; ``docs/processes.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headwater.aggregates.aggregate_repository import AggregateRepository
from headwater.aggregates.command_arguments import from_text
from headwater.aggregates.interrupts import is_interrupt
from headwater.aggregates.processes.constraint_sink import ConstraintSink
from headwater.aggregates.processes.violations import BOOK, Violation, ViolationBook
from headwater.errors import HeadwaterError, ProcessFailed, Rejected, Unavailable
from headwater.log.contract import EventLog, EventTopic
from headwater.log.maintenance.alerts import note_process

Compensate = Callable[[dict[str, Any], str], Any]


class Constraint:
    """The violations of one constraint; made by ``app.constraint``, which has an example with violations.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> _ = app.table("stock", "item STRING, amount BIGINT", key="item")
    >>> query = "SELECT item FROM stock WHERE amount < 0"
    >>> oversold = app.constraint("no oversell", query, key="item", compensate=print)
    >>> oversold.violations(), oversold.open_ids(), oversold.drain()  # before the first tick
    ([], [], 0)
    >>> oversold.retry("no oversell/1")
    Traceback (most recent call last):
        ...
    headwater.errors.Rejected: violation "no oversell/1" was not refused
    """

    def __init__(self, name: str, view: str, compensate: Compensate, book: AggregateRepository) -> None:
        self.name = name
        self.view = view
        self.book = book
        self._compensate = compensate
        self._index = book.store.index(BOOK)

    @property
    def topic(self) -> EventTopic:
        """The topic of the book: found, gone, compensated, refused."""
        return self.book.store.topic

    def violations(self) -> list[Violation]:
        """Those whose compensation is pending, and those for which it was refused."""
        found: ViolationBook = self.book.get(BOOK)
        return found.listed()

    def open_ids(self) -> list[str]:
        """The violations that are to be compensated, oldest first."""
        return [each.id for each in self.violations() if each.status == "pending"]

    def seen(self) -> Mapping[int, int]:
        """How far ``open_ids`` has read."""
        return {self._index.partition: self._index.position}

    def advance(self, id: str) -> None:
        """Compensate one violation. A failure of the function raises an alert, and is raised."""
        text = self.book.get(BOOK).pending.get(id)
        if text is None:
            return  # another process was first
        log, detail = self.topic.log.local, {"constraint": self.name, "id": id}
        try:
            self._compensate(from_text(text), id)
        except Rejected as error:
            self.book.send(BOOK, "settle", id=id, reason=error.message)
            note_process(log, id, f'violation "{id}" was not compensated: {error.message}', detail)
            return
        except Unavailable:
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            said = error.message if isinstance(error, HeadwaterError) else f"{type(error).__name__}: {error}"
            message = f'the function of constraint "{self.name}" fails for violation "{id}": {said}'
            note_process(log, id, message, detail)
            raise ProcessFailed(message, hint="Correct the function. It is called again, with the same id.") from error
        self.book.send(BOOK, "settle", id=id)
        note_process(log, id, None, detail)

    def drain(self) -> int:
        """Compensate all that wait, for tests and cron; returns how many. Raises the first failure, last."""
        ids, failures = self.open_ids(), []
        for id in ids:
            try:
                self.advance(id)
            except HeadwaterError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return len(ids)

    def retry(self, id: str) -> None:
        """Let a refused one be tried again, under another id: the first answer of a request is its answer."""
        self.book.send(BOOK, "retry", id=id)
        note_process(self.topic.log.local, id, None, {})

    def __repr__(self) -> str:
        return f"Constraint({self.name}, view={self.view})"


def declared_constraint(
    log: EventLog, name: str, view: str, key: tuple[str, ...], compensate: Compensate
) -> tuple[Constraint, ConstraintSink]:
    """A constraint, and the sink that enters its violations."""
    book = AggregateRepository(log, f"{view}_violations", ViolationBook, partitions=1, snapshot_every=100)
    return Constraint(name, view, compensate, book), ConstraintSink(name, key, book)
