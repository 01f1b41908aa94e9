import json

import pytest

from headwater.errors import ClosedError, Fenced, InvalidDeclaration, LeaseLost, Misuse
from headwater.log.schema.event_metadata import METADATA_COLUMNS, Metadata
from headwater.log.schema.json_lines import json_line

LEASE_S = 30.0


@pytest.fixture
def topic(log):
    topic = log.topic("jobs", "id BIGINT", partitions=1)
    topic.append([{"id": n} for n in range(10)])
    return topic


def hire(topic, group="runners", **options):
    return topic.worker(group, lease=LEASE_S, **options)


def ids(messages):
    return [message.row["id"] for message in messages]


def dead(topic, group="runners"):
    return list(topic.log.get_topic(f"{topic.name}.{group}.dead").rows())


def test_each_message_goes_to_one_worker(topic):
    one, two = hire(topic), hire(topic)

    taken = ids(one.take(4)) + ids(two.take(4)) + ids(one.take(4))

    assert taken == list(range(10))
    assert two.take(timeout=0) == []


def test_every_group_gets_every_message(topic):
    assert ids(hire(topic, "a").take(20)) == ids(hire(topic, "b").take(20)) == list(range(10))


def test_accepted_messages_do_not_come_back_and_move_the_position(topic, clock):
    worker = hire(topic)
    messages = worker.take(5)

    messages[1].accept()
    assert topic.group("runners").positions() == {0: 0}
    messages[0].accept()
    assert topic.group("runners").positions() == {0: 2}
    worker.accept(messages[2:])

    assert topic.group("runners").positions() == {0: 5}
    clock.advance(LEASE_S + 1)
    assert ids(worker.take(20)) == [5, 6, 7, 8, 9]


def test_accepting_twice_is_harmless_and_contradicting_is_refused(topic):
    [message] = hire(topic).take()

    message.accept()
    message.accept()

    with pytest.raises(Misuse, match="cannot be released: it was accepted already"):
        message.release()


def test_a_released_message_comes_back_first_and_at_once(topic):
    one, two = hire(topic), hire(topic)
    messages = one.take(3)

    messages[1].release()

    again, new = two.take(2)
    assert (again.offset, again.deliveries, new.offset, new.deliveries) == (1, 2, 3, 1)


def test_a_lease_that_ran_out_gives_the_message_to_another(topic, clock):
    one, two = hire(topic), hire(topic)
    [mine] = one.take()
    clock.advance(LEASE_S + 1)

    [theirs] = two.take()

    assert (theirs.offset, theirs.deliveries) == (0, 2)
    with pytest.raises(LeaseLost) as caught:
        mine.accept()
    assert caught.value.data["lost"] == [(0, 0)]
    theirs.accept()


def test_a_late_accept_holds_while_nobody_else_has_the_message(topic, clock):
    worker = hire(topic)
    [message] = worker.take()
    clock.advance(LEASE_S + 1)

    message.accept()

    assert ids(worker.take(2)) == [1, 2]


def test_accepting_many_settles_those_still_held_and_names_the_lost(topic, clock):
    one, two = hire(topic), hire(topic)
    messages = one.take(3)
    clock.advance(LEASE_S + 1)
    one.renew(messages[1:])
    two.take()

    with pytest.raises(LeaseLost, match=r"1 of 3 messages .* jobs\[0\]@0"):
        one.accept(messages)

    assert topic.group("runners").describe().in_flight == 1


def test_a_renewed_lease_holds_longer(topic, clock):
    one, two = hire(topic), hire(topic)
    [message] = one.take()
    clock.advance(LEASE_S - 1)
    message.renew()
    clock.advance(LEASE_S - 1)

    assert ids(two.take()) == [1]
    clock.advance(2)
    assert ids(two.take()) == [0]


def test_a_rejected_message_goes_to_the_dead_letters_with_the_reason(topic, clock):
    worker = hire(topic, name="runner-1")
    [message] = worker.take()

    message.reject("no such customer")

    [letter] = dead(topic)
    assert letter["worker"].startswith("runner-1-")
    assert letter["died_at"].timestamp() == clock.now_us() / 1e6
    del letter["worker"], letter["died_at"]
    assert letter == {
        "topic": "jobs",
        "group": "runners",
        "partition": 0,
        "offset": 0,
        "deliveries": 1,
        "reason": "no such customer",
        "row": '{"id":0}',
    }
    assert ids(worker.take()) == [1]


def test_a_message_whose_leases_run_out_is_given_up_after_the_last_delivery(topic, clock):
    worker = hire(topic, deliveries_max=3, max_in_flight=1)

    deliveries = []
    for _ in range(3):
        deliveries += [(message.offset, message.deliveries) for message in worker.take(timeout=0)]
        clock.advance(LEASE_S + 1)
    following = worker.take(timeout=0)

    assert deliveries == [(0, 1), (0, 2), (0, 3)]
    assert ids(following) == [1]
    [letter] = dead(topic)
    assert (letter["offset"], letter["deliveries"]) == (0, 3)
    assert letter["reason"] == "not accepted in 3 deliveries; the last lease ran out"


def test_a_message_released_after_its_last_delivery_is_given_up_at_once(topic):
    worker = hire(topic, deliveries_max=2)

    worker.take()[0].release()
    worker.take()[0].release()

    assert [letter["reason"] for letter in dead(topic)] == ["not accepted in 2 deliveries; the last was released"]
    assert topic.group("runners").positions() == {0: 1}


