"""Sink lag: how far the sinks of all apps are behind the ticks of their apps.

What it is: ``sink_lags``, from the catalog's rows of sinks and ticks alone, so that no app has to be loaded.
Invariants: it only reads. A sink reads what ticks have committed, never a topic: retention takes nothing from it, and
it holds nothing back. A sink whose tick is no longer kept has no lag in rows: it takes a full copy.
Not here: sinks (``sinks/runner/``); readers of topics (``readers.py``). Read next: ``readers.py``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.log.home import Log


@dataclass(frozen=True)
class SinkLag:
    """One sink: its last delivered tick, and what its app has committed since, in ticks and in rows of topics."""

    app: str
    sink: str
    view: str
    state: str
    tick: int
    lag_ticks: int
    lag_rows: int | None

    def to_dict(self) -> dict[str, Any]:
        """The form of ``headwater lag --json``."""
        return asdict(self)


def sink_lags(log: Log) -> list[SinkLag]:
    """The lag of every sink that a process of this home has run.

    >>> import headwater as hw, tempfile
    >>> sink_lags(hw.Log(tempfile.mkdtemp()))
    []
    """
    found = []
    for row in log.catalog.read(
        "SELECT s.app, s.sink, s.status, ifnull(a.tick, 0) AS head FROM sinks s LEFT JOIN apps a ON a.name = s.app"
        " ORDER BY s.app, s.sink"
    ):
        status = json.loads(row["status"])
        tick, head = int(status["tick"]), int(row["head"])
        behind = max(0, head - tick)
        rows = 0 if behind == 0 else _rows_between(log, row["app"], tick, head)
        found.append(SinkLag(row["app"], row["sink"], status["view"], status["state"], tick, behind, rows))
    return found


def _rows_between(log: Log, app: str, tick: int, head: int) -> int | None:
    sql = "SELECT json_extract(manifest, '$.frontier') AS frontier FROM ticks WHERE app = ? AND tick = ?"
    at = [log.catalog.read(sql, (app, number)) for number in (tick, head)]
    if not all(at):
        return None
    before: dict[str, dict[str, int]] = json.loads(at[0][0]["frontier"])
    after: dict[str, dict[str, int]] = json.loads(at[1][0]["frontier"])
    return sum(
        max(0, offset - before.get(topic, {}).get(number, 0))
        for topic, partitions in after.items()
        for number, offset in partitions.items()
    )
