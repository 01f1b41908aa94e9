"""``python -m bench.writes_bench``: transactions, request ids and conditions, beside Kafka and SQLite.

Invariants: all get their turn in every round, on one machine and in one run; figures are medians of the rounds. A
transaction of Kafka is one of its transactional producer (begin, produce, commit, real broker); one of SQLite is a
BEGIN IMMEDIATE … COMMIT in WAL mode with synchronous=NORMAL, as durable as our default. Kafka's idempotent producer
waits for each confirmation, as an append does.
Not here: plain appends (``log_bench.py``). Read next: ``docs/writing.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import headwater as hw
from bench import report
from bench.log.order_rows import DDL
from bench.peer_servers import kafka_broker
from bench.report import Measurement

OUT = Path("bench/out/writes.json")
WRITERS = (1, 2, 4)
WRITER = """
import sys, time
import headwater as hw
from bench.log.order_rows import Rows
topic = hw.Log(sys.argv[1]).get_topic(sys.argv[2])
batch = Rows(count=10_000).batch
topic.append_batch(batch)
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
for _ in range(int(sys.argv[3])):
    topic.append_batch(batch)
print(time.perf_counter() - began, flush=True)
"""


class Ours:
    """Headwater: one home, a topic of one partition, two topics and streams over eight."""

    def __init__(self, folder: Path) -> None:
        self.log = hw.Log(folder / "home")
        self.one = self.log.topic("one", "n BIGINT")
        self.two = [self.log.topic(name, "n BIGINT") for name in ("debits", "credits")]
        self.streams = self.log.topic("streams", "stream BIGINT, n BIGINT", ordered_by="stream", partitions=8)
        self.ids = itertools.count()
        self.versions: dict[int, int] = {}

    def append(self) -> None:
        self.one.append([{"n": 1}])

    def request_id(self) -> None:
        self.one.append([{"n": 1}], request_id=f"request-{next(self.ids)}")

    def transaction(self, rows: int) -> None:
        with self.log.transaction() as t:
            for topic in self.two:
                t.append(topic, [{"n": n} for n in range(rows // 2)])

    def conditional(self, stream: int) -> None:
        version = self.versions.get(stream, 0)
        self.streams.append([{"stream": stream, "n": version}], expected=version)
        self.versions[stream] = version + 1


class Sqlite:
    """A table for each topic."""

    def __init__(self, folder: Path) -> None:
        self.db = sqlite3.connect(folder / "peer.sqlite", isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        for name in ("debits", "credits"):
            self.db.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, n INTEGER)")

    def transaction(self, rows: int) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        for name in ("debits", "credits"):
            self.db.executemany(f"INSERT INTO {name} (n) VALUES (?)", [(n,) for n in range(rows // 2)])
        self.db.execute("COMMIT")


class Kafka:
    """A real broker: its transactional and its idempotent producer."""

    def __init__(self, port: int) -> None:
        import confluent_kafka
        from confluent_kafka.admin import AdminClient, NewTopic

        common = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0, "linger.ms": 0}
        admin = AdminClient(common)
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("debits", "credits")]).values():
            future.result(30)
        self.idempotent = confluent_kafka.Producer({**common, "enable.idempotence": True})
        self.transactional = confluent_kafka.Producer({**common, "transactional.id": "bench"})
        self.transactional.init_transactions(30)

    def append(self) -> None:
        self.idempotent.produce("debits", b"1", None, 0)
        self.idempotent.flush(30)

    def transaction(self, rows: int) -> None:
        self.transactional.begin_transaction()
        for name in ("debits", "credits"):
            for number in range(rows // 2):
                self.transactional.produce(name, str(number).encode(), None, 0)
        self.transactional.commit_transaction(30)


def rate(act: Callable[[], Any], count: int) -> float:
    """How often a second."""
    began = time.perf_counter()
    for _ in range(count):
        act()
    return count / (time.perf_counter() - began)


def several_writers(folder: Path, writers: int, partitions: int, batches: int = 100) -> float:
    """Rows a second of so many processes that append Arrow batches to one topic at once."""
    home, name = folder / "writers", f"t{writers}x{partitions}"
    with hw.Log(home) as log:
        log.topic(name, DDL, partitions=partitions)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(home), name, str(batches)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(writers)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    seconds = [float(process.communicate()[0]) for process in processes]
    return writers * batches * 10_000 / max(seconds)


def measure(folder: Path, rounds: int, count: int) -> list[Measurement]:
    """All acts by turns; the medians."""
    samples: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        ours, sqlite = Ours(folder), Sqlite(folder)
        kafka = Kafka(stack.enter_context(kafka_broker(folder)))
        cold = itertools.cycle(range(10_000))
        for stream in range(10_000):
            ours.versions.setdefault(stream, 0)
        acts: dict[str, Callable[[], Any]] = {
            "Headwater: append of one row": ours.append,
            "Headwater: append with a request id": ours.request_id,
            "Headwater: conditional append, one stream": lambda: ours.conditional(10_001),
            "Headwater: conditional append, 10 000 streams": lambda: ours.conditional(next(cold)),
            "Headwater: transaction of 2 rows, 2 topics": lambda: ours.transaction(2),
            "Headwater: transaction of 100 rows, 2 topics": lambda: ours.transaction(100),
            "SQLite: transaction of 2 rows, 2 tables": lambda: sqlite.transaction(2),
            "SQLite: transaction of 100 rows, 2 tables": lambda: sqlite.transaction(100),
            "Kafka: idempotent producer, one message": kafka.append,
            "Kafka: transaction of 2 messages, 2 topics": lambda: kafka.transaction(2),
            "Kafka: transaction of 100 messages, 2 topics": lambda: kafka.transaction(100),
        }
        for number in range(rounds + 1):
            for name, act in acts.items():
                found = rate(act, count if not name.startswith("Kafka") else max(10, count // 10))
                if number:  # the first round warms up
                    samples.setdefault(name, []).append(found)
        for number in range(rounds):
            for writers in WRITERS:
                for partitions in (1, 8):
                    where = folder / f"round-{number}"
                    where.mkdir(exist_ok=True)
                    name = f"Headwater: {writers} writing processes, {partitions} partition{'s' * (partitions > 1)}"
                    samples.setdefault(name, []).append(several_writers(where, writers, partitions))
    lines = [
        Measurement(name, statistics.median(found), "rows/s" if "writing" in name else "/s")
        for name, found in samples.items()
    ]
    middle = {line.name: line.value or 0.0 for line in lines}
    for rows in (2, 100):
        ours_name = f"Headwater: transaction of {rows} rows, 2 topics"
        for peer in (
            f"Kafka: transaction of {rows} messages, 2 topics",
            f"SQLite: transaction of {rows} rows, 2 tables",
        ):
            lines.append(
                Measurement(f"{ours_name}, beside {peer.split(':')[0]}", middle[ours_name] / middle[peer], "x")
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=500, help="of each act in a round; Kafka's take a tenth")
    asked = parser.parse_args()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(Path(folder), asked.rounds, asked.count)
    table = Table("what", "value", "unit")
    for line in lines:
        table.add_row(line.name, f"{line.value:,.2f}" if line.unit == "x" else f"{line.value:,.0f}", line.unit)
    Console().print(table)
    report.write(lines, OUT)


if __name__ == "__main__":
    main()
