"""Flink SQL finds the matches. Run by Flink's own Python: ``python flink_match_program.py FOLDER RUN...``.

What it is: for each run a streaming job over the CSV files of ``FOLDER/run-RUN``, in Flink's own mini cluster, into its
``print`` sink. The MATCH_RECOGNIZE clause is in the folder; where that is empty, the rows are only read.
Invariants: writes ``FOLDER/found-RUN.json``, then says ``done`` once, with the time of each run's last output and the
processor time of each run. State is on the heap, objects are reused, there are no checkpoints. Each reader has one
file, in the order of time, so the watermark follows the rows and none is late: Flink matches while it reads.
Not here: the clock's start, and whether the matches are right (``flink_matches.py``).
Read next: ``flink_matches.py``.
"""

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "time" / "peers"))

SOURCE = """
    CREATE TABLE payments_{run} (
        payment_id BIGINT, card BIGINT, amount DOUBLE, ms BIGINT,
        paid_at AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR paid_at AS paid_at - INTERVAL '1' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = 'file://{folder}/run-{run}', 'format' = 'csv')"""
SINK = "CREATE TABLE found (first_id BIGINT, last_id BIGINT) WITH ('connector' = 'print')"
MATCH = "INSERT INTO found SELECT first_id, last_id FROM payments_{run} {clause}"
READ = "INSERT INTO found SELECT payment_id, ms FROM payments_{run} WHERE amount < 0"
PRINTED = re.compile(rb"\+I\[(\d+), (\d+)\]")


def main(folder: str, runs: list[str]) -> None:
    import os
    import time

    from flink_program import Output, processor_seconds, started

    # Flink's JVM inherits our standard output: from now on that is a pipe which we read ourselves.
    saying = os.fdopen(os.dup(1), "w", buffering=1)
    printed, sink = os.pipe()
    os.dup2(sink, 1)
    output = Output(printed)
    clause = Path(folder, "clause.sql").read_text()
    query = MATCH if clause else READ
    environment = started(0, [])
    environment.execute_sql(SINK)
    ends, spent = [], []
    for run in runs:
        environment.execute_sql(SOURCE.format(run=run, folder=folder))
        before = processor_seconds()
        environment.execute_sql(query.format(run=run, clause=clause)).wait()
        ended = time.time()
        text, last_at = output.take()
        ends.append(last_at if clause else ended)
        spent.append(processor_seconds() - before)
        with open(f"{folder}/found-{run}.json", "w") as file:
            json.dump([[int(first), int(last)] for first, last in PRINTED.findall(text)], file)
    print(json.dumps({"said": "done", "ends": ends, "spent": spent}), file=saying, flush=True)
    sys.stdin.read()  # whoever started us looks at our memory, then stops us


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
