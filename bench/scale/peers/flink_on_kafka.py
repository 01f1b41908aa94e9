"""Flink SQL over a topic of JSON on Kafka: the same sums as ``sources.py``.

What it is: Flink's own Kafka source, bounded by the topic's end, in its mini cluster; the variants of ``bench/time``,
and its program. The topic is what a plain producer writes (``plain_topic.py``).
What is timed: from a job's start to its last output, and the processor seconds of Flink's Python and JVM. The first
run warms up and is not counted.
Invariants: a variant's time counts only with the right answer; without one it is reported with what was wrong.
Not here: Flink's program (``bench/time/peers/flink_program.py``). Read next: ``cluster_ticks.py``.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from bench.peer_process import heard, interpreter, started
from bench.peer_servers import PeerUnavailable, kafka_broker, tools_directory
from bench.scale.plain_topic import write_plain
from bench.scale.sizes import Sizes
from bench.scale.sources import PER_PROCESSOR, RATE
from bench.time.events import Answer, Events, difference
from bench.time.peers.runs import FLINK, HERE, RUN_SECONDS_MAX, Variant, read_answer
from bench.views.scale import Lines

TOPIC = "plain"


def measure(sizes: Sizes, folder: Path) -> Lines:
    """Events a second, and per processor second, by variant."""
    lines = Lines()
    events = Events(sizes.events)
    expected = events.answer()
    with kafka_broker(folder) as port:
        servers = f"127.0.0.1:{port}"
        write_plain(servers, TOPIC, events, sizes.partitions)
        for number, variant in enumerate(FLINK[1:]):  # without mini-batches it is the slowest
            try:
                took = run(variant, folder / str(number), servers, expected, sizes.runs)
            except PeerUnavailable as error:
                lines.missing(variant.title, str(error))
                continue
            clock, processor = (statistics.median(each) for each in zip(*took, strict=True))
            lines.figure(f"Flink SQL, {variant.title}", sizes.events / clock, RATE)
            lines.figure(f"Flink SQL, {variant.title}", sizes.events / processor, PER_PROCESSOR)
    return lines


def run(variant: Variant, folder: Path, servers: str, expected: Answer, runs: int) -> list[tuple[float, float]]:
    """Seconds of the clock and of the processor, of each run but the first."""
    folder.mkdir()
    (folder / "source.json").write_text(json.dumps({"options": options(servers), "jars": jars()}))
    numbers = [str(number) for number in range(runs + 1)]
    program = HERE / "flink_program.py"
    command = [str(interpreter(variant.environment)), str(program), str(folder), *variant.arguments, *numbers]
    with started(command, folder) as process:
        took = heard(process, "done", variant.title, folder, RUN_SECONDS_MAX * len(numbers))["took"]
    for number in numbers:
        wrong = difference(read_answer(folder / f"found-{number}.json"), expected)
        if wrong is not None:
            raise PeerUnavailable(wrong)
    return [(clock, processor) for clock, processor in took[1:]]


def options(servers: str) -> dict[str, str]:
    """The WITH options of the topic's table."""
    return {
        "connector": "kafka",
        "topic": TOPIC,
        "properties.bootstrap.servers": servers,
        "properties.group.id": "flink-{run}",
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": "json",
    }


def jars() -> list[str]:
    """Flink's connector."""
    folder = tools_directory() / "kafka-readers"
    found = [str(jar) for jar in folder.glob("flink-sql-connector-kafka-*.jar")]
    if not found:
        raise PeerUnavailable(f"no jar of Flink's connector in {folder} (run bench/scale/setup.sh in a checkout)")
    return found
