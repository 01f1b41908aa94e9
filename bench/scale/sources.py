"""Events from Kafka and from the embedded log, beside Spark's own connector: a windowed sum over the same events.

What it is: the events are written once into each log: the embedded one (sealed), and Kafka as Arrow batches, and as
Avro and JSON, a message a row. A view of the sums by minute and country is filled from each. The peer is Spark's
connector with ``from_json``, as a batch query: neither state nor serving is asked of it. It reads a topic of JSON in
which times are numbers (``plain_topic.py``), the topic that our log wrote, in which they are texts, and by
``from_avro`` the log's Avro.
What is timed: processor seconds of Python, the JVM and Spark's Python workers (the broker's are not in it), and the
clock's. All take turns in one process.
Invariants: the first runs of each warm up and are not counted; every group of every answer is checked.
Not here: Flink (``peers/flink_on_kafka.py``).
Read next: ``peers/flink_on_kafka.py``.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

import headwater as hw
from bench.peer_servers import PeerUnavailable, kafka_broker, tools_directory
from bench.processor_time import processor_seconds
from bench.scale.plain_topic import write_plain
from bench.scale.sizes import Sizes
from bench.time.events import DDL, LATE_MS_MAX, Answer, Events, answer_of, check
from bench.time.own import SUMS
from bench.views.memory import peak_of
from bench.views.scale import Lines
from bench.views.throughput import seal
from tests.services.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APPEND_ROWS = 100_000
WARM_UPS = 2
FORMS = ("arrow", "avro", "json")
RATE, PER_PROCESSOR = "events/s", "events per processor second"
CONNECTOR = "Spark's connector, from_json"
OF_AVRO = "Spark's connector, from_avro, over the messages of the log"
SAME_MESSAGES = "Spark's connector, from_json, over the messages of the log"
CONNECTOR_JARS = (
    "spark-avro",
    "spark-sql-kafka-0-10",
    "spark-token-provider-kafka-0-10",
    "kafka-clients",
    "commons-pool2",
)
BAR = 3.0


@dataclass
class Runs:
    """What the runs of one way to read took."""

    servers: Collection[int] = ()  # processes of ours whose time is not counted
    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def take(self, run: Callable[[], None]) -> None:
        """Run once more."""
        began, spent = time.perf_counter(), processor_seconds(without=self.servers)
        run()
        self.clock.append(time.perf_counter() - began)
        self.processor.append(processor_seconds(without=self.servers) - spent)


def measure(sizes: Sizes, folder: Path) -> Lines:
    """Events a second, and per processor second, of each way."""
    lines = Lines()
    events = Events(sizes.events)
    expected = events.answer()
    with kafka_broker(folder) as port, contextlib.ExitStack() as apps:
        servers = f"127.0.0.1:{port}"
        broker = [child.pid for child in psutil.Process().children()]
        registry = Registry()
        apps.callback(registry.close)
        kafka = f"kafka://{servers}?kept_bytes=1&registry={registry.url}&prefix="  # every run reads from Kafka
        ways = {
            "embedded log": None,
            "Kafka, Arrow": f"{kafka}arrow.",
            "Kafka, Avro": f"{kafka}avro.",
            "Kafka, JSON": f"{kafka}json.",
        }
        homes = {title: folder / f"home-{number}" for number, title in enumerate(ways)}
        for title, log in ways.items():
            app = apps.enter_context(app_of("writer", sizes, homes[title], log))
            runs = Runs()
            runs.take(lambda app=app: write(app, events, sizes))
            lines.figure(f"written to {title}", sizes.events / runs.clock[0], RATE)
        write_plain(servers, "plain", events, sizes.partitions)
        taken = {title: Runs(broker) for title in (*ways, CONNECTOR, SAME_MESSAGES, OF_AVRO)}
        for number in range(sizes.runs + WARM_UPS):  # in turns, so that all find Spark equally warm
            for title, log in ways.items():
                # An app of its own: a second view of one app would find the topic's rows in the state of the first.
                app = apps.enter_context(app_of(f"reader_{number}", sizes, homes[title], log))
                app.view("sums", SUMS)
                app._runtime.prepared  # compiled before the clock starts  # noqa: B018
                taken[title].take(lambda app=app: caught_up(app))
                check(answer_of(app._runtime.serving.query("SELECT * FROM sums")), expected)
            spark = app._runtime.spark.newSession()
            [avro] = [each["schema"] for each in registry.schemas.values()]
            peers = {
                CONNECTOR: ("plain", of_plain_json),
                SAME_MESSAGES: ("json.events", of_json),
                OF_AVRO: ("avro.events", partial(of_avro, schema=avro)),
            }
            for title, (topic, parsed) in peers.items():
                taken[title].take(partial(by_connector, spark, servers, topic, expected, parsed))
        lines.figure("peak memory, Python and JVM", peak_of() / 1e9, "GB")
    rates = {}
    for title, runs in taken.items():
        rates[title] = sizes.events / statistics.median(runs.processor[WARM_UPS:])
        lines.figure(title, sizes.events / statistics.median(runs.clock[WARM_UPS:]), RATE)
        lines.figure(title, rates[title], PER_PROCESSOR)
    for title in ways:
        lines.at_least(f"{title} beside {CONNECTOR}, per processor second", rates[title] / rates[CONNECTOR], BAR)
    lines.at_least(
        "Kafka, JSON beside the same messages by the connector", rates["Kafka, JSON"] / rates[SAME_MESSAGES], BAR
    )
    beside = rates["Kafka, Avro"] / rates[OF_AVRO]
    lines.figure("Kafka, Avro beside the same messages by the connector, from_avro", beside, "x")
    return lines


@contextlib.contextmanager
def app_of(name: str, sizes: Sizes, home: Path, log: str | None) -> Iterator[hw.App]:
    """An app of one topic, in a Spark that has the connector's jars."""
    spark = {"spark.driver.memory": sizes.driver_memory, "spark.jars": ",".join(connector_jars())}
    with hw.App(name, home=home, spark=spark, **({} if log is None else {"log": log})) as app:
        form = next((form for form in FORMS if log is not None and log.endswith(f"prefix={form}.")), None)
        settings = {"lateness": LATE_MS_MAX / 1000, "partitions": sizes.partitions, "values": form}
        app.topic("events", DDL, event_time="at", **settings)
        yield app


