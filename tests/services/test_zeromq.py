"""ZeroMQ over real sockets: both patterns, every format, gaps and backpressure."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import RowRefused
from headwater.inlets.inlet import Inlet
from headwater.inlets.zeromq.zeromq_frames import ZeromqFrames
from headwater.log.home import Log
from headwater.log.topic import Topic
from tests.waiting import eventually

ANY = "tcp://127.0.0.1:*"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home") as log:
        yield log


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as context:
        yield context


@pytest.fixture
def clicks(log: Log) -> Topic:
    return log.topic("clicks", "url STRING, channel STRING, n BIGINT")


def opened(topic: Topic, address: str = ANY, **options: Any) -> Inlet:
    return hw.inlets.ZeroMQ(topic, address, **options).open(topic.log, "web")


def settle(inlet: Inlet, received: int) -> None:
    eventually(lambda: inlet.counters.received >= received, f"{received} messages; {inlet.counters}; {inlet.problem}")


def publisher(context: zmq.Context[Any], inlet_of: Any) -> tuple[zmq.Socket[bytes], Inlet]:
    """A publisher, and a subscriber that it knows of: what is published before is for nobody."""
    socket = context.socket(zmq.XPUB)
    socket.bind(ANY)
    inlet = inlet_of(socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0"))
    inlet.start()
    assert socket.poll(30_000), "nobody subscribed"
    assert socket.recv()[:1] == b"\x01"
    return socket, inlet


def test_messages_that_are_pushed_become_rows(clicks: Topic, context: zmq.Context[Any]) -> None:
    with opened(clicks, bind=True) as inlet, context.socket(zmq.PUSH) as sender:
        sender.connect(inlet.address or "")
        sender.send(b'{"url": "/a"}')
        sender.send(b'[{"url": "/b"}, {"url": "/c"}]')
        sender.send_multipart([b'{"url": "/d"}', b'{"url": "/e"}'])
        settle(inlet, 3)
        eventually(lambda: inlet.counters.appended == 5, "the rows")

    assert [row["url"] for row in clicks.rows()] == ["/a", "/b", "/c", "/d", "/e"]
    assert inlet.counters == hw.inlets.Counters(received=3, appended=5)


def test_only_what_is_subscribed_comes_with_its_prefix(clicks: Topic, context: zmq.Context[Any]) -> None:
    socket, inlet = publisher(
        context, lambda address: opened(clicks, address, pattern="sub", subscribe=("web.",), prefix_column="channel")
    )
    with socket:
        socket.send_multipart([b"mail.de", b'{"url": "/no"}'])
        socket.send_multipart([b"web.de", b'{"url": "/yes"}'])
        socket.send(b'web.at {"url": "/also"}')
        settle(inlet, 2)
        inlet.stop()

    assert [(row["channel"], row["url"]) for row in clicks.rows()] == [("web.de", "/yes"), ("web.at", "/also")]


def test_gaps_between_sequence_numbers_are_counted(clicks: Topic, context: zmq.Context[Any]) -> None:
    socket, inlet = publisher(
        context, lambda address: opened(clicks, address, pattern="sub", prefix_column="channel", sequence="n")
    )
    with socket:
        for channel, number in [(b"a", 1), (b"b", 10), (b"a", 2), (b"a", 5), (b"b", 12), (b"b", 1), (b"b", 2)]:
            socket.send_multipart([channel, b'{"n": %d}' % number])
        settle(inlet, 7)
        inlet.stop()

    assert inlet.counters.dropped == 2 + 1
    assert inlet.counters.appended == 7


def test_arrow_and_raw_bytes_are_taken(clicks: Topic, log: Log, context: zmq.Context[Any]) -> None:
    raw = log.topic("raw", "body BINARY")
    table = pa.table({"url": ["/a", "/b"], "n": [1, 4]})
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)

    with opened(clicks, bind=True, format="arrow", sequence="n") as arrow, context.socket(zmq.PUSH) as sender:
        sender.connect(arrow.address or "")
        sender.send(stream.getvalue().to_pybytes())
        settle(arrow, 1)
    with opened(raw, bind=True, format="raw") as inlet, context.socket(zmq.PUSH) as sender:
        sender.connect(inlet.address or "")
        sender.send(b"\x00\xff")
        settle(inlet, 1)

    assert [(row["url"], row["n"]) for row in clicks.rows()] == [("/a", 1), ("/b", 4)]
    assert arrow.counters == hw.inlets.Counters(received=1, appended=2, dropped=2)
    assert list(raw.rows()) == [{"body": b"\x00\xff"}]


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_what_cannot_be_read_is_kept_with_the_reason(clicks: Topic, context: zmq.Context[Any], form: Any) -> None:
    with opened(clicks, bind=True, format=form) as inlet, context.socket(zmq.PUSH) as sender:
        sender.connect(inlet.address or "")
        sender.send(b"nonsense")
        sender.send(b"")
        settle(inlet, 2)
        eventually(lambda: inlet.counters.refused == 2, "both refused")

    assert [row["body"] for row in clicks.log.get_topic("web.dead").rows()] == [b"nonsense", b""]
    assert clicks.end_offsets() == {0: 0}


def test_a_row_that_does_not_fit_does_not_harm_its_neighbours(clicks: Topic, context: zmq.Context[Any]) -> None:
    with opened(clicks, bind=True) as inlet, context.socket(zmq.PUSH) as sender:
        sender.connect(inlet.address or "")
        for body in (b'{"n": 1}', b'{"n": "two"}', b'{"n": 3}'):
            sender.send(body)
        settle(inlet, 3)

    assert [row["n"] for row in clicks.rows()] == [1, 3]
    assert inlet.counters.refused == 1
    assert "'two'" in next(clicks.log.get_topic("web.dead").rows())["reason"]


def test_senders_wait_while_the_topic_is_full_and_nothing_is_lost(log: Log, context: zmq.Context[Any]) -> None:
    full = log.topic("full", "n BIGINT", overflow="block", overflow_rows_max=50, block_timeout="10 ms")
    count = 500

    def push(address: str) -> None:
        with context.socket(zmq.PUSH) as sender:
            sender.setsockopt(zmq.SNDHWM, 10)
            sender.connect(address)
            for number in range(count):
                sender.send(b'{"n": %d}' % number)

    read: list[int] = []
    with full.consumer("slow", rows_max=20) as consumer, opened(full, bind=True, queue_max=10) as inlet:
        sender = threading.Thread(target=push, args=(inlet.address,))
        sender.start()
        eventually(lambda: "is full" in (inlet.problem or ""), "the inlet notices that the topic is full")
        while len(read) < count:
            batch = consumer.poll(timeout=30)
            assert batch is not None
            read += [row["n"] for row in batch]
            consumer.commit(batch)
        sender.join()

    assert read == list(range(count))


@settings(deadline=None)  # each example makes a home; how long that takes is the machine's affair
@given(
    st.lists(st.binary(max_size=100), min_size=1, max_size=3), st.sampled_from(["json", "arrow", "raw"]), st.booleans()
)
def test_any_frames_are_rows_or_refused(frames: list[bytes], form: str, subscribed: bool) -> None:
    with tempfile.TemporaryDirectory() as home, Log(home) as log:
        topic = log.topic("any", "channel STRING, body BINARY")
        reader = ZeromqFrames(topic, form, subscribed=subscribed, prefix_column="channel")

        try:
            found = reader.table(frames).to_pylist() if form == "arrow" else list(reader.rows(frames))
        except RowRefused:
            return

    assert all("channel" in row for row in found)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"address": "127.0.0.1:5555"}, "address cannot be '127.0.0.1:5555'"),
        ({"pattern": "pub"}, "pattern cannot be 'pub'"),
        ({"format": "xml"}, "format cannot be 'xml'"),
        ({"format": "raw"}, 'has no column "body" of the type'),
        ({"sequence": "url"}, 'has no column "url" of the type'),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(clicks: Topic, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(hw.errors.InvalidDeclaration) as refused:
        opened(clicks, **options)

    assert sentence in refused.value.message


def test_an_address_that_is_taken_is_told(clicks: Topic) -> None:
    with opened(clicks, bind=True) as inlet, pytest.raises(hw.errors.Unavailable, match="cannot listen on"):
        opened(clicks, inlet.address or "", bind=True).start()
