"""Undo: inverse events in tables, conflicts, repetitions; against a table that a dict remembers."""

from __future__ import annotations

import datetime as dt
import random

import pytest

import headwater as hw
from headwater.errors import Misuse, UndoRefused, VersionConflict
from headwater.log.commits import undo as undo_module
from headwater.log.commits.undo import UndoScope, undo
from headwater.log.home import Log
from headwater.log.maintenance.compaction import compact_partition
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.table import declare_table
from headwater.testing import ManualClock
from tests.unit.weighted_rows import thorough

BOT = hw.Metadata(actor="bot")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def log(tmp_path, clock):
    with Log(tmp_path / "home", clock=clock, maintenance_interval=None) as found:
        yield found


def moment(clock) -> dt.datetime:
    return dt.datetime.fromtimestamp(clock.now_us() / 1_000_000, tz=dt.UTC)


class Span:
    """The changes inside a with block, as a scope."""

    def __init__(self, clock, **who) -> None:
        self.clock, self.who = clock, who

    def __enter__(self) -> Span:
        self.clock.advance(1)
        self.since = moment(self.clock)
        self.clock.advance(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.clock.advance(1)
        self.scope = UndoScope(self.since, moment(self.clock), **self.who)


def contents(table) -> list[dict]:
    return sorted(table.rows(), key=repr)


def test_keys_get_the_row_back_that_they_had_before(log, clock):
    users = declare_table(log, "users", "id BIGINT, country STRING", key="id", partitions=3)
    users.upsert([{"id": n, "country": "DE"} for n in range(4)])
    with Span(clock, actor="bot") as span:
        users.upsert([{"id": 0, "country": "X"}, {"id": 9, "country": "X"}], metadata=BOT)
        users.upsert([{"id": 0, "country": "Y"}], metadata=BOT)
        users.delete([{"id": 1}], metadata=BOT)
        users.upsert([{"id": 2, "country": "FR"}])  # somebody else's

    report = undo(log, ["users"], span.scope, by="anna")

    assert contents(users) == [{"id": n, "country": "FR" if n == 2 else "DE"} for n in range(4)]
    assert report.events == 4
    assert sorted((change.action, change.row["id"], change.events) for change in report.changes) == [
        ("delete", 9, 1),
        ("upsert", 0, 2),
        ("upsert", 1, 1),
    ]
    written = [row for row in users.topic.rows(columns=["id", "_actor", "_causation_id"]) if row["_causation_id"]]
    assert {(row["_actor"], row["_causation_id"]) for row in written} == {("anna", report.id)}


def test_a_repeated_undo_is_recognised(log, clock):
    users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
    with Span(clock, actor="bot") as span:
        users.upsert([{"id": 1, "country": "X"}], metadata=BOT)

    first, again = undo(log, ["users"], span.scope), undo(log, ["users"], span.scope)
    with log.catalog.write() as db:  # seven days later the id is forgotten; the events still say it
        db.execute("DELETE FROM request_ids")
    later = undo(log, ["users"], span.scope)

    assert again.repeated
    assert again.token == first.token
    assert (later.changes, later.conflicts) == ((), ())
    assert users.topic.end_offsets() == {0: 2}


def test_a_key_that_somebody_else_changed_is_left_or_forced(log, clock):
    users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
    users.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "DE"}])
    with Span(clock, actor="bot") as span:
        users.upsert([{"id": 1, "country": "X"}, {"id": 2, "country": "X"}], metadata=BOT)
    users.upsert([{"id": 1, "country": "AT"}], metadata=hw.Metadata(actor="anna"))

    told = undo(log, ["users"], span.scope, dry_run=True)
    left = undo(log, ["users"], span.scope)

    assert told.changes == left.changes
    assert told.conflicts == left.conflicts
    assert told.token is None
    assert [conflict.reason for conflict in left.conflicts] == ['changed since, at users[0]@4 by actor "anna"']
    assert contents(users) == [{"id": 1, "country": "AT"}, {"id": 2, "country": "DE"}]

    undo(log, ["users"], span.scope, force=True)

    assert contents(users) == [{"id": 1, "country": "DE"}, {"id": 2, "country": "DE"}]


def test_a_change_between_the_look_and_the_commit_refuses_all_of_it(log, clock, monkeypatch):
    users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
    with Span(clock, actor="bot") as span:
        users.upsert([{"id": 1, "country": "X"}, {"id": 2, "country": "X"}], metadata=BOT)
    write = undo_module._write

    def late(*arguments):
        users.upsert([{"id": 2, "country": "AT"}])
        write(*arguments)

    monkeypatch.setattr(undo_module, "_write", late)

    with pytest.raises(VersionConflict, match='id=2 of "users" has version 3; expected was 2'):
        undo(log, ["users"], span.scope)
    assert contents(users) == [{"id": 1, "country": "X"}, {"id": 2, "country": "AT"}]