def connector_jars() -> list[str]:
    """The jars of Spark's connector."""
    folder = tools_directory() / "kafka-readers"
    found = [str(jar) for name in CONNECTOR_JARS for jar in folder.glob(f"{name}*.jar")]
    if len(found) != len(CONNECTOR_JARS):
        raise PeerUnavailable(f"no jars of Spark's connector in {folder} (run bench/scale/setup.sh in a checkout)")
    return found


def write(app: hw.App, events: Events, sizes: Sizes) -> None:
    """All events, sealed where that is the log's business."""
    topic = app.log.get_topic("events")
    for start in range(0, sizes.events, APPEND_ROWS):
        topic.append(events.table.slice(start, APPEND_ROWS))
    if isinstance(topic, hw.Topic):
        seal(topic)


def caught_up(app: hw.App) -> None:
    """Tick until nothing waits."""
    while app.tick().behind:
        pass


def by_connector(
    spark: SparkSession, servers: str, topic: str, expected: Answer, parsed: Callable[[DataFrame], DataFrame]
) -> None:
    """The sums by Spark's connector, as a batch; ``parsed`` makes the columns of the events from a message's value."""
    from pyspark.sql import functions

    frame = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    rows = parsed(frame.option("kafka.isolation.level", "read_committed").load())
    groups = rows.groupBy(functions.window("at", "1 minute").start.alias("minute"), "country")
    sums = groups.agg(functions.sum("amount").alias("amount"), functions.count("*").alias("events"))
    check(answer_of(sums.toArrow()), expected)


def of_json(rows: DataFrame) -> DataFrame:
    """Times are texts, as our log writes them."""
    from pyspark.sql import functions

    return rows.select(functions.from_json(functions.col("value").cast("string"), DDL).alias("e")).select("e.*")


def of_plain_json(rows: DataFrame) -> DataFrame:
    """Times are numbers of milliseconds."""
    from pyspark.sql import functions

    columns = DDL.replace("at TIMESTAMP", "at BIGINT")
    parsed = rows.select(functions.from_json(functions.col("value").cast("string"), columns).alias("e")).select("e.*")
    return parsed.withColumn("at", functions.timestamp_millis("at"))


def of_avro(rows: DataFrame, schema: str) -> DataFrame:
    """The record is behind the number of its schema, which ``from_avro`` does not look at."""
    from pyspark.sql import functions
    from pyspark.sql.avro.functions import from_avro

    return rows.select(from_avro(functions.expr("substring(value, 6)"), schema).alias("e")).select("e.*")
