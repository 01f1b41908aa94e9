"""The sink contract: delivering a view's changes to another system.

What it is: a user declares a ``Sink``; opened for a view it gives a ``Target``, which reports its progress, takes a
full copy, and takes the changes of ticks.
Invariants: a target stores its progress (tick, epoch, version) in the other system, in the same transaction as the
rows, so a repeated tick is skipped and an older epoch is refused. A sink that cannot be transactional says so in its
docs.
Not here: when it is called (``sinks/runner/sink_task.py``); where the rows come from
(``views/serving/view_reader.py``).
Read next: ``views/serving/deliveries.py``, ``sinks/runner/sink_task.py``, ``sqlite_sink.py`` as the shortest example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from headwater.errors import Fenced

if TYPE_CHECKING:
    from headwater.log.contract import EventLog
    from headwater.views.serving.deliveries import Delivery

PROGRESS_TABLE = "_headwater_progress"
ROW_NAME = "_hw_row"  # identifies a row of a view without a key


@dataclass(frozen=True)
class SinkContext:
    """The view that a sink delivers: its query's version, columns and key.

    >>> context = SinkContext("shop", "revenue", "revenue.sqlite", pa.schema([("country", pa.string())]), (), "7f/1/ab")
    >>> context.identity, context.state_id
    ('shop/revenue/revenue.sqlite', '7f')
    """

    app: str
    view: str
    sink: str
    schema: pa.Schema
    key: tuple[str, ...]
    version: str  # "state_id/created_tick/table", and the sink's layout; changes with the rows or their storage

    @property
    def identity(self) -> str:
        """The sink's name in the other system."""
        return f"{self.app}/{self.view}/{self.sink}"

    @property
    def state_id(self) -> str:
        """The state that the view is of, with its ticks and epochs: a home, or a state on a store."""
        return state_id_of(self.version)


@dataclass(frozen=True)
class StoredProgress:
    """The progress that a target has stored."""

    tick: int
    epoch: int
    version: str


@dataclass(frozen=True)
class Leftover:
    """What another system keeps of rows that have left it.

    ``final``: nobody can change that, as with a mail that was sent; else somebody there has to.
    """

    why: str
    final: bool = False


class Sink(ABC):
    """A declared sink. Declaring connects to nothing; a subclass is a frozen dataclass of settings."""

    kind: ClassVar[str]  # part of the default name, as in "revenue.postgres"
    # Whether several ticks may be merged into one delivery.
    merges: ClassVar[bool] = True
    # Whether a deleted row with a key needs only its key.
    by_key: ClassVar[bool] = False
    # Whether a full copy replaces everything that earlier ticks have left there.
    copy_replaces: ClassVar[bool] = False

    @property
    def layout(self) -> str:
        """The settings of the storage format; when they change, the sink takes a full copy."""
        return ""

    @abstractmethod
    def open(self, context: SinkContext, log: EventLog) -> Target:
        """Open the target for a view. Called before the first delivery, and again after an error.

        It may connect and may raise ``Unavailable``. It changes nothing that readers of the other system see.
        """


class Target(ABC):
    """A sink that was opened for one view. Used by one thread at a time."""

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    @abstractmethod
    def progress(self) -> StoredProgress | None:
        """The stored progress; None when the other system has none, or its table was removed.

        Called after opening, and again after an error. Not called before each delivery: ``apply`` reads it itself.
        """

    @abstractmethod
    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        """Replace all rows and store tick, epoch and version, atomically (a full copy).

        Called when the other system has no rows, has another version, lags beyond the kept changes, or differs from
        the view. Called again after a crash, with the rows of a later tick. Columns may have changed; readers see the
        old rows until the copy is complete.
        """

    @abstractmethod
    def apply(self, delivery: Delivery) -> StoredProgress:
        """Apply the changes between two ticks in one transaction with the progress; returns the new progress.

        Called in order, for each tick or for several merged ones; seldom without changes. Called again with the same
        ticks when their outcome is unknown: an applied tick is skipped, a gap is not applied, and the returned
        progress says where to continue. Raises ``Fenced`` when a newer process has written; ``Corruption`` when a
        deleted row is missing: then the caller takes a full copy; ``Unavailable`` when a retry may help; any other
        error stops the sink.
        """

    def forget(self) -> Leftover | None:
        """Remove what is kept of rows that have left, where that is ours to do; what stays, or None.

        Called after an erasure, when the target has the current tick (where ``copy_replaces``, as a full copy).
        """
        return Leftover("the rows left with the change; its own logs, replicas and backups are for its owner to clear")

    def close(self) -> None:  # noqa: B027 (files need no closing)
        """Release all resources. Called once, also after an error."""


def state_id_of(version: str) -> str:
    """The state that a version is of."""
    return version.partition("/")[0]


def is_next(progress: StoredProgress | None, context: SinkContext, delivery: Delivery) -> bool:
    """Whether a delivery continues the stored progress; raises ``Fenced``.

    >>> from headwater.views.serving.deliveries import Delivery
    >>> context = SinkContext("shop", "revenue", "copy", pa.schema([("country", pa.string())]), (), "7f/1/ab")
    >>> delivery = Delivery(pa.table({"country": ["DE"], "_weight": [1]}), after=4, tick=5, epoch=2)
    >>> [is_next(StoredProgress(tick, 2, "7f/1/ab"), context, delivery) for tick in (4, 5)]
    [True, False]
    """
    check_fence(progress, context, delivery.epoch)
    if progress is None or progress.version != context.version:
        return False  # removed, or another version: the returned progress shows it
    return progress.tick == delivery.after


def check_fence(progress: StoredProgress | None, context: SinkContext, epoch: int, *, filling: bool = False) -> None:
    """Raise ``Fenced`` when a newer process, or another home, has written.

    A full copy may come from another home: the last one to start owns the sink.
    """
    if progress is None:
        return
    if state_id_of(progress.version) != context.state_id:
        if filling:
            return
        raise Fenced(
            f'another home writes to sink "{context.sink}" of view "{context.view}" now',
            detail="Nothing of this tick was applied.",
            hint="Stop one of the two, or let it write to another table.",
            sink=context.identity,
        )
    if epoch < progress.epoch:
        raise Fenced(
            f'a newer process runs app "{context.app}": sink "{context.sink}" has epoch {progress.epoch}, '
            f"this one {epoch}",
            detail="Nothing of this tick was applied.",
            hint="Stop this process, or start it again to take over.",
            sink=context.identity,
            epoch=progress.epoch,
        )


def reached(progress: StoredProgress | None, context: SinkContext) -> StoredProgress:
    """The result of an ``apply`` that applied nothing: the target's progress, or that it has none."""
    return progress if progress is not None else StoredProgress(-1, 0, f"{context.state_id}/nothing")
