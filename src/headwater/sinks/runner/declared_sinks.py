"""Declared sinks of an app, and the handles that users hold.

What it is: ``DeclaredSinks`` holds what ``app.sink`` declared and makes the sink runner; ``SinkHandle`` is one sink of
one view.
Invariants: declaring connects to nothing; sink names are unique. Reading a status does not take the app over.
Not here: delivery (``sink_runner.py``, ``sink_task.py``).
Read next: ``sink_runner.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import DeclarationConflict, InvalidDeclaration, UnknownSink
from headwater.hints import suggestion
from headwater.log.contract import EventLog
from headwater.log.erasure.erasure_records import ErasureRecords
from headwater.log.schema.column_masks import ColumnMasks
from headwater.log.topic_settings import check_name
from headwater.sinks.runner.masked_view_reader import MaskedViewReader
from headwater.sinks.runner.sink_runner import SinkRunner
from headwater.sinks.runner.sink_status import SinkStatus
from headwater.sinks.runner.sink_task import SinkTask
from headwater.sinks.sink import Sink
from headwater.views.serving.view_reader import ViewReader
from headwater.views.view_declaration import caller

if TYPE_CHECKING:
    from headwater.views.privacy.personal_data import PersonalData
    from headwater.views.runtime import AppRuntime

OnTick = Callable[[Any], None]
MakeTask = Callable[[str, "AppRuntime", EventLog], SinkTask]  # of the sink's name


@dataclass(frozen=True)
class DeclaredSink:
    """One sink as declared."""

    name: str
    view: str
    sink: Sink
    location: str  # "shop.py:42"
    make_task: MakeTask | None = None  # for one that carries more than a view
    masked: PersonalData | None = None  # for one that gets masked values


class SinkHandle:
    """One sink of one view, as returned by ``app.sink``.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> users = app.table("users", "id BIGINT, country STRING", key="id")
    >>> _ = app.view("countries", "SELECT country, count(*) AS users FROM users GROUP BY country")
    >>> copy = app.sink("countries", hw.sinks.SQLite(f"{tempfile.mkdtemp()}/copy.db"))
    >>> _ = app.tick(sinks=False)
    >>> copy.status().tick, copy.sync().tick
    (0, 1)
    """

    def __init__(self, sinks: DeclaredSinks, declared: DeclaredSink) -> None:
        self._sinks = sinks
        self.name = declared.name
        self.view = declared.view
        self.sink = declared.sink
        self.masked = declared.masked is not None
        self.location = declared.location

    def status(self) -> SinkStatus:
        """The sink's state, its tick, its lag and its last error."""
        return self._sinks.runner.tasks[self.name].status

    def sync(self) -> SinkStatus:
        """Deliver up to the last committed tick now; restarts a stopped sink."""
        task = self._sinks.runner.tasks[self.name]
        task.restart()
        task.catch_up()
        return task.status

    def __repr__(self) -> str:
        return f"SinkHandle({self.name!r}, view={self.view!r}, sink={self.sink!r})"


