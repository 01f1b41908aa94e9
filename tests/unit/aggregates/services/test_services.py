"""Services by a function: each request answered once, keys in order, nothing late."""

import sys
import threading
import time

import pytest

import headwater as hw
from headwater.aggregates import Rejected
from headwater.errors import (
    InvalidDeclaration,
    RequestConflict,
    RequestExpired,
    RowRefused,
    ServiceFailed,
    TimedOut,
    Unavailable,
    UnknownAggregate,
)
from headwater.log.home import Log
from headwater.testing import ManualClock

ITEM = {"item": "cup", "amount": 3}


@pytest.fixture
def app(tmp_path):
    with hw.App("shop", home=tmp_path / "home") as app:
        yield app


def declare(app, function, **settings):
    given = {"request": "item STRING, amount BIGINT", "reply": "cents BIGINT", "key": "item", **settings}
    return app.service("quote", **given)(function), app.answering["quote"]


def price(request):
    return {"cents": 250 * request["amount"]}


def replies(app):
    return [(row["request_id"], row["status"], row["cents"]) for row in app.get_topic("quote_replies").rows()]


def test_a_request_is_answered_and_repeated_it_gets_the_first_reply(app):
    prices = iter([250, 300])
    _, answering = declare(app, lambda request: {"cents": next(prices) * request["amount"]})

    with answering:
        first = app.ask("quote", ITEM, request_id="q-1", timeout="30 seconds")
        again = app.ask("quote", ITEM, request_id="q-1", timeout="20 seconds")  # another deadline, the same question
        other = app.ask("quote", ITEM, request_id="q-2", timeout="30 seconds")

    assert (first, again, other) == ({"cents": 750}, {"cents": 750}, {"cents": 900})
    assert sorted(replies(app)) == [("q-1", "done", 750), ("q-2", "done", 900)]
    with pytest.raises(RequestConflict):
        app.ask("quote", {"item": "cup", "amount": 4}, request_id="q-1")


def test_a_function_that_raises_gives_an_error_and_others_go_on(app):
    def poisoned(request):
        if request["item"] == "poison":
            raise ZeroDivisionError("no such thing")
        if request["item"] == "gold":
            raise Rejected("not for sale", item="gold")
        return price(request)

    service, answering = declare(app, poisoned)
    ids = [service.post({"item": item, "amount": 1}, timeout="1 minute") for item in ("poison", "gold", "cup")]
    answering.drain()

    with pytest.raises(ServiceFailed, match="ZeroDivisionError: no such thing"):
        service.wait(ids[0]).value()
    with pytest.raises(Rejected, match="not for sale") as raised:
        service.wait(ids[1]).value()
    assert raised.value.data == {"item": "gold"}
    assert service.wait(ids[2]).value() == {"cents": 250}


def test_a_function_that_leaves_python_gives_an_error_and_others_are_answered(app):
    """``sys.exit()`` would end the thread that answers all."""

    def poisoned(request):
        return sys.exit(3) if request["item"] == "poison" else price(request)

    service, answering = declare(app, poisoned)
    ids = [service.post({"item": item, "amount": 1}, timeout="1 hour") for item in ("poison", "cup")]
    with answering:
        found = [service.wait(id, "10 minutes") for id in ids]

    assert [(each.status, each.reason) for each in found] == [("error", "SystemExit: 3"), ("done", None)]


def test_columns_that_are_not_null_are_asked_for(app):
    settings = {"request": "item STRING, amount BIGINT NOT NULL", "reply": "cents BIGINT NOT NULL"}
    service, answering = declare(app, lambda request: {"cents": request["amount"] or None}, **settings)

    with pytest.raises(RowRefused, match="amount"):
        service.post({"item": "cup"})
    with pytest.raises(RowRefused, match="amount"):
        service.from_json({"item": "cup", "amount": None})
    ids = [service.post({"item": "cup", "amount": amount}, timeout="1 hour") for amount in (0, 3)]
    answering.drain()

    with pytest.raises(ServiceFailed, match='replies no value of "cents", which is NOT NULL'):
        service.wait(ids[0]).value()
    assert service.wait(ids[1]).value() == {"cents": 3}


def test_a_reply_that_does_not_fit_is_an_error(app):
    service, answering = declare(app, lambda _: {"cents": "many"})
    id = service.post(ITEM, timeout="1 minute")
    answering.drain()

    with pytest.raises(ServiceFailed, match='column "cents"'):
        service.wait(id).value()


def test_what_has_expired_is_answered_so_and_its_function_is_not_called(app):
    called = []
    service, answering = declare(app, lambda request: called.append(request))
    id = service.post(ITEM, timeout="10 milliseconds")
    time.sleep(0.02)
    answering.drain()

    with pytest.raises(RequestExpired):
        service.wait(id).value()
    assert called == []
    with pytest.raises(RequestExpired):
        app.ask("quote", ITEM, request_id=id)


