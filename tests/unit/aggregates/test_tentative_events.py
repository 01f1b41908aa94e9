"""Tentative events: confirmed, cancelled, or expired at their deadline.

What it is: reservations of the tests' bank, by a hand-driven clock.
Invariants: an event is settled once, and the settling is an event too.
Not here: the decorators' errors (``test_aggregate_class.py``). Read next: ``aggregates/tentative_deadlines.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.aggregates import AggregateRepository, Rejected
from headwater.testing.manual_clock import ManualClock
from tests.unit.aggregates.bank import Account, repository


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def accounts(tmp_path: Path, clock: ManualClock) -> AggregateRepository:
    made = repository(tmp_path, clock=clock)
    made.send("7", "deposit", cents=10)
    made.send("7", "reserve", cents=6)
    return made


def money(accounts: AggregateRepository) -> tuple[int, int]:
    account = accounts.get("7")
    return account.cents, account.held


def test_a_reservation_holds_and_is_pending(accounts: AggregateRepository) -> None:
    [pending] = accounts.pending("7")

    assert money(accounts) == (4, 6)
    assert (pending.version, pending.type, pending.data) == (2, "reserved", {"cents": 6})
    assert pending.deadline.isoformat() == "2030-01-01T00:10:00+00:00"


def test_a_confirmed_one_stays_after_its_deadline(accounts: AggregateRepository, clock: ManualClock) -> None:
    accounts.confirm("7", 2, request_id="r-1")
    accounts.confirm("7", 2, request_id="r-1")
    clock.advance(3600)

    assert (accounts.expire(), money(accounts), accounts.pending("7")) == (0, (4, 0), [])
    with pytest.raises(Rejected, match="there is no tentative event 2 to be cancelled"):
        accounts.cancel("7", 2)


def test_a_cancelled_one_is_taken_back(accounts: AggregateRepository, tmp_path: Path, clock: ManualClock) -> None:
    accounts.cancel("7", 2)

    assert money(accounts) == (10, 0)
    assert money(repository(tmp_path, clock=clock)) == (10, 0)


def test_one_whose_deadline_passed_expires_before_the_next_command(
    accounts: AggregateRepository, clock: ManualClock
) -> None:
    clock.advance(601)

    outcome = accounts.send("7", "withdraw", cents=10)  # only possible with what was reserved

    assert [(each.type, each.at.isoformat()) for each in outcome.events] == [
        ("expired", "2030-01-01T00:10:00+00:00"),
        ("withdrawn", "2030-01-01T00:10:01+00:00"),
    ]
    assert money(accounts) == (0, 0)
    assert accounts.verify() == []


def test_a_rejected_command_still_lets_it_expire(accounts: AggregateRepository, clock: ManualClock) -> None:
    clock.advance(601)

    with pytest.raises(Rejected):
        accounts.send("7", "withdraw", cents=11, request_id="r-1")
    with pytest.raises(Rejected):
        accounts.send("7", "withdraw", cents=11, request_id="r-1")

    assert money(accounts) == (10, 0)
    assert [each.type for each in accounts.history("7")] == ["deposited", "reserved", "expired", "rejected"]
    assert accounts.verify() == []


def test_expiry_needs_no_command(accounts: AggregateRepository, tmp_path: Path, clock: ManualClock) -> None:
    assert accounts.expire() == 0
    clock.advance(600)
    others = repository(tmp_path, clock=clock)

    assert (others.expire(), others.expire(), accounts.expire()) == (1, 0, 0)
    assert money(accounts) == (10, 0)


def test_a_running_app_lets_them_expire(tmp_path: Path) -> None:
    class Quick(Account):
        pass

    app = hw.App("bank", home=tmp_path)
    accounts = app.aggregate("account", Quick)
    method = accounts.declared.events["reserved"]
    before, method.tentative_us = method.tentative_us, 1000
    try:
        accounts.send("7", "deposit", cents=10)
        token = accounts.send("7", "reserve", cents=6).token
    finally:
        method.tentative_us = before
    services = app._services
    services.start(None)
    try:
        assert accounts.store.topic.wait(token.frontier["account"], timeout="30 seconds")
    finally:
        services.stop()

    assert accounts.get("7").cents == 10
    app.close()
