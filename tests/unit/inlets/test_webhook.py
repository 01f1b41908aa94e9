"""Webhooks over real sockets: who may post, what is taken, what the sender is told."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import headwater as hw
from headwater.inlets.inlet import Inlet
from headwater.log.home import Log
from headwater.log.topic import Topic
from headwater.testing import ManualClock

JSON = {"Content-Type": "application/json"}
SECRET = "it is a secret"


@dataclass(frozen=True)
class Reply:
    status: int
    document: dict[str, Any]
    headers: dict[str, str]

    @property
    def error(self) -> dict[str, Any]:
        assert set(self.document["error"]) == {"code", "message", "detail", "hint", "data"}
        return self.document["error"]


def post(
    inlet: Inlet, body: bytes | str, headers: dict[str, str] = JSON, method: str = "POST", path: str = ""
) -> Reply:
    assert inlet.address is not None
    where = urlsplit(inlet.address)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    try:
        connection.request(method, path or where.path, body, headers)
        answer = connection.getresponse()
        return Reply(answer.status, json.loads(answer.read()), dict(answer.getheaders()))
    finally:
        connection.close()


@pytest.fixture
def pushes(log: Log) -> Topic:
    return log.topic("pushes", "repository STRING, size INT, delivery STRING")


def opened(log: Log, topic: Topic, **options: Any) -> Inlet:
    return hw.inlets.Webhook(topic, path="/github", **options).open(log, "github")


def test_an_object_an_array_and_lines_become_rows(log: Log, pushes: Topic) -> None:
    lines = {"Content-Type": "application/x-ndjson; charset=utf-8"}
    with opened(log, pushes) as inlet:
        one = post(inlet, '{"repository": "a", "size": 1}')
        two = post(inlet, '[{"repository": "b"}, {"repository": "c"}]')
        three = post(inlet, '{"repository": "d"}\n{"repository": "e"}\n', lines)
        none = post(inlet, "[]")

    assert [each.status for each in (one, two, three, none)] == [202] * 4
    assert [each.document["rows"] for each in (one, two, three, none)] == [1, 2, 2, 0]
    assert [row["repository"] for row in pushes.rows()] == ["a", "b", "c", "d", "e"]
    assert inlet.counters == hw.inlets.Counters(received=4, appended=5)


@pytest.mark.parametrize(
    ("body", "headers", "status", "code", "sentence"),
    [
        ('{"size": "many"}', JSON, 400, "row_refused", "'many' is of type str, expected INT"),
        ('[{"size": 1}, {"sise": 2}]', JSON, 400, "row_refused", "sise"),
        ('{"size": 1', JSON, 400, "row_refused", "the body is not JSON"),
        ("", JSON, 400, "row_refused", "the body is empty"),
        (b"\xff\xfe", JSON, 400, "row_refused", "the body is not UTF-8"),
        ("7", JSON, 400, "row_refused", "neither an object nor an array"),
        ("[" * 100_000, JSON, 400, "row_refused", "the body is not JSON"),
        ('{"size": 1}', {"Content-Type": "text/plain"}, 415, "message_refused", 'content type "text/plain"'),
        ('{"size": 1}', {}, 415, "message_refused", "no content type"),
    ],
)
def test_what_does_not_fit_is_refused_in_our_shape_and_nothing_is_written(
    log: Log, pushes: Topic, body: str | bytes, headers: dict[str, str], status: int, code: str, sentence: str
) -> None:
    with opened(log, pushes) as inlet:
        reply = post(inlet, body, headers)

    assert (reply.status, reply.error["code"]) == (status, code)
    assert sentence in reply.error["message"]
    assert pushes.end_offsets() == {0: 0}
    assert inlet.counters == hw.inlets.Counters(received=1, refused=1)


def test_only_post_to_the_path_is_taken(log: Log, pushes: Topic) -> None:
    with opened(log, pushes) as inlet:
        elsewhere = post(inlet, "{}", path="/gitlab")
        got = post(inlet, "", method="GET")
        with_query = post(inlet, "{}", path="/github?from=here")

    assert (elsewhere.status, got.status, with_query.status) == (404, 405, 202)


def test_a_request_must_be_signed(log: Log, pushes: Topic) -> None:
    signature = hw.inlets.Signature.github(SECRET)
    body = b'{"size": 1}'
    wrong = hw.inlets.Signature.github("another secret").sign(body)

    with opened(log, pushes, secret=SECRET) as inlet:
        replies = [
            post(inlet, body, {**JSON, "X-Hub-Signature-256": signature.sign(body)}),
            post(inlet, body, {**JSON, "X-Hub-Signature-256": wrong}),
            post(inlet, body, JSON),
            post(inlet, b'{"size": 2}', {**JSON, "X-Hub-Signature-256": signature.sign(body)}),
            # Not parsed before it was checked: whoever has no secret learns nothing about the topic.
            post(inlet, b"not json", {**JSON, "X-Hub-Signature-256": wrong}),
        ]

    assert [reply.status for reply in replies] == [202, 401, 401, 401, 401]
    assert {reply.error["code"] for reply in replies[1:]} == {"message_refused"}
    assert SECRET not in json.dumps([reply.document for reply in replies]) + repr(inlet) + repr(signature)
    assert [row["size"] for row in pushes.rows()] == [1]


def test_a_request_that_was_signed_too_long_ago_is_refused(log: Log, pushes: Topic, clock: ManualClock) -> None:
    signature = hw.inlets.Signature.stripe(SECRET, tolerance=60)
    body = b'{"size": 1}'
    then = str(clock.now_us() // 1_000_000)
    headers = {**JSON, "Stripe-Signature": f"t={then},{signature.sign(body, timestamp=then)}"}
    forged = {**JSON, "Stripe-Signature": f"t={int(then) + 100},{signature.sign(body, timestamp=then)}"}

    with opened(log, pushes, signature=signature) as inlet:
        fresh = post(inlet, body, headers)
        clock.advance(100)
        replayed, moved = post(inlet, body, headers), post(inlet, body, forged)

    assert (fresh.status, replayed.status, moved.status) == (202, 401, 401)
    assert "signed 100 s ago, 60 are allowed" in replayed.error["message"]
    assert "not that of this body" in moved.error["message"]


def test_a_redelivery_is_answered_and_not_written_again_also_after_a_restart(tmp_path: Path) -> None:
    headers = {**JSON, "X-GitHub-Delivery": "72d3162e"}
    options: dict[str, Any] = {"id_header": "X-GitHub-Delivery", "id_column": "delivery"}
    statuses = []
    for _ in range(2):
        with Log(tmp_path) as log:
            topic = log.topic("pushes", "repository STRING, delivery STRING")
            with opened(log, topic, **options) as inlet:
                statuses += [post(inlet, '{"repository": "a"}', headers).status for _ in range(2)]
                counted = inlet.counters
            rows = list(topic.rows())

    assert statuses == [202, 200, 200, 200]
    assert counted.repeated == 2
    assert rows == [{"repository": "a", "delivery": "72d3162e"}]


def test_rows_may_have_ids_of_their_own(log: Log, pushes: Topic) -> None:
    with opened(log, pushes, id_header="X-Id", id_column="delivery") as inlet:
        replies = [
            post(inlet, '{"size": 1, "delivery": "a"}'),
            post(inlet, '[{"size": 1, "delivery": "a"}, {"size": 2, "delivery": "b"}]'),
            post(inlet, '{"size": 3, "delivery": "a"}', {**JSON, "X-Id": "c"}),  # the header counts
            post(inlet, '{"size": 4}'),
            post(inlet, '{"size": 4}'),  # without an id nothing is recognised
        ]

    assert [reply.status for reply in replies] == [202] * 5
    assert [(row["size"], row["delivery"]) for row in pushes.rows()] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (4, None),
        (4, None),
    ]


def test_what_the_headers_say_is_the_metadata_of_the_rows(log: Log, pushes: Topic) -> None:
    said = {"Headwater-Correlation-Id": "c-7", "Headwater-Actor": "anna", "Headwater-Causation-Id": "x" * 2000}
    with opened(log, pushes) as inlet:
        post(inlet, '[{"size": 1}, {"size": 2}]', {**JSON, **said})
        post(inlet, '{"size": 3}')

    columns = ["size", "_correlation_id", "_causation_id", "_actor"]
    assert [tuple(row.values()) for row in pushes.rows(columns=columns)] == [
        (1, "c-7", "x" * 1000, "anna"),
        (2, "c-7", "x" * 1000, "anna"),
        (3, None, None, None),
    ]


def test_a_body_over_the_limit_is_refused_before_it_is_read(log: Log, pushes: Topic) -> None:
    with opened(log, pushes, body_bytes_max=1000) as inlet:
        large = post(inlet, json.dumps({"repository": "x" * 3_000_000}))
        exact = post(inlet, json.dumps({"repository": "x" * 982}))

    assert (large.status, exact.status) == (413, 202)
    assert large.error["data"] == {"limit": 1000}


def test_a_body_without_a_length_is_refused(log: Log, pushes: Topic) -> None:
    with opened(log, pushes) as inlet:
        reply = post(inlet, (part for part in [b'{"size": 1}']), {**JSON, "Transfer-Encoding": "chunked"})  # type: ignore[arg-type]

    assert reply.status == 411


def test_a_sender_that_goes_away_has_sent_nothing(log: Log, pushes: Topic) -> None:
    with opened(log, pushes) as inlet:
        assert inlet.address is not None
        where = urlsplit(inlet.address)
        with socket.create_connection((where.hostname, where.port)) as sender:
            sender.sendall(b"POST /github HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{}")
        after = post(inlet, '{"size": 1}')

    assert after.status == 202
    assert pushes.end_offsets() == {0: 1}


def test_two_hundred_at_once_are_all_taken_once(log: Log, pushes: Topic) -> None:
    replies: list[Reply] = []

    with opened(log, pushes, id_header="X-Id", id_column="delivery") as inlet:
        # Half of them are sent twice, at the same moment.
        senders = [
            threading.Thread(
                target=lambda n=number: replies.append(
                    post(inlet, json.dumps({"size": n % 150}), {**JSON, "X-Id": str(n % 150)})
                )
            )
            for number in range(200)
        ]
        each(senders, threading.Thread.start)
        each(senders, threading.Thread.join)

    assert sorted(reply.status for reply in replies) == [200] * 50 + [202] * 150
    assert sorted(row["size"] for row in pushes.rows()) == list(range(150))
    assert inlet.counters == hw.inlets.Counters(received=200, appended=150, repeated=50)


def each(threads: list[threading.Thread], action: Callable[[threading.Thread], None]) -> None:
    for thread in threads:
        action(thread)


def test_a_full_topic_is_told_by_its_policy(log: Log) -> None:
    blocking = log.topic("a", "x INT", overflow="block", overflow_rows_max=1, block_timeout="10 ms")
    dropping = log.topic("b", "x INT", overflow="drop", overflow_rows_max=1)
    with blocking.consumer("slow"), dropping.consumer("slow"):
        with opened(log, blocking) as inlet:
            blocked = [post(inlet, '{"x": 1}') for _ in range(2)]
        with opened(log, dropping) as inlet:
            dropped = [post(inlet, '{"x": 1}') for _ in range(2)]

    assert [reply.status for reply in blocked] == [202, 503]
    assert blocked[1].error["code"] == "backpressure"
    assert [reply.status for reply in dropped] == [202, 429]
    assert {reply.headers["Retry-After"] for reply in (blocked[1], dropped[1])} == {"5"}
    assert inlet.counters == hw.inlets.Counters(received=2, appended=1, dropped=1)


def test_an_envelope_keeps_the_request_as_it_came(log: Log, clock: ManualClock) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": "Bearer x", "X-Event": "push"}

    with opened(log, "raw", envelope=True) as inlet:  # type: ignore[arg-type]
        taken = post(inlet, "payload=1", headers)
        refused = post(inlet, b"\xff", headers)

    (row,) = log.get_topic("raw").rows()
    assert (taken.status, refused.status) == (202, 400)
    assert row["body"] == "payload=1"
    assert dict(row["headers"])["x-event"] == "push"
    assert "authorization" not in dict(row["headers"])
    assert row["received_at"].timestamp() == clock.now_us() / 1_000_000


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"path": "github"}, "path cannot be 'github'"),
        ({"port": 70_000}, "port cannot be 70000"),
        ({"secret": ""}, "a signature needs a secret"),
        ({"secret": "a", "signature": hw.inlets.Signature.slack("b")}, "secret and signature say the same"),
        ({"id_header": "X-Id"}, "id_header needs a column for the ids"),
        ({"id_column": "id"}, 'topic "plain" has no STRING column "id"'),
        ({"envelope": True}, 'topic "plain" has no column "received_at"'),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(log: Log, options: dict[str, Any], sentence: str) -> None:
    log.topic("plain", "x INT")

    with pytest.raises(hw.errors.InvalidDeclaration) as refused:
        hw.inlets.Webhook("plain", **options).open(log, "hook")

    assert sentence in refused.value.message


def test_a_port_that_is_taken_is_told(log: Log, pushes: Topic) -> None:
    with opened(log, pushes) as inlet:
        assert inlet.address is not None
        other = hw.inlets.Webhook(pushes, port=urlsplit(inlet.address).port or 0).open(log, "other")

        with pytest.raises(hw.errors.Unavailable) as refused:
            other.start()

    assert "cannot listen on 127.0.0.1 port" in refused.value.message
