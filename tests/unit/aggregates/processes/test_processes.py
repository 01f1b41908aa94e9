"""Processes: each step once, one end for each request, what was done is taken back."""

import sys
import threading

import pytest

import headwater as hw
from headwater.aggregates import Rejected, command, event, step
from headwater.aggregates.processes.process_runner import ProcessRunner
from headwater.errors import (
    CommandFailed,
    InvalidDeclaration,
    ProcessDiverged,
    ProcessFailed,
    RequestConflict,
    RowRefused,
    TimedOut,
    UnknownAggregate,
    UnknownRequest,
)
from tests.unit.aggregates.processes.transfer_bank import REQUEST, Account, declare


@pytest.fixture
def app(tmp_path):
    with hw.App("bank", home=tmp_path / "home") as app:
        yield app


@pytest.fixture
def bank(app):
    accounts, transfer = declare(app)
    accounts.send("a", "deposit", cents=100)
    return accounts, transfer


def move(cents, source="a", target="b"):
    return {"source": source, "target": target, "cents": cents}


def types(history):
    return [event.type for event in history]


def alerts(app):
    rows = app.get_topic("_alerts").rows() if app.log.find_topic("_alerts") else ()
    return [(row["kind"], row["state"], row["message"]) for row in rows]


def test_a_request_is_one_event_and_its_steps_happen_once(app, bank):
    accounts, transfer = bank

    handle = app.request("transfer", move(30), request_id="t-1")
    before = handle.get()
    transfer.drain()
    transfer.drain()

    assert (before.status, before.steps) == ("running", ())
    found = handle.wait()
    assert (found.status, found.result, [each.status for each in found.steps]) == (
        "finished",
        {"moved": 30},
        ["done", "done"],
    )
    assert (accounts.get("a").cents, accounts.get("b").cents) == (70, 30)
    assert types(transfer.history("t-1")) == ["started", "scheduled", "step_done", "step_done", "finished"]
    assert [event.request_id for event in accounts.history("b")] == ["transfer/t-1/1"]
    assert accounts.history("b")[0].metadata.correlation_id == "t-1"


def test_a_repeated_request_is_recognised_and_another_one_under_its_id_is_refused(app, bank):
    _, transfer = bank
    app.request("transfer", move(30), request_id="t-1")
    transfer.drain()

    again = app.request("transfer", move(30), request_id="t-1")

    assert again.repeated
    assert again.wait().status == "finished"
    with pytest.raises(RequestConflict):
        app.request("transfer", move(31), request_id="t-1")


def test_a_rejected_step_takes_the_ones_before_it_back_in_reverse_order(app, bank):
    accounts, _ = bank
    accounts.send("x", "close")

    @app.process("tour", request=REQUEST)
    def tour(_):
        for target in ("b", "c", "x"):
            yield step(accounts, "a", "withdraw", cents=1, undo=("deposit", {"cents": 1}))
            yield step(accounts, target, "deposit", cents=1, undo=("withdraw", {"cents": 1}))

    handle = app.request("tour", move(1), request_id="t-1")
    tour.drain()

    found = handle.get()
    assert (found.status, found.reason) == ("failed", "the account is closed")
    assert [each.status for each in found.steps] == ["compensated"] * 5 + ["rejected"]
    undone = [event.data["number"] for event in tour.history("t-1") if event.type == "compensated"]
    assert undone == [4, 3, 2, 1, 0]
    assert [accounts.get(each).cents for each in "abc"] == [100, 0, 0]


def test_a_rejection_is_told_with_its_data(app, bank):
    _, transfer = bank

    handle = app.request("transfer", move(130))
    transfer.drain()

    found = handle.get()
    assert (found.status, found.reason, found.details) == ("failed", "no funds", {"missing": 30})
    assert [each.status for each in found.steps] == ["rejected"]


