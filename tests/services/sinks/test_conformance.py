"""What every sink must keep: one suite, run by each of them.

What it is: synthetic ticks, led along by the real follower into a real system; then the rows that are there are
compared with those of the view.
Invariants: contents equal the view after every step, whatever happened before.
Not here: processes that are killed (``test_killed.py``); what is special about one sink (its own file).
Read next: ``server/http/query_places.py``, ``synthetic.py``.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import Fenced
from headwater.log.home import Log
from headwater.log.schema.normalization import WEIGHT
from headwater.sinks.runner.sink_status import SinkState
from headwater.sinks.runner.sink_task import SinkTask
from headwater.sinks.sink import SinkContext, Target
from headwater.views.serving.deliveries import Delivery
from tests.services.sinks.places import Place
from tests.services.sinks.synthetic import SyntheticView, bag_of

SMALL = "id BIGINT, name STRING, n INT"
AWKWARD = (
    "id BIGINT, yes BOOLEAN, tiny TINYINT, price DECIMAL(12,2), long DECIMAL(38,10), ratio DOUBLE, small FLOAT,"
    ' day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, raw BINARY, `a "name"` STRING, tags ARRAY<STRING>,'
    " place STRUCT<x: DOUBLE, y: INT>, counts MAP<STRING, BIGINT>"
)


KEYS = [
    (
        "STRUCT<start: TIMESTAMP, end: TIMESTAMP>",
        {"start": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "end": dt.datetime(2026, 1, 2, tzinfo=dt.UTC)},
        {"start": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "end": None},
    ),
    ("DECIMAL(20,2)", Decimal("1.50"), Decimal("-1.50")),
    ("TIMESTAMP", dt.datetime(2026, 1, 1, 12, 30, tzinfo=dt.UTC), dt.datetime(1969, 1, 1, tzinfo=dt.UTC)),
    ("DATE", dt.date(2026, 1, 1), dt.date(1, 1, 1)),
    ("DOUBLE", 0.5, math.inf),
    ("BOOLEAN", True, False),
    ("BINARY", b"\x00\xff", b""),
    ("STRING", "it's; a \\key\n", ""),
]


@pytest.fixture(autouse=True)
def never_put_right(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A sink that comes apart and is put right by a new copy does not pass for one that never did."""
    yield
    called = [record.getMessage() for record in caplog.get_records("call")]
    assert [message for message in called if "takes a full copy" in message] == []


def follow(view: SyntheticView, place: Place, log: Log, name: str = "copy") -> SinkTask:
    """A follower that has brought the sink along."""
    task = SinkTask(name, "the view", "app", place.sink, view, log)
    status = task.catch_up()
    assert status.state is SinkState.FOLLOWING, status.error
    return task


def opened(view: SyntheticView, place: Place, log: Log) -> Target:
    """The target as the follower has it."""
    head = view.head()
    assert head is not None
    version = f"{head.version}/{place.sink.layout}" if place.sink.layout else head.version
    return place.sink.open(SinkContext("app", "the view", "copy", view.schema, view.key, version), log)


def check(view: SyntheticView, place: Place) -> None:
    assert bag_of(place.read(view)) == view.bag()


def users(*numbers: int, n: int = 0) -> list[dict[str, object]]:
    return [{"id": number, "name": f"user {number}", "n": n} for number in numbers]


def test_a_full_copy_and_then_changes(place: Place, log: Log) -> None:
    view = SyntheticView(SMALL)
    view.change(users(1, 2, 3, 4))
    task = follow(view, place, log)
    check(view, place)

    view.change(add=users(2, 5, n=1), remove=users(3))
    task.catch_up()
    check(view, place)
    view.change(add=users(2, n=2))
    view.change(remove=users(2))
    view.change(add=users(2, 3, n=3))
    status = task.catch_up()

    check(view, place)
    assert (status.tick, status.rows) == (view.tick, 4 + 4 + (3 if place.sink.merges else 5))
    task.close()


