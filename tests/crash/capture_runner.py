"""A capture in a process of its own, to be killed.

What it is: declares the torture test's tables over a database and follows it for ever, or until it is caught up.
Invariants: chunks and parts are small here, so that kills fall between them.
Not here: who kills (``test_capture_torture.py``).
Read next: ``capture_torture.py``.
"""

from __future__ import annotations

import sys

import headwater as hw
from headwater.capture import table_follower
from tests.crash.capture_torture import TABLES
from tests.crash.captured_databases import DATABASES


def declare(kind: str, home: str, dsn: str, log: str | None = None) -> hw.App:
    table_follower.PART_ROWS = 40
    app = hw.App("torture", home=home, log=log)
    for name in TABLES:
        app.table(name, source=DATABASES[kind].source(dsn, name))
    return app


def main(kind: str, home: str, dsn: str, log: str | None = None) -> None:
    with declare(kind, home, dsn, log) as app:
        print("ready", flush=True)
        app.capture()


if __name__ == "__main__":
    main(*sys.argv[1:])
