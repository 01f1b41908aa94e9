"""A consumer of several topics: by name or pattern, with the guarantees of consumer groups in each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import ClosedError, Fenced, Misuse, UnknownTopic
from headwater.log.home import Log
from headwater.log.topic import Topic


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home", maintenance_interval=None) as log:
        yield log


def filled(log: Log, name: str, rows: int, partitions: int = 1) -> Topic:
    topic = log.topic(name, "id BIGINT", partitions=partitions)
    for n in range(rows):
        topic.append([{"id": n}])
    return topic


def test_rows_of_all_named_topics_come_and_topics_take_turns(log: Log) -> None:
    filled(log, "orders", 3)
    filled(log, "payments", 3)
    filled(log, "other", 3)

    with log.subscribe(["orders", "payments"], "billing", rows_max=1) as subscription:
        seen = [subscription.poll(timeout=5) for _ in range(6)]
        nothing = subscription.poll(timeout=0)

    assert [batch.topic for batch in seen if batch] == ["orders", "payments"] * 3
    assert nothing is None


def test_what_was_committed_is_not_seen_again(log: Log) -> None:
    filled(log, "orders", 2)
    filled(log, "payments", 2)
    with log.subscribe(["orders", "payments"], "billing") as subscription:
        first = subscription.poll(timeout=5)
        assert first is not None
        subscription.poll(timeout=5)
        subscription.commit(first)

    with log.subscribe(["orders", "payments"], "billing") as subscription:
        again = subscription.poll(timeout=5)
        subscription.commit()

    assert (first.topic, again.topic if again else None) == ("orders", "payments")
    assert [sum(log.get_topic(name).group("billing").lag().values()) for name in ("orders", "payments")] == [0, 0]


def test_a_pattern_joins_topics_that_are_made_later_and_no_system_topics(log: Log) -> None:
    filled(log, "orders.at", 1)
    filled(log, "returns.at", 1)
    with log.subscribe("orders.*", "billing") as subscription:
        first = subscription.poll(timeout=5)
        before = subscription.topics
        filled(log, "orders.de", 1)
        second = subscription.poll(timeout=30)

    assert first is not None
    assert second is not None
    assert (before, first.topic, second.topic) == (("orders.at",), "orders.at", "orders.de")
    with log.subscribe("*", "all") as everything:
        assert everything.topics == ("orders.at", "orders.de", "returns.at")


def test_members_share_the_partitions_of_each_topic(log: Log) -> None:
    filled(log, "orders", 4, partitions=2)
    filled(log, "payments", 4, partitions=2)

    with log.subscribe(["orders", "payments"], "billing") as one:
        alone = one.assignment
        with log.subscribe(["orders", "payments"], "billing") as other:
            one.poll(timeout=0)
            other.poll(timeout=0)
            both = [one.assignment, other.assignment]

    assert alone == {"orders": (0, 1), "payments": (0, 1)}
    for topic in ("orders", "payments"):
        assert sorted(both[0][topic] + both[1][topic]) == [0, 1]


def test_a_deleted_topic_is_let_go(log: Log) -> None:
    filled(log, "orders.at", 1)
    filled(log, "orders.de", 1)
    with log.subscribe("orders.*", "billing") as subscription:
        subscription.commit(subscription.poll(timeout=5))
        log.delete_topic("orders.at")

        last = subscription.poll(timeout=5)

        assert last is not None
        assert last.topic == "orders.de"
        assert subscription.poll(timeout=0) is None
        assert subscription.topics == ("orders.de",)


def test_a_mistake_is_told(log: Log) -> None:
    filled(log, "orders", 1)

    with pytest.raises(UnknownTopic):
        log.subscribe(["orders", "payment"], "billing")
    with pytest.raises(Misuse, match="needs a topic"):
        log.subscribe([], "billing")
    subscription = log.subscribe(["orders"], "billing")
    with pytest.raises(Misuse, match='does not read topic "payments"'):
        subscription.commit({"payments": {0: 1}})
    subscription.close()
    with pytest.raises(ClosedError):
        subscription.poll(timeout=0)
    assert log.get_topic("orders").group("billing").describe().members == ()


def test_topics_are_committed_together_or_not_at_all(log: Log) -> None:
    filled(log, "orders", 2)
    filled(log, "payments", 2)
    done = log.topic("done", "id BIGINT")
    with log.subscribe(["orders", "payments"], "billing", member="till") as subscription:
        for _ in range(2):
            subscription.poll(timeout=5)
        with log.subscribe(["payments"], "billing", member="till"):  # a namesake takes its place in one of them
            with pytest.raises(Fenced):
                subscription.commit()
            with pytest.raises(Fenced), log.transaction() as t:  # noqa: PT012
                t.append(done, [{"id": 1}])
                t.commit(subscription)

    assert [sum(log.get_topic(name).group("billing").lag().values()) for name in ("orders", "payments")] == [2, 2]
    assert list(done.rows()) == []


def test_a_transaction_commits_a_subscription_with_its_rows(log: Log) -> None:
    filled(log, "orders", 2)
    filled(log, "payments", 2)
    done = log.topic("done", "id BIGINT")
    with log.subscribe(["orders", "payments"], "billing") as subscription:
        for _ in range(2):
            subscription.poll(timeout=5)
        with log.transaction() as t:
            t.append(done, [{"id": 1}])
            t.commit(subscription)

    assert [sum(log.get_topic(name).group("billing").lag().values()) for name in ("orders", "payments")] == [0, 0]
    assert list(done.rows()) == [{"id": 1}]