def test_a_view_that_is_empty_is_there_with_its_columns(place: Place, log: Log) -> None:
    view = SyntheticView(SMALL)

    task = follow(view, place, log)
    check(view, place)
    view.change(users(1))
    view.change(remove=users(1))
    task.catch_up()

    check(view, place)
    task.close()


def test_empty_ticks_move_the_progress_and_nothing_else(place: Place, log: Log) -> None:
    view = SyntheticView(SMALL)
    view.change(users(1))
    task = follow(view, place, log)

    for _ in range(3):
        view.commit()
        task.catch_up()
    task.close()
    later = follow(view, place, log)

    check(view, place)
    assert later.status.tick == view.tick
    assert later.status.rows == 0, "it was filled again"
    later.close()


def test_a_tick_that_is_repeated_is_passed_over(place: Place, log: Log) -> None:
    view = SyntheticView("word STRING", key=())
    view.change([{"word": "a"}, {"word": "a"}])
    follow(view, place, log).close()
    before = view.tick
    view.change([{"word": "a"}, {"word": "b"}])
    head = view.head()
    assert head is not None
    delivery = view.changes(before, head, rows_max=10, ticks_max=10)
    assert delivery is not None
    target = opened(view, place, log)

    first, again = target.apply(delivery), target.apply(delivery)
    target.close()

    assert first.tick == again.tick == view.tick
    check(view, place)


def test_changes_that_would_leave_a_gap_are_not_applied(place: Place, log: Log) -> None:
    view = SyntheticView(SMALL)
    view.change(users(1))
    follow(view, place, log).close()
    target = opened(view, place, log)

    reached = target.apply(Delivery(view._weighted(users(9), 1), after=view.tick + 5, tick=view.tick + 6, epoch=1))
    target.close()

    assert reached.tick <= view.tick
    check(view, place)


def test_a_zombie_is_refused(place: Place, log: Log) -> None:
    view = SyntheticView(SMALL)
    view.change(users(1))
    zombie = follow(view, place, log)
    after = view.tick
    target = opened(view, place, log)
    target.progress()
    view.number = 2
    view.change(users(2))
    follow(view, place, log).close()

    late = Delivery(view._weighted(users(66), 1), after=view.tick, tick=view.tick + 1, epoch=1)
    with pytest.raises(Fenced):
        target.apply(late)
    with pytest.raises(Fenced):
        target.fill(view._weighted(users(66), 1).drop_columns([WEIGHT]).to_batches(), after, 1)
    target.close()
    zombie.close()

    check(view, place)


def test_a_home_that_was_made_anew_takes_the_sink_over_and_shuts_the_old_one_out(place: Place, log: Log) -> None:
    old = SyntheticView(SMALL, home_id="old", epoch=7)
    old.change(users(1, 2))
    before = follow(old, place, log)

    new = SyntheticView(SMALL, home_id="new", epoch=1)
    new.change(users(5))
    follow(new, place, log).close()
    check(new, place)
    old.change(users(3))
    status = before.catch_up()

    assert status.state is SinkState.STOPPED
    check(new, place)
    before.close()