class DeclaredSinks:
    """The sinks of one app."""

    def __init__(self, app: str, log: Callable[[], EventLog], runtime: Callable[[], AppRuntime]) -> None:
        self._app = app
        self._log = log
        self._runtime = runtime
        self._declared: dict[str, DeclaredSink] = {}
        self._runner: SinkRunner | None = None

    def __iter__(self) -> Iterator[SinkHandle]:
        return (SinkHandle(self, declared) for declared in self._declared.values())

    def __len__(self) -> int:
        return len(self._declared)

    # Declaring

    def declare(
        self,
        view: str,
        sink: Sink,
        name: str | None,
        make_task: MakeTask | None = None,
        *,
        masked: PersonalData | None = None,
    ) -> SinkHandle:
        """Add a sink; one that is ``masked`` gets what these say of the view's columns."""
        if not isinstance(sink, Sink):
            raise InvalidDeclaration(
                f"{sink!r} is not a sink", hint='A sink is one of hw.sinks, as in hw.sinks.SQLite("copy.db").'
            )
        name = f"{view}.{sink.kind}" if name is None else name
        check_name("sink", name)
        if name in self._declared:
            raise DeclarationConflict(
                f'sink "{name}" is declared twice, first at {self._declared[name].location}',
                hint='Give one of the two another name: app.sink(view, sink, name="…").',
                sink=name,
            )
        self._declared[name] = DeclaredSink(name, view, sink, caller(), make_task, masked)
        self.close()
        return SinkHandle(self, self._declared[name])

    def find(self, name: str) -> SinkHandle:
        """The sink of this name, or the only sink of the view of this name."""
        found = [each for each in self._declared.values() if each.name == name]
        found = found or [each for each in self._declared.values() if each.view == name]
        if len(found) == 1:
            return SinkHandle(self, found[0])
        names = [each.name for each in found] or list(self._declared)
        problem = f'view "{name}" has several sinks' if found else f'no sink "{name}" was declared'
        hint = f"There are: {', '.join(names)}." if found else suggestion(name, names)
        raise UnknownSink(problem, hint=hint, sink=name)

    def refuse_drop(self, view: str) -> None:
        """Raise if a sink delivers this view."""
        for each in self._declared.values():
            if each.view == view:
                raise InvalidDeclaration(
                    f'view "{view}" cannot be dropped: sink "{each.name}" ({each.location}) delivers it',
                    hint="Remove the sink from the app first.",
                    view=view,
                    sink=each.name,
                )

    # Running

    @property
    def runner(self) -> SinkRunner:
        """The runner, made on first use."""
        if self._runner is None:
            runtime, log = self._runtime(), self._log()
            runtime.after_forgetting = self.forget_beside
            self._runner = SinkRunner(self._task(each, runtime, log) for each in self._declared.values())
        return self._runner

    def _task(self, each: DeclaredSink, runtime: AppRuntime, log: EventLog) -> SinkTask:
        if each.make_task is not None:
            return each.make_task(each.name, runtime, log)
        reader = ViewReader(each.view, runtime.committed, epoch=lambda: runtime.epoch, clock=log.clock)
        if each.masked is not None:
            masks = ColumnMasks(log.local.catalog.mask_secret())
            reader = MaskedViewReader(
                each.view, runtime.committed, each.masked, masks, epoch=lambda: runtime.epoch, clock=log.clock
            )
        return SinkTask(each.name, each.view, self._app, each.sink, reader, log)

    def sync(self) -> list[SinkStatus]:
        """Deliver to every sink up to the last committed tick; returns the statuses."""
        runner = self.runner
        runner.sync()
        return [task.status for task in runner.tasks.values()]

    def forget(self) -> None:
        """After an erasure each sink clears what its system keeps of rows that have left; the answers are kept."""
        local = self._log().local
        records = ErasureRecords(local.catalog)
        for name, task in self.runner.tasks.items():
            left = task.forget()
            why, final = (None, False) if left is None else (left.why, left.final)
            records.sink_answered(self._app, name, why, final=final, now_us=local.clock.now_us())

    def forget_beside(self) -> None:
        """The same in a thread of its own: sinks never delay a tick."""
        threading.Thread(target=self.forget, name="headwater-forget", daemon=True).start()

    def ticked(self, *, sync: bool) -> None:
        """``app.tick()`` has committed a tick."""
        if self.runner.running:
            self.runner.wake()
        elif sync:
            self.runner.sync(patient=True)

    def follow(self, on_tick: OnTick | None) -> OnTick:
        """Start the runner; returns the call-back for each tick."""
        runner = self.runner
        runner.start()

        def after_tick(report: Any) -> None:
            runner.wake()
            if on_tick is not None:
                on_tick(report)

        return after_tick

    def stop(self) -> None:
        """Stop the runner."""
        if self._runner is not None:
            self._runner.stop()

    def close(self) -> None:
        """Stop, and release all resources."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
