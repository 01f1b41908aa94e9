import datetime as dt

import pytest

from headwater.errors import ClosedError, Fenced, InvalidDeclaration, Misuse, OffsetOutOfRange
from headwater.log.maintenance.sealing import seal_partition

SESSION_S = 10.0


@pytest.fixture
def topic(log):
    return log.topic("orders", "id BIGINT", key="id", partitions=4)


def join(topic, group="billing", **options):
    """A consumer without a heartbeat thread: it lives and dies by the hand-driven clock."""
    return topic.consumer(group, session_timeout=SESSION_S, background=False, **options)


def drain(*consumers, commit=False):
    """Poll each in turn until none has anything more; the ids seen, by consumer."""
    seen = {consumer: [] for consumer in consumers}
    moved = True
    while moved:
        moved = False
        for consumer in consumers:
            batch = consumer.poll(timeout=0)
            if batch is not None:
                moved = True
                seen[consumer] += [row["id"] for row in batch.to_pylist()]
                if commit:
                    consumer.commit(batch)
    return list(seen.values())


def settle(*consumers):
    """Let hand-overs go through: each polls (or beats) until assignments are disjoint and complete."""
    for _ in range(4):
        for consumer in consumers:
            consumer._keep_up()


def test_a_consumer_reads_everything_and_its_group_remembers(topic):
    topic.append([{"id": n} for n in range(100)])

    with join(topic) as consumer:
        [seen] = drain(consumer)
        consumer.commit()

    assert sorted(seen) == list(range(100))
    assert topic.group("billing").describe().lag_total == 0
    with join(topic) as consumer:
        assert consumer.poll(timeout=0) is None


def test_what_was_not_committed_is_seen_again(topic):
    topic.append([{"id": n} for n in range(100)])

    with join(topic) as consumer:
        drain(consumer)
    with join(topic) as consumer:
        [seen] = drain(consumer)

    assert sorted(seen) == list(range(100))


def test_members_share_and_groups_each_get_everything(topic):
    topic.append([{"id": n} for n in range(100)])
    one, two, other = join(topic), join(topic), join(topic, "audit")
    settle(one, two)

    seen_one, seen_two, seen_other = drain(one, two, other)

    assert seen_one
    assert seen_two
    assert sorted(seen_one + seen_two) == sorted(seen_other) == list(range(100))


def test_a_joining_member_gets_its_share_without_moving_the_rest(topic):
    first = join(topic)
    before = set(first.assignment)

    second = join(topic)
    settle(first, second)

    assert set(first.assignment) < before
    assert set(first.assignment) | set(second.assignment) == {0, 1, 2, 3}
    assert len(first.assignment) == len(second.assignment) == 2
    assert first.generation == second.generation == 2


def test_a_living_owner_hands_over_only_what_is_committed(topic):
    topic.append([{"id": n} for n in range(100)])
    first = join(topic)
    [seen] = drain(first)

    second = join(topic)
    settle(first, second)
    assert second.assignment == ()  # nothing is committed: the first finishes its work
    first.commit()
    settle(second)

    assert len(first.assignment) == len(second.assignment) == 2
    assert sorted(seen) == list(range(100))
    assert drain(first, second) == [[], []]


def test_an_owner_that_does_not_commit_gives_up_after_its_session(topic, clock):
    topic.append([{"id": n} for n in range(100)])
    first = join(topic)
    drain(first)
    second = join(topic)
    settle(first, second)

    for _ in range(3):
        clock.advance(SESSION_S / 2)
        settle(first, second)

    assert len(first.assignment) == len(second.assignment) == 2
    [_, seen_again] = drain(first, second)
    assert seen_again
    first.commit()  # of what it still has; the rest is the other's


def test_no_more_is_handed_out_of_a_partition_that_is_handed_over(topic):
    topic.append([{"id": n} for n in range(100)])
    first = join(topic)
    drain(first)
    second = join(topic)
    settle(first, second)

    topic.append([{"id": n} for n in range(100, 200)])
    more = {batch.partition for batch in iter(lambda: first.poll(timeout=0), None)}

    wanted = {row["partition"] for row in topic.log.catalog.read("SELECT * FROM assignments WHERE owner <> wanted")}
    assert len(wanted) == 2
    assert more == {0, 1, 2, 3} - wanted


