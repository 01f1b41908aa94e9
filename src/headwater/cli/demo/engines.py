"""What runs the app of the demo: a server with its engine, or an engine alone.

What it is: ``OwnEngine``, a process of the crew; ``ServedEngine``, the engine of a ``headwater serve``, which starts it
again by itself. ``engine_of`` picks.
Invariants: both have a process that can be killed, both verify every view when asked; asking does not wait.
Not here: the server (``server/``); the process (``parts.py``).
Read next: ``plot.py``.
"""

from __future__ import annotations

from typing import Any, Protocol

from headwater.cli.demo.crew import Crew

NAME = "engine"


class Engine(Protocol):
    """What the plot needs of it."""

    address: str | None  # of the dashboard
    heals: bool  # it is started again by itself

    def start(self) -> None:
        """Start it."""

    def kill(self) -> int:
        """Kill it with ``kill -9``; its process id."""

    def ask_verify(self) -> None:
        """Ask it to verify every view."""

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        """Take a report of the crew."""

    @property
    def verified(self) -> list[dict[str, Any]] | None:
        """What was found; None before."""

    @property
    def failure(self) -> str | None:
        """What went wrong, if it ended by itself."""

    def stop(self) -> None:
        """Stop it in good order."""


class OwnEngine:
    """A process of the crew. Nobody else starts it again."""

    address: str | None = None
    heals: bool = False

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.verified: list[dict[str, Any]] | None = None

    def start(self) -> None:
        """See ``Engine``."""
        self.crew.start("engine", NAME)

    def kill(self) -> int:
        """See ``Engine``."""
        child = self.crew.children[NAME]
        child.kill()
        return child.process.pid

    def ask_verify(self) -> None:
        """See ``Engine``."""
        self.verified = None
        self.crew.children[NAME].say("verify")

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        """See ``Engine``."""
        if name == NAME and "verified" in facts:
            self.verified = facts["verified"]

    @property
    def failure(self) -> str | None:
        """See ``Engine``."""
        return None if NAME not in self.crew.children else self.crew.children[NAME].failure

    def stop(self) -> None:
        """See ``Engine``."""
        self.crew.stop("engine")


def engine_of(crew: Crew) -> Engine:
    """What runs the app here."""
    return OwnEngine(crew)
