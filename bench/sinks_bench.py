"""``python -m bench.sinks_bench``: how quickly sinks take a tick.

What it is: the PostgreSQL sink beside the same rows brought by hand (COPY into a temporary table, then INSERT … ON
CONFLICT), taking turns on one server; then every other sink, for information. A table for people and
``bench/out/sinks.json`` for programs.
Invariants: both sides begin with the same Arrow rows and end with a commit and with the same table, which is compared.
By hand is the quickest way that we know: CSV made by Arrow, not row by row.
Not here: the views that the ticks come from (``views_bench.py``).
Read next: ``src/headwater/sinks/postgres/postgres_sink.py``.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.csv

from bench import report
from bench.parts import show
from bench.views.scale import Lines
from headwater import sinks
from headwater.log.home import Log
from headwater.log.schema.normalization import WEIGHT
from headwater.sinks.sink import Sink, SinkContext, Target
from headwater.testing.postgres_server import PostgresServer
from headwater.views.serving.deliveries import Delivery, upserts
from tests.services.kafka_broker import KafkaBroker
from tests.services.redis_server import RedisServer
from tests.services.sinks.receiver import Receiver

OUT = Path(__file__).parent / "out" / "sinks.json"
BAR = 0.8
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("country", pa.string()),
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("n", pa.int32()),
    ]
)
CREATE = """CREATE TABLE by_hand (id bigint PRIMARY KEY, country text, name text, amount double precision,
    price numeric(12, 2), at timestamptz, n integer)"""
NAMES = ", ".join(SCHEMA.names)
UPDATES = ", ".join(f"{name} = excluded.{name}" for name in SCHEMA.names[1:])


def rows_of(start: int, count: int, turn: int) -> pa.Table:
    """Rows with these numbers as they are in one turn."""
    numbers = np.arange(start, start + count)
    return pa.Table.from_arrays(
        [
            pa.array(numbers),
            pa.array([("DE", "FR", "IT", None)[number % 4] for number in numbers]),
            pa.array([f"user {number} of {turn}" for number in numbers]),
            pa.array(numbers * 0.25 + turn),
            pa.array((numbers * 7 + turn) % 1_000_000, pa.int64())
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(12, 2)),
            pa.array(numbers * 1_000_003, pa.int64()).cast(SCHEMA.field("at").type),
            pa.array((numbers % 1000).astype(np.int32)),
        ],
        schema=SCHEMA,
    )


def tick(turn: int, rows: int, before: int) -> pa.Table:
    """A tick that changes as many rows as it adds."""
    half = rows // 2
    start = (turn - 1) * half  # rows that no turn before has changed
    assert start + half <= before
    old, new = rows_of(start, half, 0), rows_of(start, half, turn)
    fresh = rows_of(before + turn * half, half, turn)
    parts = [(old, -1), (new, 1), (fresh, 1)]
    return pa.concat_tables([part.append_column(WEIGHT, pa.array(np.full(half, w))) for part, w in parts])


def by_hand(db: psycopg.Connection[Any], rows: pa.Table) -> None:
    """What a careful person writes."""
    text = io.BytesIO()
    pyarrow.csv.write_csv(rows, text, pyarrow.csv.WriteOptions(include_header=False))
    with db.transaction():
        db.execute("CREATE TEMP TABLE stage (LIKE by_hand) ON COMMIT DROP")
        with db.cursor().copy("COPY stage FROM STDIN (FORMAT csv)") as copy:
            copy.write(text.getbuffer())
        db.execute(f"INSERT INTO by_hand SELECT * FROM stage ON CONFLICT (id) DO UPDATE SET {UPDATES}")


@contextmanager
def filled(sink: Sink, log: Log, before: int, key: tuple[str, ...] = ("id",)) -> Iterator[Target]:
    """A target that has its first copy."""
    context = SinkContext("bench", "ours", "ours", SCHEMA, key, "bench/1/t")
    target = sink.open(context, log)
    target.fill(rows_of(0, before, 0).to_batches(), 0, 1)
    try:
        yield target
    finally:
        target.close()


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def beside_by_hand(server: PostgresServer, log: Log, *, rows: int, before: int, turns: int, lines: Lines) -> None:
    """The PostgreSQL sink and the same rows by hand, in turns."""
    ours: list[float] = []
    theirs: list[float] = []
    with psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS by_hand")
        db.execute(CREATE)
        by_hand(db, rows_of(0, before, 0))
        with filled(sinks.Postgres(server.dsn), log, before) as target:
            for turn in range(1, turns + 2):
                changes = tick(turn, rows, before)
                delivery, plain = Delivery(changes, turn - 1, turn, 1), upserts(changes)
                seconds = timed(lambda d=delivery: target.apply(d)), timed(lambda p=plain: by_hand(db, p))
                if turn > 1:  # the first one warms both up
                    ours.append(rows / seconds[0])
                    theirs.append(rows / seconds[1])
        different = "SELECT count(*) FROM (TABLE ours EXCEPT TABLE by_hand) a"
        (count,) = db.execute(different).fetchone() or (None,)
        assert count == 0, "the two tables differ"
        db.execute("DROP TABLE ours, by_hand, _headwater_progress")
    mine, hand = statistics.median(ours), statistics.median(theirs)
    name = f"PostgreSQL, ticks of {rows:,} rows"
    lines.figure(f"{name}: the sink", round(mine), "rows/s")
    lines.figure(f"{name}: COPY and INSERT … ON CONFLICT by hand", round(hand), "rows/s")
    ratios = sorted(one / other for one, other in zip(ours, theirs, strict=True))
    lines.at_least(f"{name}: the sink beside by hand", statistics.median(ratios), BAR)


def alone(title: str, sink: Sink, log: Log, lines: Lines, *, rows: int, before: int, turns: int = 3) -> None:
    """One sink for information."""
    rates = []
    with filled(sink, log, before) as target:
        for turn in range(1, turns + 2):
            delivery = Delivery(tick(turn, rows, before), turn - 1, turn, 1)
            seconds = timed(lambda d=delivery: target.apply(d))
            if turn > 1:
                rates.append(rows / seconds)
    lines.figure(f"{title}, ticks of {rows:,} rows", round(statistics.median(rates)), "rows/s")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    size = 10 if parser.parse_args().quick else 1
    rows, before, lines = 100_000 // size, 500_000 // size, Lines()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-sinks-") as name, Log(Path(name) / "home") as log:
        folder = Path(name)
        (folder / "redis").mkdir()
        (folder / "kafka").mkdir()
        with (
            PostgresServer(max_wal_size="4GB") as postgres,
            RedisServer(folder / "redis") as redis,
            KafkaBroker(folder / "kafka") as kafka,
        ):
            for many in (rows, 1000):
                beside_by_hand(postgres, log, rows=many, before=before, turns=7, lines=lines)
            others: dict[str, Sink] = {
                "SQLite": sinks.SQLite(folder / "copy.db"),
                "Redis, hashes": sinks.Redis(redis.url, prefix="h"),
                "Redis, JSON": sinks.Redis(redis.url, prefix="j", form="json"),
                "Kafka, rows": sinks.Kafka(kafka.servers, topic="rows"),
                "Kafka, changes": sinks.Kafka(kafka.servers, topic="changes", form="changes"),
                "topic": sinks.Topic("changes"),
                "full-text search": sinks.Search(folder / "index", text=["name"]),
                "Parquet": sinks.Parquet(folder / "parquet"),
                "Delta": sinks.Delta(folder / "delta"),
            }
            for title, sink in others.items():
                alone(title, sink, log, lines, rows=rows // 2, before=before // 5)
            alone("webhook", sinks.Webhook(Receiver("s").url, secret="s"), log, lines, rows=2000 // size, before=4000)
    show("sinks", lines.measurements)
    report.write(lines.measurements, OUT)
    sys.exit(0 if all(line.holds is not False for line in lines.measurements) else 1)


if __name__ == "__main__":
    main()
