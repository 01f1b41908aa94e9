"""Declared sinks: those of one app, and the handles that users hold.

What it is: ``DeclaredSinks`` remembers what ``app.sink`` declared and makes the convoy that leads the sinks along;
``SinkHandle`` is one sink of one view, as a user asks about it.
Invariants: declaring connects to nothing; a name belongs to one sink. Asking for a status takes no app over.
Not here: following (``sink_runner.py``, ``sink_task.py``).
Read next: ``sink_runner.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import DeclarationConflict, InvalidDeclaration, UnknownSink
from headwater.hints import suggestion
from headwater.log.home import Log
from headwater.log.topic_settings import check_name
from headwater.sinks.runner.sink_runner import SinkRunner
from headwater.sinks.runner.sink_status import SinkStatus, home_id
from headwater.sinks.runner.sink_task import SinkTask
from headwater.sinks.sink import Sink
from headwater.views.serving.view_reader import ViewReader
from headwater.views.view_declaration import caller

if TYPE_CHECKING:
    from headwater.views.runtime import AppRuntime

OnTick = Callable[[Any], None]


@dataclass(frozen=True)
class DeclaredSink:
    """One sink as declared."""

    name: str
    view: str
    sink: Sink
    location: str  # "shop.py:42"


class SinkHandle:
    """One sink of one view: what ``app.sink`` returns."""

    def __init__(self, sinks: DeclaredSinks, declared: DeclaredSink) -> None:
        self._sinks = sinks
        self.name = declared.name
        self.view = declared.view
        self.sink = declared.sink
        self.location = declared.location

    def status(self) -> SinkStatus:
        """How it is: its state, the tick that the other system has, how far it is behind, the last error."""
        return self._sinks.convoy.followers[self.name].status

    def sync(self) -> SinkStatus:
        """Bring it to the last committed tick now, also when it was stopped."""
        follower = self._sinks.convoy.followers[self.name]
        follower.restart()
        follower.catch_up()
        return follower.status

    def __repr__(self) -> str:
        return f"SinkHandle({self.name!r}, view={self.view!r}, sink={self.sink!r})"


class DeclaredSinks:
    """The sinks of one app."""

    def __init__(self, app: str, log: Callable[[], Log], runtime: Callable[[], AppRuntime]) -> None:
        self._app = app
        self._log = log
        self._runtime = runtime
        self._declared: dict[str, DeclaredSink] = {}
        self._convoy: SinkRunner | None = None

    def __iter__(self) -> Iterator[SinkHandle]:
        return (SinkHandle(self, declared) for declared in self._declared.values())

    def __len__(self) -> int:
        return len(self._declared)

    # Declaring

    def declare(self, view: str, sink: Sink, name: str | None) -> SinkHandle:
        """Add one."""
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
        self._declared[name] = DeclaredSink(name, view, sink, caller())
        self.close()
        return SinkHandle(self, self._declared[name])

    def find(self, name: str) -> SinkHandle:
        """The sink of this name, or the only one of the view of this name."""
        found = [each for each in self._declared.values() if each.name == name]
        found = found or [each for each in self._declared.values() if each.view == name]
        if len(found) == 1:
            return SinkHandle(self, found[0])
        names = [each.name for each in found] or list(self._declared)
        problem = f'view "{name}" has several sinks' if found else f'no sink "{name}" was declared'
        hint = f"There are: {', '.join(names)}." if found else suggestion(name, names)
        raise UnknownSink(problem, hint=hint, sink=name)

    def refuse_drop(self, view: str) -> None:
        """A view that a sink carries cannot go."""
        for each in self._declared.values():
            if each.view == view:
                raise InvalidDeclaration(
                    f'view "{view}" cannot be dropped: sink "{each.name}" ({each.location}) carries it',
                    hint="Take the sink out of the app first.",
                    view=view,
                    sink=each.name,
                )

    # Following

    @property
    def convoy(self) -> SinkRunner:
        """The followers, made when first needed."""
        if self._convoy is None:
            runtime, log = self._runtime(), self._log()
            home = home_id(log)
            self._convoy = SinkRunner(
                SinkTask(
                    each.name,
                    each.view,
                    self._app,
                    each.sink,
                    ViewReader(
                        each.view, runtime.committed, home_id=home, epoch=lambda: runtime.epoch, clock=log.clock
                    ),
                    log,
                )
                for each in self._declared.values()
            )
        return self._convoy

    def sync(self) -> list[SinkStatus]:
        """Bring every sink to the last committed tick; returns how each is."""
        convoy = self.convoy
        convoy.sync()
        return [follower.status for follower in convoy.followers.values()]

    def ticked(self, *, sync: bool) -> None:
        """``app.tick()`` has committed a tick."""
        if self.convoy.running:
            self.convoy.wake()
        elif sync:
            self.convoy.sync(patient=True)

    def follow(self, on_tick: OnTick | None) -> OnTick:
        """Lead all sinks along in the background; returns what is to be called after each tick."""
        convoy = self.convoy
        convoy.start()

        def told(report: Any) -> None:
            convoy.wake()
            if on_tick is not None:
                on_tick(report)

        return told

    @contextmanager
    def following(self, on_tick: OnTick | None) -> Iterator[OnTick]:
        """The same, until the end of the block."""
        told = self.follow(on_tick)
        try:
            yield told
        finally:
            self.stop()

    def stop(self) -> None:
        """End what ``follow`` began."""
        if self._convoy is not None:
            self._convoy.stop()

    def close(self) -> None:
        """Stop, and give the other systems' resources back."""
        if self._convoy is not None:
            self._convoy.close()
            self._convoy = None
