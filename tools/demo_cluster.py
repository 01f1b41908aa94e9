"""``make demo-cluster``: the demo's app, unchanged, on Kafka, a Spark cluster, S3 and PostgreSQL, while each dies.

What it is: ``ClusterDemo`` starts a Kafka broker, an S3 server, a Spark master, two workers and a PostgreSQL, all on
loopback; lets ``headwater submit`` run ``examples/shop_live.py`` on them, told where log and state are by the
environment; lets the shop trade; kills an executor, a worker, the broker, the S3 server and the driver; and holds the
views to account.
Invariants: what is compared is not computed by the views: PostgreSQL answers the same questions, ``verify`` computes
each view from the log. Every wait has a deadline; a promise that was not kept is a sentence, and status 1. Every
process is stopped by its id.
Not here: the demo on one machine (``headwater demo``). Read next: ``docs/demo.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headwater.app_declarations import LOG_VARIABLE, SERVE_VARIABLE, STATE_VARIABLE
from headwater.cli.app_argument import app_of
from headwater.demo import audit
from headwater.demo.example import APP, DATABASE_VARIABLE, HOME_VARIABLE, example_file, furnish
from headwater.demo.processes import Processes
from headwater.log.token import Token
from headwater.testing.postgres_server import PostgresServer
from headwater.testing.spark_cluster import SparkCluster
from headwater.views.serving.serving_store import ServingStore, store_path
from tests.services.kafka_broker import KafkaBroker
from tests.services.s3_server import CREDENTIALS, S3Server

PREFIX = "shop."
START_S, RECOVER_S, CLOSE_S = 300.0, 180.0, 180.0
LOOK_S = 0.2
EXECUTORS = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "640m", "spark.sql.shuffle.partitions": "2"}


class Driver:
    """``headwater submit``, and the ticks that it tells of."""

    def __init__(self, master: str, folder: Path) -> None:
        command = [sys.executable, "-m", "headwater.cli.main", "submit", str(example_file()), "--master", master]
        for name, value in EXECUTORS.items():
            command += ["--conf", f"{name}={value}"]
        self.words = folder / f"driver-{time.monotonic_ns()}.log"
        self.ticks: list[dict[str, Any]] = []
        with self.words.open("w") as words:
            self.process = subprocess.Popen(
                [*command, "--json"], stdout=subprocess.PIPE, stderr=words, text=True, start_new_session=True
            )
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(json.JSONDecodeError):  # the last line of one that was killed may be cut
                self.ticks.append(json.loads(line))

    def end(self, how: signal.Signals) -> None:
        """Send a signal to it, and to all that it started, when it is to die."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, how) if how == signal.SIGKILL else self.process.send_signal(how)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class ClusterDemo:
    """One performance."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.seconds = seconds
        self.problems: list[str] = []
        self.facts: list[tuple[str, str]] = []
        self.begun = time.monotonic()
        self.console = Console(stderr=True)

    def run(self) -> bool:
        """Play it; whether every promise was kept."""
        with contextlib.ExitStack() as stack:
            self._start_servers(stack)
            with self.database.connect() as connection:
                rows = furnish(connection, dt.datetime.now(dt.UTC))
            self._narrate(f"PostgreSQL has {rows:,} rows; Kafka, S3 and a Spark cluster of two workers are up")
            with app_of(example_file()) as app:
                self.views = [view.name for view in app.views]
                self.topics = [topic.name for topic in app.log.topics()]
            self.driver = Driver(self.cluster.url, self.folder)
            stack.callback(lambda: self.driver.end(signal.SIGKILL))
            processes = stack.enter_context(Processes(self.home))
            shop = processes.start("shop", "shop")
            shop.say("go")
            self._until(lambda: self._tick() > 0 and self._filled(), START_S, "the views were filled")
            self.facts.append(("first views after", f"{time.monotonic() - self.begun:.0f} s"))
            shop.say("reprice")
            self._narrate(f"{len(self.views)} views follow, at tick {self._tick()}")
            for title, act in self._acts():
                self._go_on(self.seconds / 6)
                self._die(title, act)
            self._go_on(self.seconds / 6)
            shop.say("pause")
            self._narrate("the shop pauses; the views take the rest")
            self._until(lambda: any("paused" in facts for _, facts in processes.reports()), CLOSE_S, "the shop paused")
            self.problems += processes.failures
            self._until(self._all_taken, CLOSE_S, "the views took everything")
            self._until(lambda: not self._differences(), CLOSE_S, "the views and sinks were what PostgreSQL says")
            self.driver.end(signal.SIGINT)
            self._verify()
            self.problems += self._differences()
        return not self.problems

    def _start_servers(self, stack: contextlib.ExitStack) -> None:
        for name in ("kafka", "s3"):
            (self.folder / name).mkdir()
        self.kafka, self.s3 = KafkaBroker(self.folder / "kafka"), S3Server(self.folder / "s3")
        for server in (self.kafka, self.s3):
            stack.callback(server.kill)
            server.start()
        self.database = stack.enter_context(PostgresServer())
        self.cluster = SparkCluster()
        for worker in self.cluster.workers:
            # The interpreter that this environment was made from: what tasks need is sent to it.
            worker.environment["PATH"] = f"{sys.base_prefix}/bin:{os.environ['PATH']}"
        stack.enter_context(self.cluster)
        os.environ.update(
            {
                HOME_VARIABLE: str(self.home),
                DATABASE_VARIABLE: self.database.dsn,
                LOG_VARIABLE: f"kafka://{self.kafka.servers}?prefix={PREFIX}",
                STATE_VARIABLE: self.s3.address(APP),
                SERVE_VARIABLE: self.database.dsn,
                **CREDENTIALS,
            }
        )
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # executors have an interpreter of their own
            os.environ.pop(name, None)

    # Acts

    def _acts(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            ("an executor is killed", self._kill_executor),
            ("a worker is killed, and started again", lambda: self.cluster.workers[0].restart(immediate=True)),
            ("the broker is killed, and started again", lambda: (self.kafka.kill(), self.kafka.start())),
            ("the S3 server is killed, and started again", lambda: (self.s3.kill(), self.s3.start())),
            ("the driver is killed, and submitted again", self._kill_driver),
        ]

    def _kill_executor(self) -> None:
        os.kill(self.cluster.executors()[0], signal.SIGKILL)

    def _kill_driver(self) -> None:
        self.driver.end(signal.SIGKILL)
        self.driver = Driver(self.cluster.url, self.folder)

    def _die(self, title: str, act: Callable[[], None]) -> None:
        began = time.monotonic()
        act()
        before = self._ends()
        if self.driver.process.poll() is not None:  # it stopped with a sentence: run it again, as a supervisor does
            self._narrate(f"the driver ended: {_last_line(self.driver.words)}")
            self.driver = Driver(self.cluster.url, self.folder)
        if self._until(lambda: self._covers(before), RECOVER_S, f"the views went on after {title}"):
            took = time.monotonic() - began
            self.facts.append((title, f"views on after {took:.1f} s"))
            self._narrate(f"{title}: the views go on after {took:.1f} s")

    def _verify(self) -> None:
        self._narrate("verify: every view is computed again from the log, by the cluster")
        app = app_of(example_file())
        app.spark_settings.update({"spark.master": self.cluster.url, **EXECUTORS})
        os.environ["PYSPARK_PYTHON"] = sys.executable
        with app:
            for difference in app.verify():
                if difference.missing_count or difference.surplus_count:
                    self.problems.append(f"view {difference.view} is not what its query gives: {difference}")
        self.facts.append(("views computed again from the log", str(len(self.views))))

    # In between

    def _ends(self) -> dict[str, dict[int, int]]:
        """The ends of the topics that the views read."""
        return {name: self.kafka.ends(PREFIX + name) for name in self._store(lambda store: store.frontier.frontier)}

    def _covers(self, ends: dict[str, dict[int, int]]) -> bool:
        if self.driver.process.poll() is not None:
            self._narrate(f"the driver ended: {_last_line(self.driver.words)}")
            self.driver = Driver(self.cluster.url, self.folder)
        return self._store(lambda store: store.frontier.covers(Token(ends)))

    def _all_taken(self) -> bool:
        return self._covers(self._ends())

    def _differences(self) -> list[str]:
        return self._store(
            lambda store: [
                *audit.database_problems(self.database, store),
                *audit.sink_problems(self.home, store),
                *self._served_otherwise(store),
            ]
        )

    def _served_otherwise(self, store: ServingStore) -> list[str]:
        """The views whose rows PostgreSQL serves otherwise than the driver."""
        found = []
        for view, (_, asked) in audit.IN_THE_DATABASE.items():
            served = self.database.execute(asked.replace(f"FROM {view}", f"FROM headwater_{APP}.{view}"))
            here = {tuple(row.values()) for row in store.query(asked).to_pylist()}
            if {tuple(row) for row in served} != here:
                found.append(f"view {view} has {len(served)} rows in PostgreSQL, and others or as many on the driver")
        return found

    def _tick(self) -> int:
        return self._store(lambda store: store.tick) if store_path(self.home, APP).exists() else 0

    def _filled(self) -> bool:
        return self._store(lambda store: all(store.query(f"SELECT * FROM {view}").num_rows for view in ("revenue",)))

    def _store(self, asked: Callable[[ServingStore], Any]) -> Any:
        with ServingStore(store_path(self.home, APP)) as store:
            return asked(store)

    def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                self.problems.append(f"it did not happen within {seconds:g} s that {what}")
                self._narrate(f"{self.problems[-1]}: {_last_line(self.driver.words)}")
                return False
            time.sleep(LOOK_S)
        return True

    def _go_on(self, seconds: float) -> None:
        time.sleep(seconds)

    def _narrate(self, text: str) -> None:
        self.console.print(f"{time.monotonic() - self.begun:6.1f} s  {text}", soft_wrap=True)


def _last_line(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def main() -> None:
    """Play the demo, show what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="how long the shop trades between the kills, in all"
    )
    parser.add_argument("--json", action="store_true", help="write JSON, for programs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headwater-demo-cluster-", ignore_cleanup_errors=True) as folder:
        demo = ClusterDemo(Path(folder), arguments.seconds)
        ok = demo.run()
    if arguments.json:
        print(json.dumps({"ok": ok, "facts": dict(demo.facts), "problems": demo.problems}))
    else:
        table = Table("the demo on Kafka, a Spark cluster, S3 and PostgreSQL", "")
        for row in demo.facts:
            table.add_row(*row)
        Console().print(table)
        for problem in demo.problems:
            Console().print(f"[bold red]failed:[/bold red] {problem}", soft_wrap=True)
        if ok:
            Console().print("[bold green]Every check passed.[/bold green]")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
