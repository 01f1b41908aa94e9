"""The watchdog: restarts an engine that does not tick though rows wait, and reports whether the app runs at all.

What it is: ``Watchdog``, one task of the server that checks every second; ``/health/ready`` shows its finding.
Invariants: it decides by committed ticks and liveness files (``views/lifecycle/stalls.py``), never by calling the
engine, which may hang. A stall is an alert, a counter and a log line, and ends with the next tick. After ``KILLS_MAX``
kills in a row without a tick the engine is left alone.
Not here: restarting (``supervisor.py``).
Read next: ``views/lifecycle/stalls.py``, ``supervisor.py``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from headwater.log.maintenance.alerts import note_engine
from headwater.server.engine.supervisor import NONE, RUNNING, STANDBY, STARTING
from headwater.views.lifecycle.active_process import ActiveProcess
from headwater.views.lifecycle.stalls import PATIENCE, StallFinding, StallWatch

if TYPE_CHECKING:
    from headwater.server.server_state import ServerState

logger = logging.getLogger("headwater.server")

LOOK_S = 1.0
KILLS_MAX = 5


class Watchdog:
    """Looks whether the app gets on, and does something when it does not."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._watch = StallWatch(
            state.log, state.app.name, state.topics_read, state.folder, limit_seconds=state.settings.stalled_seconds_max
        )
        self._active = ActiveProcess(state.manifests, state.folder, state.log.clock)
        self._gone = False
        self.found = StallFinding()
        self.looked_s = 0.0  # when, by the monotonic clock; 0: not yet
        self._alerted_at: int | None = -1  # the tick; before the first look perhaps by a server before this one
        self._killed_at: tuple[int, int] = (-1, 0)  # the tick, and how often without another one

    async def run(self) -> None:
        """Look until the server ends."""
        while True:
            try:
                await self._look()
            except Exception as error:  # busy catalog, deleted topic: the next second will do
                logger.warning("the watchdog could not look: %s", error)
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        state = self._state
        engine = state.engine
        self._gone = await state.read(self._active.is_gone)  # where the state is on a store, it follows the commits
        found = await state.read(lambda: self._watch.look(about=(engine.state, engine.pid)))
        self.found, self.looked_s = found, time.monotonic()
        if engine.state == RUNNING and engine.epoch is not None and found.epoch > engine.epoch and not state.closing:
            # It may be stopped, and would not notice for as long: what it serves is old, and looks new.
            await self._replaced(found)
            return
        if found.stalled and engine.state in (RUNNING, NONE) and not state.closing:
            if self._alerted_at is None:
                await state.write(self._alert, found)
            await self._restart(found)
        elif engine.state == STARTING and found.stalled_seconds > PATIENCE * state.settings.stalled_seconds_max:
            await self._restart(found)
        elif self._alerted_at is not None and (found.tick > self._alerted_at or not found.waiting_rows):
            await state.write(self._end_alert)

    async def _replaced(self, found: StallFinding) -> None:
        supervisor = self._state.supervisor
        if supervisor is not None:
            reason = f"another process runs the app, with epoch {found.epoch}"
            await asyncio.get_running_loop().run_in_executor(None, supervisor.restart, reason)

    async def _restart(self, found: StallFinding) -> None:
        state = self._state
        if state.supervisor is None:
            return
        tick, kills = self._killed_at
        kills = kills + 1 if tick == found.tick else 1
        if kills <= KILLS_MAX:
            self._killed_at = (found.tick, kills)
            await asyncio.get_running_loop().run_in_executor(None, state.supervisor.restart, found.sentence)
            self._watch.reset()

    def _alert(self, found: StallFinding) -> None:
        name = self._state.app.name
        detail = {"tick": found.tick, "waiting_rows": found.waiting_rows, "seconds": round(found.stalled_seconds)}
        logger.error('app "%s": %s', name, found.sentence)
        note_engine(self._state.log.local, name, f'app "{name}": {found.sentence}', detail)
        self._alerted_at = found.tick

    def _end_alert(self) -> None:
        note_engine(self._state.log.local, self._state.app.name, None, {})
        self._alerted_at = None

    def _runs(self) -> bool:
        """Whether some process runs the app: of this home by its lock, of another machine by its lease."""
        return self.found.alive if self._state.manifests.lease_seconds is None else not self._gone

    def to_dict(self) -> dict[str, Any]:
        """The finding, for the status."""
        found = self.found
        return {
            "stalled": found.sentence if found.stalled else None,
            "waiting_rows": found.waiting_rows,
            "running": self._runs() or self._state.engine.state != NONE or not self.looked_s,
        }

    def reasons(self) -> list[str]:
        """Why the app is not ready; nothing when it is."""
        state, engine, found = self._state, self._state.engine, self.found
        said = []
        if state.closing:
            said.append("the server stops")
        if not state.app.views:
            return said
        if engine.state == NONE and self.looked_s and not self._runs():
            said.append("the app does not run: this server has no engine, and no other process runs the app")
        elif engine.state not in (RUNNING, NONE, STANDBY):
            reason = f": {engine.error['message']}" if engine.error else ""
            said.append(f"the engine is {engine.state}{reason}")
        if not self.looked_s:
            said.append("the server has just started and has not looked at the app yet")
        if found.stalled:
            said.append(found.sentence)
        return said