def test_with_auto_commit_a_poll_commits_what_was_handed_out_before(topic):
    topic.append([{"id": n} for n in range(100)])
    consumer = join(topic, auto_commit=True)

    batch = consumer.poll(timeout=0)
    before = topic.group("billing").positions()[batch.partition]
    consumer.poll(timeout=0)

    assert before == 0
    assert topic.group("billing").positions()[batch.partition] == batch.next_offset


def test_with_auto_commit_a_failed_handler_does_not_commit_its_batch(topic):
    topic.append([{"id": n} for n in range(100)])

    def fail():
        with join(topic, auto_commit=True) as consumer:
            consumer.poll(timeout=0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert topic.group("billing").describe().lag_total == 100


def test_a_dead_members_partitions_are_taken_over_from_the_committed_offset(topic, clock):
    topic.append([{"id": n} for n in range(100)])
    dead, living = join(topic), join(topic)
    settle(dead, living)
    [seen_dead, seen_living] = drain(dead, living)
    living.commit()

    for _ in range(4):
        clock.advance(SESSION_S / 3)
        living.heartbeat()

    assert living.assignment == (0, 1, 2, 3)
    [again] = drain(living)
    assert sorted(again) == sorted(seen_dead)
    assert sorted(again + seen_living) == list(range(100))


def test_a_zombies_commit_is_refused_and_changes_nothing(topic, clock):
    topic.append([{"id": n} for n in range(100)])
    zombie, living = join(topic), join(topic)
    settle(zombie, living)
    drain(zombie, living)
    for _ in range(4):
        clock.advance(SESSION_S / 3)
        living.heartbeat()

    with pytest.raises(Fenced) as caught:
        zombie.commit()

    assert caught.value.data["owner"] == living.member
    assert caught.value.data["current_generation"] == living.generation > zombie.generation
    assert "poll()" in caught.value.hint
    assert set(topic.group("billing").positions().values()) == {0}


def test_an_evicted_member_joins_again_at_poll_under_a_new_name(topic, clock):
    topic.append([{"id": n} for n in range(100)])
    zombie, living = join(topic), join(topic)
    settle(zombie, living)
    old = zombie.member
    drain(zombie)
    for _ in range(4):
        clock.advance(SESSION_S / 3)
        living.heartbeat()

    zombie.poll(timeout=0)
    settle(zombie, living)

    assert zombie.member != old
    assert len(zombie.assignment) == len(living.assignment) == 2


def test_a_namesake_takes_over_at_once_and_the_first_is_fenced(topic):
    topic.append([{"id": n} for n in range(100)])
    first = join(topic, member="billing-1")
    drain(first)

    second = join(topic, member="billing-1")

    assert second.assignment == (0, 1, 2, 3)
    with pytest.raises(Fenced):
        first.commit()
    with pytest.raises(Fenced, match="taken this one's place"):
        first.poll(timeout=0)


def test_a_commit_does_not_go_back_unless_the_owner_has_sought_back(topic):
    topic.append([{"id": n} for n in range(100)])
    consumer = join(topic)
    drain(consumer, commit=True)
    committed = topic.group("billing").positions()

    consumer.commit({0: 1})
    assert topic.group("billing").positions() == committed
    consumer.seek({0: 1})
    consumer.commit()

    assert topic.group("billing").positions() == committed | {0: 1}


def test_seeking_back_reads_again(topic):
    topic.append([{"id": n} for n in range(100)])
    consumer = join(topic)
    [first] = drain(consumer)

    consumer.seek("earliest")
    [second] = drain(consumer)

    assert sorted(first) == sorted(second)


def test_seeking_by_time_skips_what_is_older(log, clock):
    topic = log.topic("clicks", "id BIGINT", partitions=1)
    topic.append([{"id": 1}])
    clock.advance(60)
    topic.append([{"id": 2}])
    moment = dt.datetime.fromtimestamp(clock.now_us() / 1e6, tz=dt.UTC)

    consumer = join(topic)
    consumer.seek(moment)

    assert drain(consumer) == [[2]]


def test_seeking_in_a_partition_of_another_is_refused(topic):
    one, two = join(topic), join(topic)
    settle(one, two)

    with pytest.raises(Misuse, match="does not own"):
        one.seek({two.assignment[0]: 0})


def test_a_group_can_begin_at_the_latest(topic):
    topic.append([{"id": n} for n in range(100)])

    consumer = join(topic, start="latest")
    topic.append([{"id": 1000}])

    assert drain(consumer) == [[1000]]


def test_columns_and_rows_max_are_kept_to(log):
    topic = log.topic("wide", "a BIGINT, b BIGINT", partitions=1)
    for first in (0, 2, 4, 6, 8):
        topic.append([{"a": n, "b": -n} for n in (first, first + 1)])
    consumer = join(topic, columns=["b", "_offset"], rows_max=4)

    batches = list(iter(lambda: consumer.poll(timeout=0), None))

    assert [batch.num_rows for batch in batches] == [4, 4, 2]
    assert batches[0].to_pylist()[1] == {"b": -1, "_offset": 1}


@pytest.mark.parametrize("sealed", [False, True])
def test_a_batch_holds_whole_appends_whatever_its_limit(log, sealed):
    topic = log.topic("pairs", "n BIGINT", partitions=1)
    for first in range(0, 30, 3):
        topic.append([{"n": n} for n in range(first, first + 3)])
    topic.append([{"n": n} for n in range(30, 100)])
    if sealed:
        topic.partition(0).roll()
        seal_partition(topic, 0)

    for rows_max, expected in ((1, [3] * 10 + [70]), (7, [6] * 5 + [70]), (50, [30, 70])):
        consumer = join(topic, group=f"at most {rows_max}".replace(" ", "-"), rows_max=rows_max)
        assert [batch.num_rows for batch in iter(lambda: consumer.poll(timeout=0), None)] == expected  # noqa: B023


def test_a_position_after_the_end_is_told_with_the_way_out(topic):
    consumer = join(topic)
    consumer.close()
    with topic.log.catalog.write() as db:
        db.execute("UPDATE positions SET offset = 7")

    with pytest.raises(OffsetOutOfRange) as caught:
        join(topic).poll(timeout=0)

    assert caught.value.hint == "Reset with: headwater group reset billing --topic orders --to earliest"


def test_more_members_than_partitions_leaves_some_idle(topic):
    consumers = [join(topic) for _ in range(6)]
    settle(*consumers)

    sizes = sorted(len(consumer.assignment) for consumer in consumers)

    assert sizes == [0, 0, 1, 1, 1, 1]


def test_leaving_gives_the_partitions_to_the_others_at_once(topic):
    one, two = join(topic), join(topic)
    settle(one, two)

    one.close()
    settle(two)

    assert two.assignment == (0, 1, 2, 3)
    with pytest.raises(ClosedError):
        one.poll(timeout=0)


def test_a_deleted_group_is_told_at_poll(topic):
    consumer = join(topic)

    topic.group("billing").delete(force=True)

    with pytest.raises(Fenced, match="was deleted"):
        consumer.poll(timeout=0)


def test_a_group_of_the_other_kind_is_refused(topic):
    join(topic, "billing")

    with pytest.raises(Misuse, match="is a consumer group, not a work group"):
        topic.worker("billing")


def test_a_bad_name_is_refused(topic):
    with pytest.raises(InvalidDeclaration):
        join(topic, "no spaces please")


def test_the_heartbeat_thread_keeps_a_slow_handlers_place(tmp_path):
    from headwater.log.home import Log

    with Log(tmp_path / "real") as log:
        topic = log.topic("orders", "id BIGINT", partitions=2)
        with topic.consumer("billing", session_timeout=0.6) as slow:
            before = log.catalog.read("SELECT heartbeat_us FROM members")[0][0]
            waiting = log.clock.monotonic() + 30
            while log.catalog.read("SELECT heartbeat_us FROM members")[0][0] == before:
                assert log.clock.monotonic() < waiting
                log.clock.sleep(0.02)

            assert slow.assignment == (0, 1)
