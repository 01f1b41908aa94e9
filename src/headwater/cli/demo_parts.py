"""The demo's processes: producers, consumers, workers. Run as ``python -m headwater.cli.demo_parts ROLE HOME NAME``.

What it is: small programs as a user would write them, which besides tell their parent what they did, a JSON object a
line on stdout.
Invariants: each reports a step after it is done and before the next begins, so that the parent can hold the log to
account even for one that was killed; each ends when its stdin does, so none outlives the parent; what a producer writes
follows from its name and its batch's number alone, so that one that is started again can repeat its last batch.
Not here: the shop's processes (``demo_shop.py``), who is started and killed when (``demo_plot.py``), adding up
(``demo_ledger.py``).
Read next: ``demo_crew.py``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import Fenced, LeaseLost
from headwater.log.batch import Batch
from headwater.log.home import Log
from headwater.log.topic import Topic

ORDERS, EMAILS = "orders", "emails"
ORDERS_SCHEMA = "order_id BIGINT, customer_id BIGINT, amount DOUBLE, country STRING, at TIMESTAMP"
COUPON = "coupon STRING"
EMAILS_SCHEMA = "email_id BIGINT, address STRING"
CONSUMER_GROUP, WORK_GROUP = "billing", "senders"

PRODUCERS = ("web", "mobile", "bulk")  # an order's id tells its producer: its place here times NUMBERS, plus a number
NUMBERS = 10**12
STEADY_ROWS, STEADY_PER_SECOND = 20, 25
BULK_ROWS, BULK_PER_SECOND, BULK_BURST_S = 10_000, 10, 1.5
EMAIL_ROWS, EMAILS_PER_SECOND, POISON_EVERY = 10, 10, 40

SESSION_S, LEASE_S, DELIVERIES_MAX = 2.0, 2.0, 3
COMMIT_EVERY_S = 0.25
TAKE = 20
COUNTRIES = np.array(["DE", "FR", "IT", "PL", "ES", "SE", "NL"])


class Parent:
    """The way to the parent and back."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.look = threading.Event()  # the topic was declared anew
        self.go = threading.Event()  # the cue to begin
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            word = line.strip()
            if word == "stop":
                break
            {"look": self.look, "go": self.go}[word].set()
        self.stopped.set()
        self.go.set()

    def tell(self, **facts: Any) -> None:
        """One report."""
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


def now_us() -> int:
    """The moment, as the log counts it."""
    return time.time_ns() // 1000


def produce_orders(parent: Parent, log: Log, name: str) -> None:
    """A shop's front end: a few orders at a time, at a steady rate, as dicts."""
    place = PRODUCERS.index(name) * NUMBERS

    def rows(topic: Topic, number: int) -> list[dict[str, Any]]:
        moment = dt.datetime.now(dt.UTC)
        numbers = range(number * STEADY_ROWS, (number + 1) * STEADY_ROWS)
        made: list[dict[str, Any]] = [
            {
                "order_id": place + n,
                "customer_id": n * 7919 % 5000,
                "amount": n % 90 + 9.5,
                "country": "DE",
                "at": moment,
            }
            for n in numbers
        ]
        if "coupon" in topic.schema.names:
            made = [{**row, "coupon": f"SAVE{row['order_id'] % 30}"} for row in made]
        return made

    _produce(parent, log, ORDERS, name, rows, per_second=STEADY_PER_SECOND)


def produce_bulk(parent: Parent, log: Log, name: str) -> None:
    """An import: Arrow batches; first as fast as it goes, then at a steady rate."""
    place = PRODUCERS.index(name) * NUMBERS

    def rows(topic: Topic, number: int) -> pa.RecordBatch:
        numbers = np.arange(number * BULK_ROWS, (number + 1) * BULK_ROWS)
        columns = {
            "order_id": place + numbers,
            "customer_id": numbers * 7919 % 5000,
            "amount": numbers % 90 + 9.5,
            "country": COUNTRIES[numbers % len(COUNTRIES)],
            "at": pa.array(np.full(BULK_ROWS, now_us())).cast(pa.timestamp("us", "UTC")),
        }
        wanted = pa.schema([field for field in topic.schema if field.name in columns])
        return pa.RecordBatch.from_pydict(columns, schema=wanted)

    _produce(parent, log, ORDERS, name, rows, per_second=BULK_PER_SECOND, burst=BULK_BURST_S)


