"""Capture: other databases' changes become records of the log.

    backfill (chunks, each at a known snapshot)  →  stream (whole transactions)  →  markers  →  ticks

What it is: the folder that brings databases in. ``Postgres``, ``MySQL``, ``Debezium`` and
``Outbox`` are what a user declares as a table's ``source``.
Invariants: each committed change is in the log exactly once, in the order of commits; what is not committed never is.
Nothing of this imports pyspark; the driver of a database is imported when it is first needed.
Not here: the log (``log/``), how ticks keep transactions whole (``log/event_time/capture_markers.py``).
Read next: ``capture/database.py``, ``capture.py``, ``docs/capture.md``.
"""

from __future__ import annotations

from headwater.capture.debezium.debezium_topic import Debezium
from headwater.capture.mysql.mysql_database import MySQL
from headwater.capture.outbox import Outbox
from headwater.capture.postgres.postgres_database import Postgres

__all__ = ["Debezium", "MySQL", "Outbox", "Postgres"]