def test_awkward_values_arrive_as_they_were(place: Place, log: Log) -> None:
    view = SyntheticView(AWKWARD)
    quoted = 'it\'s "quoted", \\N \\. ; % {} \n\r\t ü 😀'
    full = {
        "id": 1,
        "yes": True,
        "tiny": -128,
        "price": Decimal("-1234567890.12"),
        "long": Decimal("1234567890123456789012345678.0123456789"),
        "ratio": 0.1 + 0.2,
        "small": 0.5,
        "day": dt.date(1, 1, 1),
        "at": dt.datetime(2026, 3, 1, 12, 0, 0, 123456, dt.UTC),
        "local": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        "raw": b"\x00\xff'\"\\",
        'a "name"': quoted,
        "tags": ["a", None, "", quoted],
        "place": {"x": 1.5, "y": None},
        "counts": {"a": 1, "b": None},
    }
    nothing = dict.fromkeys(full)
    odd = {
        "ratio": math.nan,
        "small": -math.inf,
        'a "name"': "",
        "tags": [],
        "raw": b"",
        "counts": {},
        "day": dt.date(9999, 12, 31),
        "at": dt.datetime(1583, 1, 1, tzinfo=dt.UTC),
        "yes": False,
        "long": Decimal("0"),
        "place": {"x": None, "y": None},
    }
    view.change([full, {**nothing, "id": 2}])
    task = follow(view, place, log)
    check(view, place)

    view.change([{**nothing, **odd, "id": 3}, {**full, "id": 2}, {**nothing, "id": 1}])
    task.catch_up()
    check(view, place)
    if place.nul:
        view.change([{**nothing, 'a "name"': "a\0b", "id": 4}])
        task.catch_up()
        check(view, place)
    task.close()


def test_a_key_may_be_null_and_of_several_columns(place: Place, log: Log) -> None:
    view = SyntheticView("country STRING, city STRING, n INT", key=("country", "city"))
    view.change([{"country": "DE", "city": "a:b", "n": 1}, {"country": "DE:a", "city": "b", "n": 2}])
    task = follow(view, place, log)

    view.change([{"country": None, "city": "x", "n": 3}, {"country": None, "city": None, "n": 4}])
    task.catch_up()
    check(view, place)
    view.change(add=[{"country": None, "city": "x", "n": 5}], remove=[{"country": None, "city": None}])
    task.catch_up()

    check(view, place)
    task.close()


def test_a_key_may_be_of_any_type(place: Place, log: Log) -> None:
    view = SyntheticView(SMALL)
    task = follow(view, place, log)
    for kind, one, other in KEYS:
        if not place.migrates and task.status.tick > 1:
            task.close()
            return  # one type will do: another would need another topic
        view.reset(f"k {kind}, n INT" if place.migrates else f"{SMALL}, k {kind}", key=("k",))
        view.change([{"k": one, "n": 1}, {"k": other, "n": 2}])
        status = task.catch_up()
        assert status.state is SinkState.FOLLOWING, (kind, status.error)
        view.change(add=[{"k": other, "n": 3}], remove=[{"k": one}])
        status = task.catch_up()

        assert status.state is SinkState.FOLLOWING, (kind, status.error)
        assert bag_of(place.read(view)) == view.bag(), kind
    task.close()


def test_a_view_without_a_key_is_a_bag(place: Place, log: Log) -> None:
    view = SyntheticView("word STRING, n DOUBLE", key=())
    a, b, c = {"word": "a", "n": 0.5}, {"word": None, "n": None}, {"word": "c", "n": 2.0}
    view.change([a, a, a, b, b])
    task = follow(view, place, log)
    check(view, place)

    view.change(add=[b, c, c], remove=[a, a])
    task.catch_up()
    check(view, place)
    view.change(remove=[b, b, b, c])
    task.catch_up()

    check(view, place)
    task.close()