def test_a_producer_is_told_from_others(log, clock):
    users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
    with Span(clock, producer="importer") as span:
        users.topic.append([{"id": 1, "country": "X"}], producer="importer", sequence=0)
        users.topic.append([{"id": 2, "country": "X"}], producer="exporter", sequence=0)
    users.topic.append([{"id": 3, "country": "X"}], producer="importer", sequence=1)  # later

    undo(log, ["users"], span.scope)

    assert [row["id"] for row in contents(users)] == [2, 3]


def test_several_tables_are_undone_together(log, clock):
    users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
    basket = declare_table(log, "basket", "fruit STRING")
    basket.insert([{"fruit": "apple"}] * 2)
    with Span(clock, actor="bot") as span:
        users.upsert([{"id": 1, "country": "X"}], metadata=BOT)
        basket.insert([{"fruit": "pear"}, {"fruit": "apple"}], metadata=BOT)

    report = undo(log, ["users", "basket"], span.scope)

    assert (contents(users), contents(basket)) == ([], [{"fruit": "apple"}] * 2)
    assert set(report.token.frontier) == {"users", "basket"}


def test_rows_of_a_multiset_that_are_gone_are_conflicts(log, clock):
    basket = declare_table(log, "basket", "fruit STRING")
    basket.insert([{"fruit": "fig"}])
    with Span(clock, actor="bot") as span:
        basket.insert([{"fruit": "apple"}] * 3, metadata=BOT)
        basket.delete([{"fruit": "fig"}], metadata=BOT)
    basket.delete([{"fruit": "apple"}])

    report = undo(log, ["basket"], span.scope)

    assert [conflict.reason for conflict in report.conflicts] == [
        "1 of 3 equal rows are not there any more: somebody has deleted them"
    ]
    assert contents(basket) == [{"fruit": "apple"}] * 2 + [{"fruit": "fig"}]

    undo(log, ["basket"], span.scope, force=True)

    assert contents(basket) == [{"fruit": "fig"}]


def test_a_row_before_that_compaction_took_is_not_guessed(log, clock):
    users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
    users.upsert([{"id": 1, "country": "DE"}, {"id": 2, "country": "DE"}])
    with Span(clock, actor="bot") as span:
        users.upsert([{"id": 1, "country": "X"}], metadata=BOT)
    seal_partition(users.topic, 0)
    if not users.topic.settings.compact:
        users.topic.change_settings(compact=True)
    compact_partition(users.topic, 0, force=True)
    assert [row["id"] for row in users.topic.rows()] == [2, 1]

    report = undo(log, ["users"], span.scope, force=True)

    assert [conflict.reason for conflict in report.conflicts] == [
        "the row before it is not in the log any more: retention or compaction has taken it"
    ]
    assert report.changes == ()


def test_what_cannot_be_undone_is_refused_with_what_to_do(log, clock):
    log.topic("clicks", "page STRING").append([{"page": "a"}])
    users = declare_table(log, "users", "id BIGINT, country STRING", key="id")
    users.topic.append([{"id": 1, "country": "X"}], producer="importer", sequence=0)
    now = moment(clock)
    hour = UndoScope(now - dt.timedelta(hours=1), now + dt.timedelta(hours=1), actor="bot")

    with pytest.raises(UndoRefused, match='topic "clicks" has no key: its rows are events'):
        undo(log, ["clicks"], hour)
    with pytest.raises(Misuse, match="an undo is about somebody's changes"):
        undo(log, ["users"], UndoScope(hour.since, hour.until))
    with pytest.raises(Misuse, match="is empty"):
        undo(log, ["users"], UndoScope(hour.until, hour.since, actor="bot"))
    with pytest.raises(Misuse, match='no producer "import" has written to users') as refused:
        undo(log, ["users"], UndoScope(hour.since, hour.until, producer="import"))
    assert "importer" in refused.value.hint
    assert undo(log, ["users"], hour).changes == ()


@pytest.mark.parametrize("seed", range(thorough(3)))
def test_a_table_is_as_if_the_changes_had_never_been(log, clock, seed):
    """Where nobody else touches the keys: the table without the bot's changes, whatever they were."""
    chance = random.Random(seed)
    users = declare_table(log, "users", "id BIGINT, n BIGINT", key="id", partitions=2)
    without: dict[int, int] = {}
    taken = set(chance.sample(range(12), 6))  # the bot's; nobody else changes them once the bot may
    scope = None
    for round_number in range(3):
        span = Span(clock, actor="bot")
        with span:
            for number in range(30):
                by_bot = round_number == 1 and chance.random() < 0.6
                keys = sorted(taken) if by_bot else [key for key in range(12) if round_number == 0 or key not in taken]
                key, meta = chance.choice(keys), BOT if by_bot else None
                if chance.random() < 0.3:
                    users.delete([{"id": key}], metadata=meta)
                    without.pop(key, None) if not by_bot else None
                else:
                    users.upsert([{"id": key, "n": number}], metadata=meta)
                    without.update({} if by_bot else {key: number})
        scope = span.scope if round_number == 1 else scope

    report = undo(log, ["users"], scope)

    assert report.conflicts == ()
    assert {row["id"]: row["n"] for row in users.rows()} == without
