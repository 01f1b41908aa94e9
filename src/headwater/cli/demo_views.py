"""The demo's second part: views that are kept up to date while the shop is open, a kill, and an account of it all.

What it is: ``ViewsPlot`` runs the app of ``examples/shop.py`` in a child process under a stream of orders, corrections,
cancellations and moving users, kills it with ``kill -9``, starts it again, and holds the views to account.
Invariants: this process never starts Spark: it reads the serving store and the change feed as any program would.
Waiting is always for something, with a deadline, after which the summary says what did not happen.
Not here: the children (``demo_shop.py``), the feed's reader (``demo_replica.py``), the log's part (``demo_plot.py``).
Read next: ``demo_shop.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headwater.cli.app_file import app_of
from headwater.cli.demo_crew import Crew
from headwater.cli.demo_parts import now_us
from headwater.cli.demo_replica import Replica
from headwater.cli.demo_screen import Screen, ShopState
from headwater.cli.demo_shop import APP_NAME, HOME_VARIABLE, ORDERS, app_file
from headwater.log.home import Log
from headwater.views.committed import Committed
from headwater.views.feed import Feed
from headwater.views.manifest import Manifests
from headwater.views.serving import ServingStore, store_path

VIEW, KEY = "revenue", "country"
CHILD = "app"
BEAT_S, LOOK_S = 0.05, 0.3
START_S, DRAIN_S, VERIFY_S = 180.0, 60.0, 120.0
AROUND_S = 28.0  # two starts of Spark and a verification, on two cores
PLAY_S_MIN = 6.0
KILL_AT = 0.5
TICKS_MIN = 2  # on each side of the kill, however slow the machine


class ViewsPlot:
    """One performance."""

    def __init__(self, home: Path, seconds: float, screen: Screen) -> None:
        self.home = home
        self.seconds = max(PLAY_S_MIN, seconds - AROUND_S)
        self.screen = screen
        self.state = ShopState()
        self.problems: list[str] = []
        self.replica = Replica(KEY)
        self.ticks: list[dict[str, Any]] = []
        self.waiting: list[tuple[Mapping[str, Any], int]] = []  # appended, and not yet in a tick
        self.latencies: list[tuple[int, int]] = []  # when it was appended, and how long it took, both microseconds
        self.ready: dict[str, dict[str, Any]] = {}
        self.verified: list[dict[str, Any]] | None = None
        self.late = self.sent_late = 0
        self.away_us = (0, 0)
        self.looked = 0.0

    def run(self) -> dict[str, Any]:
        """Play it; returns the summary."""
        self._declare()
        with (
            Log(self.home) as self.log,
            ServingStore(store_path(self.home, APP_NAME)) as self.store,
            Crew(self.home) as self.crew,
        ):
            manifests = Manifests(self.log.catalog, APP_NAME)
            self.feed = Feed(VIEW, Committed(manifests, self.store.path.parent, self.log.files), self.store.wait)
            self._open()
            self._play_for(self.seconds * KILL_AT)
            self._kill_and_return()
            self._play_for(self.seconds * (1 - KILL_AT))
            self._close()
            return self._summary([tick for tick, _ in manifests.kept()])

    # Acts

    def _declare(self) -> None:
        os.environ[HOME_VARIABLE] = str(self.home)
        with app_of(app_file()) as app:
            names = ", ".join(f'"{view.name}"' for view in app.views)
        store_path(self.home, APP_NAME).parent.mkdir(parents=True, exist_ok=True)
        self.screen.narrate(f"examples/shop.py declares orders, users, and the views {names}")

    def _open(self) -> None:
        self.crew.start("customers", "customers")
        self.crew.start("views", CHILD)
        self.screen.narrate("20,000 orders of 2,000 users are in the log; Spark starts, and fills the views")
        self._until(lambda: bool(self.ticks), START_S, "the views were filled")
        self.crew.children["customers"].say("go")
        self.screen.narrate(
            "the shop is open: orders, corrections, cancellations, and users who move to other countries"
        )

    def _kill_and_return(self) -> None:
        child = self.crew.children[CHILD]
        child.kill()
        self._hear()
        self.ready.pop(CHILD, None)
        self.state.running = False
        left, last = now_us(), self.feed.last_tick
        self.screen.narrate(f"kill -9 {child.process.pid}: the app, after tick {last}; the orders go on", style="red")
        reported = len(self.ticks)
        self.crew.start("views", CHILD)
        self._until(lambda: len(self.ticks) > reported, START_S, "the app was back")
        self.away_us = (left, now_us())
        if len(self.ticks) > reported:
            tick, epoch = self.ticks[reported], self.ready.get(CHILD, {}).get("epoch", "?")
            away = (self.away_us[1] - left) / 1e6
            self.screen.narrate(
                f"back after {away:.1f} s as epoch {epoch}: tick {tick['tick']} takes the {tick['rows_in']:,} rows"
                " that waited", style="green",
            )  # fmt: skip

    def _close(self) -> None:
        self.crew.stop("customers")
        self._hear()
        self.screen.narrate("the shop closes; the views take the rest")
        self._until(lambda: not self.waiting, DRAIN_S, "the views took everything that was appended")
        self.screen.narrate("verify: every view is computed again from the log alone")
        child = self.crew.children[CHILD]
        child.say("look")
        child.say("stop")
        self._until(lambda: self.verified is not None or not child.alive, VERIFY_S, "the views were verified")
        child.join()
        self._look()

    # In between

    def _play_for(self, seconds: float) -> None:
        end, enough = time.monotonic() + seconds, len(self.ticks) + TICKS_MIN
        while time.monotonic() < end and not self.crew.failures:
            self._beat()
        self._until(lambda: len(self.ticks) >= enough, START_S, f"the views made {TICKS_MIN} ticks more")

    def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self.crew.failures:
                self.problems.append(f"it did not happen within {seconds:g} s that {what}")
                return
            self._beat()

    def _beat(self) -> None:
        time.sleep(BEAT_S)
        self._hear()
        if self.ticks and time.monotonic() - self.looked >= LOOK_S:
            self._look()
        self.screen.update_shop(self.state)

    def _hear(self) -> None:
        for name, facts in self.crew.reports():
            if "ready" in facts:
                self.ready[name] = facts
            if "appended" in facts:
                self.waiting.append((facts["appended"][ORDERS], facts["at_us"]))
            if "tick" in facts:
                self._note_tick(facts["tick"], facts["at_us"])
            self.verified = facts.get("verified", self.verified)
            self.late = facts.get("late", self.late)
            self.sent_late = facts.get("sent_late", self.sent_late)

    def _note_tick(self, tick: dict[str, Any], at_us: int) -> None:
        self.ticks.append(tick)
        reached = tick["frontier"][ORDERS]
        done = [each for each in self.waiting if all(reached[part] >= offset for part, offset in each[0].items())]
        self.waiting = [each for each in self.waiting if each not in done]
        if len(self.ticks) > 1:  # the first fills the views
            self.latencies += [(appended_us, at_us - appended_us) for _, appended_us in done]
            self.state.latencies_ms += [(at_us - appended_us) / 1000 for _, appended_us in done]
        self.state.tick = tick["tick"]
        self.state.running = True
        self.state.changes.append(sum(view["changes"] for view in tick["views"]))
        self.state.seconds.append(tick["seconds"])

    def _look(self) -> None:
        """The view in the serving store, and in the replica that follows the change feed."""
        self.looked = time.monotonic()
        rows = self.store.query(f"SELECT country, revenue, orders FROM {VIEW} ORDER BY revenue DESC").to_pylist()
        self.state.revenue = rows
        self.replica.follow(self.feed)
        self.state.feed_tick = self.replica.tick

    # The end

    def _summary(self, kept: list[int]) -> dict[str, Any]:
        steady = [took for appended, took in self.latencies if not self._away(appended, appended + took)]
        whole = [took for _, took in self.latencies]
        served = {row[KEY]: row for row in self.state.revenue}
        seconds = [tick["seconds"] for tick in self.ticks[1:]]
        away = (self.away_us[1] - self.away_us[0]) / 1e6
        summary = {
            "rows": sum(tick["rows_in"] for tick in self.ticks),
            "ticks": kept[-1] if kept else 0,
            "tick_seconds_p50": round(float(np.median(seconds)), 3) if seconds else None,
            "latency_ms": _percentiles(steady),
            "latency_whole_run_ms": _percentiles(whole),
            "killed": 1,
            "back_after_seconds": round(away, 1),
            "verified": [
                {name: each[name] for name in ("view", "tick", "rows", "equal")} for each in self.verified or []
            ],
            "late": self.late,
            "sent_late": self.sent_late,
            "feed_ticks": self.replica.ticks,
            "feed_changes": self.replica.changes,
            "revenue": self.state.revenue,
        }
        wrong = [each["view"] for each in self.verified or [] if not each["equal"]]
        promises = [
            (bool(self.verified), "the views were not verified"),
            (self.late == self.sent_late, f"{self.late} orders were set aside as late, and {self.sent_late} were"),
            (not wrong, f"views that are not what the log gives: {', '.join(wrong)}"),
            (kept == list(range(1, len(kept) + 1)), "a tick is missing, or was committed twice"),
            (self.replica.rows == served, "what the change feed adds up to is not what the serving store holds"),
        ]
        broken = [sentence for kept_so, sentence in promises if not kept_so]
        problems = [*self.problems, *self.crew.failures, *self.replica.problems, *broken]
        self._tell_verdict(problems)
        return {**summary, "problems": problems}

    def _tell_verdict(self, problems: list[str]) -> None:
        if not problems:
            count, ticks = len(self.verified or []), self.replica.ticks
            self.screen.narrate(
                f"{self.late} orders came an hour late: they are in revenue, and for minutes set aside in minutes.late"
            )
            self.screen.narrate(
                f"{count} views are what the log gives; the change feed had {ticks} ticks, no gap, no repeat",
                style="green",
            )

    def _away(self, since_us: int, until_us: int) -> bool:
        left, back = self.away_us
        return since_us < back and until_us > left


def _percentiles(took_us: list[int]) -> dict[str, Any]:
    if not took_us:
        return {"p50": None, "p95": None, "samples": 0}
    p50, p95 = np.percentile(took_us, [50, 95]) / 1000
    return {"p50": round(float(p50)), "p95": round(float(p95)), "samples": len(took_us)}