def test_a_reply_that_comes_late_is_not_given_and_what_it_wrote_is_not_kept(app):
    notes = app.topic("notes", "item STRING")

    def slow(request, context):
        context.transaction.append(notes, [{"item": request["item"]}])
        time.sleep(0.1)
        return {"cents": 1}

    service, answering = declare(app, slow)
    id = service.post(ITEM, timeout="50 milliseconds")
    answering.drain()

    assert service.reply_of(id).status == "expired"
    assert list(notes.rows()) == []


def test_what_a_function_writes_is_there_with_its_reply(app):
    stock = app.table("stock", "item STRING, sold BIGINT", key="item")

    def sell(request, context):
        sold = sum(row["sold"] for row in stock.get(request["item"])) + request["amount"]
        context.transaction.upsert(stock, [{"item": request["item"], "sold": sold}])
        return {"cents": sold}

    service, answering = declare(app, sell)
    ids = [service.post({"item": "cup", "amount": 1}, timeout="1 minute") for _ in range(5)]
    answering.drain()

    assert [service.reply_of(id).value()["cents"] for id in ids] == [1, 2, 3, 4, 5]
    assert stock.get("cup") == [{"item": "cup", "sold": 5}]


def test_requests_of_a_key_are_answered_one_at_a_time_in_order_by_many_workers(tmp_path, app):
    busy, log, lock = set(), [], threading.Lock()

    def answer(request):
        with lock:
            assert request["item"] not in busy
            busy.add(request["item"])
        time.sleep(0.002)
        with lock:
            busy.discard(request["item"])
            log.append((request["item"], request["amount"]))
        return {"cents": request["amount"]}

    service, answering = declare(app, answer, workers=3)
    with hw.App("shop", home=tmp_path / "home") as second:
        _, others = declare(second, answer, workers=2)
        with answering, others:
            ids = [service.post({"item": f"i{n % 3}", "amount": n}, timeout="2 minutes") for n in range(30)]
            found = [service.wait(id, "2 minutes") for id in ids]

    assert [reply.value()["cents"] for reply in found] == list(range(30))
    for key in range(3):
        assert [amount for item, amount in log if item == f"i{key}"] == list(range(key, 30, 3))


def test_a_request_that_ends_its_processes_is_answered_with_an_error(app):
    service, answering = declare(app, price)
    id = service.post(ITEM, timeout="1 minute")
    for _ in range(5):
        worker = answering.worker()
        [message] = worker.take(1, timeout=5)
        worker.close()  # as if its lease had run out with its process

    answering.drain()

    assert message.deliveries == 5
    assert service.reply_of(id).status == "error"
    assert "5 processes that were to answer it have ended" in service.reply_of(id).reason


@pytest.mark.parametrize("stale_first", [True, False])
def test_one_whose_lease_is_lost_writes_nothing(tmp_path, stale_first):
    clock = ManualClock()
    with hw.App("shop", home=tmp_path / "home") as app:
        app._log = Log(tmp_path / "home", clock=clock, maintenance_interval=None)
        service, answering = declare(app, price, lease="1 minute")
        id = service.post(ITEM, timeout="1 hour")
        slow, quick = answering.worker(), answering.worker()
        [stale] = slow.take(1, timeout=0)
        clock.advance(61)
        [fresh] = quick.take(1, timeout=0)

        for message in (stale, fresh) if stale_first else (fresh, stale):
            answering.answer(message)

        assert [row["request_id"] for row in app.get_topic("quote_replies").rows()] == [id]


def test_what_may_work_later_is_tried_again_before_its_deadline(app):
    tries = []

    def busy(request):
        tries.append(1)
        if len(tries) < 3:
            raise Unavailable("not now")
        return price(request)

    _, answering = declare(app, busy)
    with answering:
        assert app.ask("quote", ITEM, timeout="1 minute") == {"cents": 750}
    assert len(tries) == 3


def test_without_anybody_who_answers_the_asker_is_told(app):
    service, answering = declare(app, price)

    with pytest.raises(TimedOut, match="has not answered") as raised:
        app.ask("quote", ITEM, timeout="20 milliseconds", request_id="q-1")
    answering.drain()

    assert raised.value.data["request_id"] == "q-1"
    assert service.reply_of("q-1").status == "expired"


def test_a_group_that_is_set_back_answers_nothing_again(app):
    service, answering = declare(app, price)
    id = service.post(ITEM, timeout="1 minute")
    answering.drain()
    service.requests.group("quote").reset("earliest")

    answering.drain()

    assert [row["request_id"] for row in app.get_topic("quote_replies").rows()] == [id]


def test_what_makes_no_sense_is_refused_with_a_sentence(app):
    declare(app, price)
    with pytest.raises(RowRefused, match='column "amount"'):
        app.ask("quote", {"item": "cup", "amount": "three"})
    with pytest.raises(UnknownAggregate, match='Did you mean "quote"'):
        app.ask("quotes", ITEM)
    with pytest.raises(InvalidDeclaration, match='cannot have a column "status"'):
        app.service("odd", request="a INT", reply="status STRING")(price)
    with pytest.raises(InvalidDeclaration, match='the key "b", which is no column'):
        app.service("odd", request="a INT", reply="c INT", key="b")(price)
