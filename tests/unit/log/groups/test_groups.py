import datetime as dt

import pytest

from headwater.errors import Conflict, LeaseLost, OffsetOutOfRange, UnknownGroup
from headwater.log.groups.groups import ClampedPosition, clamp_positions


@pytest.fixture
def topic(log):
    topic = log.topic("orders", "id BIGINT", partitions=1)
    topic.append([{"id": n} for n in range(10)])
    return topic


def consumer(topic, group="billing"):
    return topic.consumer(group, background=False)


def test_an_unknown_group_is_told_with_the_known_ones(topic):
    consumer(topic).close()

    with pytest.raises(UnknownGroup) as caught:
        topic.group("biling")

    assert "billing" in caught.value.detail


def test_groups_are_listed_by_name(topic):
    consumer(topic, "b").close()
    topic.worker("a").close()

    assert [(group.name, group.kind) for group in topic.groups()] == [("a", "work"), ("b", "consumer")]


def test_a_description_shows_members_positions_and_lag(topic):
    member = topic.consumer("billing", member="one", background=False)
    member.poll(timeout=0)
    member.commit({0: 4})

    seen = topic.group("billing").describe()

    assert seen.to_dict() == {
        "topic": "orders",
        "group": "billing",
        "kind": "consumer",
        "generation": 1,
        "members": (
            {
                "id": member.member,
                "name": "one",
                "heartbeat": "2030-01-01T00:00:00.000Z",
                "alive": True,
                "partitions": (0,),
            },
        ),
        "positions": {0: 4},
        "lag": {0: 6},
        "lag_total": 6,
        "in_flight": 0,
        "dead_letters": 0,
        "missed": 0,
        "delayed": 0,
        "redriven": 0,
        "settings": {},
    }


def test_a_description_of_a_work_group_counts_messages(topic):
    worker = topic.worker("mailers")
    one, two, *_ = worker.take(5)
    one.accept()
    two.reject("bad")

    seen = topic.group("mailers").describe()

    assert (seen.in_flight, seen.dead_letters, seen.positions, seen.lag_total) == (3, 1, {0: 2}, 8)


@pytest.mark.parametrize(("to", "position"), [("earliest", 0), ("latest", 10), (3, 3), ({0: 4}, 4)])
def test_reset_moves_a_group_nobody_is_in(topic, to, position):
    consumer(topic).close()

    assert topic.group("billing").reset(to) == {0: position}

    batch = consumer(topic).poll(timeout=0)
    assert (batch.first_offset if batch else 10) == position


def test_reset_by_time(topic, clock):
    consumer(topic).close()
    clock.advance(3600)
    topic.append([{"id": 10}])
    moment = dt.datetime.fromtimestamp(clock.now_us() / 1e6, tz=dt.UTC)

    assert topic.group("billing").reset(moment) == {0: 10}


def test_reset_outside_of_the_log_is_refused(topic):
    consumer(topic).close()

    with pytest.raises(OffsetOutOfRange):
        topic.group("billing").reset(11)


def test_reset_under_active_members_is_refused(topic, clock):
    member = consumer(topic)

    with pytest.raises(Conflict) as caught:
        topic.group("billing").reset("earliest")

    assert caught.value.data["members"] == [member.member]
    clock.advance(60)  # it died
    topic.group("billing").reset("earliest")


def test_a_forced_reset_fences_the_members(topic):
    member = consumer(topic)
    member.poll(timeout=0)

    topic.group("billing").reset({0: 5}, force=True)

    with pytest.raises(Conflict):
        member.commit()
    assert member.poll(timeout=0).first_offset == 5


def test_reset_of_a_work_group_waits_for_its_leases(topic, clock):
    worker = topic.worker("mailers", lease=100)
    [message] = worker.take()
    clock.advance(50)  # its session is over, its lease is not

    with pytest.raises(Conflict):
        topic.group("mailers").reset("earliest")
    topic.group("mailers").reset("earliest", force=True)

    with pytest.raises(LeaseLost):
        message.accept()
    assert [again.offset for again in worker.take(2)] == [0, 1]
    with pytest.raises(LeaseLost):
        message.accept()


def test_a_deleted_group_begins_anew(topic):
    with consumer(topic) as member:
        member.poll(timeout=0)
        member.commit()

    topic.group("billing").delete()

    assert topic.groups() == []
    assert consumer(topic).poll(timeout=0).first_offset == 0


def test_positions_ahead_of_the_log_are_brought_back(log, topic):
    consumer(topic, "a").commit({0: 9})
    worker = topic.worker("b")
    messages = worker.take(8)
    worker.accept(messages[:2])

    with log.catalog.write() as db:
        clamped = clamp_positions(db, topic.id, 0, 5)

    assert clamped == [ClampedPosition("a", 0, 9, 5)]
    assert topic.group("a").positions() == {0: 5}
    worker.accept(messages[2:5])
    with pytest.raises(LeaseLost):
        messages[5].accept()
    assert topic.group("b").positions() == {0: 5}
    assert [message.offset for message in worker.take(9)] == [5, 6, 7, 8, 9]
