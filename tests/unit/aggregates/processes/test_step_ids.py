"""Ids of steps and requests: what no aggregate can be called, what must be given, and which ids never meet."""

import pytest

import headwater as hw
from headwater.aggregates import Rejected, step
from headwater.errors import Misuse, RowRefused
from tests.unit.aggregates.processes.transfer_bank import REQUEST, declare


@pytest.fixture
def app(tmp_path):
    with hw.App("bank", home=tmp_path / "home") as app:
        yield app


@pytest.fixture
def bank(app):
    accounts, transfer = declare(app)
    accounts.send("a", "deposit", cents=100)
    return accounts, transfer


def move(cents, target):
    return {"source": "a", "target": target, "cents": cents}


@pytest.mark.parametrize("target", [None, ""])
def test_a_step_for_an_id_that_nobody_can_have_fails_and_nobody_is_paid(app, bank, target):
    accounts, transfer = bank

    handle = app.request("transfer", move(30, target=target), request_id="t-1")
    transfer.drain()

    assert (handle.get().status, handle.get().reason) == ("failed", f"account cannot have the id {target!r}")
    assert [each.status for each in handle.get().steps] == ["compensated"]
    assert (list(accounts.ids()), accounts.get("a").cents) == (["a"], 100)


@pytest.mark.parametrize("id", [None, "", True, 7.0, b"7"])
def test_a_step_takes_no_other_ids_than_a_command_does(bank, id):
    accounts, _ = bank

    with pytest.raises(Misuse, match="account cannot have the id") as sent:
        accounts.send(id, "deposit", cents=1)
    with pytest.raises(Rejected) as rejected:
        step(accounts, id, "deposit", cents=1)

    assert rejected.value.message == sent.value.message
    assert step(accounts, 7, "deposit", cents=1).id == "7"


def test_a_column_of_a_request_that_is_not_null_is_asked_for_before_anything_is_written(app, bank):
    accounts, _ = bank

    @app.process("pay", request="target STRING NOT NULL, cents BIGINT")
    def pay(request):
        yield step(accounts, request["target"], "deposit", cents=request["cents"])

    for request in ({"cents": 1}, {"target": None, "cents": 1}):
        with pytest.raises(RowRefused, match="target"):
            app.request("pay", request)
    with pytest.raises(RowRefused, match="target"):
        pay.from_json({"cents": 1})

    assert list(pay.requests()) == []


def test_tries_to_take_a_step_back_share_no_id_with_steps_of_an_odd_request(app, bank):
    """The second try for step 0 of "t-1", and step 2 of a request that is named like it."""
    accounts, _ = bank

    @app.process("stop", request=REQUEST)
    def stop(request):
        if request["target"] != "x":
            for _ in range(3):
                yield step(accounts, "a", "deposit", cents=1)
            return
        yield step(accounts, "a", "withdraw", cents=1, undo=("deposit", {"cents": 1}))
        yield step(accounts, "a", "close")
        yield step(accounts, "b", "withdraw", cents=1)

    app.request("stop", move(1, target="x"), request_id="t-1")
    stop.drain()
    accounts.send("a", "open")
    stop.retry("t-1")
    stop.drain()
    app.request("stop", move(1, target="y"), request_id="t-1/0/undo")
    stop.drain()

    assert [stop.get(each).status for each in ("t-1", "t-1/0/undo")] == ["failed", "finished"]
    assert accounts.get("a").cents == 103
