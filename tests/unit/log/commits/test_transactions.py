"""Transactions: all or none over topics, partitions, positions and acknowledgements.

What it is: what users do with ``log.transaction()``, what refuses it, and what a process leaves that dies in it.
Invariants: after each refusal nothing of the transaction is there.
Not here: crashes at every boundary of the disk (``tests/crash/test_transaction_boundaries.py``).
Read next: ``log/commits/transaction.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import Backpressure, ClosedError, DiskFull, Fenced, LeaseLost, Misuse, RequestConflict, RowRefused
from headwater.log.commits.transaction import Transaction
from headwater.log.home import Log
from headwater.log.table import Table, declare_table
from headwater.testing import ManualClock
from tests.unit.small_disk import SmallDisk


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home", clock=ManualClock()) as log:
        yield log


def numbers(log: Log, name: str) -> list[int]:
    return sorted(row["n"] for row in log.get_topic(name).rows())


def two_topics(log: Log, **settings: object) -> tuple[object, object]:
    return (
        log.topic("debits", "n BIGINT", key="n", partitions=3, **settings),
        log.topic("credits", "n BIGINT", partitions=2, **settings),
    )


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_rows_of_several_topics_are_written_together(log: Log, fsync: str) -> None:
    debits, credits = two_topics(log, fsync=fsync)
    with log.transaction() as t:
        t.append(debits, [{"n": n} for n in range(20)])
        t.append(credits, [{"n": 1}])
        t.append(debits, [{"n": 20}])
        assert numbers(log, "debits") == []

    assert numbers(log, "debits") == list(range(21))
    assert t.token.frontier["debits"] == debits.end_offsets()
    assert list((log.home / "commits").iterdir()) == []
    assert log.check().ok


def test_an_error_in_the_block_writes_nothing(log: Log) -> None:
    debits, credits = two_topics(log)
    with pytest.raises(ZeroDivisionError), log.transaction() as t:  # noqa: PT012
        t.append(debits, [{"n": 1}])
        raise ZeroDivisionError
    with pytest.raises(RowRefused), log.transaction() as t:  # noqa: PT012
        t.append(debits, [{"n": 1}])
        t.append(credits, [{"n": "many"}])

    assert numbers(log, "debits") == numbers(log, "credits") == []
    with pytest.raises(ClosedError, match="has ended"):
        t.append(debits, [{"n": 1}])
    with pytest.raises(Misuse, match="when it is committed"):
        t.token  # noqa: B018


def test_tables_take_part(log: Log) -> None:
    stock = declare_table(log, "stock", "item STRING, amount BIGINT", key="item", partitions=4)
    basket = declare_table(log, "basket", "item STRING")
    stock.upsert([{"item": "pot", "amount": 1}])
    with log.transaction() as t:
        t.upsert(stock, [{"item": "cup", "amount": 9}])
        t.delete(stock, [{"item": "pot"}])
        t.insert(basket, [{"item": "cup"}, {"item": "cup"}])

    assert list(stock.rows()) == [{"item": "cup", "amount": 9}]
    assert list(basket.rows()) == [{"item": "cup"}, {"item": "cup"}]


def test_rows_of_a_multiset_are_taken_away_with_the_rest_or_nothing_is(log: Log) -> None:
    basket, sold = declare_table(log, "basket", "item STRING"), log.topic("sold", "item STRING")
    basket.insert([{"item": "cup"}, {"item": "cup"}, {"item": "pot"}])

    with log.transaction() as t:
        t.delete(basket, [{"item": "cup"}])
        t.delete(basket, [{"item": "pot"}])
        t.append(sold, [{"item": "cup"}, {"item": "pot"}])
    with pytest.raises(RowRefused, match="is there 1 times, and taken 2 times"), log.transaction() as t:  # noqa: PT012
        t.delete(basket, [{"item": "cup"}])
        t.delete(basket, [{"item": "cup"}])
        t.append(sold, [{"item": "cup"}, {"item": "cup"}])
    with pytest.raises(RowRefused, match='is not in table "basket"'), log.transaction() as t:  # noqa: PT012
        t.insert(basket, [{"item": "jug"}])  # conditions look at what was there before
        t.delete(basket, [{"item": "jug"}])

    assert list(basket.rows()) == [{"item": "cup"}]
    assert [row["item"] for row in sold.rows()] == ["cup", "pot"]


def test_a_deletion_from_a_multiset_is_recognised_when_it_is_repeated(log: Log) -> None:
    basket = declare_table(log, "basket", "item STRING")
    basket.insert([{"item": "cup"}, {"item": "cup"}])

    answers = [basket.delete([{"item": "cup"}], request_id="sale-1") for _ in range(2)]

    assert [each.repeated for each in answers] == [False, True]
    assert list(basket.rows()) == [{"item": "cup"}]


def test_of_transactions_that_take_the_same_row_one_is_written(log: Log) -> None:
    baskets = [declare_table(log, name, "item BIGINT") for name in ("one", "other")]
    sold = log.topic("sold", "item BIGINT")
    for basket in baskets:
        basket.insert([{"item": n} for n in range(20)])
    refused = []

    def sell(order: Sequence[Table]) -> None:
        for n in range(20):
            try:
                with log.transaction() as t:
                    for basket in order:  # in either order, and nobody waits for ever
                        t.delete(basket, [{"item": n}])
                    t.append(sold, [{"item": n}])
            except RowRefused:
                refused.append(n)

    sellers = [threading.Thread(target=sell, args=(order,)) for order in (baskets, baskets[::-1])]
    for seller in sellers:
        seller.start()
    for seller in sellers:
        seller.join()

    assert sorted(row["item"] for row in sold.rows()) == sorted(refused) == list(range(20))
    assert [list(basket.rows()) for basket in baskets] == [[], []]


def test_a_topic_where_a_table_belongs_is_told_and_the_reverse(log: Log) -> None:
    events, stock = log.topic("events", "n BIGINT"), declare_table(log, "stock", "n BIGINT", key="n")
    for call, words in (
        (lambda t: t.append(stock, [{"n": 1}]), "is not a topic"),
        (lambda t: t.upsert(events, [{"n": 1}]), "is not a table"),
        (lambda t: t.insert(events, [{"n": 1}]), "is not a table"),
        (lambda t: t.delete(events, [{"n": 1}]), "is not a table"),
    ):
        with pytest.raises(Misuse, match=words), log.transaction() as t:  # noqa: PT012
            t.append(events, [{"n": 2}])
            call(t)
    assert numbers(log, "events") == []


def test_a_transaction_holds_topics_of_one_home(log: Log, tmp_path: Path) -> None:
    with Log(tmp_path / "other") as other, pytest.raises(Misuse, match="another log"), log.transaction() as t:
        t.append(other.topic("t", "n BIGINT"), [{"n": 1}])


def test_rows_of_one_partition_are_one_append(log: Log) -> None:
    topic = log.topic("t", "n BIGINT")
    with log.transaction() as t:
        t.append(topic, [{"n": 1}])
        t.append(topic, [{"n": 2}])
        t.append(log.topic("u", "n BIGINT"), [{"n": 3}])

    assert [batch.num_rows for batch in topic.read(rows_max=1)] == [2]


# Positions and acknowledgements


def test_positions_are_committed_with_the_rows_or_not_at_all(log: Log) -> None:
    debits, credits = two_topics(log)
    debits.append([{"n": n} for n in range(9)])
    first = debits.consumer("copy", member="one", background=False)
    batch = first.poll(timeout=5)
    second = debits.consumer("copy", member="one", background=False)  # takes over: the first is a zombie now

    with pytest.raises(Fenced), log.transaction() as t:  # noqa: PT012
        t.append(credits, batch.to_pylist())
        t.commit(first, batch)
    assert numbers(log, "credits") == []

    copied = 0
    while copied < 9:
        batch = second.poll(timeout=5)
        with log.transaction() as t:
            t.append(credits, batch.to_pylist())
            t.commit(second, batch)
        copied += batch.num_rows
    assert numbers(log, "credits") == list(range(9))
    assert sum(debits.group("copy").lag().values()) == 0


def test_acknowledgements_are_given_with_the_rows_or_not_at_all(log: Log) -> None:
    jobs, done = log.topic("jobs", "n BIGINT"), log.topic("done", "n BIGINT")
    jobs.append([{"n": n} for n in range(4)])
    slow, quick = jobs.worker("workers", lease=5.0), jobs.worker("workers", lease=5.0)
    taken = slow.take(4, timeout=5)
    log.clock.advance(10)
    again = quick.take(4, timeout=5)

    with pytest.raises(LeaseLost), log.transaction() as t:  # noqa: PT012
        t.append(done, [message.row for message in taken])
        t.accept(taken)
    assert numbers(log, "done") == []

    with log.transaction() as t:
        t.append(done, [message.row for message in again])
        t.accept(again)
    assert numbers(log, "done") == [0, 1, 2, 3]
    assert all(message.answer == "accepted" for message in again)


def test_a_producer_that_was_taken_over_commits_nothing(log: Log) -> None:
    topic = log.topic("t", "n BIGINT")
    zombie = topic.producer("importer")
    newest = topic.producer("importer")

    with pytest.raises(Fenced, match="taken over"), log.transaction(producer=zombie) as t:
        t.append(topic, [{"n": 1}])
    with log.transaction(producer=newest) as t:
        t.append(topic, [{"n": 2}])

    assert numbers(log, "t") == [2]


def test_a_full_topic_refuses_all_of_a_transaction(log: Log) -> None:
    full = log.topic("full", "n BIGINT", overflow="drop", overflow_rows_max=1)
    other = log.topic("other", "n BIGINT")
    full.consumer("slow", background=False).close()
    full.append([{"n": 1}])

    with pytest.raises(Backpressure), log.transaction() as t:  # noqa: PT012
        t.append(other, [{"n": 2}])
        t.append(full, [{"n": 2}])

    assert numbers(log, "other") == []


def test_a_full_disk_in_the_second_partition_writes_nothing(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "disk")
    try:
        with Log(disk.path / "home") as log:
            first, second = log.topic("first", "n BIGINT, text STRING"), log.topic("second", "n BIGINT, text STRING")
            for topic in (first, second):
                topic.append([{"n": 0, "text": ""}])
            with pytest.raises(DiskFull), log.transaction() as t:  # noqa: PT012
                t.append(first, [{"n": 1, "text": "x" * 1000}])
                t.append(second, [{"n": 1, "text": "x" * 3_000_000}])
            assert numbers(log, "first") == numbers(log, "second") == [0]

            with log.transaction() as t:
                t.append(first, [{"n": 2, "text": ""}])
                t.append(second, [{"n": 2, "text": ""}])
            assert numbers(log, "first") == numbers(log, "second") == [0, 2]
            assert log.check().ok
    finally:
        disk.close()


def test_transactions_that_lock_each_other_s_topics_do_not_wait_for_ever(log: Log) -> None:
    debits, credits = two_topics(log)

    def move(one: object, other: object) -> None:
        for number in range(40):
            with log.transaction() as t:
                t.append(one, [{"n": number}])
                t.append(other, [{"n": number}])

    threads = [threading.Thread(target=move, args=pair) for pair in ((debits, credits), (credits, debits))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert len(numbers(log, "debits")) == len(numbers(log, "credits")) == 80


# Request ids


def test_a_repeated_request_returns_the_first_token(log: Log) -> None:
    topic = log.topic("t", "n BIGINT", partitions=4)
    first = topic.append([{"n": 1}], request_id="order-1")
    topic.append([{"n": 2}], request_id="order-2")
    again = topic.append([{"n": 1}], request_id="order-1")

    assert (again, again.repeated, first.repeated) == (first, True, False)
    assert numbers(log, "t") == [1, 2]
    with pytest.raises(RequestConflict, match='"order-1" was used before, with other rows'):
        topic.append([{"n": 3}], request_id="order-1")
    log.topic("u", "n BIGINT").append([{"n": 1}], request_id="order-1")  # each topic has its own


def test_one_id_at_the_same_instant_in_two_handles_is_one_row(log: Log) -> None:
    log.topic("t", "n BIGINT", partitions=2)
    tokens: list[object] = []
    with Log(log.home) as other:
        for number in range(30):
            barrier = threading.Barrier(2)

            def send(each: Log, number: int = number, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                tokens.append(each.get_topic("t").append([{"n": number}], request_id=f"order-{number}"))

            threads = [threading.Thread(target=send, args=(each,)) for each in (log, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

            one, two = tokens[-2:]
            assert one == two
            assert one.repeated != two.repeated
    assert numbers(log, "t") == list(range(30))


SENDER = """
import json, sys, time
from headwater.log.home import Log
topic = Log(sys.argv[1]).get_topic("t")
print("ready", flush=True)
begun = float(sys.stdin.readline())
answers = []
for number in range(40):
    while time.time() < begun + number * 0.01:
        pass
    token = topic.append([{"n": number}, {"n": number + 1000}], request_id=f"order-{number}")
    answers.append((str(token), token.repeated))
