"""Declared inlets: the inlets of an app.

What it is: ``DeclaredInlets``, which ``app.inlet`` and ``app.run`` delegate to.
Invariants: declaring opens no socket; when one of several cannot start, those before it are stopped again.
Not here: one inlet (``inlet.py``). Read next: ``app.py``, ``cli/connectors/inlet_commands.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.errors import DeclarationConflict, InvalidDeclaration
from headwater.hints import suggestion
from headwater.inlets.inlet import Inlet, InletDeclaration
from headwater.log.topic_settings import check_name

if TYPE_CHECKING:
    from headwater.log.contract import EventLog


class DeclaredInlets:
    """The inlets of one app.

    >>> import headwater as hw, tempfile
    >>> app = hw.App("shop", home=tempfile.mkdtemp())
    >>> _ = app.inlet("metrics", hw.inlets.StatsD("samples", port=0))
    >>> [inlet.name for inlet in app.inlets]
    ['metrics']
    """

    def __init__(self, app: str, log: EventLog) -> None:
        self.app = app
        self.log = log
        self._inlets: dict[str, Inlet] = {}

    def declare(self, name: str, declared: InletDeclaration) -> Inlet:
        """Open an inlet under a name; an invalid declaration is refused here."""
        check_name("inlet", name)
        if name in self._inlets:
            raise DeclarationConflict(
                f'inlet "{name}" is declared twice', hint="Give one of the two another name.", inlet=name
            )
        if not isinstance(declared, InletDeclaration):
            raise InvalidDeclaration(
                f'inlet "{name}" cannot be {declared!r}',
                hint="Give one of hw.inlets: Webhook, StatsD, ZeroMQ, Amqp, Kafka.",
            )
        inlet = self._inlets[name] = declared.open(self.log, name, app=self.app)
        return inlet

    def find(self, name: str) -> Inlet:
        if name not in self._inlets:
            raise InvalidDeclaration(
                f'no inlet "{name}" was declared', hint=suggestion(name, list(self._inlets)), inlet=name
            )
        return self._inlets[name]

    def start(self) -> None:
        try:
            for inlet in self:
                inlet.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all of them; each appends its received messages first."""
        for inlet in self:
            inlet.stop()

    def __iter__(self) -> Iterator[Inlet]:
        return iter(tuple(self._inlets.values()))

    def __len__(self) -> int:
        return len(self._inlets)

    def __enter__(self) -> DeclaredInlets:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