def test_a_function_may_catch_a_rejection_and_go_another_way(app, bank):
    accounts, _ = bank
    accounts.send("b", "close")

    @app.process("pay", request=REQUEST)
    def pay(request):
        yield step(accounts, request["source"], "withdraw", cents=request["cents"])
        try:
            done = yield step(accounts, request["target"], "deposit", cents=request["cents"])
        except Rejected as error:
            done = yield step(accounts, "unclaimed", "deposit", cents=request["cents"])
            return {"where": "unclaimed", "because": error.message, "cents": done.data["cents"]}

    handle = app.request("pay", move(30))
    pay.drain()

    assert handle.get().result == {"where": "unclaimed", "because": "the account is closed", "cents": 30}
    assert [each.status for each in handle.get().steps] == ["done", "rejected", "done"]


def test_a_function_that_rejects_by_itself_fails_and_is_taken_back(app, bank):
    accounts, _ = bank

    @app.process("check", request=REQUEST)
    def check(_):
        done = yield step(accounts, "a", "withdraw", cents=1, undo=("deposit", {"cents": 1}))
        raise Rejected("not today", seen=done.data["cents"])

    handle = app.request("check", move(1))
    check.drain()

    assert (handle.get().status, handle.get().reason, handle.get().details) == ("failed", "not today", {"seen": 1})
    assert accounts.get("a").cents == 100


def test_after_the_deadline_a_request_is_taken_back(tmp_path):
    with hw.App("bank", home=tmp_path / "home") as app:
        accounts, transfer = declare(app, deadline="20 milliseconds")
        accounts.send("a", "deposit", cents=100)
        handle = app.request("transfer", move(30), request_id="t-1")
        accounts.send("a", "withdraw", cents=30, request_id="transfer/t-1/0")  # its runner died before it noted this
        threading.Event().wait(0.05)

        transfer.drain()

        found = handle.get()
        assert (found.status, found.reason) == ("expired", "the deadline has passed")
        assert [each.status for each in found.steps] == ["compensated"]
        assert accounts.get("a").cents == 100


def test_a_step_that_a_slow_runner_sends_after_the_deadline_is_refused(app):
    """The zombie: it has looked at the clock in time, and sends the step when others have given the request up."""
    accounts, transfer = declare(app, deadline="20 milliseconds")
    accounts.send("a", "deposit", cents=100)
    app.request("transfer", move(30), request_id="t-1")
    threading.Event().wait(0.05)
    transfer.drain()

    with pytest.raises(Rejected, match="the deadline has passed"):
        accounts.send("a", "withdraw", cents=30, request_id="transfer/t-1/0")

    assert accounts.get("a").cents == 100
    assert transfer.get("t-1").status == "expired"
    assert accounts.verify() == []


def test_a_compensation_that_is_rejected_is_kept_told_and_tried_again(app, bank):
    accounts, _ = bank

    @app.process("stop", request=REQUEST)
    def stop(_):
        yield step(accounts, "a", "withdraw", cents=1, undo=("deposit", {"cents": 1}))
        yield step(accounts, "a", "close")
        yield step(accounts, "b", "withdraw", cents=1)

    handle = app.request("stop", move(1), request_id="t-1")
    stop.drain()

    found = handle.get()
    assert found.status == "stuck"
    assert found.reason.endswith("cannot be taken back: the account is closed")
    assert stop.open_ids() == []
    with pytest.raises(TimedOut, match="it is stuck"):
        handle.wait(timeout=0.01)
    assert [each[:2] for each in alerts(app)] == [("process", "begin")]
    assert 'request "t-1" of process "stop" is stuck' in alerts(app)[0][2]

    stop.retry("t-1")
    stop.drain()
    assert handle.get().status == "stuck"  # the account is still closed

    accounts.send("a", "open")
    stop.retry("t-1")
    stop.drain()
    assert handle.get().status == "failed"
    assert accounts.get("a").cents == 100
    assert [each[:2] for each in alerts(app)][-1] == ("process", "end")
    with pytest.raises(Rejected, match="it is failed, not stuck"):
        stop.retry("t-1")


