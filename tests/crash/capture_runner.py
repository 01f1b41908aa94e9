"""A capture in a process of its own, to be killed.

What it is: declares the torture test's tables over a database and follows it for ever, or until it is caught up.
Invariants: chunks and parts are small here, so that kills fall between them.
Not here: who kills (``test_capture_torture.py``).
Read next: ``capture_torture.py``.
"""

from __future__ import annotations

import sys

import headwater as hw
from headwater.capture import follower, postgres
from tests.crash.capture_torture import TABLES


def declare(home: str, dsn: str) -> hw.App:
    postgres.CHUNK_ROWS = 150
    follower.PART_ROWS = 40
    app = hw.App("torture", home=home)
    for name in TABLES:
        app.table(name, source=hw.capture.Postgres(dsn, table=name, slot="torture"))
    return app


def main(home: str, dsn: str) -> None:
    with declare(home, dsn) as app:
        print("ready", flush=True)
        app.capture()


if __name__ == "__main__":
    main(*sys.argv[1:])
