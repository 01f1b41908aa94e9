"""Torture of the writing side: writers, copiers and an app, killed again and again, and a judge.

What it is: ``python -m tests.crash.write_torture --seconds 1200 --app`` (``make torture-writes``); a short run of it is
``test_write_torture.py``. Writers book amounts over eight partitions, in appends and in transactions over three topics,
with request ids; a copier reads and writes exactly once; an app keeps views of it. A process that was killed repeats
what it had begun.
Invariants: the judge takes cuts as a tick does and knows only rows: in every cut each booking is whole, money is
constant, a transaction is in all of its topics, an effect has its cause, each writer's stream is in order, nothing is
there twice; in the end nothing acknowledged is missing. Of the app it looks at every published tick.
Not here: boundaries of the disk (``test_transaction_boundaries.py``). Read next: ``log/commits/cut_numbers.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.log.table import Table, declare_table, open_table
from headwater.views.serving.serving_store import ServingStore, store_path

PARTITIONS = 8
ACCOUNTS = 50
LINE = 1_000_000  # account LINE + writer is the stream of one writer
ROWS = 3  # of a booking
VIEWS = {
    "money": "SELECT sum(amount) AS cents FROM bookings",
    "torn": "SELECT id, count(*) AS n FROM bookings GROUP BY id HAVING count(*) <> 3 OR sum(amount) <> 0",
    "causeless": "SELECT b.id FROM bookings b WHERE b.cause IS NOT NULL AND NOT EXISTS "
    "(SELECT 1 FROM audit a WHERE a.id = b.cause)",
    # Appends and transactions say what they belong to; the others say nothing.
    "mislabelled": "SELECT id FROM bookings WHERE NOT (_correlation_id <=> CASE WHEN n % 4 < 2 THEN id END) "
    "UNION ALL SELECT id FROM stock WHERE NOT (_correlation_id <=> id)",
}


def declare(home: Path) -> hw.App:
    app = hw.App("torture", home=home)
    settings: dict[str, Any] = {"partitions": PARTITIONS, "segment_bytes_max": 400_000}
    app.topic(
        "bookings", "id STRING, account BIGINT, amount BIGINT, n BIGINT, cause STRING", ordered_by="account", **settings
    )
    app.topic("audit", "id STRING, n BIGINT", **settings)
    app.topic("copies", "source BIGINT, place BIGINT", **settings)
    declare_table(app.log, "stock", "item BIGINT, id STRING", key="item", partitions=PARTITIONS)
    return app


# Processes that die


def write(home: Path, writer: int) -> None:
    """Book for ever; what was begun before the last death is repeated first."""
    app = declare(home)
    log, stock = app.log, open_table(app.log, "stock")
    journal = home.parent / f"writer-{writer}.txt"
    lines = journal.read_text().split() if journal.exists() else []
    number = int(lines[-1].lstrip("+")) + (lines[-1].startswith("+")) if lines else 0
    with journal.open("a", buffering=1) as book:
        print("ready", flush=True)
        while True:
            book.write(f"{number}\n")
            one_operation(log, stock, writer, number)
            book.write(f"+{number}\n")  # acknowledged
            number += 1


def one_operation(log: hw.Log, stock: Table, writer: int, number: int) -> None:
    """The same for the same numbers, so that a repetition is one."""
    chance = random.Random(f"{writer} {number}")
    bookings, audit = log.get_topic("bookings"), log.get_topic("audit")
    id_, amount = f"{writer}-{number}", chance.randrange(1, 100)
    one, other = chance.sample(range(ACCOUNTS), 2)
    kind = number % 4
    cause = f"{id_}-cause" if kind == 2 else None
    rows = [
        {"id": id_, "account": one, "amount": -amount, "n": number, "cause": cause},
        {"id": id_, "account": other, "amount": amount, "n": number, "cause": cause},
        {"id": id_, "account": LINE + writer, "amount": 0, "n": number, "cause": cause},
    ]
    said = hw.Metadata(correlation_id=id_) if kind < 2 else None
    if kind == 1:
        with log.transaction(request_id=id_, metadata=said) as t:
            t.append(bookings, rows)
            t.append(audit, [{"id": id_, "n": number}])
            t.upsert(stock, [{"item": chance.randrange(20), "id": id_}])
        return
    if kind == 2:
        audit.append([{"id": cause, "n": number}], request_id=cause)
    if kind == 3:
        audit.append([{"id": f"{id_}-numbered", "n": number}], producer=f"writer-{writer}", sequence=number)
    bookings.append(rows, request_id=id_, metadata=said)


def copy(home: Path) -> None:
    """Read bookings and write where each row was, for ever and exactly once."""
    log = declare(home).log
    bookings, copies = log.get_topic("bookings"), log.get_topic("copies")
    with bookings.consumer("copier", member="copier", columns=["_offset"], rows_max=200) as consumer:
        print("ready", flush=True)
        while True:
            batch = consumer.poll(timeout=1.0)
            if batch is not None:
                with log.transaction() as t:
                    t.append(copies, [{"source": batch.partition, "place": row["_offset"]} for row in batch])
                    t.commit(consumer, batch)


def run_app(home: Path) -> None:
    """Keep the views, with limits on a tick's rows."""
    app = declare(home)
    for name, sql in VIEWS.items():
        app.view(name, sql)
    print("ready", flush=True)
    while True:
        app.tick(rows_max=500)


