"""Flink SQL makes the sums. Run by Flink's own Python: ``python flink_program.py FOLDER KIND MINI_BATCH RUN...``.

What it is: for each run a streaming job over the JSON files of ``FOLDER/run-RUN``, in Flink's own mini cluster, into
its ``print`` sink. ``KIND`` is ``windows`` (the TUMBLE table function, with a watermark) or ``groups`` (a plain GROUP
BY of the minute); ``MINI_BATCH`` is a number of rows, or 0 for none. ``FOLDER/source.json``, where there is one, names
another source: the options of the table's WITH, in which ``{run}`` is the run, and the jars that they need.
Invariants: writes ``FOLDER/found-RUN.json``, then says ``done`` once, with the time of each run's last output. State
is on the heap, objects are reused and there are no checkpoints: the fastest Flink there is. Two readers take twenty
files in an order of their own: with a short watermark Flink was seen to drop up to half of the events as late, in
silence. Its watermark therefore stays back by more than all the events together.
Not here: the clock's start, and whether the answer is right (``views/state/run.py``).
Read next: ``views/state/run.py``.
"""

import datetime as dt
import json
import os
import re
import sys
import threading
import time

WATERMARK_HOURS = 6
SOURCE = """
    CREATE TABLE events_{run} (
        event_id BIGINT, country STRING, amount DOUBLE, `at` BIGINT{watermark}
    ) WITH ({options})"""
FILES = {"connector": "filesystem", "path": "file://{folder}/run-{run}", "format": "json"}
WATERMARK = """,
        happened AS TO_TIMESTAMP_LTZ(`at`, 3), WATERMARK FOR happened AS happened - INTERVAL '{hours}' HOUR"""
SINK = "CREATE TABLE sums (`minute` {type}, country STRING, amount DOUBLE, events BIGINT) WITH ('connector' = 'print')"
QUERIES = {
    "windows": """
    INSERT INTO sums SELECT window_start, country, SUM(amount), COUNT(*)
    FROM TABLE(TUMBLE(TABLE events_{run}, DESCRIPTOR(happened), INTERVAL '1' MINUTE))
    GROUP BY window_start, window_end, country""",
    "groups": """
    INSERT INTO sums SELECT `at` - MOD(`at`, 60000), country, SUM(amount), COUNT(*)
    FROM events_{run} GROUP BY `at` - MOD(`at`, 60000), country""",
}
TYPES = {"windows": "TIMESTAMP(3)", "groups": "BIGINT"}
PRINTED = re.compile(rb"([+-][IUD])\[([\dT:.-]+), (\w+), ([\d.E+-]+), (\d+)\]")
END = b"the run has ended\n"


class Output:
    """What the sink prints, read by a thread in large pieces, and when the last piece came."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pieces: list[bytes] = []
        self._last_at = 0.0
        self._ended = threading.Event()
        self._taken = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        ending = b""
        while True:
            piece = os.read(self._descriptor, 1 << 20)
            self._pieces.append(piece)
            if piece != END:
                self._last_at = time.time()
            ending = (ending + piece)[-len(END) :]
            if ending == END:
                self._taken.clear()
                self._ended.set()
                self._taken.wait()

    def take(self) -> tuple[bytes, float]:
        """All of a run that has ended. The mark comes after whatever the job printed before."""
        os.write(1, END)
        self._ended.wait()
        text, last_at = b"".join(self._pieces), self._last_at
        self._pieces.clear()
        self._ended.clear()
        self._taken.set()
        return text, last_at


def main(folder: str, kind: str, mini_batch: int, runs: list[str]) -> None:
    # Flink's JVM inherits our standard output: from now on that is a pipe which we read ourselves.
    saying = os.fdopen(os.dup(1), "w", buffering=1)
    printed, sink = os.pipe()
    os.dup2(sink, 1)
    output = Output(printed)
    options, jars = source(folder)
    environment = started(mini_batch, jars)
    environment.execute_sql(SINK.format(type=TYPES[kind]))
    ends, took = [], []
    for run in runs:
        watermark = WATERMARK.format(hours=WATERMARK_HOURS) if kind == "windows" else ""
        pairs = ", ".join(f"'{name}' = '{value.format(run=run, folder=folder)}'" for name, value in options.items())
        environment.execute_sql(SOURCE.format(run=run, watermark=watermark, options=pairs))
        began, spent = time.time(), processor_seconds()
        environment.execute_sql(QUERIES[kind].format(run=run)).wait()
        text, last_at = output.take()
        ends.append(last_at)
        took.append([last_at - began, processor_seconds() - spent])
        with open(f"{folder}/found-{run}.json", "w") as file:
            json.dump(folded(text), file)
    print(json.dumps({"said": "done", "ends": ends, "took": took}), file=saying, flush=True)
    sys.stdin.read()  # whoever started us looks at our memory, then stops us


def source(folder: str) -> tuple[dict, list]:
    """The options of the source's table, and the jars that it needs."""
    try:
        with open(f"{folder}/source.json") as file:
            told = json.load(file)
    except FileNotFoundError:
        return FILES, []
    return told["options"], told["jars"]


def processor_seconds() -> float:
    """What this session of processes has spent: Python and its JVM."""
    ours, spent = os.getsid(0), 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            if int(fields[3]) == ours:
                spent += sum(map(int, fields[11:15]))
    return spent / os.sysconf("SC_CLK_TCK")


def started(mini_batch: int, jars: list):
    # Imported late: the JVM that it starts must find the pipe in place.
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    settings = Configuration()
    settings.set_string("parallelism.default", str(os.cpu_count()))
    settings.set_string("pipeline.object-reuse", "true")
    settings.set_string("table.local-time-zone", "UTC")
    if jars:
        settings.set_string("pipeline.jars", ";".join(f"file://{jar}" for jar in jars))
    if mini_batch:
        settings.set_string("table.exec.mini-batch.enabled", "true")
        settings.set_string("table.exec.mini-batch.allow-latency", "200 ms")
        settings.set_string("table.exec.mini-batch.size", str(mini_batch))
    modes = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings)
    return TableEnvironment.create(modes.build())


def folded(text: bytes) -> list:
    """The rows that are left when all changes are made: minute in ms, country, amount, events."""
    state: dict = {}
    for kind, minute, country, amount, events in PRINTED.findall(text):
        key, entry = (minute, country), (float(amount), int(events))
        if kind in (b"+I", b"+U"):
            state[key] = entry
        elif state.get(key) == entry:
            del state[key]
    return [[in_ms(minute.decode()), country.decode(), *entry] for (minute, country), entry in state.items()]


def in_ms(minute: str) -> int:
    if "T" not in minute:
        return int(minute)
    return int(dt.datetime.fromisoformat(minute).replace(tzinfo=dt.UTC).timestamp() * 1000)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
