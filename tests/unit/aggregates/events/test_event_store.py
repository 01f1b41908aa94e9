"""Histories of events: what an append takes, refuses and remembers."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.aggregates import Event, EventStore, EventType, Query
from headwater.errors import (
    AppendConflict,
    DeclarationConflict,
    InvalidDeclaration,
    Misuse,
    OffsetOutOfRange,
    ReplayFailed,
    RequestConflict,
    RowRefused,
    VersionConflict,
)
from headwater.log.commits.transaction import Transaction
from headwater.log.home import Log
from headwater.log.schema.event_metadata import Metadata
from headwater.log.topic import Topic

PAID = EventType.declared("paid", "cents BIGINT, note STRING")
CLOSED = EventType.declared("closed", "")


def bookings(log: Log, *types: EventType, **options: object) -> EventStore:
    return EventStore(log, "bookings", types or (PAID, CLOSED), **options)


# Appending


def test_an_append_is_whole_and_says_where_it_ends(log: Log) -> None:
    store = bookings(log)

    first = store.append([("paid", {"cents": 5, "note": None}), Event("closed", tags=["a"])], stream="7")
    second = store.append([("paid", {"cents": 6})], stream="7")

    assert (first.position, first.version, second.position, second.version) == (2, 2, 3, 3)
    assert str(second.token) == "bookings:0=3"
    found = store.read(stream="7")
    assert [(event.type, event.data, event.version, list(event.tags)) for event in found] == [
        ("paid", {"cents": 5, "note": None}, 1, []),
        ("closed", {}, 2, ["a"]),
        ("paid", {"cents": 6, "note": None}, 3, []),
    ]
    assert found.head == store.head == 3


def test_one_bad_event_refuses_all_of_them(log: Log) -> None:
    store = bookings(log)

    with pytest.raises(RowRefused, match=r"paid\.cents"):
        store.append([("paid", {"cents": 1}), ("paid", {"cents": "2"})])
    with pytest.raises(RowRefused, match='no field "cent"'):
        store.append([("paid", {"cent": 1})])
    with pytest.raises(InvalidDeclaration, match='no event type "payed"') as misspelt:
        store.append([("payed", {"cents": 1})])
    with pytest.raises(InvalidDeclaration, match="tags of an event"):
        store.append([Event("paid", {"cents": 1}, tags="course:7")])
    with pytest.raises(InvalidDeclaration, match="needs an event"):
        store.append([])

    assert 'Did you mean "paid"?' in str(misspelt.value)
    assert store.head == 0


def test_a_dataclass_is_an_event(log: Log) -> None:
    @dataclasses.dataclass
    class Refunded:
        cents: int
        reason: str

    store = EventStore(log, "refunds", [EventType.declared("Refunded", Refunded)])

    store.append([Refunded(5, "broken")])

    assert store.read().events[0].data == {"cents": 5, "reason": "broken"}


def test_metadata_goes_with_the_events(log: Log) -> None:
    store = bookings(log)

    store.append([("paid", {"cents": 1})], metadata=Metadata(correlation_id="order-7", actor="ada"))

    for reader in (store, bookings(log)):
        said = reader.read().events[0].metadata
        assert said is not None
        assert (said.correlation_id, said.actor) == ("order-7", "ada")


# Conditions


def test_a_version_that_has_moved_refuses_the_append(log: Log) -> None:
    store = bookings(log)
    store.append([("paid", {"cents": 1})], stream="7", expected=0)

    with pytest.raises(VersionConflict, match="has version 1; expected was 0") as refused:
        store.append([("paid", {"cents": 2})], stream="7", expected=0)

    assert refused.value.data["version"] == 1
    assert store.head == 1


def test_a_query_that_finds_something_refuses_the_append(log: Log) -> None:
    store = bookings(log)
    store.append([Event("paid", {"cents": 1}, ["order:1"])])
    head = store.append([Event("paid", {"cents": 2}, ["order:2"])]).position
    one, two = Query(tags="order:1"), Query(tags="order:2")

    with pytest.raises(AppendConflict, match="order:2, at position 2"):
        store.append([("closed", {})], fail_if=two, after=1)
    with pytest.raises(AppendConflict):
        store.append([("closed", {})], fail_if=one | two, after=0)
    with pytest.raises(AppendConflict):
        store.append([("closed", {})], fail_if=Query(), after=1)

    assert store.append([("closed", {})], fail_if=one, after=1).position == 3  # the one before it does not count
    assert store.append([("closed", {})], fail_if=one | two, after=head).position == 4
    assert store.append([("closed", {})], fail_if=Query(types="paid"), after=2).position == 5


def test_an_append_cannot_expect_what_comes_after_the_end(log: Log) -> None:
    store = bookings(log)
    store.append([("paid", {"cents": 1})])

    with pytest.raises(OffsetOutOfRange, match="ends at position 1; an append cannot expect what came after 2"):
        store.append([("closed", {})], fail_if=Query(), after=2)
    with pytest.raises(Misuse, match="after cannot be -1"):
        store.append([("closed", {})], fail_if=Query(types="paid"), after=-1)

    assert store.head == 1


@pytest.mark.parametrize("stream", [None, "7"])
def test_the_head_of_a_limited_read_is_what_was_looked_at(log: Log, stream: str | None) -> None:
    """Whoever goes on after it, or appends after it, passes over nothing."""
    store = bookings(log)
    for cents in range(4):
        store.append([("paid", {"cents": cents}), ("closed", {})], stream="7")
    paid = Query(types="paid")

    parts, after = [], 0
    while found := store.read(paid, after=after, limit=3, stream=stream).events:
        parts.append([event.data["cents"] for event in found])
        after = store.read(paid, after=after, limit=3, stream=stream).head
    seen = store.read(paid, limit=2, stream=stream)

    assert parts == [[0, 1, 2], [3]]
    assert seen.head == seen.events[-1].position == 3
    with pytest.raises(AppendConflict, match="at position 5"):
        store.append([("closed", {})], fail_if=paid, after=seen.head)
    assert [store.read(paid, limit=limit, stream=stream).head for limit in (0, 3, 4, None)] == [0, 5, 8, 8]
    with pytest.raises(Misuse, match="limit cannot be -1"):
        store.read(paid, limit=-1)


def test_a_field_that_is_not_null_is_asked_for(log: Log) -> None:
    store = EventStore(log, "moves", [EventType.declared("moved", "cents BIGINT NOT NULL, note STRING")])

    for data in ({}, {"note": "a"}, {"cents": None, "note": "a"}):
        with pytest.raises(RowRefused, match='event type "moved" has no value of "cents", which is NOT NULL'):
            store.append([("moved", data)])
        with pytest.raises(RowRefused, match='"cents"'):
            store.append([("moved", {"cents": 1, "note": "a"}), ("moved", data)], metadata=Metadata(actor="anna"))
    store.append([("moved", {"cents": 5}), ("moved", {"cents": 6, "note": "b"})])

    assert [event.data for event in store.read()] == [{"cents": 5, "note": None}, {"cents": 6, "note": "b"}]


def test_a_new_field_may_be_not_null_and_older_events_are_read_without_it(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        EventStore(log, "moves", [EventType.declared("moved", "cents BIGINT")]).append([("moved", {"cents": 5})])

    with Log(tmp_path / "home") as log:
        newer = EventStore(log, "moves", [EventType.declared("moved", "cents BIGINT NOT NULL, by STRING NOT NULL")])
        with pytest.raises(RowRefused, match='no value of "by"'):
            newer.append([("moved", {"cents": 6})])
        newer.append([("moved", {"cents": 6, "by": "ada"})])

        assert [event.data for event in newer.read()] == [{"cents": 5, "by": None}, {"cents": 6, "by": "ada"}]


def test_threads_that_claim_one_name_at_once_have_one_winner(log: Log) -> None:
    store = bookings(log)
    won: list[str] = []

    def claim(name: str, gate: threading.Barrier) -> None:
        gate.wait()
        try:
            store.append([Event("closed", tags=[name])], fail_if=Query(tags=name))
        except AppendConflict:
            return
        won.append(name)

    for round_ in range(25):
        gate = threading.Barrier(4)
        threads = [threading.Thread(target=claim, args=(f"name:{round_}", gate)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(won) == sorted(f"name:{round_}" for round_ in range(25))


def test_writers_of_one_stream_without_an_expectation_all_get_in(log: Log) -> None:
    store = bookings(log, partitions=2)

    def write() -> None:
        for cents in range(20):
            store.append([("paid", {"cents": cents})], stream="7")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [event.version for event in store.read(stream="7")] == list(range(1, 81))


def test_a_condition_waits_for_no_other_partition(tmp_path: Path) -> None:
    # Two writers, each under the lock of its partition, whose conditions open the other one, would wait for ever.
    with Log(tmp_path / "home") as one, Log(tmp_path / "home") as other, Log(tmp_path / "home") as holder:
        streams = {bookings(one, partitions=2).partition_of(name): name for name in "abcdefgh"}
        for name in streams.values():
            bookings(one).append([("paid", {"cents": 1})], stream=name)
        fresh = bookings(other)

        with holder.get_topic("bookings").partition(1).held():
            done = threading.Thread(
                target=lambda: fresh.append([("paid", {"cents": 2})], stream=streams[0], expected=1), daemon=True
            )
            done.start()
            done.join(timeout=30)
            assert not done.is_alive()

        assert fresh.version(streams[0]) == 2


def test_a_rule_over_all_streams_needs_one_partition(log: Log) -> None:
    store = bookings(log, partitions=2)

    with pytest.raises(Misuse, match="none is named"):
        store.append([("paid", {"cents": 1})])
    with pytest.raises(Misuse, match="none is named"):
        store.read(Query(types="paid"))


# Request ids


def test_a_repeated_request_gets_the_first_answer(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        first = bookings(log).append([("paid", {"cents": 1}), ("closed", {})], stream="7", request_id="r-1")
    with Log(tmp_path / "home") as log:  # another process, which has an index of its own
        store = bookings(log)
        again = store.append([("paid", {"cents": 1}), ("closed", {})], stream="7", expected=0, request_id="r-1")

        assert (again.position, again.version, again.repeated) == (first.position, first.version, True)
        assert again.token.repeated
        assert store.head == 2


def test_a_request_id_is_not_taken_for_other_content(log: Log) -> None:
    store = bookings(log)
    store.append([Event("paid", {"cents": 1}, ["a"])], request_id="r-1")

    with pytest.raises(RequestConflict, match="with other events"):
        store.append([("closed", {})], request_id="r-1")
    with pytest.raises(RequestConflict, match='other data of "paid"'):
        store.append([Event("paid", {"cents": 2}, ["a"])], request_id="r-1")
    with pytest.raises(RequestConflict, match='other data of "paid"'):
        store.append([Event("paid", {"cents": 1}, ["b"])], request_id="r-1")
    with pytest.raises(InvalidDeclaration):
        store.append([("closed", {})], request_id="")

    assert (
        store.append([("paid", {"cents": 2})], stream="7", request_id="r-1").repeated is False
    )  # a stream has its own
    assert store.head == 2


# Other ways to write, and to lose


def test_rows_are_appended_through_the_store_alone(log: Log) -> None:
    store = bookings(log)
    store.append([("paid", {"cents": 1})])
    topic = log.get_topic("bookings")
    batch = next(topic.read()).data

    with pytest.raises(Misuse, match="history of events"):
        topic.append([{"type": "paid"}])
    with pytest.raises(Misuse, match="history of events"):
        topic.append_json(['{"type": "paid"}'])
    with pytest.raises(Misuse, match="history of events"):
        topic.append_batch(batch)
    with pytest.raises(Misuse, match="history of events"), log.transaction() as transaction:
        transaction.append(topic, [{"type": "paid"}])
    with pytest.raises(Misuse, match="history of events"), topic.producer() as producer:
        producer.send({"type": "paid"})

    assert store.head == 1


@pytest.mark.parametrize(
    "setting",
    [{"retention": "1 day"}, {"retention_bytes": 1000}, {"until_read": True}, {"compact": True}, {"key": "a"}],
)
def test_nothing_is_declared_that_removes_events(log: Log, setting: dict[str, object]) -> None:
    with pytest.raises(InvalidDeclaration, match="history of events has no"):
        bookings(log, **setting)
    assert log.find_topic("bookings") is None


def test_a_history_does_not_become_a_plain_topic_or_the_reverse(log: Log) -> None:
    store = bookings(log)
    log.topic("orders", store.rows.schema, event_time="at")

    with pytest.raises(DeclarationConflict):
        log.topic("bookings", store.rows.schema, events=False)
    with pytest.raises(InvalidDeclaration, match="history of events has no retention"):
        log.topic("bookings", store.rows.schema, retention="1 day")
    with pytest.raises(DeclarationConflict):
        EventStore(log, "orders", [PAID])

    assert log.topic("bookings", store.rows.schema).settings.events


def test_maintenance_leaves_all_events(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        store = bookings(log, segment_bytes_max=4_000)
        for cents in range(60):
            store.append([("paid", {"cents": cents})], stream=str(cents % 3))
        log.maintain()
        sealed = sum(each["sealed_segments"] for each in log.get_topic("bookings").describe()["partitions"])

        assert sealed > 0
        assert [event.data["cents"] for event in bookings(log).read()] == list(range(60))
    with Log(tmp_path / "home") as log:  # sealed and active segments, and a new index
        store = bookings(log)
        assert [event.data["cents"] for event in store.read(stream="1")] == list(range(1, 60, 3))
        assert store.version("2") == 20
        assert log.check().ok


# Types that change


def test_a_history_takes_new_types_and_new_fields(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log, Log(tmp_path / "home") as elsewhere:
        old = bookings(log)
        old.append([("paid", {"cents": 1})])
        more = EventType.declared("paid", "cents BIGINT, note STRING, currency STRING")
        refunded = EventType.declared("refunded", "cents BIGINT")

        new = bookings(elsewhere, more, CLOSED, refunded)
        new.append([("paid", {"cents": 2, "currency": "EUR"}), ("refunded", {"cents": 2})])
        old.append([("paid", {"cents": 3, "note": "old code goes on"})])

        assert [event.data for event in new.read()] == [
            {"cents": 1, "note": None, "currency": None},
            {"cents": 2, "note": None, "currency": "EUR"},
            {"cents": 2},
            {"cents": 3, "note": "old code goes on", "currency": None},
        ]
        assert [event.type for event in old.read()] == ["paid", "paid", "refunded", "paid"]


def test_a_type_that_this_code_does_not_know_is_read_as_plain_data(tmp_path: Path) -> None:
    with Log(tmp_path / "home") as log:
        bookings(log).append([("paid", {"cents": 1}), ("closed", {})])
    with Log(tmp_path / "home") as log:
        less = bookings(log, CLOSED)

        assert [(event.type, event.data) for event in less.read()] == [
            ("paid", {"cents": 1, "note": None}),
            ("closed", {}),
        ]
        assert len(less.read(Query(types="paid"))) == 1
        with pytest.raises(InvalidDeclaration, match='no event type "paid"'):
            less.append([("paid", {"cents": 2})])


def test_older_events_are_brought_to_the_newest_version_as_they_are_read(tmp_path: Path) -> None:
    fields = "cents BIGINT, amount BIGINT, currency STRING"
    upcasters = {
        1: lambda data: {"amount": data["cents"], "currency": None},
        2: lambda data: {**data, "currency": "EUR"},
    }
    third = EventType.declared("paid", fields, version=3, upcasters=upcasters)
    with Log(tmp_path / "home") as log:
        EventStore(log, "bookings", [EventType.declared("paid", fields)]).append([("paid", {"cents": 5})])
    with Log(tmp_path / "home") as log:
        store = EventStore(log, "bookings", [third])
        store.append([("paid", {"amount": 7, "currency": "CHF"})])

        found = store.read().events
        followed = list(store.subscribe(timeout="10 milliseconds"))
        stored = next(log.get_topic("bookings").rows())

    assert [event.data for event in found] == [
        {"amount": 5, "currency": "EUR"},
        {"cents": None, "amount": 7, "currency": "CHF"},
    ]
    assert [event.type_version for event in found] == [3, 3]
    assert followed == found
    assert (stored["type_version"], stored["paid"]["cents"]) == (1, 5)  # what is stored stays as it is


def test_a_wrong_upcaster_and_an_event_of_newer_code_are_named(tmp_path: Path) -> None:
    fields = "cents BIGINT"
    broken = EventType.declared("paid", fields, version=2, upcasters={1: lambda data: {"cents": data["sents"]}})
    good = EventType.declared("paid", fields, version=2, upcasters={1: lambda data: data})
    with Log(tmp_path / "home") as log:
        old = EventStore(log, "bookings", [EventType.declared("paid", fields)])
        old.append([("paid", {"cents": 5})])

        with pytest.raises(ReplayFailed, match=r'upcaster of event type "paid" from version 1 .* position 1: KeyError'):
            EventStore(log, "bookings", [broken]).read()
        EventStore(log, "bookings", [good]).append([("paid", {"cents": 6})])
        with pytest.raises(ReplayFailed, match=r"position 2 has version 2 .* knows versions up to 1"):
            old.read()
        assert [event.data["cents"] for event in old.read(limit=1)] == [5]


def test_types_are_declared_soundly(log: Log) -> None:
    with pytest.raises(InvalidDeclaration, match="no upcaster from version 1"):
        EventType.declared("paid", "cents BIGINT", version=2)
    with pytest.raises(InvalidDeclaration, match="upcaster from version 2"):
        EventType.declared("paid", "cents BIGINT", version=2, upcasters={1: dict, 2: dict})
    with pytest.raises(InvalidDeclaration, match='cannot be named "version"'):
        EventStore(log, "a", [EventType.declared("version", "cents BIGINT")])
    with pytest.raises(InvalidDeclaration, match="declared twice"):
        EventStore(log, "a", [PAID, PAID])


# Transactions


def test_events_are_written_with_rows_of_other_topics_or_not_at_all(log: Log) -> None:
    store, orders = bookings(log), log.topic("orders", "n BIGINT")
    taken = Query(tags="order:1")

    with log.transaction() as first:
        store.append_in(first, [Event("paid", {"cents": 1}, ["order:1"])], stream="7", expected=0)
        first.append(orders, [{"n": 1}])
    for error, wrong in (
        (VersionConflict, lambda t: store.append_in(t, [("paid", {"cents": 2})], stream="7", expected=0)),
        (AppendConflict, lambda t: store.append_in(t, [("closed", {})], fail_if=taken)),
        (RowRefused, lambda t: (store.append_in(t, [("closed", {})]), t.append(orders, [{"n": "x"}]))),
    ):
        with pytest.raises(error):
            written_with(log, orders, wrong)
    with log.transaction() as fifth:
        store.append_in(fifth, [("closed", {})], fail_if=taken, after=1)
        store.append_in(fifth, [("paid", {"cents": 3})], stream="7")
        fifth.append(orders, [{"n": 5}])

    assert str(first.token) == "bookings:0=1;orders:0=1"
    assert [(event.type, event.stream, event.version) for event in store.read()] == [
        ("paid", "7", 1),
        ("closed", None, None),
        ("paid", "7", 2),
    ]
    assert [row["n"] for row in orders.rows()] == [1, 5]
    assert [event.type for event in bookings(log).read(stream="7")] == ["paid", "paid"]


def written_with(log: Log, orders: Topic, more: Callable[[Transaction], object]) -> None:
    with log.transaction() as transaction:
        transaction.append(orders, [{"n": 2}])
        more(transaction)
