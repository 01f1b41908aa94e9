"""The demo's scenario: the sequence of events.

What it is: ``Scenario`` opens the shop, makes a late order and a bad one that pauses a view, kills a consumer and the
engine, makes a backup and a mistake happen, closes the shop, and writes the summary.
Invariants: this process never starts Spark: it reads the serving store and the change feed as any program would. Acts
begin at fixed fractions of the time; every wait has a deadline, and a missed one is in the summary.
Not here: the processes (``roles.py``, ``simulator.py``), the checks (``audit.py``).
Read next: ``audit.py``, ``simulator.py``.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from headwater.cli.app_argument import app_of
from headwater.demo import audit
from headwater.demo.backup_audit import BackupAudit
from headwater.demo.example import (
    APP,
    DATABASE_VARIABLE,
    HOME_VARIABLE,
    ORDERS,
    PAGE_VIEWS,
    QUIET_COUNTRY,
    TOLD,
    example_file,
    furnish,
)
from headwater.demo.freshness_probe import FreshnessProbe
from headwater.demo.headlines import by_country, filled, headlines
from headwater.demo.processes import Processes
from headwater.demo.proof_audit import ProofAudit
from headwater.demo.replica import Replica
from headwater.demo.roles import GROUP
from headwater.demo.screen import Screen, ShopState
from headwater.demo.serving_process import ServingProcess
from headwater.demo.summary import summary_of
from headwater.errors import Unavailable, UnknownGroup
from headwater.log.home import Log
from headwater.log.maintenance.alerts import lasting
from headwater.log.token import Token
from headwater.testing.postgres_server import PostgresServer
from headwater.views.serving.change_feed import TIMESTAMP_COLUMN, ChangeFeed
from headwater.views.serving.committed_changes import CommittedChanges
from headwater.views.serving.serving_store import ServingStore, store_path
from headwater.views.state.manifest import Manifests
from headwater.views.tick.pausing import paused_in

VIEW, KEY = "revenue", ("minute", "country")
MAY_PAUSE = "unit_prices"
REASON = re.compile(r"\[(\w+)\] ([^.]*)")  # Spark's name for an error, and its first sentence
CONSUMERS = ("ada", "bob")
HEARD = ("late_order", "mistake", "bad_order", "correction", "rule", "paused")  # the shop's answers
BEAT_S, LOOK_S = 0.1, 0.4
START_S, WAIT_S, VERIFY_S = 300.0, 120.0, 300.0
PLAY_S_MIN = 8.0
WISHED = """
    SELECT (SELECT count(*) FROM wishes) AS found,
           count(*) AS there FROM stock_levels WHERE name LIKE 'steel %' AND CAST(price AS REAL) < 60"""
OVER = dt.timedelta(seconds=70)  # a minute, and the lateness of orders: what changes after that is a correction


class Scenario:
    """One performance."""

    def __init__(self, home: Path, seconds: float, screen: Screen) -> None:
        self.curtain = time.monotonic() + seconds
        self.begun = time.monotonic()
        self.home = home
        self.screen = screen
        self.state = ShopState()
        self.replica = Replica(KEY, lambda change: bool(change[TIMESTAMP_COLUMN] - change["minute"] > OVER))
        self.problems: list[str] = []
        self.ready: set[str] = set()
        self.members: dict[str, str] = {}
        self.seen: dict[int, list[tuple[int, int]]] = {}
        self.facts: dict[str, Any] = {"engines_killed": 0, "consumers_killed": 0}
        self.heard: dict[str, Any] = {}  # what the shop answered when it was asked for something
        self.looked = 0.0

    def run(self, *, keep: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """Play it; returns the summary. With ``keep`` that is given to it, and the shop goes on until Ctrl-C."""
        with PostgresServer() as self.server:
            self._declare()
            with Log(self.home) as self.log, ServingStore(store_path(self.home, APP)) as self.store:
                self.manifests = Manifests(self.log.local.catalog, APP)
                self.feed = ChangeFeed(
                    VIEW,
                    CommittedChanges(self.manifests, self.store.path.parent, self.log.local.files),
                    self.store.wait,
                )
                self.freshness = FreshnessProbe(self.log.get_topic(ORDERS))
                self.backup, self.proofs = BackupAudit(self.log), ProofAudit(self.log)
                with Processes(self.home) as self.processes:
                    self.engine = ServingProcess(self.processes, self.views)
                    try:
                        self._play()
                        summary = self._close()
                        if keep is not None:
                            keep(summary)
                            self._go_on()
                    finally:
                        self.engine.stop()
                        self.backup.close()
                return summary

    # Acts

    def _declare(self) -> None:
        os.environ.update({HOME_VARIABLE: str(self.home), DATABASE_VARIABLE: self.server.dsn})
        with self.server.connect() as connection:
            rows = furnish(connection, dt.datetime.now(dt.UTC))
        self.screen.narrate(f"a PostgreSQL with {rows:,} rows of a shop: customers, products, orders, payments")
        with app_of(example_file()) as app:
            tables = ", ".join(topic.name for topic in app.log.topics() if topic.settings.captured_by)
            self.views, sinks = [view.name for view in app.views], len(app.sinks)
            places = app.privacy_map()
        store_path(self.home, APP).parent.mkdir(parents=True, exist_ok=True)
        self.screen.narrate(
            f"examples/shop_live.py captures {tables}, and declares {len(self.views)} views and {sinks} sinks"
        )
        self.screen.narrate(
            f"{len(places)} columns of {len({place.relation for place in places})} of its tables, topics and views say"
            " something of a customer (headwater privacy map); names are masked for keys without the right"
        )

    def _play(self) -> None:
        self._open()
        acts: list[tuple[float, Callable[[], None]]] = [
            (0.10, self._a_late_order_comes),
            (0.13, self._a_wish_waits),
            (0.15, self._a_bad_order_comes),
            (0.25, self._a_consumer_dies),
            (0.30, self._the_bad_order_is_corrected),
            (0.35, self._a_rule_rejects),
            (0.38, self._a_backup_is_made),
            (0.40, self._a_mistake_is_made),
            (0.45, self._the_consumer_returns),
            (0.50, self._the_engine_dies),
        ]
        opened = time.monotonic()
        seconds = max(self.curtain - opened, PLAY_S_MIN)
        # On a slow machine an act may outlast its time; then the others follow at once, and none is left out.
        while ((passed := time.monotonic() - opened) < seconds or acts) and not self._failures():
            while acts and passed >= acts[0][0] * seconds:
                acts.pop(0)[1]()
            self._beat()

    def _open(self) -> None:
        self.engine.start()
        for name in CONSUMERS:
            self.processes.start("consumer", name)
        self.processes.start("shop", "shop").say("go")
        self.screen.narrate("the shop is open: orders, payments, prices; page views, searches and clicks, some late")
        self.screen.narrate("Spark starts; the tables are captured, the views filled")
        if not self._until(
            lambda: self.state.tick > 0 and filled(self.state.headlines), START_S, "the views were filled"
        ):
            engine = self.engine.state()
            raise Unavailable(
                self.problems[-1],
                detail="; ".join([*self._failures(), f"the engine is {engine}"]),
                hint=f"Its log is {self.home / 'views' / APP / 'engine.log'}, with --home.",
            )
        self.processes.children["shop"].say("reprice")
        self.freshness.begin(_now_us())
        self.facts["first_views_seconds"] = round(time.monotonic() - self.begun, 1)
        self.screen.narrate(f"the views are there, at tick {self.state.tick}, and follow", style="green")

    def _a_late_order_comes(self) -> None:
        self._ask("late_order")
        told = self.heard.get("late_order")
        if told is None:
            return
        minute, amount = dt.datetime.fromisoformat(told["minute"]), Decimal(told["amount"])
        before = told["before"][minute]
        self._until(lambda: self._minutes().get(minute) != before, WAIT_S, "a late order corrected its minute")
        after = self._minutes().get(minute)
        self.facts["late_order"] = {"minute": minute, "before": before, "amount": amount, "after": after}
        if after != before + amount:
            self.problems.append(f"the late order of {amount} made {after} of {before}")
            return
        self.screen.narrate(
            f"an order of {amount} from {QUIET_COUNTRY} comes three minutes late:"
            f" revenue at {minute:%H:%M} was {before}, is {after}",
            style="green",
        )

    def _minutes(self) -> dict[dt.datetime, Decimal]:
        rows = self.store.query("SELECT minute, revenue FROM revenue WHERE country = ?", [QUIET_COUNTRY]).to_pylist()
        return {row["minute"]: row["revenue"] for row in rows}

    def _a_bad_order_comes(self) -> None:
        """One view cannot take it, and is paused; the others have it."""
        self._ask("bad_order")
        order = self.heard.get("bad_order")
        if not self._until(lambda: MAY_PAUSE in self._paused(), WAIT_S, f"view {MAY_PAUSE} was paused"):
            return
        tick, reason = self.store.tick, self._paused()[MAY_PAUSE]
        paused = self.facts["paused_view"] = {"view": MAY_PAUSE, "order": order, "reason": reason, "resumed": False}
        self.screen.narrate(f"order {order} has no units: view {MAY_PAUSE} is paused ({reason})", style="red")
        if self._until(lambda: self.store.tick > tick, WAIT_S, "the other views went on"):
            paused["others_went_on"] = [*self._paused()] == [MAY_PAUSE]
            self.screen.narrate(f"the other {len(self.views) - 1} views have the order, and go on", style="green")

    def _the_bad_order_is_corrected(self) -> None:
        since = self.log.get_topic(ORDERS).end_offsets()[0]
        self._ask("correction")
        order = self.heard.get("correction")
        if not self._until(lambda: self._taken(order, since), WAIT_S, "the correction was in the views"):
            return
        if MAY_PAUSE not in self._paused():  # which the summary tells
            return
        resuming = self.engine.ask_resume(MAY_PAUSE)
        self._until(lambda: not resuming.is_alive(), WAIT_S, f"view {MAY_PAUSE} was recomputed")
        if self._until(lambda: not self._paused(), WAIT_S, f"view {MAY_PAUSE} was resumed"):
            self.facts["paused_view"]["resumed"] = True
            self.screen.narrate(
                f"order {order} is corrected in the database, and view {MAY_PAUSE} resumed: it is recomputed and runs",
                style="green",
            )

    def _paused(self) -> dict[str, str]:
        """The views that stand still, and why, in a few words."""
        found = {name: pause.reason(name) for name, pause in paused_in(self.manifests.current()).items()}
        return {name: said[2] if (said := REASON.search(reason)) else reason for name, reason in found.items()}

    def _taken(self, order: Any, since: int) -> bool:
        """Whether ticks have taken a record of this order, of those from an offset on."""
        reached = self.store.frontier.frontier.get(ORDERS, {}).get(0, 0)
        batches = self.log.get_topic(ORDERS).read_partition(0, since, columns=["_offset", "id"])
        found = (row["_offset"] for batch in batches for row in batch.to_pylist() if row["id"] == order)
        return any(offset < reached for offset in found)

    def _a_consumer_dies(self) -> None:
        name = CONSUMERS[1]
        self._until(lambda: len(set(self._owners().values())) == 2, WAIT_S, "each consumer had a partition")
        child, since = self.processes.children[name], time.monotonic()
        child.kill()
        self.facts["consumers_killed"] += 1
        self.screen.narrate(f"kill -9 {child.process.pid}: {name}, who reads half of the page views", style="red")
        heir = self.members[CONSUMERS[0]]
        if not self._until(
            lambda: set(self._owners().values()) == {heir} and len(self._owners()) == 2,
            WAIT_S,
            f"{CONSUMERS[0]} took over from {name}",
        ):
            return
        took = self.facts["takeover_seconds"] = round(time.monotonic() - since, 1)
        self.screen.narrate(f"{CONSUMERS[0]} has taken over after {took} s, from the last commit on", style="green")

    def _the_consumer_returns(self) -> None:
        self.processes.start("consumer", CONSUMERS[1])
        self.screen.narrate(f"{CONSUMERS[1]} is back, and gets a partition")

    def _owners(self) -> dict[int, str]:
        try:
            members = self.log.get_topic(PAGE_VIEWS).group(GROUP).describe().members
        except UnknownGroup:
            return {}
        return {partition: member.id for member in members for partition in member.partitions}

    def _a_wish_waits(self) -> None:
        """A stored search finds what SQLite finds in the same tick, and follows the prices."""
        self.engine.put_search("wishes", "ada", "steel price:<60")

        def found() -> bool:
            both = self.store.query(WISHED).to_pylist()
            return bool(both) and all(each["found"] == each["there"] for each in both)

        if self._until(found, WAIT_S, "a stored search found what it looks for"):
            (told,) = self.store.query("SELECT count(*) AS wished FROM wishes").to_pylist()
            self.facts["wished"] = told["wished"]
            self.screen.narrate(
                f'ada waits for "steel price:<60": {told["wished"]} things are there now; what comes and goes is told',
                style="green",
            )

    def _a_rule_rejects(self) -> None:
        """Orders are commands: one that breaks a rule is rejected, and one that comes twice counts once."""
        self._ask("rule")
        heard = self.heard.get("rule") or {}
        told = self.facts["rule"] = {name: heard.get(name) for name in ("order", "reason", "repeated")}
        if told["reason"] is None or not told["repeated"]:
            self.problems.append("a payment of too much was not rejected, or one that came twice was not recognised")
            return
        self.screen.narrate(
            f"order {told['order']}: a payment of 5 too much is rejected ({told['reason']}), and stays in its history;"
            " the right one is sent twice, and counts once",
            style="green",
        )

    def _a_backup_is_made(self) -> None:
        """While everything goes on; at the end a home is made of it."""
        made = self.backup.make()
        self.screen.narrate(
            f"a backup, encrypted, while the shop is open: {made.manifest.rows:,} rows at one moment,"
            f" in {made.seconds:.1f} s"
        )
        noted = self.proofs.note()
        self.screen.narrate(
            f"the root of the first {noted.size:,} rows of {noted.topic} is noted, and signed: {noted.root.hex()[:16]}…"
            " (headwater audit checkpoint)"
        )

    def _a_mistake_is_made(self) -> None:
        self._ask("mistake")
        order = self.heard.get("mistake")
        if self._until(lambda: any(f"{order}:" in each for each in self._alerts()), WAIT_S, "an alert was sent"):
            self.screen.narrate(
                f"order {order} is booked by hand as paid with 5 too much: view alarms has it, and an alert is sent"
            )

    def _alerts(self) -> list[str]:
        return [row["about"] for row in self.log.get_topic(TOLD).rows()]

    def _the_engine_dies(self) -> None:
        if not self._until(lambda: self.engine.state().get("standby") == "ready", START_S, "a standby was ready"):
            return
        tick, epoch = self.state.tick, self.store.progress.epoch
        pid = self.engine.kill()
        left = _now_us()
        self.facts["engines_killed"] += 1
        self.state.running = False
        self.screen.narrate(f"kill -9 {pid}: the engine, after tick {tick}; a standby takes over", style="red")
        if not self._until(lambda: self.store.progress.epoch > epoch, START_S, "the engine was back"):
            return
        back = _now_us()
        self.freshness.away.append((left, back))
        self.facts["engine_back_seconds"] = round((back - left) / 1e6, 1)
        manifest = self.manifests.current()
        self.screen.narrate(
            f"back after {self.facts['engine_back_seconds']} s, as epoch {manifest.epoch}: tick {manifest.tick} took"
            f" {manifest.rows_in:,} rows that had waited; nothing is lost, nothing counts twice",
            style="green",
        )

    # The end

    def _close(self) -> dict[str, Any]:
        self.processes.children["shop"].say("pause")
        self.screen.narrate("the shop pauses; the views take the rest")
        self._until(lambda: "paused" in self.heard and not self.freshness.waiting, WAIT_S, "all commits were captured")
        self._until(self._all_taken, WAIT_S, "the views took everything")
        self._until(lambda: not audit.sink_problems(self.home, self.store), WAIT_S, "the sinks had everything")
        self._until(lambda: self._skipped()[0] == 0, WAIT_S, "the consumers had seen everything")
        self._until(lambda: audit.counted(self.log)[0] == 0, WAIT_S, "the consumers had counted everything")
        self.screen.narrate("verify: every view is computed again from the log alone, and by PostgreSQL where it can")
        self.engine.ask_verify()
        self._until(lambda: self.engine.verified is not None, VERIFY_S, "the views were verified")
        self._look()
        self.facts["backup"], wrong = self.backup.restore()
        self.problems += wrong
        self.facts["forgotten"], wrong = self.backup.forget()
        self.problems += wrong
        self.facts["proofs"], wrong = self.proofs.compare()
        self.problems += wrong
        summary = summary_of(self)
        style = "green" if summary["ok"] else "bold red"
        self.screen.narrate("every promise was kept" if summary["ok"] else "not every promise was kept", style=style)
        return summary

    def _all_taken(self) -> bool:
        frontier = self.store.frontier
        return frontier.covers(Token({name: self.log.get_topic(name).end_offsets() for name in frontier.frontier}))

    def _skipped(self) -> tuple[int, int]:
        return audit.coverage(self.seen, self.log.get_topic(PAGE_VIEWS).end_offsets())

    def _go_on(self) -> None:
        """The shop opens again, until Ctrl-C."""
        self.processes.children["shop"].say("go")
        self.screen.narrate("the shop is open again, until Ctrl-C")
        try:
            while not self._failures():
                self._beat()
        except KeyboardInterrupt:
            self.screen.narrate("closed")

    # In between

    def _ask(self, word: str) -> None:
        """Ask the shop for something, and wait for its answer; what the view said before is kept with it."""
        before = self._minutes()
        self.processes.children["shop"].say(word)
        self._until(lambda: word in self.heard, WAIT_S, f"the shop answered to {word}")
        if word in self.heard and isinstance(self.heard[word], dict):
            self.heard[word]["before"] = before

    def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> bool:
        begun, deadline = self.store.tick, time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self._failures():
                self.problems.append(f"it did not happen within {seconds:g} s that {what}{self._meanwhile(begun)}")
                return False
            self._beat()
        return True

    def _meanwhile(self, begun: int) -> str:
        """The observed state instead of the expected one, for the error."""
        said = [f"ticks {begun} to {self.store.tick} meanwhile", *(alert.message for alert in lasting(self.log))]
        return f" ({'; '.join(said)})"

    def _failures(self) -> list[str]:
        return self.processes.failures

    def _beat(self) -> None:
        self.store.wait(self.state.tick + 1, timeout=BEAT_S)
        self._hear()
        if self.store.tick > self.state.tick or (self.state.tick and time.monotonic() - self.looked > LOOK_S):
            self._look()
        self.screen.update(self.state)

    def _hear(self) -> None:
        for name, facts in self.processes.reports():
            self.engine.hear(name, facts)
            if self.engine.address != self.state.address:
                self.state.address = self.engine.address
                self.screen.narrate(f"the dashboard: {self.engine.address}", style="bold cyan")
            if "ready" in facts:
                self.ready.add(name)
                self.members[name] = facts.get("member", name)
            if "seen" in facts:
                partition, first, following = facts["seen"]
                self.seen.setdefault(partition, []).append((first, following))
            if "committed" in facts:
                self.freshness.committed(facts["committed"], facts["at_us"])
            self.heard.update({word: facts[word] for word in HEARD if word in facts})

    def _look(self) -> None:
        """The views in the serving store, and in the replica that follows the change feed."""
        self.looked = time.monotonic()
        progress, state = self.store.progress, self.state
        if progress.tick <= 0:
            return
        count = len(self.freshness.took)
        self.freshness.look(progress.frontier.frontier.get(ORDERS, {}).get(0, 0), _now_us())
        state.latencies_ms += [took / 1000 for _, took in self.freshness.took[count:]]
        if progress.tick > state.tick:
            state.running = True
            state.rows += [
                manifest.rows_in
                for tick in range(state.tick + 1, progress.tick + 1)
                if (manifest := self.manifests.at(tick)) is not None
            ]
        state.tick = progress.tick
        before: Mapping[str, str] = {each.view: each.says for each in state.headlines}
        state.headlines = headlines(self.store, self._paused())
        state.moved = frozenset(each.view for each in state.headlines if before.get(each.view) != each.says)
        state.revenue = by_country(self.store)
        self.replica.follow(self.feed)


def _now_us() -> int:
    return time.time_ns() // 1000
