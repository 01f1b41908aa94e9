"""Flink SQL keeps the revenue by country. Run by Flink's own Python: ``python flink_program.py FOLDER ROWS [MS]``.

What it is: a streaming job over two folders of Debezium JSON: a join and a group-by into Flink's ``print`` sink, in
its own mini cluster. ``ROWS`` is the size of a mini-batch, or 0 for none. ``MS`` is how long a row may wait in a buffer
between two operators: 100 by Flink's own default, which is better for many rows; 0 is the quickest for a single one.
What the sink prints is read here in large pieces and looked at only when nothing more comes, so that reading takes
nothing from Flink.
Invariants: says ``ready`` when the base's answer is there, and ``done`` when each lot's is, with the time at which
its last line came; an answer that never comes is never said. It waits for more files until it is stopped. State is
on the heap and there are no checkpoints: the fastest Flink there is.
Not here: putting the lots into the folders, and the clock's start (``views/state/run.py``).
Read next: ``views/state/run.py``.
"""

import json
import os
import re
import select
import sys
import threading
import time

TABLES = {
    "orders": "order_id BIGINT, user_id BIGINT, amount DOUBLE, PRIMARY KEY (order_id) NOT ENFORCED",
    "users": "id BIGINT, country STRING, PRIMARY KEY (id) NOT ENFORCED",
}
REVENUE = """
    INSERT INTO revenue
    SELECT country, SUM(amount), COUNT(*) FROM orders JOIN users ON user_id = id GROUP BY country"""
PRINTED = re.compile(rb"([+-][IUD])\[(\w+), ([\d.E+-]+), (\d+)\]")
QUIET_SECONDS = 0.1


def main(folder: str, mini_batch: int, buffer_ms: int | None = None) -> None:
    with open(f"{folder}/answers.json") as file:
        answers = json.load(file)
    # Flink's JVM inherits our standard output: from now on that is a pipe which we read ourselves.
    saying = os.fdopen(os.dup(1), "w", buffering=1)
    printed, sink = os.pipe()
    os.dup2(sink, 1)
    threading.Thread(target=listen, args=(printed, answers, saying), daemon=True).start()
    run(folder, mini_batch, buffer_ms)


def run(folder: str, mini_batch: int, buffer_ms: int | None) -> None:
    # Imported late: the JVM that it starts must find the pipe in place.
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    settings = Configuration()
    settings.set_string("parallelism.default", str(os.cpu_count()))
    if buffer_ms is not None:
        settings.set_string("execution.buffer-timeout.interval", f"{buffer_ms} ms")
    if mini_batch:
        settings.set_string("table.exec.mini-batch.enabled", "true")
        settings.set_string("table.exec.mini-batch.allow-latency", "200 ms")
        settings.set_string("table.exec.mini-batch.size", str(mini_batch))
    modes = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings)
    environment = TableEnvironment.create(modes.build())
    for name, columns in TABLES.items():
        environment.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = 'file://{folder}/{name}', "
            "'format' = 'debezium-json', 'source.monitor-interval' = '5 ms')"
        )
    environment.execute_sql(
        "CREATE TABLE revenue (country STRING, revenue DOUBLE, orders BIGINT) WITH ('connector' = 'print')"
    )
    environment.execute_sql(REVENUE).wait()


def listen(printed: int, answers: list, saying) -> None:
    state, text, last_at, arrived = {}, [], 0.0, 0
    while True:
        if select.select([printed], [], [], QUIET_SECONDS)[0]:
            text.append(os.read(printed, 1 << 20))
            last_at = time.time()
            continue
        if not text:
            continue
        whole, _, rest = b"".join(text).rpartition(b"\n")
        fold(state, whole)
        text = [rest] if rest else []
        if arrived < len(answers) and state == answers[arrived]:
            print(json.dumps({"said": "done" if arrived else "ready", "at": last_at}), file=saying, flush=True)
            arrived += 1


def fold(state: dict, text: bytes) -> None:
    for kind, country, revenue, orders in PRINTED.findall(text):
        name, entry = country.decode(), [float(revenue), int(orders)]
        if kind in (b"+I", b"+U"):
            state[name] = entry
        elif state.get(name) == entry:
            del state[name]


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
