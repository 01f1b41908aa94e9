"""History reader: what the log tells of aggregates, for routes and the dashboard.

What it is: ``HistoryReader`` keeps a ``StoredHistory`` of each history of the log, whose index grows with the log.
Invariants: it runs no code of the app and writes nothing. An index is read when a history is first asked for, not
before; then it is kept.
Not here: states (``server/commands/command_workers.py``).
Read next: ``aggregates/stored_history.py``.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

from headwater.aggregates.stored_history import StoredHistory, history_of

if TYPE_CHECKING:
    from headwater.app import App


class HistoryReader:
    """The histories of one app's log."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._known: dict[str, StoredHistory] = {}

    def find(self, name: str) -> StoredHistory:
        """A history, or ``UnknownAggregate``."""
        topic = self._app.log.find_topic(name)
        with self._lock:
            known = self._known.get(name)
            if known is None or topic is None or known.topic is not topic:  # it was deleted, and declared anew
                known = self._known[name] = history_of(self._app.log, name)
            return known

    def names(self) -> list[str]:
        """The histories there are."""
        return [topic.name for topic in self._app.log.topics() if topic.settings.events]

    def summary(self, name: str) -> dict[str, Any]:
        """A history's counts, and the commands that its class takes if the app declares it."""
        history = self.find(name)
        declared = self._app.aggregates.get(name)
        commands = {} if declared is None else declared.declared.commands
        return {
            "name": name,
            "kind": history.kind,
            "declared": declared is not None,
            "commands": [
                {"name": each, "arguments": [_argument(given) for given in method.parameters.values()]}
                for each, method in commands.items()
            ],
            **history.counts(),
        }

    def all(self) -> list[dict[str, Any]]:
        """Every history of the log."""
        return [self.summary(name) for name in self.names()]


def _argument(given: inspect.Parameter) -> dict[str, Any]:
    kind = given.annotation
    shown = None if kind is given.empty else kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    return {"name": given.name, "type": shown, "required": given.default is given.empty}