ROLES = {"write": lambda home, number: write(home, number), "copy": lambda home, _: copy(home)}
ROLES["app"] = lambda home, _: run_app(home)


@dataclass
class Victim:
    """A process that is killed and started again."""

    role: str
    number: int
    home: Path
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.crash.write_torture", "--role", self.role, str(self.home)]
        self.process = subprocess.Popen(
            [*command, "--number", str(self.number)],
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def wait_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", f"{self.role} {self.number} ended by itself"

    def kill(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, f"{self.role} {self.number} ended by itself: {self.process.returncode}"
        self.stop()

    def stop(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


# The judge


@dataclass
class Judge:
    """Reads from cut to cut, and says what is wrong."""

    log: hw.Log
    place: dict[str, dict[int, int]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    causes: set[str] = field(default_factory=set)
    copied: set[tuple[int, int]] = field(default_factory=set)
    last: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    cuts: int = 0

    def look(self) -> None:
        """Take a cut, and judge what came since the last one."""
        topics = [self.log.get_topic(name) for name in ("audit", "bookings", "copies", "stock")]
        cut = self.log.cut(topics)
        came = {topic.name: self._rows(topic, cut[topic.name]) for topic in topics}
        self.place = cut
        self.cuts += 1
        audited = {row["id"] for row in came["audit"]}
        self._unique("audit", Counter(row["id"] for row in came["audit"]), self.causes)
        self.causes |= audited
        stocked = {row["id"] for row in came["stock"]}
        by_id: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in came["bookings"]:
            by_id[row["id"]].append(row)
        self._unique("bookings", Counter(list(by_id)), self.seen)
        for id_, rows in by_id.items():
            number = rows[0]["n"]
            if len(rows) != ROWS or sum(row["amount"] for row in rows):
                self.wrong.append(f"booking {id_} is torn: {rows}")
            if number % 4 == 1 and not (id_ in audited and id_ in stocked):
                self.wrong.append(f"transaction {id_} is not in all of its topics")
            if number % 4 == 2 and rows[0]["cause"] not in self.causes:
                self.wrong.append(f"booking {id_} is there without its cause")
        self.seen |= set(by_id)
        for row in came["bookings"]:
            if row["account"] >= LINE:
                if row["n"] != self.last.get(row["account"], -1) + 1:
                    self.wrong.append(f"{row['id']} follows {self.last.get(row['account'])}")
                self.last[row["account"]] = row["n"]
        places = [(row["source"], row["place"]) for row in came["copies"]]
        if len(set(places)) < len(places) or self.copied & set(places):
            self.wrong.append("a row was copied twice")
        self.copied |= set(places)

    def _rows(self, topic: hw.Topic, stop: dict[int, int]) -> list[dict[str, Any]]:
        start = self.place.get(topic.name, dict.fromkeys(stop, 0))
        return list(topic.rows(start, stop=stop))

    def _unique(self, what: str, came: Counter[str], known: set[str]) -> None:
        again = [id_ for id_, count in came.items() if count > 1 or id_ in known]
        if again:
            self.wrong.append(f"{what} has {again[:3]} twice")

    def finish(self, folder: Path) -> int:
        """Look for what was acknowledged and is not there; returns how many operations were acknowledged."""
        acknowledged = 0
        for journal in folder.glob("writer-*.txt"):
            writer = journal.stem.removeprefix("writer-")
            for line in journal.read_text().split():
                if line.startswith("+"):
                    acknowledged += 1
                    if f"{writer}-{line[1:]}" not in self.seen:
                        self.wrong.append(f"acknowledged booking {writer}-{line[1:]} is missing")
        ends = self.place["bookings"]
        beyond = [place for place in self.copied if place[1] >= ends[place[0]]]
        if beyond:
            self.wrong.append(f"copies of rows that are not there: {beyond[:3]}")
        return acknowledged


def judge_tick(store: ServingStore, wrong: list[str]) -> None:
    counts = ", ".join(f"(SELECT count(*) FROM {view}) AS {view}" for view in VIEWS if view != "money")
    [row] = store.query(f"SELECT (SELECT cents FROM money) AS cents, {counts}").to_pylist()
    if any(row.values()):
        wrong.append(f"tick {store.tick} shows {row}")


def torture(folder: Path, *, seconds: float, writers: int, app: bool, seed: int = 0) -> dict[str, Any]:
    """Let them run and die for so long; returns the figures."""
    chance, home = random.Random(seed), folder / "home"
    kills: Counter[str] = Counter()
    ticks: set[int] = set()
    with declare(home) as parent:
        judge = Judge(parent.log)
        victims = [Victim("write", number, home) for number in range(writers)] + [Victim("copy", 0, home)]
        victims += [Victim("app", 0, home)] if app else []
        try:
            for victim in victims:
                victim.start()
            for victim in victims:
                victim.wait_ready()
            store: ServingStore | None = None
            end, next_kill = time.monotonic() + seconds, 0.0
            while time.monotonic() < end:
                judge.look()
                if app and store is None and store_path(home, parent.name).exists():
                    store = ServingStore(store_path(home, parent.name))
                if store is not None and store.tick and store.tick not in ticks:
                    ticks.add(store.tick)
                    judge_tick(store, judge.wrong)
                if time.monotonic() > next_kill:
                    victim = chance.choice(victims)
                    if victim.role != "app" or chance.random() < 0.3:  # its Spark takes long to start
                        victim.kill()
                        kills[victim.role] += 1
                        victim.start()
                        victim.wait_ready()
                    next_kill = time.monotonic() + chance.uniform(0.2, 1.5)
        finally:
            for victim in victims:
                victim.stop()
        judge.look()
        acknowledged = judge.finish(folder)
        report = parent.log.check()
        if not report.ok:
            judge.wrong.append(str(report))
    return {
        "seconds": seconds,
        "kills": dict(kills),
        "operations acknowledged": acknowledged,
        "cuts judged": judge.cuts,
        "ticks judged": len(ticks),
        "rows copied": len(judge.copied),
        "wrong": judge.wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Torture of the writing side.")
    parser.add_argument("home", nargs="?", type=Path)
    parser.add_argument("--role", choices=sorted(ROLES))
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--app", action="store_true", help="also run views with Spark, and judge every tick")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.role:
        ROLES[asked.role](asked.home, asked.number)
        return
    with tempfile.TemporaryDirectory() as folder:
        figures = torture(Path(folder), seconds=asked.seconds, writers=asked.writers, app=asked.app, seed=asked.seed)
    for name, value in figures.items():
        print(f"{name:26} {value}")
    sys.exit(1 if figures["wrong"] else 0)


if __name__ == "__main__":
    main()
