"""The sink contract: what carries a view's changes to another system.

What it is: ``Sink`` is what a user declares; opening it for a view gives a ``Target``, which is the other system as far
as this view goes: it tells how far it is, takes a full copy, and takes the changes of ticks.
Invariants: a target keeps its progress (tick, epoch, version) in the other system, in the same transaction as the rows,
so that a repeated tick is passed over and an older epoch is refused. What cannot be transactional says so in its docs.
Not here: who calls it and when (``sinks/runner/sink_task.py``); where the rows come from
(``views/serving/view_reader.py``).
Read next: ``views/serving/deliveries.py``, ``sinks/runner/sink_task.py``, ``sqlite_sink.py`` as the shortest example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from headwater.errors import Fenced, MissingExtra

if TYPE_CHECKING:
    from headwater.log.home import Log
    from headwater.views.serving.deliveries import Delivery

PROGRESS_TABLE = "_headwater_progress"
ROW_NAME = "_hw_row"  # what finds a row of a view without a key


@dataclass(frozen=True)
class SinkContext:
    """What a sink carries: one view, by one query, with its columns and its key.

    >>> carried = SinkContext("shop", "revenue", "revenue.sqlite", pa.schema([("country", pa.string())]), (), "7f/1/ab")
    >>> carried.identity, carried.home_id
    ('shop/revenue/revenue.sqlite', '7f')
    """

    app: str
    view: str
    sink: str
    schema: pa.Schema
    key: tuple[str, ...]
    version: str  # "home_id/created_tick/table" and the sink's layout: other rows or another layout, another version

    @property
    def identity(self) -> str:
        """The name under which the other system knows this sink."""
        return f"{self.app}/{self.view}/{self.sink}"

    @property
    def home_id(self) -> str:
        """The home that the view is from."""
        return home_id_of(self.version)


@dataclass(frozen=True)
class StoredProgress:
    """How far a target is, as it has stored it itself."""

    tick: int
    epoch: int
    version: str


class Sink(ABC):
    """A declared sink. Declaring connects to nothing; a subclass is a frozen dataclass of settings."""

    kind: ClassVar[str]  # a word for it, as in the default name "revenue.postgres"
    # Whether the changes of several ticks may come as one delivery.
    merges: ClassVar[bool] = True
    # Whether a row with a key that leaves need tell no more than its key.
    by_key: ClassVar[bool] = False

    @property
    def layout(self) -> str:
        """The settings that decide how rows are stored: with other ones there is a new full copy."""
        return ""

    @abstractmethod
    def open(self, carried: SinkContext, log: Log) -> Target:
        """Make ready to carry this view. Called before the first delivery, and again after an error.

        It may connect, and may raise ``Unavailable``. It changes nothing that a reader of the other system sees.
        """


class Target(ABC):
    """A sink that was opened for one view. Used by one thread at a time."""

    def __init__(self, carried: SinkContext) -> None:
        self.carried = carried

    @abstractmethod
    def progress(self) -> StoredProgress | None:
        """How far the other system is; None when it has nothing of this sink, or somebody removed what it had.

        Called after opening, and again after an error. Not called before each delivery: ``apply`` looks by itself.
        """

    @abstractmethod
    def fill(self, rows: Iterable[pa.RecordBatch], tick: int, epoch: int) -> StoredProgress:
        """Let these rows replace all there was, and remember tick, epoch and version, all of it or nothing.

        Called when the other system has nothing yet, has another version, is too far behind for the changes that are
        kept, or has come apart from the view. Called again after a crash in the middle, with the rows of a later tick.
        Columns may differ from those before; readers see the old rows until all the new ones are there.
        """

    @abstractmethod
    def apply(self, delivery: Delivery) -> StoredProgress:
        """Take the changes between two ticks in one transaction with the progress; returns how far it is then.

        Called for each tick, or for several ticks in one, in order; also when nothing changed, but seldom. Called
        again with the same ticks when nobody knows whether they arrived: what is there already is passed over, and
        what would leave a gap is not applied; the progress that is returned says where to go on.
        ``Fenced`` when a newer process has written; ``Corruption`` when a row leaves that is not there: then the
        caller fills anew; ``Unavailable`` when it may work later; any other error ends the sink.
        """

    @abstractmethod
    def close(self) -> None:
        """Give all resources back. Called once, also after an error. What was not committed is forgotten."""


def home_id_of(version: str) -> str:
    """The home of a version."""
    return version.partition("/")[0]


def is_next(progress: StoredProgress | None, carried: SinkContext, delivery: Delivery) -> bool:
    """Whether a delivery is to be applied to what is there; ``Fenced`` when it must not be.

    >>> from headwater.views.serving.deliveries import Delivery
    >>> carried = SinkContext("shop", "revenue", "copy", pa.schema([("country", pa.string())]), (), "7f/1/ab")
    >>> delivery = Delivery(pa.table({"country": ["DE"], "_weight": [1]}), after=4, tick=5, epoch=2)
    >>> [is_next(StoredProgress(tick, 2, "7f/1/ab"), carried, delivery) for tick in (4, 5)]
    [True, False]
    """
    check_fence(progress, carried, delivery.epoch)
    if progress is None or progress.version != carried.version:
        return False  # removed, or filled with another query: the caller sees it by the progress it gets
    return progress.tick == delivery.after


def check_fence(progress: StoredProgress | None, carried: SinkContext, epoch: int, *, filling: bool = False) -> None:
    """Raise ``Fenced`` when a newer process, or another home, has written.

    A full copy may come from another home: whoever starts last has the sink.
    """
    if progress is None:
        return
    if home_id_of(progress.version) != carried.home_id:
        if filling:
            return
        raise Fenced(
            f'another home writes to sink "{carried.sink}" of view "{carried.view}" now',
            detail="Nothing of this tick was applied.",
            hint="Let one of the two write to another table, or stop it.",
            sink=carried.identity,
        )
    if epoch < progress.epoch:
        raise Fenced(
            f'a newer process runs app "{carried.app}": sink "{carried.sink}" has epoch {progress.epoch}, '
            f"this one {epoch}",
            detail="Nothing of this tick was applied.",
            hint="Stop this process, or start it again to take over.",
            sink=carried.identity,
            epoch=progress.epoch,
        )


def reached(progress: StoredProgress | None, carried: SinkContext) -> StoredProgress:
    """What ``apply`` returns when it did not apply: where the target is, or that it has nothing."""
    return progress if progress is not None else StoredProgress(-1, 0, f"{carried.home_id}/nothing")


def missing_extra(package: str, extra: str, sink: str) -> MissingExtra:
    """The error for a client that is not installed."""
    return MissingExtra(
        f"{sink} needs the package {package}, which is not installed",
        hint=f"pip install 'headwater[{extra}]'",
        package=package,
    )
