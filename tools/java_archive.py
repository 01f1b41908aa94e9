"""Java's archive of classes, written now: the first demo starts Spark with it, and the tests do so a few dozen times.

What it is: ``python -m tools.java_archive``: runs a small app once, and waits until its Java has written the archive.
Invariants: it does nothing where there is an archive, and where there can be none; it never fails a set-up.
Java's second compiler is off: with it the archive took 50 s of processor time in place of 35.
Read next: ``src/headwater/views/spark/class_archive.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headwater.demo.demo_command import SHORT_LIVED
from headwater.views.spark import class_archive

WAIT_S = 90.0
APP = """
import datetime as dt
import sys
import headwater as hw

now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

with hw.App("warm", home=sys.argv[1]) as app:
    users = app.table("users", "id BIGINT, country STRING, since TIMESTAMP", key="id", event_time="since")
    orders = app.topic("orders", "id BIGINT, user_id BIGINT, amount DOUBLE, at TIMESTAMP", event_time="at")
    app.view("revenue", "SELECT u.country, sum(o.amount) AS revenue FROM orders o JOIN users u ON o.user_id = u.id"
             " GROUP BY u.country")
    app.view("minutes", "SELECT window.start AS start, count(*) AS n, max(amount) AS most FROM orders"
             " GROUP BY window(at, '1 minute')")
    app.view("first", "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY user_id ORDER BY at) AS n FROM orders)"
             " WHERE n = 1")
    for number in range(2):
        users.upsert([{"id": 7, "country": "DE", "since": now}])
        orders.append([{"id": number, "user_id": 7, "amount": 1.0, "at": now}])
        app.tick()
    app.verify()
    app.sql("SELECT * FROM revenue ORDER BY revenue")
"""


def main() -> None:
    """Write it, if there is none."""
    if "ArchiveClassesAtExit" not in class_archive.options():
        return
    print("headwater: Spark is started once, so that it starts faster from now on ...", flush=True)
    environment = {"JDK_JAVA_OPTIONS": SHORT_LIVED, **os.environ}
    with tempfile.TemporaryDirectory(prefix="headwater-") as home:
        done = subprocess.run(
            [sys.executable, "-c", APP, str(Path(home) / "home")],
            env=environment,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    deadline = time.monotonic() + (WAIT_S if done.returncode == 0 else 0.0)
    while "SharedArchiveFile" not in class_archive.options() and time.monotonic() < deadline:
        time.sleep(0.2)


if __name__ == "__main__":
    main()
