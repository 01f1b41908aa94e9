"""Alert: told once when a row begins to satisfy the rule, by mail, by request, or to a function."""

from __future__ import annotations

from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from headwater.log.home import Log
from headwater.sinks import Alert, Email, Webhook
from headwater.sinks.runner.sink_status import SinkState
from headwater.sinks.runner.sink_task import SinkTask
from headwater.testing.local_server import free_port
from tests.services.sinks.receiver import Receiver
from tests.services.sinks.synthetic import SyntheticView


class Post:
    """A mail server that keeps what it gets."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.refuse = ""

    async def handle_DATA(self, _: Any, __: Any, envelope: Any) -> str:
        if self.refuse:
            return self.refuse
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 OK"


@pytest.fixture
def post() -> Iterator[tuple[Post, Email]]:
    post = Post()
    controller = Controller(post, hostname="127.0.0.1", port=free_port())
    controller.start()
    yield post, Email("127.0.0.1", sender="app@example.com", to=["ops@example.com"], port=controller.port)
    controller.stop()


@pytest.fixture
def rates() -> SyntheticView:
    view = SyntheticView("country STRING, rate DOUBLE, price DECIMAL(20,2)", key=("country",))
    view.change([row("DE", 0.01), row("FR", 0.09)])
    return view


def row(country: str, rate: float | None) -> dict[str, Any]:
    return {"country": country, "rate": rate, "price": None}


def test_a_key_is_told_of_once_until_it_stops_to_satisfy_the_rule(rates: SyntheticView, log: Log) -> None:
    told: list[tuple[str, int]] = []
    alert = Alert("rate > 0.05", to=lambda alert: told.append((alert["key"], alert["tick"])))
    task = SinkTask("alert", "rates", "app", alert, rates, log)
    task.catch_up()

    for add in ([row("DE", 0.06)], [row("DE", 0.07)], [row("DE", None)], [row("DE", 0.08)], [row("IT", 0.5)]):
        rates.change(add)
        task.catch_up()
    rates.change(remove=[row("IT", 0.5)])
    task.catch_up()
    rates.change([row("IT", 0.5)])
    task.catch_up()

    assert told == [("FR", 2), ("DE", 3), ("DE", 6), ("IT", 7), ("IT", 9)]


def test_a_full_copy_tells_only_what_is_new(rates: SyntheticView, log: Log) -> None:
    told: list[str] = []
    alert = Alert("rate > 0.05", to=lambda alert: told.append(alert["key"]))
    SinkTask("alert", "rates", "app", alert, rates, log).catch_up()
    rates.change([row("IT", 0.5)])
    rates.forget()

    SinkTask("alert", "rates", "app", alert, rates, log).catch_up()

    assert told == ["FR", "IT"]


def test_somebody_gets_a_mail(rates: SyntheticView, log: Log, post: tuple[Post, Email]) -> None:
    server, email = post
    task = SinkTask("alert", "rates", "app", Alert("rate > 0.05", to=email), rates, log)

    task.catch_up()
    rates.change([row("DE", 0.5), row("IT", 0.6)])
    task.catch_up()

    one, two = server.mails
    assert (one["Subject"], one["From"], one["To"]) == (
        "app: rates: rate > 0.05 (FR)",
        "app@example.com",
        "ops@example.com",
    )
    assert one.get_content().replace("\r", "") == 'FR: {"country":"FR","rate":0.09,"price":null}\n\nSince tick 2.\n'
    assert two["Subject"] == "app: rates: rate > 0.05 (2 rows)"


def test_a_mail_that_is_not_taken_is_tried_again(rates: SyntheticView, log: Log, post: tuple[Post, Email]) -> None:
    server, email = post
    server.refuse = "451 try again later"
    task = SinkTask("alert", "rates", "app", Alert("rate > 0.05", to=email), rates, log)

    away = task.catch_up()
    server.refuse = ""
    back = task.catch_up()

    assert (away.state, back.state, len(server.mails)) == (SinkState.RETRYING, SinkState.FOLLOWING, 1)


def test_a_webhook_is_told_too(rates: SyntheticView, log: Log) -> None:
    receiver = Receiver(secret="s")
    bodies: list[Any] = []
    receiver.take = lambda body, _: bodies.append(body) or 204  # type: ignore[method-assign, assignment, func-returns-value]
    alert = Alert("rate > 0.05", to=Webhook(receiver.url, secret="s"))

    SinkTask("alert", "rates", "app", alert, rates, log).catch_up()
    receiver.stop()

    assert len(bodies) == 1
    assert b'"key":"FR"' in bodies[0]


def test_a_rule_that_cannot_be_read_stops_the_sink(rates: SyntheticView, log: Log) -> None:
    status = SinkTask("alert", "rates", "app", Alert("speed > 1", to=print), rates, log).catch_up()

    assert status.state is SinkState.STOPPED
    assert status.error is not None
    assert status.error["message"] == "the rule 'speed > 1' is invalid: no such column: speed"