def test_a_function_that_raises_is_told_and_tried_again_and_others_go_on(app, bank):
    accounts, _ = bank
    broken = True

    @app.process("divide", request=REQUEST)
    def divide(request):
        yield step(accounts, "a", "withdraw", cents=1, undo=("deposit", {"cents": 1}))
        share = 1 // (0 if broken and request["target"] == "bad" else 1)
        yield step(accounts, request["target"], "deposit", cents=share)

    app.request("divide", move(1, target="bad"), request_id="t-1")
    good = app.request("divide", move(1, target="good"), request_id="t-2")

    with pytest.raises(ProcessFailed, match="raised ZeroDivisionError"):
        divide.run_once()
    assert good.get().status == "finished"
    assert divide.get("t-1").status == "running"
    assert [each[:2] for each in alerts(app)] == [("process", "begin")]

    broken = False
    divide.drain()

    assert divide.get("t-1").status == "finished"
    assert accounts.get("a").cents == 98  # each withdrawn once
    assert [each[:2] for each in alerts(app)] == [("process", "begin"), ("process", "end")]


@pytest.mark.parametrize("where", ["function", "command", "event"])
def test_a_function_that_leaves_python_fails_alone_and_others_go_on(app, where):
    """``sys.exit()`` would end the thread that runs all requests."""

    class Box:
        @command
        def put(self, item: str):
            if (item, where) == ("bad", "command"):
                sys.exit(3)
            self.was_put(item)

        @event
        def was_put(self, item: str):
            if (item, where) == ("bad", "event"):
                sys.exit(3)

    boxes = app.aggregate("box", Box)

    @app.process("pack", request="item STRING")
    def pack(request):
        if (request["item"], where) == ("bad", "function"):
            sys.exit(3)
        yield step(boxes, request["item"], "put", item=request["item"])

    bad, good = (app.request("pack", {"item": item}, request_id=f"a {item} one") for item in ("bad", "good"))
    runner = ProcessRunner(pack)
    runner.start()
    try:
        assert good.wait("10 minutes").status == "finished"
    finally:
        runner.stop()

    with pytest.raises((ProcessFailed, CommandFailed), match="raised SystemExit"):
        pack.advance("a bad one")
    assert bad.get().status == "running"


def test_other_steps_on_replay_are_refused_with_both(app, bank):
    accounts, _ = bank
    runs = []

    @app.process("drift", request=REQUEST)
    def drift(_):
        runs.append(1)
        yield step(accounts, "a", "withdraw", cents=1)
        yield step(accounts, "b" if len(runs) == 1 else "c", "deposit", cents=1)
        raise RuntimeError("dies here")

    app.request("drift", move(1), request_id="t-1")
    with pytest.raises(ProcessFailed):
        drift.run_once()

    with pytest.raises(ProcessDiverged, match="yields another step 1") as raised:
        drift.run_once()

    assert '"b"' in raised.value.detail
    assert '"c"' in raised.value.detail
    assert accounts.get("c").cents == 0


def test_another_step_than_one_that_was_sent_and_not_noted_is_refused(app, bank):
    accounts, transfer = bank
    app.request("transfer", move(30), request_id="t-1")
    accounts.send("a", "withdraw", cents=31, request_id="transfer/t-1/0")  # by other code, whose runner died then

    with pytest.raises(ProcessDiverged, match="than was sent before"):
        transfer.run_once()

    assert [each[:2] for each in alerts(app)] == [("process", "begin")]
    assert transfer.get("t-1").status == "running"


def test_another_process_goes_on_where_one_has_died(tmp_path, app, bank):
    accounts, transfer = bank
    app.request("transfer", move(30), request_id="t-1")
    accounts.send("a", "withdraw", cents=30, request_id="transfer/t-1/0")  # sent, and its runner died

    with hw.App("bank", home=tmp_path / "home") as other:
        others, again = declare(other)
        assert again.drain() == 1
        assert (others.get("a").cents, others.get("b").cents) == (70, 30)

    assert transfer.get("t-1").status == "finished"
    assert transfer.open_ids() == []


