"""One suite for every log: what the contract says, asked of the embedded log and of the log on Kafka.

What it is: the same calls with the same answers over both. Where they differ, the difference is a declared capability:
the suite asks for each, and expects the answer of a log that has it, or the refusal of one that has not.
Invariants: no test is skipped for a log. Answers are compared with values that the test computes itself.
Not here: writes that are repeated (``test_log_conformance_writes.py``), what only Kafka has
(``test_kafka_log.py``), views (``test_kafka_views.py``).
Read next: ``log/contract.py``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import threading
from collections.abc import Callable
from decimal import Decimal

import pytest

import headwater as hw
from headwater.errors import (
    DeclarationConflict,
    InvalidDeclaration,
    NotOffered,
    NotYetCovered,
    RowRefused,
    UnknownTopic,
)
from headwater.log.contract import Capability, EventLog
from headwater.log.home import Log
from headwater.log.table import declare_table, open_table
from tests.services.logs import beside, log, name, rows_of

__all__ = ["log", "name"]


# Appending and reading


@pytest.mark.parametrize("key", [None, "n"])
def test_each_row_is_read_once_and_in_the_order_of_its_partition(log: EventLog, name: str, key: str | None) -> None:
    topic = log.topic(f"{name}.{key}", "n BIGINT, text STRING", key=key, partitions=3)

    for first in range(0, 3000, 600):
        topic.append([{"n": n, "text": str(n)} for n in range(first, first + 600)])

    found: dict[int, list[tuple[int, int]]] = {}
    for batch in topic.read(columns=["n", "_offset", "_partition"]):
        assert batch.data.column("_partition").to_pylist() == [batch.partition] * batch.num_rows
        assert batch.data.column("_offset").to_pylist() == batch.offsets.tolist()
        found.setdefault(batch.partition, []).extend((row["n"], row["_offset"]) for row in batch.to_pylist())
    assert sorted(n for rows in found.values() for n, _ in rows) == list(range(3000))
    assert all([n for n, _ in rows] == sorted(n for n, _ in rows) for rows in found.values())
    assert all([at for _, at in rows] == sorted(at for _, at in rows) for rows in found.values())
    starts, ends = topic.start_offsets(), topic.end_offsets()
    assert starts == {0: 0, 1: 0, 2: 0}
    assert all(found[p][-1][1] < ends[p] for p in found)
    held = topic.rows_most(starts, ends)
    assert held == 3000 if Capability.GAPLESS_OFFSETS in log.capabilities else held >= 3000


def test_a_range_of_offsets_is_the_same_rows_each_time(log: EventLog, name: str) -> None:
    topic = log.topic(name, "n BIGINT", key="n")
    for n in range(5):
        topic.append([{"n": n}, {"n": n + 100}])
    offsets = [at for (at,) in rows_of(topic, "_offset")]
    start, stop = offsets[3], offsets[7]

    for _ in range(3):
        part = [row for batch in topic.read_partition(0, start, stop=stop) for row in batch.to_pylist()]
        assert [row["n"] for row in part] == [101, 2, 102, 3]
        assert rows_of(topic, "n", start=start, stop=stop) == [(101,), (2,), (102,), (3,)]
    last = list(topic.read_partition(0, start, stop=stop))[-1]
    assert last.next_offset == stop
    assert list(topic.read_partition(0, topic.end_offsets()[0])) == []


def test_values_of_every_type_come_back_as_they_were(log: EventLog, name: str) -> None:
    ddl = (
        "id BIGINT, flag BOOLEAN, small TINYINT, ratio DOUBLE, price DECIMAL(20,4), day DATE, at TIMESTAMP, "
        "local TIMESTAMP_NTZ, raw BINARY, tags ARRAY<STRING>, point STRUCT<x: INT, y: STRING>, counts MAP<STRING, INT>"
    )
    moment = dt.datetime(2026, 1, 31, 10, 0, 0, 123456, tzinfo=dt.UTC)
    full = {
        "id": 1,
        "flag": True,
        "small": -128,
        "ratio": 0.1,
        "price": Decimal("12345678901234.5678"),
        "day": dt.date(1, 1, 1),
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "raw": b"\0\xff",
        "tags": ["a", None, '"'],
        "point": {"x": 1, "y": "ü"},
        "counts": {"a": 1},
    }
    odd = [{**full, "id": n, "ratio": value} for n, value in enumerate((math.inf, -math.inf, -0.0, 5e-324), start=2)]
    empty = {**dict.fromkeys(full), "id": 9}
    rows = [full, *odd, empty]

    for key in (None, "id"):
        topic = log.topic(f"{name}.{key}", ddl, key=key)
        topic.append(rows)
        found = sorted(topic.rows(columns=list(full)), key=lambda row: row["id"])
        assert found == rows
        assert math.copysign(1, found[3]["ratio"]) == -1


def test_a_row_that_does_not_fit_refuses_its_whole_batch(log: EventLog, name: str) -> None:
    topic = log.topic(name, "n BIGINT")

    with pytest.raises(RowRefused):
        topic.append([{"n": 1}, {"n": "two"}])

    assert list(topic.rows()) == []


def test_metadata_is_kept_with_each_row(log: EventLog, name: str) -> None:
    for key in (None, "n"):
        topic = log.topic(f"{name}.{key}", "n BIGINT", key=key)
        topic.append([{"n": 1}], metadata=hw.Metadata(actor="anna", correlation_id="basket-7"))
        topic.append([{"n": 2}])
        assert rows_of(topic, "n", "_actor", "_correlation_id") == [(1, "anna", "basket-7"), (2, None, None)]


# Keys


def test_a_key_stays_in_its_partition_and_a_tombstone_takes_its_row_away(log: EventLog, name: str) -> None:
    users = declare_table(log, name, "id BIGINT, country STRING", key="id", partitions=3)

    users.upsert([{"id": n, "country": "DE"} for n in range(30)])
    users.upsert([{"id": n, "country": "AT"} for n in range(0, 30, 2)])
    users.delete([{"id": n} for n in range(0, 30, 3)])

    places: dict[int, set[int]] = {}
    for n, partition in rows_of(users.topic, "id", "_partition"):
        places.setdefault(n, set()).add(partition)
    assert all(len(of) == 1 for of in places.values())
    assert len(set.union(*places.values())) == 3
    gone = {n for n, deleted in rows_of(users.topic, "id", "_deleted") if deleted}
    assert gone == set(range(0, 30, 3))
    left = {n: "AT" if n % 2 == 0 else "DE" for n in range(30) if n % 3}
    assert {row["id"]: row["country"] for row in users.to_arrow().to_pylist()} == left
    assert (users.get(2), users.get(3)) == ([{"id": 2, "country": "AT"}], [])


def test_keys_of_several_columns_and_types(log: EventLog, name: str) -> None:
    table = declare_table(log, name, "day DATE, code STRING, raw BINARY, n INT", key=["day", "code", "raw"])
    day, raw = dt.date(2026, 1, 31), b"\0\xff"

    table.upsert([{"day": day, "code": '"', "raw": raw, "n": n} for n in range(3)])
    table.upsert([{"day": day, "code": "", "raw": raw, "n": 7}])
    table.delete([{"day": day, "code": '"', "raw": raw}])

    assert table.to_arrow().to_pylist() == [{"day": day, "code": "", "raw": raw, "n": 7}]


def test_a_deletion_has_the_event_time_that_it_was_given(log: EventLog, name: str) -> None:
    prices = declare_table(log, name, "id BIGINT, at TIMESTAMP, cents INT", key="id", event_time="at")
    first, second = (dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (1, 2))

    prices.upsert([{"id": 1, "at": first, "cents": 5}])
    prices.delete([{"id": 1, "at": second}])

    assert rows_of(prices.topic, "at", "_deleted") == [(first, False), (second, True)]
    assert prices.topic.watermark()["watermark"] == "2026-01-02T00:00:00.000Z"


# Declarations


def test_a_schema_grows_and_older_rows_have_nulls(log: EventLog, name: str) -> None:
    for key in (None, "id"):
        topic = log.topic(f"{name}.{key}", "id INT", key=key)
        topic.append([{"id": 1}])
        other = beside(log)
        reader = other.get_topic(topic.name)

        assert log.topic(topic.name, "id BIGINT, note STRING", key=key).schema_version == 2
        topic.append([{"id": 2**40, "note": "new"}])

        assert rows_of(topic, "id", "note") == [(1, None), (2**40, "new")]
        reader.refresh()
        assert rows_of(reader, "id", "note") == [(1, None), (2**40, "new")]
        other.close()


def test_what_cannot_change_is_refused_with_the_reason(log: EventLog, name: str) -> None:
    log.topic(name, "id BIGINT, name STRING", key="id", partitions=2)

    with pytest.raises(DeclarationConflict, match=r"partitions of topic .* is 2 and cannot become 3"):
        log.topic(name, "id BIGINT, name STRING", key="id", partitions=3)
    with pytest.raises(DeclarationConflict, match="key of topic"):
        log.topic(name, "id BIGINT, name STRING", key="name")
    with pytest.raises(InvalidDeclaration, match='unknown setting "retentoin"'):
        log.topic(name, "id BIGINT, name STRING", retentoin="7 days")  # type: ignore[call-arg]
    assert log.get_topic(name).schema_version == 1


def test_topics_are_found_by_name_and_gone_when_they_are_deleted(log: EventLog, name: str) -> None:
    made = log.topic(name, "n INT")

    assert name in log.topic_names()
    assert log.get_topic(name).id == made.id
    assert name in [topic.name for topic in log.topics()]
    with pytest.raises(UnknownTopic, match="no topic"):
        log.get_topic(name + "s")
    log.delete_topic(name)
    assert log.find_topic(name) is None
    assert log.topic(name, "n INT").id != made.id


# Tokens, waiting, times


def test_a_token_names_what_every_reader_sees(log: EventLog, name: str) -> None:
    topic = log.topic(name, "n INT")
    other = beside(log)

    for n in range(5):
        token = topic.append([{"n": n}, {"n": -n}])
        other.wait_for(token, timeout=0)
        ends = other.get_topic(name).end_offsets()
        assert all(ends[p] >= offset for p, offset in token.frontier[name].items())
    with pytest.raises(NotYetCovered, match="has not got"):
        log.wait_for(hw.Token({name: {0: 10**6}}), timeout=0)
    assert list(topic.rows(start=token)) == []
    other.close()


def test_a_reader_that_waits_is_woken_by_an_append(log: EventLog, name: str) -> None:
    topic, seen, came = log.topic(name, "n INT", partitions=2), threading.Event(), []
    ends = topic.end_offsets()
    assert topic.wait(ends, timeout=0) is False

    def follow() -> None:
        reader = topic.read("latest", follow=True, timeout=60)
        seen.set()
        came.extend(next(reader).to_pylist())

    waiting = threading.Thread(target=follow)
    waiting.start()
    seen.wait(60)
    assert topic.wait(ends, timeout=0) is False
    topic.append([{"n": 7}])

    waiting.join(60)
    assert came == [{"n": 7}]
    assert topic.wait(ends, timeout=30) is True


def test_offsets_are_found_by_time(log: EventLog, name: str) -> None:
    topic = log.topic(name, "n INT")
    topic.append([{"n": 1}])
    (first,) = (at for (at,) in rows_of(topic, "_appended_at"))
    later = first + dt.timedelta(milliseconds=2)
    while dt.datetime.now(dt.UTC) <= later + dt.timedelta(milliseconds=2):
        pass  # Kafka's times are whole milliseconds: the second append is of another one
    topic.append([{"n": 2}])

    assert rows_of(topic, "n", start=later) == [(2,)]
    assert topic.offsets_at(first) == topic.start_offsets()
    assert topic.offsets_at(dt.datetime(2100, 1, 1, tzinfo=dt.UTC)) == topic.end_offsets()


def test_a_watermark_follows_rows_and_heartbeats(log: EventLog, name: str) -> None:
    topic = log.topic(name, "at TIMESTAMP", event_time="at", lateness="5 minutes")
    topic.append([{"at": dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)}])
    assert topic.watermark()["watermark"] == "2026-01-01T11:55:00.000Z"

    topic.heartbeat(dt.datetime(2026, 1, 1, 13, tzinfo=dt.UTC))

    assert topic.watermark()["watermark"] == "2026-01-01T13:00:00.000Z"


def test_a_cut_is_the_ends_and_a_limited_one_is_not_beyond_them(log: EventLog, name: str) -> None:
    topics = [log.topic(f"{name}.{each}", "n INT", key="n", partitions=2) for each in "ab"]
    for n in range(6):
        for topic in topics:
            topic.append([{"n": n}, {"n": n + 50}])
        log.cut(topics)  # a cut is not cut again: of one that holds everything, nothing less can be taken

    ends = log.cut(topics)
    begins = {topic.name: topic.start_offsets() for topic in topics}
    limited = log.limited_cut(topics, begins, ends, dict.fromkeys(begins, 4))

    assert ends == {topic.name: topic.end_offsets() for topic in topics}
    assert log.limited_cut(topics, begins, ends, {}) == ends
    for topic in topics:
        assert all(begins[topic.name][p] <= limited[topic.name][p] <= ends[topic.name][p] for p in (0, 1))
        assert 0 < sum(limited[topic.name].values()) < sum(ends[topic.name].values())


# Transactions and groups


def test_a_transaction_is_all_or_nothing(log: EventLog, name: str) -> None:
    orders = log.topic(f"{name}.orders", "id INT")
    stock = declare_table(log, f"{name}.stock", "item STRING, left INT", key="item", partitions=2)

    with log.transaction(metadata=hw.Metadata(actor="ada")) as t:
        t.append(orders, [{"id": 1}])
        t.upsert(stock, [{"item": item, "left": 9} for item in ("cup", "pot", "pan")])
    with contextlib.suppress(ZeroDivisionError), log.transaction() as failing:
        failing.append(orders, [{"id": 2}])
        failing.delete(stock, [{"item": "cup"}])
        raise ZeroDivisionError
    with log.transaction() as later:
        later.delete(stock, [{"item": "pan"}])

    assert rows_of(orders, "id", "_actor") == [(1, "ada")]
    assert sorted(row["item"] for row in stock.to_arrow().to_pylist()) == ["cup", "pot"]
    log.wait_for(t.token, timeout=0)
    assert set(t.token.frontier) == {orders.name, stock.name}


def test_a_group_goes_on_where_it_has_committed(log: EventLog, name: str) -> None:
    topic = log.topic(name, "n INT", partitions=2)
    for n in range(10):
        topic.append([{"n": n}])
    taken: list[int] = []

    def take(count: int, *, commit: bool) -> list[int]:
        got: list[int] = []
        with topic.consumer(f"{name}.billing") as consumer:
            while len(got) < count:
                batch = consumer.poll(timeout=60)
                assert batch is not None
                got += [row["n"] for row in batch]
                if commit:
                    consumer.commit(batch)
        return got

    taken += take(10, commit=True)
    for n in range(10, 14):
        topic.append([{"n": n}])
    assert sorted(take(4, commit=False)) == [10, 11, 12, 13]
    taken += take(4, commit=True)

    assert sorted(taken) == list(range(14))
    assert sum(topic.group(f"{name}.billing").lag().values()) == 0
    assert f"{name}.billing" in [group.name for group in topic.groups()]


def test_rows_and_positions_are_committed_together(log: EventLog, name: str) -> None:
    numbers, squares = log.topic(f"{name}.in", "n INT"), log.topic(f"{name}.out", "n INT")
    numbers.append([{"n": 3}])

    with numbers.consumer(f"{name}.squarer") as consumer:
        batch = consumer.poll(timeout=60)
        with log.transaction() as t:
            t.append(squares, [{"n": row["n"] ** 2} for row in batch])
            t.commit(consumer, batch)

    assert list(squares.rows()) == [{"n": 9}]
    assert sum(numbers.group(f"{name}.squarer").lag().values()) == 0


# Capabilities


ASKED: dict[Capability, Callable[[EventLog], object]] = {
    Capability.CONDITIONAL_APPENDS: lambda log: declare_table(log, "capability.keyed", "n INT", key="n").insert(
        [{"n": 1}]
    ),
    Capability.REQUEST_IDS: lambda log: log.topic("capability.ids", "n INT").append([{"n": 1}], request_id="r-1"),
    Capability.PRODUCER_SEQUENCES: lambda log: log.topic("capability.producers", "n INT").append(
        [{"n": 1}], producer="importer", sequence=1
    ),
    Capability.WORK_GROUPS: lambda log: log.topic("capability.work", "n INT").worker("mailers").close(),
    Capability.REMOVAL_BY_VALUE: lambda log: _removed(log),
    Capability.TRANSACTIONS: lambda log: log.transaction().__exit__(None, None, None),
    Capability.CONSUMER_GROUPS: lambda log: log.topic("capability.groups", "n INT").consumer("g").close(),
    Capability.COMPACTION: lambda log: log.topic("capability.compact", "n INT", key="n", compact=True),
    Capability.WAKE_UP: lambda log: log.topic("capability.wake", "n INT").wait({0: 0}, timeout=0),
}
# These are properties of what is read, told by other tests: nobody can ask for them in a call.
NOT_ASKED = {Capability.GAPLESS_OFFSETS, Capability.CONSISTENT_CUTS, Capability.NATIVE_FILES}


def _removed(log: EventLog) -> None:
    basket = declare_table(log, "capability.basket", "fruit STRING")
    basket.insert([{"fruit": "apple"}, {"fruit": "apple"}])
    assert len(basket.to_arrow()) >= 2
    basket.delete([{"fruit": "apple"}])


@pytest.mark.parametrize("capability", Capability)
def test_what_a_log_declares_it_does_and_the_rest_it_refuses(log: EventLog, capability: Capability) -> None:
    if capability in NOT_ASKED:
        assert capability not in ASKED
        return

    if capability in log.capabilities:
        ASKED[capability](log)
    else:
        with pytest.raises(NotOffered, match=f"needs {capability}, which the log at {log.shown[:8]}.* does not offer"):
            ASKED[capability](log)


def test_the_embedded_log_offers_everything_and_kafka_says_what_it_does_not(log: EventLog) -> None:
    missing = {str(each) for each in set(Capability) - log.capabilities}

    assert missing == (
        set()
        if isinstance(log, Log)
        else {
            "gapless offsets",
            "consistent cuts",
            "conditional appends",
            "native files",
            "work groups",
            "deletion from tables without a key",
        }
    )


def test_a_table_without_a_key_is_a_multiset(log: EventLog, name: str) -> None:
    basket = declare_table(log, name, "fruit STRING, ripe BOOLEAN")

    basket.insert([{"fruit": "apple", "ripe": None}, {"fruit": "apple", "ripe": None}, {"fruit": "pear", "ripe": True}])

    assert sorted(row["fruit"] for row in open_table(log, name).to_arrow().to_pylist()) == ["apple", "apple", "pear"]
