"""The status of sinks: how each is, remembered in the catalog for whoever looks from another process.

What it is: ``SinkStatus``, and ``SinkStatuses``, which keeps those of one app's sinks; the memories of sinks whose
other system can store no progress; a home's id.
Invariants: a status is what the follower last knew. Where the target stores its progress, that is the truth, and this
is a copy. A memory is changed by one transaction that compares the epoch.
Not here: alerts (``log/maintenance/alerts.py``); deciding (``sink_task.py``).
Read next: ``sink_task.py``.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.sinks.sink import SinkContext, StoredProgress, check_fence
from headwater.views.serving.view_reader import ViewLag

if TYPE_CHECKING:
    from headwater.log.home import Log


class SinkState(StrEnum):
    """What a sink is doing."""

    IDLE = "idle"  # it has not been led along yet
    FILLING = "filling"  # a full copy is on its way
    FOLLOWING = "following"
    RETRYING = "retrying"  # the other system does not answer
    STOPPED = "stopped"  # it was refused, and trying again would not help


@dataclass(frozen=True)
class SinkStatus:
    """How a sink is.

    >>> SinkStatus("revenue.sqlite", "revenue", "sqlite", "sqlite:copy.db").to_dict()["state"]
    'idle'
    """

    sink: str
    view: str
    kind: str
    to: str  # the other system, as messages name it: without passwords
    state: SinkState = SinkState.IDLE
    tick: int = 0  # the last one that the other system has
    failures: int = 0  # in a row
    error: Mapping[str, Any] | None = None  # as ``HeadwaterError.to_dict`` gives it
    rows: int = 0  # how many changes were brought by this process, full copies included
    changed_us: int = 0
    lag: ViewLag = field(default_factory=ViewLag)

    def to_dict(self) -> dict[str, Any]:
        """The shape programs get."""
        values = asdict(self)
        return {**values, "state": str(self.state), "changed_at": format_us(values.pop("changed_us"))}


class SinkStatuses:
    """The statuses of one app's sinks in a home's catalog."""

    def __init__(self, log: Log, app: str) -> None:
        self.log = log
        self.app = app

    def save(self, identity: str, status: SinkStatus) -> None:
        """Remember how a sink is."""
        text = json.dumps({name: value for name, value in asdict(status).items() if name != "lag"})
        with self.log.catalog.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO sinks (identity, app, sink, status) VALUES (?, ?, ?, ?)",
                (identity, self.app, status.sink, text),
            )

    def load(self, identity: str, otherwise: SinkStatus) -> SinkStatus:
        """How a sink was; ``otherwise`` when nobody has led it along yet."""
        rows = self.log.catalog.read("SELECT status FROM sinks WHERE identity = ?", (identity,))
        if not rows:
            return otherwise
        values = json.loads(rows[0]["status"])
        return replace(otherwise, **{**values, "state": SinkState(values["state"]), "to": otherwise.to})


def home_id(log: Log) -> str:
    """The name of a home that no other home has.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> home_id(log) == home_id(log), len(home_id(log))
    (True, 16)
    """
    rows = log.catalog.read("SELECT id FROM home_id")
    if not rows:
        with log.catalog.write(durable=True) as db:
            db.execute("INSERT OR IGNORE INTO home_id (one, id) VALUES (1, ?)", (secrets.token_hex(8),))
        rows = log.catalog.read("SELECT id FROM home_id")
    return str(rows[0]["id"])


class KeptProgress:
    """The progress of one sink, kept in the home because the other system can keep none."""

    def __init__(self, log: Log, carried: SinkContext) -> None:
        self.log = log
        self.carried = carried

    def recall(self) -> tuple[StoredProgress | None, Any]:
        """How far the sink is, and what else it remembers."""
        rows = self.log.catalog.read("SELECT * FROM sink_memories WHERE identity = ?", (self.carried.identity,))
        if not rows:
            return None, None
        row = rows[0]
        return StoredProgress(row["tick"], row["epoch"], row["version"]), json.loads(row["memory"])

    def remember(self, tick: int, epoch: int, memory: Any = None) -> StoredProgress:
        """Go on to a tick; ``Fenced`` when a newer process has done so."""
        with self.log.catalog.write(durable=True) as db:
            row = db.execute(
                "SELECT tick, epoch, version FROM sink_memories WHERE identity = ?", (self.carried.identity,)
            ).fetchone()
            check_fence(StoredProgress(*row) if row else None, self.carried, epoch, filling=True)
            db.execute(
                "INSERT OR REPLACE INTO sink_memories VALUES (?, ?, ?, ?, ?)",
                (self.carried.identity, tick, epoch, self.carried.version, json.dumps(memory)),
            )
        return StoredProgress(tick, epoch, self.carried.version)