def produce_emails(parent: Parent, log: Log, name: str) -> None:
    """Work to be done once each; some of it cannot be done."""

    def rows(_: Topic, number: int) -> list[dict[str, Any]]:
        numbers = range(number * EMAIL_ROWS, (number + 1) * EMAIL_ROWS)
        return [
            {"email_id": n, "address": "nobody" if n % POISON_EVERY == 1 else f"user{n}@example.com"} for n in numbers
        ]

    _produce(parent, log, EMAILS, name, rows, per_second=EMAILS_PER_SECOND)


def _produce(
    parent: Parent,
    log: Log,
    topic_name: str,
    name: str,
    rows: Callable[[Topic, int], Any],
    *,
    per_second: float,
    burst: float = 0.0,
) -> None:
    topic = log.topic(topic_name)
    producer = topic.producer(name)
    # A kill may have left the last batch in some partitions only: it is tried again, and recognised where it is.
    number = max(0, producer.last_sequence)
    parent.tell(ready=True, resumed_at=number)
    parent.go.wait()
    begun = due = time.monotonic()
    while not parent.stopped.is_set():
        if parent.look.is_set():
            parent.look.clear()
            topic = log.topic(topic_name)
        producer.append(rows(topic, number), sequence=number)
        parent.tell(acknowledged=number)
        number += 1
        if time.monotonic() - begun >= burst:
            due = max(due + 1 / per_second, time.monotonic() - 1.0)  # what a pause cost is not made up for
            parent.stopped.wait(max(0.0, due - time.monotonic()))
        else:
            due = time.monotonic()
    producer.close()
    parent.tell(ended=number)


def consume(parent: Parent, log: Log, name: str) -> None:
    """A member of the consumer group: reads whole partitions, adds up, commits now and then."""
    topic = log.topic(ORDERS)
    consumer = topic.consumer(CONSUMER_GROUP, member=name, session_timeout=SESSION_S, columns=["order_id", "at"])
    parent.tell(ready=True, member=consumer.member)
    commit_due = time.monotonic() + COMMIT_EVERY_S
    while not parent.stopped.is_set():
        batch = consumer.poll(timeout=COMMIT_EVERY_S)
        if batch is not None:
            seen = [batch.partition, batch.first_offset, batch.next_offset]
            parent.tell(seen=seen, wakes=_latencies(batch, now_us()))
        if time.monotonic() >= commit_due:
            try:
                consumer.commit()
            except Fenced:  # a pause made the others think that we are gone; what we had is theirs now
                parent.tell(fenced=True)
            commit_due = time.monotonic() + COMMIT_EVERY_S
    consumer.close(commit=True)
    parent.tell(ended=True)


def _latencies(batch: Batch, seen_us: int) -> list[list[int]]:
    """For each append by a steady producer in the batch: when it was, and how long it took to be seen."""
    ids = batch.data.column("order_id").to_numpy()
    moments = batch.data.column("at").cast(pa.int64()).to_numpy()
    steady = np.unique(moments[ids // NUMBERS != PRODUCERS.index("bulk")])
    return [[int(moment), int(seen_us - moment)] for moment in steady]


def work(parent: Parent, log: Log, name: str) -> None:
    """A member of the work group: takes messages, accepts those that can be done, gives the others back."""
    topic = log.topic(EMAILS)
    worker = topic.worker(WORK_GROUP, name=name, lease=LEASE_S, deliveries_max=DELIVERIES_MAX)
    parent.tell(ready=True)
    while not parent.stopped.is_set():
        messages = worker.take(TAKE, timeout=0.25)
        good = [message for message in messages if "@" in message.row["address"]]
        ids = {(message.partition, message.offset): message.row["email_id"] for message in good}
        parent.tell(accepting=list(ids.values())) if ids else None
        try:
            worker.accept(good)
        except LeaseLost as error:
            for place in error.data["lost"]:
                ids.pop(tuple(place), None)
        parent.tell(accepted=list(ids.values())) if ids else None
        bad = [message for message in messages if "@" not in message.row["address"]]
        if bad:
            with contextlib.suppress(LeaseLost):
                worker.release(bad)
            parent.tell(released=len(bad))
    worker.close()
    parent.tell(ended=True)


ROLES: dict[str, Callable[[Parent, Log, str], None]] = {
    "orders": produce_orders,
    "bulk": produce_bulk,
    "emails": produce_emails,
    "consumer": consume,
    "worker": work,
}


def main() -> None:
    """Play one role until stdin says so."""
    from headwater.cli.demo_shop import ROLES as SHOP_ROLES

    role, home, name = sys.argv[1:]
    with Log(home, create=False) as log:
        {**ROLES, **SHOP_ROLES}[role](Parent(), log, name)


if __name__ == "__main__":
    main()