def test_without_dead_letters_what_is_given_up_is_counted(topic):
    hire(topic, dead_letter=False).take()[0].reject("bad")

    assert topic.group("runners").describe().dead_letters == 1
    assert [each.name for each in topic.log.topics()] == ["jobs"]


def test_a_crash_between_burial_and_posting_neither_loses_nor_doubles_a_letter(topic, monkeypatch):
    worker = hire(topic)
    one, two, three = worker.take(3)
    with monkeypatch.context() as patch:
        patch.setattr("headwater.log.groups.worker.post", lambda *_: 0)  # dies before posting
        one.reject("first")
        two.reject("second")
    posted = topic.log.catalog.read("SELECT * FROM dead_letters")
    three.reject("third")
    with topic.log.catalog.write() as db:  # as if it had died after the append, before the deletion
        db.executemany(f"INSERT INTO dead_letters VALUES ({', '.join('?' * 10)})", [tuple(row) for row in posted])

    worker.take(timeout=0)

    assert [letter["reason"] for letter in dead(topic)] == ["first", "second", "third"]
    assert topic.log.catalog.read("SELECT * FROM dead_letters") == []


def test_dead_letters_and_messages_put_back_keep_the_metadata(topic, monkeypatch):
    anna = Metadata(correlation_id="basket-7", causation_id="click-1", actor="anna")
    topic.append([{"id": 10}], metadata=anna)
    worker = hire(topic)
    *plain, said = worker.take(11)
    assert (said.metadata, plain[0].metadata) == (anna, Metadata())

    with monkeypatch.context() as patch:
        patch.setattr("headwater.log.groups.worker.post", lambda *_: 0)  # dies before posting
        worker.reject([plain[0], said], "bad")
    worker.take(timeout=0)

    columns = ["offset", *METADATA_COLUMNS]
    letters = [tuple(row.values()) for row in topic.log.get_topic("jobs.runners.dead").rows(columns=columns)]
    assert letters == [(0, None, None, None), (10, "basket-7", "click-1", "anna")]
    assert topic.log.catalog.read("SELECT * FROM dead_letter_metadata") == []
    topic.group("runners").redrive()
    assert {message.offset: message.metadata for message in worker.take(2)} == {0: Metadata(), 10: anna}


def test_a_message_whose_row_retention_took_has_no_metadata(topic):
    [message] = hire(topic).take()

    topic.log.registry.move_start(topic.id, 0, 5, [], 0)

    assert message.metadata == Metadata()


def test_a_group_made_anew_has_dead_letters_of_its_own(topic):
    for reason in ("before", "after"):
        with hire(topic) as worker:
            worker.take()[0].reject(reason)
        topic.group("runners").delete()

    assert [letter["reason"] for letter in dead(topic)] == ["before", "after"]


def test_a_closing_worker_gives_its_messages_back(topic):
    one, two = hire(topic), hire(topic)
    one.take(3)

    one.close()

    assert [(message.offset, message.deliveries) for message in two.take(3)] == [(0, 2), (1, 2), (2, 2)]
    with pytest.raises(ClosedError):
        one.take()


def test_no_more_than_max_in_flight_are_out_at_once(topic):
    one, two = hire(topic, max_in_flight=4), hire(topic, max_in_flight=4)

    assert ids(one.take(3)) == [0, 1, 2]
    assert ids(two.take(3)) == [3]
    assert two.take(timeout=0) == []


def test_partitions_are_served_in_turn_and_in_order(log):
    topic = log.topic("spread", "id BIGINT", key="id", partitions=4)
    topic.append([{"id": n} for n in range(400)])
    worker = hire(topic)

    single = [worker.take()[0].partition for _ in range(8)]
    many = worker.take(40)

    assert sorted(single) == [0, 0, 1, 1, 2, 2, 3, 3]
    by_partition = {p: [m.offset for m in many if m.partition == p] for p in range(4)}
    assert all(offsets == list(range(2, 12)) for offsets in by_partition.values())


def test_a_tombstone_is_delivered_as_one(log):
    topic = log.topic("users", "id BIGINT, name STRING", key="id", partitions=1)
    topic.append([{"id": 1, "name": "Ada"}])
    topic.delete([{"id": 1}])
    worker = hire(topic)

    row, tombstone = worker.take(2)
    tombstone.reject("who was it")

    assert (row.row, row.deleted) == ({"id": 1, "name": "Ada"}, False)
    assert (tombstone.row, tombstone.deleted) == ({"id": 1, "name": None}, True)
    assert json.loads(dead(topic)[0]["row"]) == {"id": 1, "name": None, "_deleted": True}


def test_a_deleted_group_is_told(topic):
    worker = hire(topic)

    topic.group("runners").delete(force=True)

    with pytest.raises(Fenced, match="was deleted"):
        worker.take()


def test_bad_arguments_are_refused(topic):
    with pytest.raises(Misuse):
        topic.worker("runners", lease=0)
    with pytest.raises(Misuse):
        hire(topic).take(0)
    with pytest.raises(InvalidDeclaration, match="too long"):
        hire(topic, "g" * 195)


def test_rows_of_all_types_become_json():
    import datetime as dt
    from decimal import Decimal

    row = {"d": Decimal("1.50"), "t": [dt.date(2026, 1, 2)], "s": {"x": None}, "i": float("inf"), "b": b"\x00"}

    assert json_line(row) == '{"d":1.50,"t":["2026-01-02"],"s":{"x":null},"i":"Infinity","b":"AA=="}'
