"""The demo's shop: the processes behind its views. Run by ``demo_parts.py``, as the roles ``customers`` and ``views``.

What it is: ``customers`` gives orders, corrects some and lets users move; ``keep_views`` runs the app of
``examples/shop.py`` as ``headwater run`` would, and at the end verifies it.
Invariants: what customers do follows from the number of the batch alone; the app's file is the one that people read,
and is run as it is.
Not here: who is started and killed when (``demo_views.py``).
Read next: ``demo_views.py``, ``examples/shop.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.cli.app_file import app_of
from headwater.cli.demo_parts import COUNTRIES, now_us
from headwater.cli.run import report_of
from headwater.errors import InvalidDeclaration
from headwater.log.tables import declare_table

if TYPE_CHECKING:
    from headwater.cli.demo_parts import Parent
    from headwater.log.home import Log
    from headwater.views.tick import TickReport

HOME_VARIABLE = "SHOP_HOME"
APP_NAME, ORDERS, USERS = "shop", "orders", "users"

USER_COUNT = 2_000
FIRST_ORDERS = 20_000
NEW_ORDERS, CORRECTIONS, MOVES, CANCELLED = 40, 20, 4, 4
LATE_EACH, LATE_US, FIRST_LATE = 5, 3_600_000_000, 1 << 40  # some orders come an hour late
BATCHES_PER_SECOND = 4
LISTEN_S, STOP_S = 0.1, 5.0


def app_file() -> Path:
    """The example that the demo runs: beside the package when installed, else in the repository."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package, package.parents[1]):
        if (path := folder / "examples" / "shop.py").is_file():
            return path
    raise InvalidDeclaration(
        "examples/shop.py, which the demo runs, is not installed", hint="Run the demo in a checkout: make demo"
    )


def customers(parent: Parent, log: Log, name: str) -> None:
    """Users sign up and order; then orders, corrections, cancellations and moves, a few at a time."""
    del name
    orders = log.topic(ORDERS)
    users = declare_table(log, USERS)
    users.upsert(users_in(np.arange(USER_COUNT), moves=0))
    token = orders.append(orders_in(np.arange(FIRST_ORDERS), version=0))
    parent.tell(ready=True, appended={ORDERS: token.frontier[ORDERS]}, at_us=now_us())
    parent.go.wait()
    number, sent_late, due = 0, 0, time.monotonic()
    while not parent.stopped.is_set():
        random = np.random.default_rng(number)
        known = FIRST_ORDERS + number * NEW_ORDERS
        users.upsert(users_in(random.choice(USER_COUNT, MOVES, replace=False), moves=number + 1))
        orders.append(orders_in(random.choice(known, CORRECTIONS, replace=False), version=number + 1))
        cancelled = random.choice(known, CANCELLED, replace=False)
        orders.delete([{"order_id": int(each)} for each in cancelled])
        token = orders.append(orders_in(np.arange(known, known + NEW_ORDERS), version=0))
        if number % LATE_EACH == 0:
            late = np.array([FIRST_LATE + number])
            token = token | orders.append(orders_in(late, version=0, ago_us=LATE_US))
            sent_late += 1
        parent.tell(appended={ORDERS: token.frontier[ORDERS]}, at_us=now_us())
        number += 1
        due = max(due + 1 / BATCHES_PER_SECOND, time.monotonic() - 1.0)
        parent.stopped.wait(max(0.0, due - time.monotonic()))
    parent.tell(ended=number, sent_late=sent_late)


def users_in(ids: np.ndarray[Any, Any], *, moves: int) -> pa.Table:
    """These users, in the country they live in after so many batches with moves."""
    return pa.table({"id": ids, "country": COUNTRIES[(ids * 31 + moves * 5) % len(COUNTRIES)]})


def orders_in(ids: np.ndarray[Any, Any], *, version: int, ago_us: int = 0) -> pa.Table:
    """These orders as they are said to be, made so long ago; a later version corrects the amount."""
    amounts = ((ids * 7919 + version * 104_729) % 20_000 + 100) / 100
    moments = pa.array(np.full(len(ids), now_us() - ago_us)).cast(pa.timestamp("us", "UTC"))
    return pa.table({"order_id": ids, "user_id": ids * 7919 % USER_COUNT, "amount": amounts, "at": moments})


def keep_views(parent: Parent, log: Log, name: str) -> None:
    """Run the app until told to stop; when told to look first, verify every view before the end."""
    del name
    os.environ[HOME_VARIABLE] = str(log.home)

    def tell(report: TickReport) -> None:
        parent.tell(tick=report_of(report), at_us=now_us())

    with app_of(app_file()) as app, ThreadPoolExecutor(1) as pool:
        parent.tell(ready=True, epoch=app.operation.engine.epoch)
        running = pool.submit(app.run, on_tick=tell)
        while not running.done():
            if parent.stopped.wait(LISTEN_S):
                app.stop()  # asked again if the run had not begun yet
                wait([running], timeout=STOP_S)
        running.result()
        if parent.look.is_set():
            found = app.operation.verify()
            late = sum(each["rows"] for each in app.view("minutes").stragglers())
            parent.tell(verified=[{**asdict(each), "equal": each.equal} for each in found], late=late)


ROLES: dict[str, Callable[[Any, Any, str], None]] = {"customers": customers, "views": keep_views}
