"""Purposes that end: a row's columns are blanked once every purpose of them has ended for its event time.

What it is: declarations that are refused; side topics, the archive, backups; and a property test with a model that
knows nothing of segments: a list of rows, gone through one by one.
Invariants: what is left is searched without any code of ours (``tests/every_byte.py``).
Not here: crashes (``tests/crash/test_expiry_boundaries.py``), views and sinks (``tests/spark/test_expiry.py``).
"""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import InvalidDeclaration
from headwater.log.erasure.log_erasure import KeptOut
from headwater.log.erasure.log_expiry import expire_log, find_expired
from headwater.log.erasure.purposes import declare_purpose, misspelled
from headwater.log.home import Log
from headwater.log.maintenance.audit_trail import begin_trail
from headwater.log.topic import Topic
from headwater.testing import ManualClock
from headwater.upkeep.audit.log_audit import audit_log, checkpoints_of
from headwater.upkeep.backup.backup_writer import create_backup
from headwater.upkeep.backup.home_restore import restore_home
from headwater.upkeep.erasure.purpose_expiry import ExpirySchedule, PurposeExpiry
from tests.crash.ledger import QuietLog
from tests.every_byte import places_with
from tests.unit.weighted_rows import thorough

DAY_S = 86_400
BY_USER: Any = {"by": "user_id"}
OF_ORDERS = {
    "user_id": hw.Personal("user_id"),
    "address": hw.Personal("user_id", **BY_USER, purpose="shipping"),
    "card": hw.Personal("user_id", **BY_USER, purpose=["billing", "shipping"]),
    "note": hw.Personal("user_id", **BY_USER, purpose="billing"),
}
COLUMNS = "user_id BIGINT, address STRING, card STRING NOT NULL, note ARRAY<STRING>, cents BIGINT, at TIMESTAMP"


def opened(home: Path, clock: ManualClock) -> Log:
    return QuietLog(home, clock=clock, maintenance_interval=None)


def orders(log: Log, name: str = "orders", **options: Any) -> Topic:
    return log.topic(name, COLUMNS, **{"event_time": "at", "privacy": OF_ORDERS, **options})


def row(number: int, at_us: int) -> dict[str, Any]:
    mark = f"zq{number}zq"
    at = dt.datetime.fromtimestamp(at_us / 1e6, dt.UTC)
    return {"user_id": 7, "address": f"a{mark}", "card": f"c{mark}", "note": [f"n{mark}"], "cents": number, "at": at}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 12), min_size=1, max_size=5)),
        st.tuples(st.sampled_from(["seal", "expire", "again"]), st.none()),
        st.tuples(st.just("pass"), st.integers(1, 6)),
    ),
    min_size=4,
    max_size=12,
)


