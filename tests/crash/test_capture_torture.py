"""A capture is killed, cut off and left without its database, again and again; nothing is lost, doubled or torn.

What it is: writers write; the capture's process gets ``kill -9`` at random moments, also during its backfill; the
server is restarted, with and without warning; connections are cut; columns come, with and without a default; a table is
emptied.
Invariants: the seed is printed, and the same seed does the same. ``make torture-capture`` does it for longer.
Not here: what is written and judged (``capture_torture.py``).
Read next: ``capture_torture.py``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from headwater.log.event_time.capture_markers import Markers
from headwater.log_address import open_log
from tests.crash.capture_runner import declare
from tests.crash.capture_torture import TABLES, WRITERS, Writer, judge, prepare
from tests.crash.captured_databases import DATABASES
from tests.crash.ledger import many
from tests.seeds import seed
from tests.services.conftest import kafka
from tests.services.kafka_broker import KafkaBroker
from tests.waiting import eventually

__all__ = ["kafka"]

KILLS = {"postgres": 10, "mariadb": 5, "mariadb by file": 3}  # in the suite; the target has more
KILLS_ON_KAFKA = 3
EARLY_KILLS = 3


class Runner:
    """The capture's process."""

    def __init__(self, kind: str, home: Path, dsn: str, log: str | None) -> None:
        self.command = [
            sys.executable,
            "-m",
            "tests.crash.capture_runner",
            kind,
            str(home),
            dsn,
            *([log] if log else []),
        ]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def kill(self) -> None:
        assert self.process.poll() is None, self.process.communicate()[1].decode()[-2000:]
        self.process.kill()
        self.process.communicate()
        self.process = self._start()

    def ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == b"ready\n", self.process.communicate()[1].decode()[-2000:]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.mark.parametrize("kind", sorted(DATABASES))
def test_nothing_is_lost_doubled_or_torn_by_kills(kind: str, tmp_path: Path) -> None:
    torture(kind, tmp_path / "home", None, KILLS[kind])


def test_nothing_is_lost_doubled_or_torn_by_kills_where_the_log_is_on_kafka(kafka: KafkaBroker, tmp_path: Path) -> None:
    torture("postgres", tmp_path / "home", f"kafka://{kafka.servers}?prefix=torture.", KILLS_ON_KAFKA)


def torture(kind: str, home: Path, log: str | None, kills: int) -> None:
    """Kill the capture so many times, and judge what the log holds in the end."""
    chosen = seed(2026)
    kills = int(os.environ.get("HEADWATER_KILLS", many(kills)))
    print(f"{kind}: seed {chosen}, {kills} kills")
    chance = random.Random(chosen)
    words = DATABASES[kind]
    with words.start() as server:
        prepare(kind, server.dsn)
        writers = [Writer(kind, server.dsn, number, chosen + number) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        runner = Runner(kind, home, server.dsn, log)
        counts = {"kill": 0, "cut": 0, "restart": 0, "crash": 0, "column": 0, "default": 0, "empty": 0}
        columns = defaults = 0
        while counts["kill"] < kills:
            runner.ready()
            if counts["kill"] < min(EARLY_KILLS, kills // 2):  # into the backfill
                time.sleep(chance.uniform(0.02, 0.3))
            else:
                _marked(home, log)
                time.sleep(chance.uniform(0, 0.3))
            fault = chance.choice(("kill", "kill", "cut", "restart", "crash", "column", "default", "empty"))
            if fault == "cut":
                words.cut_stream(server)
            elif fault in ("restart", "crash"):
                server.restart(immediate=fault == "crash")
            elif fault == "column" and columns < 3:
                columns += 1
                words.change(server, f"ALTER TABLE accounts ADD COLUMN extra{columns} INT")
            elif fault == "default" and defaults < 3:  # all rows have it at once, and no stream says so
                defaults += 1
                for table in ("labels", "lines"):
                    words.change(server, f"ALTER TABLE {table} ADD COLUMN extra{defaults} INT NOT NULL DEFAULT 7")
            elif fault == "empty":
                words.change(server, "TRUNCATE TABLE labels")
            counts[fault] += fault != "kill"
            if fault != "kill":
                time.sleep(chance.uniform(0.05, 0.5))
            runner.kill()
            counts["kill"] += 1
        runner.stop()
        for writer in writers:
            writer.stop()
        with declare(kind, str(home), server.dsn, log) as app:
            app.capture(until="caught up")  # the writers may be far ahead, where other work takes the cores
            topics = {name: app.log.get_topic(name) for name in TABLES}
            markers = Markers.find(app.log, "torture")
            assert markers is not None
            compared = judge(kind, server.dsn, topics, markers, writers)
    print(f"seed {chosen}: {counts}, transactions {[writer.turn for writer in writers]}, {compared}")
    assert compared["changes"] > 100


def _marked(home: Path, address: str | None) -> None:
    """Until there is one more marker: the stream has begun."""
    with closing(open_log(home, address, maintained=False)) as log:
        markers: Markers = eventually(lambda: Markers.find(log, "torture"))  # all may have died before it
        assert markers.topic.wait(markers.topic.end_offsets(), timeout=60)
