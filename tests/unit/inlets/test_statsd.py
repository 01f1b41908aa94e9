"""StatsD: every form of a metric, and every loss counted."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headwater as hw
from headwater.inlets.statsd import kernel_drops
from headwater.inlets.statsd.statsd_inlet import StatsdInlet
from headwater.inlets.statsd.statsd_lines import parse
from headwater.log.home import Log
from headwater.testing import ManualClock


def opened(log: Log, **options: Any) -> StatsdInlet:
    return hw.inlets.StatsD("samples", port=0, **options).open(log, "metrics")


def send(inlet: StatsdInlet, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, inlet.bound)


@pytest.mark.parametrize(
    ("line", "value", "extra"),
    [
        (b"hits:1|c", 1.0, {}),
        (b"hits:-4|c", -4.0, {}),
        (b"hits:2.5|c|@0.1", 2.5, {"sample_rate": 0.1}),
        (b"hits:1|c|#country:de,url:a:b,beta", 1.0, {"tags": {"country": "de", "url": "a:b", "beta": ""}}),
        (b"hits:1|c|#a:1|@0.5", 1.0, {"sample_rate": 0.5, "tags": {"a": "1"}}),
        (b"hits:1|c|@0.5|#a:1|c:container|T1700000000", 1.0, {"sample_rate": 0.5, "tags": {"a": "1"}}),
        (b"fuel:7|g", 7.0, {}),
        (b"fuel:+7|g", 7.0, {"delta": True}),
        (b"fuel:-7e-1|g", -0.7, {"delta": True}),
        (b"took:12.5|ms", 12.5, {}),
        (b"took:12|h", 12.0, {}),
        (b"took:.5|d\r", 0.5, {}),
        (b"visitors:ada:1|s", None, {"member": "ada:1"}),
        ("größe:1|g".encode(), 1.0, {}),
    ],
)
def test_a_metric_of_every_form_is_read(line: bytes, value: float | None, extra: dict[str, Any]) -> None:
    (found,) = parse(line) or [None]

    assert found is not None
    name, _, rest = line.decode().partition(":")
    expected = {"delta": False, "member": None, "sample_rate": 1.0, "tags": {}, **extra}
    assert found._asdict() == {"metric": name, "type": rest.split("|")[1].strip(), "value": value, **expected}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hits",
        b"hits:1",
        b":1|c",
        b"hits:|c",
        b"hits:one|c",
        b"hits:1|x",
        b"hits:1|c|@2",
        b"hits:1|c|@0",
        b"hits:nan|g",
        b"hits:inf|g",
        b"hits:1e999|g",
        b"hits:1_0|c",
        b"hits:1:x|ms",
        b"users:|s",
        b"\xff:1|c",
        b"x" * 9000 + b":1|c",
        "hits:١|c".encode(),
    ],
)
def test_what_is_no_metric_is_not_read(line: bytes) -> None:
    assert parse(line) is None


@given(st.binary(max_size=200) | st.text(alphabet="a:|@#.,-+0123456789cgmshd\n", max_size=60).map(str.encode))
@example(b"a:1|c|@")
@example(b"a:-|g")
@example(b"a:::|ms")
def test_any_bytes_are_metrics_or_none(line: bytes) -> None:
    found = parse(line)

    assert found is None or all(
        (one.value is None) == (one.type == "s") and (one.member is not None) == (one.type == "s") for one in found
    )


def test_metrics_become_rows_with_the_time_of_receipt(log: Log, clock: ManualClock) -> None:
    with opened(log) as inlet:
        send(inlet, b"hits:1|c|#country:de\nfuel:-2|g\n", b"took:1:2|ms")
        inlet.settle(4)

    rows = list(log.get_topic("samples").rows())
    assert [(row["metric"], row["type"], row["value"], row["delta"]) for row in rows] == [
        ("hits", "c", 1.0, False),
        ("fuel", "g", -2.0, True),
        ("took", "ms", 1.0, False),
        ("took", "ms", 2.0, False),
    ]
    assert dict(rows[0]["tags"]) == {"country": "de"}
    assert {row["received_at"] for row in rows} == {dt.datetime.fromtimestamp(clock.now_us() / 1_000_000, dt.UTC)}
    assert log.get_topic("samples").settings.event_time == "received_at"


def test_lines_that_are_no_metric_are_counted_and_do_not_harm_their_neighbours(log: Log) -> None:
    with opened(log) as inlet:
        send(inlet, b"hits:1|c\nnonsense\nhits:2|c", b"\xff\xfe\x00")
        inlet.settle(4)

    assert inlet.counters == hw.inlets.Counters(received=4, appended=2, refused=2)
    assert [row["value"] for row in log.get_topic("samples").rows()] == [1.0, 2.0]


def test_in_a_flood_every_metric_is_appended_or_counted_as_dropped(log: Log) -> None:
    sent = 20_000
    # A short queue and a small buffer of the kernel: both must overflow for this test to say something.
    with opened(log, queue_max=64, buffer_bytes=16_384) as inlet:
        senders = [threading.Thread(target=send, args=(inlet, *[b"hits:1|c"] * (sent // 4))) for _ in range(4)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        inlet.settle(sent)

    counted = inlet.counters
    assert counted.appended + counted.dropped == sent
    assert counted.dropped > 0
    assert log.get_topic("samples").end_offsets() == {0: counted.appended}


def test_what_the_kernel_throws_away_is_known() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        receiver.bind(("127.0.0.1", 0))
        for _ in range(1000):
            sender.sendto(b"hits:1|c", receiver.getsockname())

        kept = 0
        receiver.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while receiver.recv(100):
                kept += 1
        dropped = kernel_drops.of(receiver)

    assert kept < 1000
    assert dropped == 1000 - kept


def test_what_was_received_is_written_when_it_stops(log: Log) -> None:
    inlet = opened(log)
    inlet.start()
    send(inlet, *[b"hits:1|c"] * 500)  # over loopback they are in the kernel's buffer by now

    inlet.stop()

    assert inlet.counters.appended == 500
    assert log.get_topic("samples").end_offsets() == {0: 500}


def test_a_topic_that_takes_no_more_costs_metrics_and_nothing_else(log: Log) -> None:
    topic = log.topic("samples", hw.inlets.StatsD.SCHEMA, overflow="drop", overflow_rows_max=2)
    with topic.consumer("slow"), opened(log) as inlet:
        send(inlet, b"hits:1|c\nhits:1|c")
        inlet.settle(2)
        send(inlet, b"hits:1|c\nhits:1|c")
        inlet.settle(4)

    assert inlet.counters == hw.inlets.Counters(received=4, appended=2, dropped=2)


def test_a_topic_may_have_fewer_columns(log: Log) -> None:
    topic = log.topic("samples", "metric STRING, value DOUBLE, host STRING")
    with opened(log) as inlet:
        send(inlet, b"hits:1|c")
        inlet.settle(1)

    assert list(topic.rows()) == [{"metric": "hits", "value": 1.0, "host": None}]


def test_it_can_be_stopped_and_started_again(log: Log) -> None:
    inlet = opened(log)
    for value in (b"hits:1|c", b"hits:2|c"):
        with inlet:
            send(inlet, value)

    assert [row["value"] for row in log.get_topic("samples").rows()] == [1.0, 2.0]