@settings(max_examples=thorough(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, keyed=st.booleans(), proof=st.booleans())
def test_what_is_blanked_is_what_a_look_at_every_row_says(
    tmp_path: Path, steps: list[tuple[str, Any]], keyed: bool, proof: bool
) -> None:
    home, clock, model = tmp_path / "home", ManualClock(), list[dict[str, Any]]()
    shutil.rmtree(home, ignore_errors=True)
    options: dict[str, Any] = {"key": "cents"} if keyed else {}
    log = opened(home, clock)
    topic, noted = orders(log, proof=proof, **options), list[dict[str, Any]]()
    declare_purpose(log, "shipping", "3 days")
    declare_purpose(log, "billing", "8 days")

    for step, given_ in [*steps, ("expire", None)]:
        if step == "append":
            ages = [clock.now_us() - days * DAY_S * 1_000_000 - 1 for days in given_]
            new = [row(len(model) + place, at) for place, at in enumerate(ages)]
            model += [{**each, "offset": len(model) + place} for place, each in enumerate(new)]
            topic.append(new)
        elif step == "seal":
            topic.partition(0).roll()
            log.maintain()
            noted += checkpoints_of(log, seal=True) if proof else []
        elif step == "pass":
            clock.advance(given_ * DAY_S)
        elif step == "again":
            log.close()
            log = opened(home, clock)
            topic = log.get_topic("orders")
        elif step == "expire":
            would = sum(each.erased.rows for each in find_expired(log))
            touched = sum(blanked(each, clock.now_us()) for each in model)
            assert would == touched == sum(each.erased.rows for each in expire_log(log)[1])
            assert expire_log(log) == (None, [])

    assert rows_of(topic) == model
    for each in model:
        number = each["cents"]
        for column in ("address", "card", "note"):
            assert bool(places_with(home, f"{column[0]}zq{number}zq")) == bool(each[column]), (column, each)
    assert log.check().ok
    assert audit_log(log, noted=noted).ok
    log.close()


def rows_of(topic: Topic) -> list[dict[str, Any]]:
    columns = ["_offset", *topic.schema.names]
    return [{name.lstrip("_"): value for name, value in each.items()} for each in topic.rows(columns=columns)]


def blanked(each: dict[str, Any], now_us: int) -> bool:
    """Blank a row of the model, as the page says; whether something was there."""
    ends = {"address": 3, "card": 8, "note": 8}  # the longest of a column's purposes
    before = dict(each)
    for column, days in ends.items():
        if each["at"].timestamp() * 1e6 < now_us - days * DAY_S * 1e6:
            each[column] = "" if column == "card" else None
    return before != each


@pytest.mark.parametrize(
    ("purpose", "keep", "options", "sentence"),
    [
        ("shiping", "3 days", {}, 'no column of this home has the purpose "shiping"\n  Hint: Did you mean "shipping"?'),
        ("shipping", "soon", {}, 'keep of purpose "shipping" cannot be \'soon\'\n  Hint: Write "10 minutes" or '),
        ("shipping", 0, {}, 'keep of purpose "shipping" cannot be 0\n  Hint: Use a time as "180 days", or "forever".'),
        (
            "shipping",
            "3 days",
            {"event_time": None},
            'column "address" of topic "orders" is of the purpose "shipping", which ends, and the topic has no event '
            "time\n  How old a row is follows from its event time.\n  Hint: Declare one: ",
        ),
        (
            "shipping",
            "3 days",
            {"key": "address"},
            'column "address" of topic "orders" is of the purpose "shipping", which ends, and is its key, which is '
            "never blanked\n  Hint: Leave the purpose out",
        ),
        (
            "shipping",
            "3 days",
            {"retention": "36 hours"},
            'purpose "shipping" is kept for 3 days, and topic "orders" keeps its rows for 36 hours\n  Hint: Keep ',
        ),
    ],
)
def test_a_wrong_declaration_is_refused_and_nothing_is_stored(
    log: Log, purpose: str, keep: Any, options: dict[str, Any], sentence: str
) -> None:
    orders(log, **options)

    with pytest.raises(InvalidDeclaration) as refused:
        declare_purpose(log, purpose, keep)

    assert str(refused.value).startswith(sentence)
    assert log.catalog.read("SELECT * FROM purposes") == []


def test_a_column_of_a_purpose_that_nobody_declared_is_told(log: Log) -> None:
    orders(log)
    other = {"id": hw.Personal("user_id"), "street": hw.Personal("user_id", by="id", purpose="shiping")}
    log.topic("homes", "id BIGINT, street STRING, at TIMESTAMP", event_time="at", privacy=other)
    declare_purpose(log, "shipping", "3 days")
    declare_purpose(log, "billing", "forever")

    assert misspelled(log) == [
        'column "street" of topic "homes" is of the purpose "shiping", which is not declared: it is kept forever. '
        'Did you mean "shipping"?'
    ]


def test_dead_letters_and_the_archive_are_blanked_too(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path / "home", clock) as log:
        topic = orders(log, archive=str(tmp_path / "home" / "attic"), retention="1 day")
        topic.append([row(1, clock.now_us())])
        with topic.worker("mailers") as worker:
            worker.reject(worker.take(1, timeout=10), reason="odd azq1zq")
        topic.partition(0).roll()
        clock.advance(2 * DAY_S)
        log.maintain()
        assert list((tmp_path / "home" / "attic").rglob("*.parquet"))
        declare_purpose(log, "shipping", "3 days")
        declare_purpose(log, "billing", "8 days")
        clock.advance(2 * DAY_S)

        _, found = expire_log(log)

        assert {each.name: each.erased.archived for each in found} == {"orders": 1, "orders.mailers.dead": 0}
        assert places_with(tmp_path, "azq1zq") == []
        assert places_with(tmp_path, "czq1zq") != []
        assert next(iter(log.get_topic("orders.mailers.dead").rows()))["reason"] == "erased"
        clock.advance(9 * DAY_S)
        expire_log(log)
        assert places_with(tmp_path, "zq1zq") == []


def test_a_restored_home_is_expired_before_it_can_be_read(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path / "home", clock) as log:
        topic = orders(log)
        declare_purpose(log, "shipping", "3 days")
        topic.append([row(1, clock.now_us())])
        create_backup(log, str(tmp_path / "backups"))
    clock.advance(4 * DAY_S)

    restore_home(str(tmp_path / "backups"), tmp_path / "again", clock=clock)

    with opened(tmp_path / "again", clock) as log:
        assert [each["address"] for each in log.get_topic("orders").rows()] == [None]
    assert places_with(tmp_path / "again", "azq1zq") == []


def test_what_a_capture_brings_again_is_let_in_blanked(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path / "home", clock) as log:
        topic = orders(log)
        declare_purpose(log, "shipping", "3 days")
        old, new = row(1, clock.now_us() - 4 * DAY_S * 1_000_000), row(2, clock.now_us())
        batch = pa.RecordBatch.from_pylist([old, new], topic.schema)

        let_in, _ = KeptOut(topic).without(batch, None)

        assert let_in.to_pylist() == [{**old, "address": None}, new]


def test_the_schedule_works_once_a_day_and_what_it_did_is_on_record(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path / "home", clock) as log:
        begin_trail(log)
        topic, schedule = orders(log), ExpirySchedule(lambda: log)
        declare_purpose(log, "shipping", "3 days")
        topic.append([row(1, clock.now_us())])
        left = []
        for _ in range(8):
            schedule.step()
            left.append(next(iter(topic.rows()))["address"] is not None)
            clock.advance(DAY_S / 2 + 1)

        assert left == [True] * 7 + [False] or left == [True] * 6 + [False] * 2, left
        trail = [(each["action"], each["relation"], each["rows"]) for each in log.get_topic("_audit").rows()]
        assert trail[-1] == ("expire", "shipping", 1)
        assert PurposeExpiry(log).run().complete
