"""Orders for the tests: each with a number of its own."""

from __future__ import annotations

import datetime as dt
import time
from itertools import count

from headwater.log.home import Log

NUMBERS = count(time.time_ns() // 1000)  # of no other run


def order(log: Log, *, user: int, amount: float = 3.5, times: int = 1, late: dt.timedelta | None = None) -> None:
    """Orders of one user, now or some time ago."""
    at = dt.datetime.now(dt.UTC) - (late or dt.timedelta())
    rows = [{"order_id": next(NUMBERS), "user_id": user, "amount": amount, "at": at} for _ in range(times)]
    log.get_topic("orders").append(rows)