def test_a_tick_of_a_hundred_thousand_rows(place: Place, log: Log) -> None:
    view = SyntheticView(SMALL)
    many = place.rows_many
    numbers = np.arange(many)
    names = pa.array([f"user {number}" for number in numbers])
    big = pa.table({"id": numbers, "name": names, "n": numbers.astype(np.int32), WEIGHT: np.ones_like(numbers)})
    view.commit(big.slice(0, many // 2))
    task = follow(view, place, log)

    gone = big.slice(0, many // 2).set_column(3, WEIGHT, pa.array(np.full(many // 2, -1)))
    updated = big.slice(0, many // 4).set_column(2, "n", pa.array(np.full(many // 4, 7, np.int32)))
    view.commit(pa.concat_tables([gone, updated, big.slice(many // 2)]))
    task.catch_up()

    check(view, place)
    task.close()


def test_a_server_that_was_away_is_caught_up_with(place: Place, log: Log) -> None:
    if place.server is None:
        return
    view = SyntheticView(SMALL)
    view.change(users(1, 2, 3))
    task = follow(view, place, log)

    place.server.stop()
    try:
        view.change(add=users(2, n=1), remove=users(1))
        away = [task.catch_up() for _ in range(3)]
        view.change(add=users(4))
    finally:
        place.server.start()
    back = task.catch_up()

    assert [(status.state, status.failures) for status in away] == [(SinkState.RETRYING, n) for n in (1, 2, 3)]
    assert (back.state, back.failures, back.error) == (SinkState.FOLLOWING, 0, None)
    alerts = [(row["kind"], row["state"]) for row in log.get_topic("_alerts").rows()]
    assert alerts == [("sink", "begin"), ("sink", "end")]
    check(view, place)
    task.close()


def test_when_the_changes_are_no_longer_kept_it_is_filled_anew(place: Place, log: Log) -> None:
    view = SyntheticView(SMALL)
    view.change(users(1, 2, 3))
    task = follow(view, place, log)

    view.change(add=users(2, n=1), remove=users(1))
    view.change(add=users(9))
    view.forget()
    task.catch_up()

    check(view, place)
    task.close()


def test_changes_go_on_after_what_has_left_was_forgotten(place: Place, log: Log) -> None:
    view = SyntheticView(SMALL)
    view.change(users(1, 2, 3))
    task = follow(view, place, log)
    view.change(users(4), users(1))
    task.catch_up()

    task.forget()
    view.change(users(5), users(2))
    task.catch_up()
    check(view, place)
    task.close()
    opened(view, place, log).forget()
    view.change(users(6), users(3))
    follow(view, place, log).close()

    check(view, place)


@pytest.mark.parametrize(
    ("schema", "key"),
    [
        (f"{SMALL}, more STRING", ("id",)),
        ("id BIGINT, name STRING", ("id",)),
        ("id STRING, n DOUBLE", ("id",)),
        (SMALL, ("id", "n")),
        (SMALL, ()),
    ],
    ids=["added", "removed", "other types", "other key", "no key"],
)
def test_another_query_is_filled_anew_with_its_own_columns(
    place: Place, log: Log, schema: str, key: tuple[str, ...]
) -> None:
    view = SyntheticView(SMALL)
    view.change(users(1, 2, 3))
    task = follow(view, place, log)

    view.reset(schema, key)
    row = {"id": 1, "name": "one", "n": 5, "more": "x"}
    if "id STRING" in schema:
        row |= {"id": "1", "n": 0.5}
    view.change([{name: row[name] for name in view.schema.names}])
    status = task.catch_up()
    if not place.migrates and len(view.schema) <= 3 and schema != SMALL:
        assert status.state is SinkState.STOPPED
        assert status.error is not None
        assert status.error["code"] == "schema_conflict"
        task.close()
        return
    assert status.state is SinkState.FOLLOWING, status.error
    check(view, place)
    view.change([{name: row[name] for name in view.schema.names} | {"id": "2" if "id STRING" in schema else 2}])
    task.catch_up()

    check(view, place)
    task.close()


def test_a_bag_that_becomes_a_bag_of_more_columns(place: Place, log: Log) -> None:
    view = SyntheticView("word STRING", key=())
    view.change([{"word": "a"}, {"word": "a"}])
    task = follow(view, place, log)

    view.reset("word STRING, n INT", key=())
    view.change([{"word": "a", "n": 1}, {"word": "a", "n": 1}, {"word": "b", "n": None}])
    task.catch_up()
    check(view, place)
    view.change(remove=[{"word": "a", "n": 1}])
    task.catch_up()

    check(view, place)
    task.close()
