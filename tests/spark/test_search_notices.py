"""Stored searches told by mail and by webhook: the view of the matches under the sinks that every view has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller

import headwater as hw
from headwater.testing.local_server import free_port
from tests.services.sinks.receiver import Receiver
from tests.services.sinks.test_alert import Post
from tests.waiting import eventually


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver(secret="s3cret")
    yield receiver
    receiver.stop()


@pytest.fixture
def post() -> Iterator[tuple[Post, int]]:
    post = Post()
    controller = Controller(post, hostname="127.0.0.1", port=free_port())
    controller.start()
    yield post, controller.port
    controller.stop()


@pytest.mark.usefixtures("spark")
def test_a_match_is_told_once_by_mail_and_by_webhook_and_taken_back(
    tmp_path: Path, receiver: Receiver, post: tuple[Post, int]
) -> None:
    kept, port = post
    mail = hw.sinks.Email("127.0.0.1", sender="watch@example.com", to=["ada@example.com"], port=port)
    with hw.App("news", home=tmp_path) as app:
        articles = app.table("articles", "id BIGINT, title STRING", key="id")
        watch = app.searches("watch", over=articles, text=["title"])
        app.sink("watch", hw.sinks.Alert("search = 'rivers'", to=mail))
        app.sink("watch", hw.sinks.Webhook(receiver.url, secret="s3cret"))
        watch.put("rivers", "rivers AND NOT dry")
        every = watch.put("every", "*")
        app.tick()

        articles.upsert([{"id": 1, "title": "Two rivers rise"}, {"id": 2, "title": "A market"}])
        app.tick()
        articles.upsert([{"id": 1, "title": "Rivers run dry"}])
        app.tick()

        assert every.cost is not None
        assert "every document" in every.cost
        told = {("insert", "rivers", 1), ("insert", "every", 1), ("insert", "every", 2), ("delete", "rivers", 1)}
        eventually(lambda: told <= changes(receiver), seconds=60)
        assert {change for change in changes(receiver) if change[1] == "rivers"} == {
            each for each in told if each[1] == "rivers"
        }
        eventually(lambda: len(kept.mails) == 1, seconds=60)
        text = kept.mails[0].get_content()
        assert "rivers" in text
        assert "every" not in text


def changes(receiver: Receiver) -> set[tuple[str, str, int]]:
    rows = [(each["change"], each["after"] or each["before"]) for each in receiver.requests]
    return {(change, row["search"], row["document"]) for change, row in rows if row is not None}
