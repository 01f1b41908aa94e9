"""Webhook: signed, in order, once as far as the receiver looks, and what is refused is kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.log.home import Log
from headwater.sinks import Webhook
from headwater.sinks.runner.sink_status import SinkState
from headwater.sinks.runner.sink_task import SinkTask
from tests.services.sinks.receiver import Receiver
from tests.services.sinks.synthetic import SyntheticView


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver(secret="s3cret")
    yield receiver
    receiver.stop()


@pytest.fixture
def view() -> SyntheticView:
    view = SyntheticView("id BIGINT, n INT")
    view.change([{"id": 1, "n": 1}, {"id": 2, "n": 1}])
    return view


def follower_of(view: SyntheticView, receiver: Receiver, log: Log, **settings: object) -> SinkTask:
    hook = Webhook(receiver.url, **{"secret": "s3cret", "tries": 2, **settings})  # type: ignore[arg-type]
    return SinkTask("hook", "counts", "app", hook, view, log)


def test_each_change_is_a_request_with_the_row_before_and_after(
    view: SyntheticView, receiver: Receiver, log: Log
) -> None:
    task = follower_of(view, receiver, log)
    task.catch_up()
    view.change(add=[{"id": 1, "n": 2}, {"id": 3, "n": 1}], remove=[{"id": 2}])
    task.catch_up()

    kinds = [(change["change"], change["before"], change["after"]) for change in receiver.requests]
    assert kinds[0] == ("reset", None, None)
    assert kinds[1:3] == [("insert", None, {"id": 1, "n": 1}), ("insert", None, {"id": 2, "n": 1})]
    assert sorted(kinds[3:], key=str) == sorted(
        [
            ("update", {"id": 1, "n": 1}, {"id": 1, "n": 2}),
            ("insert", None, {"id": 3, "n": 1}),
            ("delete", {"id": 2, "n": 1}, None),
        ],
        key=str,
    )
    assert {change["tick"] for change in receiver.requests[3:]} == {view.tick}
    assert set(receiver.seen.values()) == {1}


def test_the_changes_of_a_key_come_in_order_however_often_the_receiver_fails(
    view: SyntheticView, receiver: Receiver, log: Log
) -> None:
    task = follower_of(view, receiver, log)
    task.catch_up()
    failing = {"left": 0}

    def sometimes(_: object) -> int:
        failing["left"] = (failing["left"] + 1) % 3
        return 503 if failing["left"] else 200

    receiver.answer = sometimes
    for number in range(2, 8):
        view.change([{"id": 1, "n": number}, {"id": 2, "n": number}])
    for _ in range(40):
        task.catch_up()

    assert [change["after"]["n"] for change in receiver.requests[3:] if change["after"]["id"] == 1] == [*range(2, 8)]
    assert task.status.state is SinkState.FOLLOWING


def test_a_change_that_is_refused_is_kept_and_holds_nobody_up(
    view: SyntheticView, receiver: Receiver, log: Log
) -> None:
    receiver.answer = lambda change: 422 if (change["after"] or {}).get("id") == 1 else 204
    task = follower_of(view, receiver, log)

    status = task.catch_up()

    (dead,) = log.get_topic("hook.dead").rows()
    assert status.state is SinkState.FOLLOWING
    assert list(receiver.rows) == ['{"id":2,"n":1}']
    assert (dead["status"], dead["tick"]) == (422, view.tick)
    assert '"after":{"id":1,"n":1}' in dead["body"]


def test_a_wrong_secret_is_noticed_by_the_receiver(view: SyntheticView, receiver: Receiver, log: Log) -> None:
    follower_of(view, receiver, log, secret="guessed").catch_up()

    assert receiver.requests == []
    assert {row["status"] for row in log.get_topic("hook.dead").rows()} == {401}
