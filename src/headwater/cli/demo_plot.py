"""The demo's plot: what happens when.

What it is: ``Plot`` sets the scene, plays the acts, drains, replays, and draws up the summary.
Invariants: acts begin at fixed parts of the time, so a short demo has the same plot as a long one; waiting is always
for something, with a deadline, after which the summary says what did not happen.
Not here: what the processes do (``demo_parts.py``), what counts as kept (``demo_ledger.py``).
Read next: ``demo_ledger.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headwater.cli.demo_crew import Crew
from headwater.cli.demo_ledger import Ledger
from headwater.cli.demo_parts import (
    CONSUMER_GROUP,
    COUPON,
    EMAILS,
    EMAILS_SCHEMA,
    ORDERS,
    ORDERS_SCHEMA,
    WORK_GROUP,
    now_us,
)
from headwater.cli.demo_screen import GroupState, Screen, TopicState
from headwater.cli.quantities import show_count
from headwater.errors import HeadwaterError, UnknownGroup
from headwater.log.home import Log

CONSUMERS = ("ada", "bob", "cleo")
WORKERS = ("kim", "lee", "mia")
BEAT_S = 0.05
SAMPLE_S = 0.5
START_S, DRAIN_S = 30.0, 20.0
AFTER_S = 5.0  # drain, replay and check
PLAY_MIN = 0.4  # the acts get this part of the time, even if the start was slow
PRODUCERS = (("orders", "web"), ("orders", "mobile"), ("bulk", "bulk"), ("emails", "mailer"))


class Plot:
    """One performance."""

    def __init__(self, home: Path, seconds: float, screen: Screen) -> None:
        self.curtain = time.monotonic() + seconds - AFTER_S
        self.seconds_min = seconds * PLAY_MIN
        self.seconds = seconds  # of the acts alone, once it is known when they begin
        self.screen = screen
        self.home = home
        self.log = Log(home)
        self.orders = self.log.topic(
            ORDERS, ORDERS_SCHEMA, key="customer_id", event_time="at", partitions=4, segment_bytes_max=16 << 20
        )
        self.emails = self.log.topic(EMAILS, EMAILS_SCHEMA, partitions=2)
        self.crew = Crew(home)
        self.ledger = Ledger()
        self.states = [TopicState(ORDERS), TopicState(EMAILS)]
        self.groups: list[GroupState] = []
        self.begun = self.sampled = 0.0
        self.bulk_us: int | None = None
        self.dead_owner: tuple[str, float] | None = None
        self.takeovers: list[float] = []
        self.killed = {"consumer": 0, "orders": 0, "worker": 0}
        self.problems: list[str] = []

    def run(self) -> dict[str, Any]:
        """Play it; returns the summary."""
        with self.log, self.crew:
            self._set_the_scene()
            self._play()
            self._drain()
            return self._summary()

    # Acts

    def _set_the_scene(self) -> None:
        self.screen.narrate(f'topic "{ORDERS}" with 4 partitions, topic "{EMAILS}" with 2; starting the processes')
        for name in CONSUMERS:
            self.crew.start("consumer", name)
        for name in WORKERS:
            self.crew.start("worker", name)
        self._until(lambda: self.ledger.ready >= {*CONSUMERS, *WORKERS}, START_S, "consumers and workers are ready")
        self._until(
            lambda: len(set(self._owners().values())) == len(CONSUMERS), START_S, "each consumer has a partition"
        )
        for role, name in PRODUCERS:
            self.crew.start(role, name)
        self._until(lambda: self.ledger.ready >= {name for _, name in PRODUCERS}, START_S, "producers are ready")
        for name in ("web", "mobile", "mailer"):
            self.crew.children[name].say("go")
        everybody = {*CONSUMERS, *WORKERS}
        self._until(lambda: self.ledger.busy >= everybody, START_S, "every consumer and worker has seen something")
        self.begun_us = now_us()  # only now: first rows also pay for files being made and modules being imported
        self.screen.narrate(
            "web and mobile append orders; ada, bob and cleo share the partitions; kim, lee and mia send emails"
        )

    def _play(self) -> None:
        acts: list[tuple[float, Callable[[], None]]] = [
            (0.20, self._bulk_begins),
            (0.35, self._a_consumer_dies),
            (0.50, self._a_column_is_added),
            (0.58, self._a_producer_dies),
            (0.68, self._a_worker_dies),
            (0.76, self._a_consumer_joins),
            (0.82, self._bulk_ends),
        ]
        self.begun = time.monotonic()
        self.seconds = max(self.curtain - self.begun, self.seconds_min)
        # On a slow machine an act may outlast its time; then the others follow at once, and none is left out.
        while (passed := time.monotonic() - self.begun) < self.seconds or acts:
            while acts and passed >= acts[0][0] * self.seconds:
                acts.pop(0)[1]()
            self._beat()

    def _bulk_begins(self) -> None:
        self.bulk_us = now_us()
        self.crew.children["bulk"].say("go")
        self.screen.narrate("bulk imports Arrow batches of 10,000 orders: first as fast as it goes, then steadily")

    def _bulk_ends(self) -> None:
        self.crew.stop("bulk")
        self.screen.narrate("bulk is done; the group works off what is left")

    def _a_consumer_dies(self) -> None:
        name = CONSUMERS[1]
        mine = sorted(partition for partition, owner in self._owners().items() if owner == self.ledger.members[name])
        self._kill(name, f"which owns {_partitions(mine)}")
        self.dead_owner = (self.ledger.members[name], time.monotonic())

    def _a_column_is_added(self) -> None:
        topic = self.log.topic(ORDERS, f"{ORDERS_SCHEMA}, {COUPON}")
        for name in ("web", "mobile"):
            self.crew.children[name].say("look")
        self.screen.narrate(f'column "{COUPON}" added to orders while all run: schema version {topic.schema_version}')

    def _a_producer_dies(self) -> None:
        self._kill("mobile", "in the middle of its appends")
        self.crew.start("orders", "mobile").say("go")
        self._until(lambda: "mobile" in self.ledger.ready, START_S, "mobile is back")
        number = self.ledger.resumed_at["mobile"]
        self.screen.narrate(f"mobile is back: the log knows its batch {number}, so it repeats that one and goes on")

    def _a_worker_dies(self) -> None:
        self._kill(WORKERS[0], "with messages in hand; others get them when its lease runs out")

    def _a_consumer_joins(self) -> None:
        self.crew.start("consumer", "dora")
        self.screen.narrate("dora joins the consumers; partitions are handed over in good order")

    def _kill(self, name: str, what: str) -> None:
        child = self.crew.children[name]
        child.kill()
        self._hear()
        self.ledger.note_killed(name)
        self.killed[child.role] += 1
        self.screen.narrate(f"kill -9 {child.process.pid}: {name}, {what}", style="red")

    # In between

    def _beat(self) -> None:
        time.sleep(BEAT_S)
        self._hear()
        if time.monotonic() - self.sampled >= SAMPLE_S:
            self._sample()
            self._watch_takeover()
        played = (time.monotonic() - self.begun) / self.seconds if self.begun else 0.0
        self.screen.update(self.states, self.groups, played)

    def _hear(self) -> None:
        for name, facts in self.crew.reports():
            self.ledger.note(name, facts)

    def _sample(self) -> None:
        now = time.monotonic()
        passed, self.sampled = now - self.sampled, now
        for state, topic in zip(self.states, (self.orders, self.emails), strict=True):
            rows = sum(topic.end_offsets().values())
            state.rates.append((rows - state.rows) / passed if state.rows else 0.0)
            state.rows = rows
        self.groups = [state for state in (self._state(ORDERS), self._state(EMAILS)) if state is not None]

    def _state(self, name: str) -> GroupState | None:
        topic, group = (self.orders, CONSUMER_GROUP) if name == ORDERS else (self.emails, WORK_GROUP)
        try:
            found = topic.group(group).describe()
        except UnknownGroup:
            return None
        owners = {partition: member.name or member.id for member in found.members for partition in member.partitions}
        note = f"{found.in_flight} in flight, {found.dead_letters} dead" if found.kind == "work" else ""
        members = sum(member.alive for member in found.members)
        return GroupState(f"{name}/{group}", found.kind, members, found.lag, owners, note)

    def _owners(self) -> dict[int, str]:
        try:
            members = self.orders.group(CONSUMER_GROUP).describe().members
        except UnknownGroup:
            return {}
        return {partition: member.id for member in members for partition in member.partitions}

    def _watch_takeover(self) -> None:
        if self.dead_owner is None:
            return
        dead, since = self.dead_owner
        owners = self._owners()
        if len(owners) == 4 and dead not in owners.values():
            self.takeovers.append(time.monotonic() - since)
            self.dead_owner = None
            shown = ", ".join(f"{number} {owner.rsplit('-', 1)[0]}" for number, owner in sorted(owners.items()))
            self.screen.narrate(
                f"taken over {self.takeovers[-1]:.1f} s after the kill; the owners are: {shown}", style="green"
            )

    def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self.crew.failures:
                self.problems.append(f"it did not happen within {seconds:g} s that {what}")
                return False
            self._beat()
        return True

    def _drain(self) -> None:
        self.crew.stop(*(role for role, _ in PRODUCERS))
        self._hear()
        self.played = time.monotonic() - self.begun
        self.screen.narrate("the producers stop; the groups work off the rest")
        self._until(lambda: self._lag() == 0, DRAIN_S, "both groups had no lag left")
        self._until(lambda: self.dead_owner is None, DRAIN_S, "the killed consumer was taken over")
        self.crew.stop("consumer", "worker")
        self._hear()
        self._sample()

    def _lag(self) -> int:
        pairs = ((self.orders, CONSUMER_GROUP), (self.emails, WORK_GROUP))
        return sum(topic.group(group).describe().lag_total for topic, group in pairs)

    # The end

    def _summary(self) -> dict[str, Any]:
        ledger = self.ledger
        ends = self.orders.end_offsets()
        replayed, replay_rate = self._replay()
        missing, twice, coupons = self._orders_in_the_log()
        skipped, again = ledger.coverage(ends)
        acceptable, accepted, accepted_twice = ledger.emails()
        dead = self.emails.group(WORK_GROUP).describe().dead_letters
        check_problems = self._check()
        rates = [rate for state in self.states for rate in state.rates]
        summary = {
            "seconds": round(self.played, 1),
            "events": sum(ends.values()),
            "messages": sum(self.emails.end_offsets().values()),
            "rate_peak": round(max(rates, default=0.0)),
            "rate_mean": round(sum(ends.values()) / self.played),
            "wake_ms": ledger.wake_ms(since_us=self.begun_us, before_us=self.bulk_us),
            "wake_whole_run_ms": ledger.wake_ms(),
            "consumers_killed": self.killed["consumer"],
            "takeover_seconds": [round(each, 2) for each in self.takeovers],
            "skipped": skipped,
            "seen_again": again,
            "producers_killed": self.killed["orders"],
            "missing": missing,
            "written_twice": twice,
            "workers_killed": self.killed["worker"],
            "acceptable": acceptable,
            "accepted": accepted,
            "accepted_twice": accepted_twice,
            "poison": ledger.poison,
            "dead_letters": dead,
            "schema_version": self.log.topic(ORDERS).schema_version,
            "coupons": coupons,
            "replay_rows": replayed,
            "replay_rate": round(replay_rate),
            "check_ok": not check_problems,
            "check_problems": check_problems,
        }
        problems = [*self.problems, *self.crew.failures, *_broken(summary), *check_problems]
        return {**summary, "problems": problems, "ok": not problems}

    def _replay(self) -> tuple[int, float]:
        begun = time.monotonic()
        rows = sum(batch.num_rows for batch in self.orders.read("earliest"))
        rate = rows / max(time.monotonic() - begun, 1e-6)
        self.screen.narrate(f"replay from the start: {rows:,} orders at {show_count(rate)}/s")
        return rows, rate

    def _orders_in_the_log(self) -> tuple[int, int, int]:
        ids, coupons = [], 0
        for batch in self.log.topic(ORDERS).read("earliest", columns=["order_id", "coupon"]):
            ids.append(batch.data.column("order_id").to_numpy())
            coupons += batch.num_rows - batch.data.column("coupon").null_count
        missing, twice = self.ledger.orders(np.concatenate(ids) if ids else np.array([], dtype=np.int64))
        return missing, twice, coupons

    def _check(self) -> list[str]:
        begun = time.monotonic()
        try:
            report = self.log.check()
        except HeadwaterError as error:
            return [str(error)]
        # A warning is about something untidy, such as a file that a killed process was just making.
        errors = [str(problem) for problem in report.problems if problem.severity == "error"]
        took = time.monotonic() - begun
        self.screen.narrate(f"check of every byte in {took:.1f} s: {len(errors) or 'no'} problems")
        return errors


def _broken(summary: dict[str, Any]) -> list[str]:
    """The promises that were not kept, each as a sentence."""
    promises = [
        (summary["skipped"] == 0, f"the consumer group skipped {summary['skipped']} events"),
        (summary["missing"] == 0, f"{summary['missing']} acknowledged events are not in the log"),
        (summary["written_twice"] == 0, f"{summary['written_twice']} events are in the log twice"),
        (summary["accepted_twice"] == 0, f"{summary['accepted_twice']} messages were accepted twice"),
        (summary["accepted"] == summary["acceptable"],
         f"{summary['accepted']} messages were accepted, of {summary['acceptable']}"),
        (summary["dead_letters"] == summary["poison"],
         f"{summary['dead_letters']} messages are dead letters, {summary['poison']} are poison"),
        (summary["replay_rows"] == summary["events"],
         f"the replay read {summary['replay_rows']} events, of {summary['events']}"),
        (len(summary["takeover_seconds"]) == summary["consumers_killed"], "a killed consumer was not taken over"),
        (summary["coupons"] > 0 and summary["schema_version"] == 2, "the added column holds nothing"),
    ]  # fmt: skip
    return [sentence for kept, sentence in promises if not kept]


def _partitions(numbers: list[int]) -> str:
    return f"partition {numbers[0]}" if len(numbers) == 1 else f"partitions {', '.join(map(str, numbers)) or 'none'}"