print(json.dumps(answers))
"""


def test_one_id_at_the_same_instant_in_two_processes_is_one_append(log: Log) -> None:
    log.topic("t", "n BIGINT", ordered_by="n", partitions=4)
    senders = [
        subprocess.Popen(
            [sys.executable, "-c", SENDER, str(log.home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for sender in senders:
        assert sender.stdout is not None
        sender.stdout.readline()
    begin = f"{time.time() + 0.1}\n"
    for sender in senders:
        assert sender.stdin is not None
        sender.stdin.write(begin)
        sender.stdin.flush()
    one, two = (json.loads(sender.communicate(timeout=60)[0]) for sender in senders)

    assert [token for token, _ in one] == [token for token, _ in two]
    assert all(first != second for (_, first), (_, second) in zip(one, two, strict=True))
    assert numbers(log, "t") == [*range(40), *range(1000, 1040)]


def test_a_transaction_has_an_id_too(log: Log) -> None:
    debits, credits = two_topics(log)
    for _ in range(2):
        with log.transaction(request_id="transfer-1") as t:
            t.append(debits, [{"n": 1}])
            t.append(credits, [{"n": 1}])

    assert t.token.repeated
    assert numbers(log, "debits") == numbers(log, "credits") == [1]


@pytest.mark.parametrize("begin", [hw.App.transaction, lambda app, **options: app.log.transaction(**options)])
def test_a_transaction_waits_for_the_cause_that_it_names(tmp_path: Path, begin: Callable[..., Transaction]) -> None:
    with hw.App("shop", home=tmp_path / "shared") as app, hw.Log(tmp_path / "shared") as other:
        causes, effects = app.topic("causes", "n INT"), app.topic("effects", "n INT")

        def write() -> None:
            with begin(app, after="causes:0=1") as t:
                t.append(effects, [{"n": 1}])

        writer = threading.Thread(target=write)
        writer.start()
        writer.join(0.2)
        assert effects.end_offsets() == {0: 0}
        other.get_topic("causes").append([{"n": 1}])
        writer.join()

        assert effects.end_offsets() == causes.end_offsets() == {0: 1}


def test_ids_are_forgotten_after_the_declared_time(log: Log) -> None:
    topic = log.topic("t", "n BIGINT", remember_ids="1 hour")
    topic.append([{"n": 1}], request_id="order-1")
    log.clock.advance(3500)
    log.maintain()
    assert topic.append([{"n": 1}], request_id="order-1").repeated
    log.clock.advance(200)
    log.maintain()

    assert not topic.append([{"n": 1}], request_id="order-1").repeated


# Sequences (F1)


def test_a_skipped_number_that_comes_late_is_written(log: Log) -> None:
    topic = log.topic("t", "n BIGINT")
    for number in (10, 9, 11, 9, 10):
        topic.append([{"n": number}], producer="importer", sequence=number)

    assert numbers(log, "t") == [9, 10, 11]


@pytest.mark.parametrize("sealed", [False, True])
def test_what_was_skipped_is_known_after_a_restart(log: Log, sealed: bool) -> None:
    topic = log.topic("t", "n BIGINT")
    for number in (3, 5):
        topic.append([{"n": number}], producer="importer", sequence=number)
    if sealed:
        topic.partition(0).roll()
        log.maintain()
    with Log(log.home) as again:
        for number in (5, 4, 3):
            again.get_topic("t").append([{"n": number}], producer="importer", sequence=number)

    assert numbers(log, "t") == [3, 4, 5]


def test_a_number_of_which_nothing_is_known_any_more_is_refused(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.errors import OutOfOrder

    monkeypatch.setattr("headwater.log.commits.sequence_ranges.RANGES_MAX", 10)
    topic = log.topic("t", "n BIGINT")
    for number in range(0, 100, 2):
        topic.append([{"n": number}], producer="importer", sequence=number)

    with pytest.raises(OutOfOrder, match='sequence 3 of producer "importer" comes too late'):
        topic.append([{"n": 3}], producer="importer", sequence=3)
    topic.append([{"n": 97}], producer="importer", sequence=97)
    assert 97 in numbers(log, "t")