def test_many_runners_at_once_do_each_step_once(tmp_path, app, bank):
    accounts, transfer = bank
    apps = [hw.App("bank", home=tmp_path / "home") for _ in range(3)]
    runners = [ProcessRunner(declare(each)[1]) for each in apps]
    runners.append(ProcessRunner(transfer))
    for runner in runners:
        runner.start()

    handles = [app.request("transfer", move(1, target=f"b{n % 3}"), request_id=f"t-{n}") for n in range(30)]
    handles.append(app.request("transfer", move(1000), request_id="too much"))
    ends = [handle.wait("10 minutes").status for handle in handles]

    for runner in runners:
        runner.stop()
    for each in apps:
        each.close()
    assert ends == ["finished"] * 30 + ["failed"]
    assert (accounts.get("a").cents, sum(accounts.get(f"b{n}").cents for n in range(3))) == (70, 30)
    ids = [row["request_id"] for row in app.get_topic("account").rows() if row["type"] != "rejected"]
    assert len(ids) == len(set(ids))


def test_claims_are_steps_too(app):
    names = app.claims("username")
    names.claim("taken", owner="somebody", request_id="r-0")

    @app.process("sign_up", request="name STRING, mail STRING")
    def sign_up(request, context):
        mine = {"owner": context.id, "id": context.id}
        yield step(names, request["name"], "claim", **mine, undo=("release", mine))
        yield step(names, request["mail"], "claim", **mine)

    app.request("sign_up", {"name": "ada", "mail": "taken"}, request_id="u-1")
    app.request("sign_up", {"name": "ada", "mail": "ada@example.org"}, request_id="u-2")
    sign_up.drain()

    assert [sign_up.get(each).status for each in ("u-1", "u-2")] == ["failed", "finished"]
    assert sign_up.get("u-1").details["owner"] == "somebody"
    assert names.owner("ada") == "u-2"


def test_what_a_function_draws_from_its_context_is_the_same_again(app, bank):
    accounts, _ = bank
    drawn = []

    @app.process("draw", request=REQUEST)
    def draw(_, context):
        drawn.append(context.new_id())
        yield step(accounts, drawn[-1], "deposit", cents=1)
        if len(drawn) == 1:
            raise RuntimeError("dies here")

    app.request("draw", move(1), request_id="t-1")
    with pytest.raises(ProcessFailed):
        draw.run_once()
    draw.drain()

    assert drawn[0] == drawn[1]


def test_requests_are_found_by_their_status(app, bank):
    _, transfer = bank
    app.request("transfer", move(30), request_id="t-1")
    app.request("transfer", move(300), request_id="t-2")
    transfer.drain()
    app.request("transfer", move(1), request_id="t-3")

    assert {found.request_id: found.status for found in transfer.requests()} == {
        "t-1": "finished",
        "t-2": "failed",
        "t-3": "running",
    }
    assert [found.request_id for found in transfer.requests("failed")] == ["t-2"]
    said = transfer.get("t-1").to_dict()
    assert (said["status"], said["steps"][0]["command"]) == ("finished", "withdraw")


def test_what_makes_no_sense_is_refused_with_a_sentence(app, bank):
    _, transfer = bank
    with pytest.raises(RowRefused, match='column "cents"'):
        app.request("transfer", {**move(1), "cents": "many"})
    with pytest.raises(UnknownAggregate, match='no process "transfr"'):
        app.request("transfr", move(1))
    with pytest.raises(UnknownRequest, match='no request "t-9"'):
        transfer.get("t-9")
    with pytest.raises(InvalidDeclaration, match="not declared by a generator function"):
        app.process("plain", request=REQUEST)(lambda _: None)
    with pytest.raises(InvalidDeclaration, match="1 to 100 characters"):
        app.request("transfer", move(1), request_id="x" * 101)
    with pytest.raises(InvalidDeclaration, match="not for Account"):
        step(Account(), "a", "deposit", cents=1)


def test_what_is_no_step_is_told(app):
    @app.process("odd", request=REQUEST)
    def odd(_):
        yield 7

    app.request("odd", move(1))

    with pytest.raises(ProcessFailed, match="yields int, which is no step"):
        odd.run_once()
