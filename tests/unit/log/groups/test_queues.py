"""Work groups as queues: delays, times of delivery and expiry, priorities, order by key, dead letters put back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import InvalidDeclaration, Misuse
from headwater.log.groups.messages import Message
from headwater.log.groups.worker import Worker
from headwater.log.home import Log
from headwater.log.topic import Topic
from headwater.testing import ManualClock

JOBS = "id INT, due TIMESTAMP, until TIMESTAMP, urgency INT, account STRING"


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as log:
        yield log


@pytest.fixture
def jobs(log: Log) -> Topic:
    return log.topic("jobs", JOBS)


def later(topic: Topic, seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(topic.clock.now_us() / 1e6 + seconds, dt.UTC)


def job(number: int, **values: Any) -> dict[str, Any]:
    return {"id": number, "due": None, "until": None, "urgency": None, "account": None, **values}


def taken(worker: Worker, count: int = 100) -> list[Message]:
    return worker.take(count, timeout=0)


def ids(messages: list[Message]) -> list[int]:
    return [message.row["id"] for message in messages]


def dead(log: Log, group: str = "g") -> list[tuple[int, str]]:
    return [(row["offset"], row["reason"]) for row in log.get_topic(f"jobs.{group}.dead").rows()]


# Delays


def test_a_released_message_comes_back_after_its_delay(jobs: Topic, clock: ManualClock) -> None:
    jobs.append([job(1), job(2)])
    worker = jobs.worker("g")
    first, _ = taken(worker)

    first.release(delay=10)
    at_once = taken(worker)
    clock.advance(9.9)
    early = taken(worker)
    clock.advance(0.2)

    assert (at_once, early) == ([], [])
    assert jobs.group("g").describe().delayed == 0
    [again] = taken(worker)
    assert (again.row["id"], again.deliveries) == (1, 2)


def test_the_delay_doubles_with_each_delivery_up_to_a_maximum(jobs: Topic, clock: ManualClock) -> None:
    jobs.append([job(1)])
    worker = jobs.worker("g", retry_delay=2.0, retry_delay_max=5.0, deliveries_max=10)
    waits = []
    for _ in range(4):
        [message] = taken(worker)
        message.release()
        waited = 0.0
        while jobs.group("g").describe().delayed:
            clock.advance(0.5)
            waited += 0.5
        waits.append(waited)

    assert waits == [2.0, 4.0, 5.0, 5.0]


def test_durations_of_a_worker_may_be_texts(jobs: Topic) -> None:
    jobs.append([job(1)])
    worker = jobs.worker("g", lease="1 minute", retry_delay="2s", retry_delay_max="1h")
    [message] = worker.take(timeout="0s")

    message.renew("10 minutes")
    jobs.clock.sleep(300)
    assert worker.take(timeout="0s") == []
    message.release(delay="1 minute")
    jobs.clock.sleep(59)

    assert (worker.lease, worker.retry_delay, worker.retry_delay_max) == (60.0, 2.0, 3600.0)
    assert worker.take(timeout="0s") == []
    jobs.clock.sleep(1)
    assert ids(worker.take(timeout="0s")) == [1]


def test_a_delay_given_with_the_answer_counts_and_none_below_zero_is_taken(jobs: Topic) -> None:
    jobs.append([job(1)])
    worker = jobs.worker("g", retry_delay=60)
    [message] = taken(worker)

    with pytest.raises(Misuse, match="delay cannot be -1"):
        message.release(delay=-1)
    message.release(delay=0)

    assert ids(taken(worker)) == [1]


def test_a_delayed_message_of_a_killed_or_closed_worker_is_not_lost(jobs: Topic, clock: ManualClock) -> None:
    jobs.append([job(1)])
    with jobs.worker("g") as worker:
        taken(worker)[0].release(delay=5)

    clock.advance(5)

    assert ids(taken(jobs.worker("g"))) == [1]


# Times


def test_a_message_is_delivered_from_its_time_on(jobs: Topic, clock: ManualClock) -> None:
    jobs.append([job(1, due=later(jobs, 60)), job(2), job(3, due=later(jobs, 5))])
    worker = jobs.worker("g", deliver_at="due", lease=1000)

    now = taken(worker)
    delayed = jobs.group("g").describe().delayed
    clock.advance(5)
    soon = taken(worker)
    clock.advance(55)
    late = taken(worker)

    assert [ids(now), ids(soon), ids(late)] == [[2], [3], [1]]
    assert [message.deliveries for message in (*now, *soon, *late)] == [1, 1, 1]
    assert delayed == 2


def test_a_waiting_worker_wakes_when_a_message_becomes_due(tmp_path: Path) -> None:
    with Log(tmp_path / "real", maintenance_interval=None) as log:
        jobs = log.topic("jobs", JOBS)
        jobs.append([job(1, due=later(jobs, 0.3))])
        worker = jobs.worker("g", deliver_at="due")

        assert taken(worker) == []
        assert ids(worker.take(timeout=60)) == [1]


def test_messages_for_later_hold_the_position_and_none_is_lost(jobs: Topic, clock: ManualClock) -> None:
    jobs.append([job(1, due=later(jobs, 60)), job(2)])
    worker = jobs.worker("g", deliver_at="due")
    worker.accept(taken(worker))

    held = jobs.group("g").positions()
    clock.advance(60)
    worker.accept(taken(worker))

    assert held == {0: 0}
    assert jobs.group("g").positions() == {0: 2}
    assert jobs.log.catalog.read("SELECT * FROM work_details") == []


def test_an_expired_message_becomes_a_dead_letter(jobs: Topic, log: Log, clock: ManualClock) -> None:
    jobs.append([job(1, until=later(jobs, 10)), job(2)])
    worker = jobs.worker("g", expires_at="until")
    clock.advance(10)

    delivered = taken(worker)

    assert ids(delivered) == [2]
    [(offset, reason)] = dead(log)
    assert offset == 0
    assert reason.startswith("expired at ")


def test_a_message_that_expires_in_a_workers_hands_may_still_be_accepted(jobs: Topic, clock: ManualClock) -> None:
    jobs.append([job(1, until=later(jobs, 10))])
    worker = jobs.worker("g", expires_at="until", lease=60)
    [message] = taken(worker)

    clock.advance(20)
    other = taken(jobs.worker("g"))
    message.accept()

    assert other == []
    assert jobs.group("g").describe().dead_letters == 0


# Priorities


def test_the_most_urgent_come_first_and_the_oldest_of_them(jobs: Topic) -> None:
    jobs.append([job(1), job(2, urgency=5), job(3, urgency=9), job(4, urgency=5), job(5, urgency=-1)])
    worker = jobs.worker("g", priority="urgency")

    assert [ids(taken(worker, 1))[0] for _ in range(5)] == [3, 2, 4, 1, 5]


def test_an_urgent_message_overtakes_those_that_wait(jobs: Topic) -> None:
    jobs.append([job(n) for n in range(50)])
    worker = jobs.worker("g", priority="urgency")
    first = ids(taken(worker, 2))

    jobs.append([job(99, urgency=1)])
    jobs.clock.sleep(1)

    assert first == [0, 1]
    assert ids(taken(worker, 2)) == [99, 2]


# Order by key


def test_one_message_of_a_key_at_a_time_and_many_keys_in_parallel(jobs: Topic) -> None:
    jobs.append([job(n, account="ab"[n % 2]) for n in range(6)])
    one, other = jobs.worker("g", ordered_by="account"), jobs.worker("g")

    held = taken(one)
    nothing = taken(other)
    held[0].accept()
    after = taken(other)

    assert ids(held) == [0, 1]
    assert nothing == []
    assert ids(after) == [2]


def test_a_released_or_delayed_message_holds_its_key_and_no_other(jobs: Topic, clock: ManualClock) -> None:
    jobs.append([job(1, account="a"), job(2, account="a"), job(3, account="b"), job(4)])
    worker = jobs.worker("g", ordered_by="account")
    first, *others = taken(worker)

    first.release(delay=30)
    worker.accept(others)
    blocked = taken(worker)
    clock.advance(30)

    assert ids(others) == [3, 4]
    assert blocked == []
    [again] = taken(worker)
    assert (again.row["id"], again.deliveries) == (1, 2)


def test_a_message_that_was_given_up_lets_the_next_of_its_key_go_on(jobs: Topic, log: Log) -> None:
    jobs.append([job(1, account="a"), job(2, account="a")])
    worker = jobs.worker("g", ordered_by="account")

    taken(worker)[0].reject("no")

    assert ids(taken(worker)) == [2]
    assert dead(log) == [(0, "no")]


def test_a_message_accepted_in_a_transaction_lets_the_next_of_its_key_go_on(jobs: Topic, log: Log) -> None:
    jobs.append([job(1, account="a"), job(2, account="a")])
    worker = jobs.worker("g", ordered_by="account")

    with log.transaction() as transaction:
        transaction.accept(taken(worker))

    assert ids(taken(worker)) == [2]
    assert len(log.catalog.read("SELECT * FROM work_details")) == 1


def test_messages_of_a_killed_worker_keep_their_order(jobs: Topic, clock: ManualClock) -> None:
    jobs.append([job(n, account="a") for n in range(3)])
    lost = jobs.worker("g", ordered_by="account", lease=10)
    assert ids(taken(lost)) == [0]

    worker, order = jobs.worker("g", lease=10), []
    early = taken(worker)
    clock.advance(10)
    for _ in range(3):
        [message] = taken(worker)
        order.append((message.row["id"], message.deliveries))
        message.accept()

    assert early == []
    assert order == [(0, 2), (1, 1), (2, 1)]


def test_a_key_in_several_partitions_is_still_one_at_a_time(log: Log) -> None:
    wide = log.topic("wide", JOBS, partitions=3)
    for n in range(9):
        wide.append([job(n, account="a")])
    worker = wide.worker("g", ordered_by="account")

    seen = []
    while messages := taken(worker):
        assert len(messages) == 1
        seen.append(messages[0].row["id"])
        worker.accept(messages)

    assert sorted(seen) == list(range(9))


# What a group looks at


def test_a_groups_columns_are_declared_once(jobs: Topic) -> None:
    jobs.append([job(1, urgency=1), job(2, urgency=2)])
    worker = jobs.worker("g", priority="urgency")
    taken(worker, 1)

    with pytest.raises(Misuse, match="was made with other settings"):
        jobs.worker("g", ordered_by="account")
    assert jobs.worker("g").settings == worker.settings
    assert jobs.group("g").describe().settings == {"priority": "urgency"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": "urgent"}, 'priority "urgent" is not a column'),
        ({"priority": "account"}, 'priority "account" is string, not a whole number'),
        ({"deliver_at": "id"}, 'deliver_at "id" is int32, not a time'),
        ({"ordered_by": ["account", "user"]}, 'ordered_by "user" is not a column'),
    ],
)
def test_a_column_that_does_not_fit_is_refused(jobs: Topic, options: Any, message: str) -> None:
    with pytest.raises(InvalidDeclaration, match=message):
        jobs.worker("g", **options)


def test_all_of_it_together(jobs: Topic, clock: ManualClock) -> None:
    jobs.append(
        [
            job(1, account="a", urgency=1, due=later(jobs, 10)),
            job(2, account="a", urgency=9),
            job(3, account="b", urgency=5, until=later(jobs, 5)),
            job(4, account="b", urgency=5),
        ]
    )
    worker = jobs.worker("g", ordered_by="account", priority="urgency", deliver_at="due", expires_at="until")

    assert ids(taken(worker)) == [3]  # the first of "a" is for later, and holds its key
    clock.advance(40)  # the lease of 3 is over, and its time too
    assert sorted(ids(taken(worker, 1)) + ids(taken(worker, 1))) == [1, 4]
    assert taken(worker) == []


# Resets and gaps


def test_a_reset_begins_anew(jobs: Topic) -> None:
    jobs.append([job(n, account="a") for n in range(3)])
    with jobs.worker("g", ordered_by="account") as worker:
        worker.accept(taken(worker))
        taken(worker)

    jobs.group("g").reset("earliest", force=True)

    assert ids(taken(jobs.worker("g"))) == [0]
    assert jobs.log.check().problems == ()


def test_messages_that_retention_took_first_are_counted(log: Log, clock: ManualClock) -> None:
    topic = log.topic("short", JOBS, retention="10 seconds")
    topic.worker("g", priority="urgency").close()
    topic.append([job(n) for n in range(5)])
    clock.advance(11)
    log.maintain()
    topic.append([job(9)])

    assert ids(taken(topic.worker("g"))) == [9]
    assert topic.group("g").describe().missed == 5


# Dead letters put back


def test_dead_letters_are_put_back_into_their_group_alone(jobs: Topic, log: Log) -> None:
    jobs.append([job(n) for n in range(4)])
    other = jobs.worker("other")
    other.accept(taken(other))
    worker = jobs.worker("g")
    for message in taken(worker):
        message.reject("down") if message.row["id"] % 2 else message.accept()

    put_back = jobs.group("g").redrive()
    again = taken(worker)
    worker.accept(again)

    assert (put_back.redriven, put_back.gone, put_back.left) == (2, 0, 0)
    assert [(message.row["id"], message.deliveries) for message in again] == [(1, 1), (3, 1)]
    assert taken(other) == []
    assert jobs.group("g").redrive().redriven == 0
    about = jobs.group("g").describe()
    assert (about.dead_letters, about.redriven, about.lag_total) == (2, 2, 0)
    assert len(dead(log)) == 2
    assert log.check().problems == ()


def test_one_that_dies_again_can_be_put_back_again(jobs: Topic) -> None:
    jobs.append([job(1)])
    worker = jobs.worker("g")
    for _ in range(3):
        taken(worker)[0].reject("still down")
        assert jobs.group("g").redrive().redriven == 1

    assert ids(taken(worker)) == [1]


def test_a_limit_takes_the_oldest_first(jobs: Topic) -> None:
    jobs.append([job(n) for n in range(5)])
    worker = jobs.worker("g")
    worker.reject(taken(worker), "down")

    some = jobs.group("g").redrive(limit=2)
    first = ids(taken(worker))
    rest = jobs.group("g").redrive()

    assert (some.redriven, some.left) == (2, 3)
    assert first == [0, 1]
    assert (rest.redriven, rest.left) == (3, 0)


def test_a_letter_whose_message_is_gone_is_counted(log: Log, clock: ManualClock) -> None:
    topic = log.topic("short", JOBS, retention="10 seconds")
    topic.append([job(1)])
    worker = topic.worker("g")
    taken(worker)[0].reject("down")
    clock.advance(11)
    log.maintain()

    put_back = topic.group("g").redrive()

    assert (put_back.redriven, put_back.gone) == (0, 1)
    assert taken(worker) == []


def test_an_expired_message_that_is_put_back_is_delivered(jobs: Topic, clock: ManualClock) -> None:
    jobs.append([job(1, until=later(jobs, 1), account="a"), job(2, account="a")])
    worker = jobs.worker("g", expires_at="until", ordered_by="account")
    clock.advance(1)
    second = taken(worker)

    jobs.group("g").redrive()
    worker.accept(second)

    assert ids(second) == [2]
    assert ids(taken(worker)) == [1]


def test_letters_of_an_earlier_group_of_that_name_are_left_alone(jobs: Topic, clock: ManualClock) -> None:
    jobs.append([job(1)])
    with jobs.worker("g") as worker:
        taken(worker)[0].reject("down")
    jobs.group("g").delete()
    clock.advance(1)
    again = jobs.worker("g", start="latest")

    assert jobs.group("g").redrive().redriven == 0
    assert taken(again) == []


def test_a_consumer_group_has_no_dead_letters(jobs: Topic) -> None:
    jobs.consumer("c").close()

    with pytest.raises(Misuse, match="is a consumer group"):
        jobs.group("c").redrive()
