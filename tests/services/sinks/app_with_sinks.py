"""An app of several views and sinks, and a process that runs it until somebody kills it.

What it is: ``declare``: the shop of the crash tests, carried to PostgreSQL, SQLite, Redis and Kafka, and to a webhook
that nobody answers; ``python -m tests.services.sinks.app_with_sinks HOME POSTGRES REDIS KAFKA`` runs it, a line for
each tick.
Invariants: a line is written after the tick was committed.
Not here: the killing (``test_app.py``).
Read next: ``test_app.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import headwater as hw
from headwater.testing.local_server import free_port
from headwater.views.tick.reports import TickReport
from tests.crash import view_shop


def declare(home: Path, postgres: str, redis: str, kafka: str) -> hw.App:
    """The app with its sinks. Nothing is connected to."""
    app = view_shop.declare(str(home))
    app.sink("revenue", hw.sinks.Postgres(postgres, schema="shop"))
    app.sink("revenue", hw.sinks.SQLite(home / "copy.db"))
    app.sink("first_orders", hw.sinks.SQLite(home / "copy.db"))
    app.sink("pages", hw.sinks.Redis(redis))
    app.sink("pages", hw.sinks.Kafka(kafka, topic="pages"))
    app.sink("pages", hw.sinks.Webhook(f"http://127.0.0.1:{free_port()}/", tries=1))
    return app


def tell(report: TickReport) -> None:
    sys.stdout.write(f"tick {report.tick}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    declare(Path(sys.argv[1]), *sys.argv[2:]).run(on_tick=tell)
