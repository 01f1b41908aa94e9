"""Sink status: the state of each sink, stored in the catalog for other processes.

What it is: ``SinkStatus`` and ``SinkStatuses``.
Invariants: a status is the task's last report. Where the target stores its progress, that is authoritative.
Not here: alerts (``log/maintenance/alerts.py``); progress (``kept_progress.py``); deciding (``sink_task.py``).
Read next: ``sink_task.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.views.serving.view_reader import ViewLag

if TYPE_CHECKING:
    from headwater.log.contract import EventLog


class SinkState(StrEnum):
    """The state of a sink."""

    IDLE = "idle"  # not started yet
    FILLING = "filling"  # taking a full copy
    FOLLOWING = "following"
    RETRYING = "retrying"  # the other system does not answer
    STOPPED = "stopped"  # refused for good


@dataclass(frozen=True)
class SinkStatus:
    """The status of a sink.

    >>> SinkStatus("revenue.sqlite", "revenue", "sqlite", "sqlite:copy.db").to_dict()["state"]
    'idle'
    """

    sink: str
    view: str
    kind: str
    to: str  # the other system, without passwords
    state: SinkState = SinkState.IDLE
    tick: int = 0  # the last delivered one
    failures: int = 0  # in a row
    error: Mapping[str, Any] | None = None  # of ``HeadwaterError.to_dict``
    rows: int = 0  # delivered by this process, full copies included
    changed_us: int = 0
    lag: ViewLag = field(default_factory=ViewLag)

    def to_dict(self) -> dict[str, Any]:
        """The shape programs get."""
        values = asdict(self)
        return {**values, "state": str(self.state), "changed_at": format_us(values.pop("changed_us"))}


class SinkStatuses:
    """The statuses of one app's sinks in the catalog."""

    def __init__(self, log: EventLog, app: str) -> None:
        self.log = log
        self.app = app

    def save(self, identity: str, status: SinkStatus) -> None:
        """Save a status."""
        text = json.dumps({name: value for name, value in asdict(status).items() if name != "lag"})
        with self.log.local.catalog.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO sinks (identity, app, sink, status) VALUES (?, ?, ?, ?)",
                (identity, self.app, status.sink, text),
            )

    def load(self, identity: str, otherwise: SinkStatus) -> SinkStatus:
        """The saved status; ``otherwise`` when there is none."""
        rows = self.log.local.catalog.read("SELECT status FROM sinks WHERE identity = ?", (identity,))
        if not rows:
            return otherwise
        values = json.loads(rows[0]["status"])
        return replace(otherwise, **{**values, "state": SinkState(values["state"]), "to": otherwise.to})
