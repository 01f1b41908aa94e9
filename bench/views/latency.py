"""Latency: how long an append takes to be visible in the serving store, beside Flink SQL and Pathway.

What it is: an app that runs, and the wait from before each append until the serving store covers it: appends of 1 000
changes, each of one kind (of 20 appends, 10 are new orders, 6 new amounts, 3 deletions, and 1 moves a tenth as many
users), to one view and to five; and appends of one changed amount, which the peers are given as well.
Invariants: each append comes a moment after the one before was visible; the first samples warm up and are not counted;
views are checked at the end. A peer's clock starts when the file with the change is in the folder that it watches, as
ours before the append; both look as often, and pass a row on as soon, as they can be told to.
Not here: the time of a tick by itself (``growth.py``).
Read next: ``growth.py``.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from bench.peer_servers import PeerUnavailable
from bench.views.peers.runs import PEERS, run
from bench.views.scale import Lines, Scale, percentile
from bench.views.shop import Shop
from bench.views.shop_app import FIVE_VIEWS, ShopApp, opened

WARM_UPS = 100
COMPILED_AFTER = 1000  # ticks: only then Java's second compiler has been at all that a tick runs
PEER_WARM_UPS = 20
PAUSE_S = 0.1
SECONDS_MAX = 120.0
NEW, AMOUNT, DELETE, MOVE = "new orders", "new amounts", "deletions", "users moving"
KINDS = (
    NEW,
    AMOUNT,
    NEW,
    DELETE,
    NEW,
    AMOUNT,
    NEW,
    MOVE,
    NEW,
    AMOUNT,
)  # and once more, with a deletion in place of a move


def measure(scale: Scale, folder: Path) -> Lines:
    """Latency of one view, of one changed row beside the peers, and of five views."""
    lines = Lines()
    with opened(folder / "one", scale, orders=scale.latency_orders) as shop:
        lines.figure("first fill of one view", shop.load_seconds, "s")
        many = delays(shop, appends(shop, scale.tick_changes), WARM_UPS + scale.samples)[WARM_UPS:]
        single = delays(shop, single_changes(shop), WARM_UPS + scale.samples)[WARM_UPS:]
        delays(shop, single_changes(shop), COMPILED_AFTER, pause_s=0.0)
        later = delays(shop, single_changes(shop), scale.samples)
        shop.tick_all()
        shop.check()
    _told(lines, f"append of {scale.tick_changes} changes to visible, one view", many, 30.0, 60.0)
    _told(lines, "append of one changed row to visible, one view", single, 20.0, None)
    _told(lines, f"the same after {COMPILED_AFTER} ticks more", later, None, None)
    _peers(lines, scale, folder, percentile(single, 0.5))
    with opened(folder / "five", scale, orders=scale.latency_orders, views=FIVE_VIEWS) as shop:
        lines.figure("first fill of five views", shop.load_seconds, "s")
        five = delays(shop, appends(shop, scale.tick_changes), WARM_UPS + scale.samples)[WARM_UPS:]
        shop.tick_all()
        shop.check()
    _told(lines, f"append of {scale.tick_changes} changes to visible, five views", five, None, None)
    lines.at_most("five views beside one, p50", percentile(five, 0.5) / percentile(many, 0.5), 2.0)
    return lines


def _told(lines: Lines, name: str, took: list[float], p50: float | None, p95: float | None) -> None:
    for title, share, bar in (("p50", 0.5, p50), ("p95", 0.95, p95)):
        value = percentile(took, share) * 1e3
        if bar is None:
            lines.figure(f"{name}, {title}", value, "ms")
        else:
            lines.at_most(f"{name}, {title}", value, bar, "ms, at most")


def _peers(lines: Lines, scale: Scale, folder: Path, ours: float) -> None:
    """One changed row in each peer that answers row by row; in Flink also without its wait in buffers."""
    flink, _, pathway = PEERS
    quick = replace(flink, title="Flink SQL without buffering", arguments=("0", "0"))
    for number, peer in enumerate((flink, quick, pathway)):
        try:
            took = run(
                peer,
                folder / f"peer{number}",
                orders=scale.latency_orders,
                users=scale.latency_orders // 10,
                lots=[1] * (PEER_WARM_UPS + scale.samples),
                draw=lambda shop, count: shop.draw_of(amounts=count),
                from_put=True,
            ).seconds[PEER_WARM_UPS - 1 :]
        except PeerUnavailable as error:
            lines.missing(f"{peer.title}, one changed row", str(error))
            continue
        median = percentile(took, 0.5)
        lines.figure(f"{peer.title}, one changed row, p50", median * 1e3, "ms")
        if peer is not pathway:
            lines.at_most(f"one changed row beside {peer.title}, p50", ours / median, 1.0)


def single_changes(shop: ShopApp) -> Iterator:
    """For ever: calls that append one new amount of an order and return their token."""
    while True:
        yield partial(shop.orders.upsert, one_kind(shop.shop, AMOUNT, 1))


def delays(shop: ShopApp, turns: Iterator, count: int, *, pause_s: float = PAUSE_S) -> list[float]:
    """Seconds from before each append until the serving store covers it."""
    took = []
    shop.app._runtime.start()
    try:
        for append in itertools.islice(turns, count):
            time.sleep(pause_s)
            began = time.perf_counter()
            token = append()
            if not shop.app._runtime.serving.wait(token, SECONDS_MAX):
                raise TimeoutError(f"{token} was not visible after {SECONDS_MAX:.0f} s")
            took.append(time.perf_counter() - began)
    finally:
        shop.app.stop()
    return took


def appends(shop: ShopApp, count: int) -> Iterator:
    """For ever: calls that append changes of one kind and return their token."""
    turn = 0
    while True:
        kind = KINDS[turn % len(KINDS)]
        if kind == MOVE and turn // len(KINDS) % 2:
            kind = DELETE
        turn += 1
        changes = one_kind(shop.shop, kind, count)
        if kind == DELETE:
            yield lambda rows=changes: shop.orders.delete(rows)
        elif kind == MOVE:
            yield lambda rows=changes: shop.users.upsert(rows)
        else:
            yield lambda rows=changes: shop.orders.upsert(rows)


def one_kind(shop: Shop, kind: str, count: int) -> pa.Table:
    """So many changes of one kind (a tenth of it when users move), made to the shop as well."""
    if kind == NEW:
        return shop.draw_of(new=count).put
    if kind == AMOUNT:
        return shop.draw_of(amounts=count).put
    if kind == DELETE:
        return shop.draw_of(deleted=count).deleted.select(["order_id"])
    return shop.draw_of(moved=max(1, count // 10)).moved
