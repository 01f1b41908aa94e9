"""NATS JetStream with its file store: publishes with a window of acknowledgements outstanding.

Invariants: every publish is acknowledged by the stream before the clock stops. Acknowledgements come to one inbox
and are counted, which was three times as fast as the library's ``publish_async`` with a future for each; reading by a
push consumer without acknowledgements was six times as fast as pulling batches.
Not here: core NATS without JetStream, which keeps nothing.
Read next: ``kafka_broker.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any, ClassVar

from bench.log.order_rows import Rows, order_id, to_json
from bench.log.peers.peer import Mode, Peer, Reading, client_library, stopwatch
from bench.peer_servers import nats_server

_STREAM = "ORDERS"
_SUBJECT = "orders"
# Measured: a window of 4 000 is as fast as 16 000 and a third faster than 1 000.
_WINDOW = 4_000
_BURST = 1_000
_SILENCE_SECONDS_MAX = 30.0
_BUFFER_BYTES = 1 << 30


class NatsJetStream(Peer):
    """Publish to one stream, read it back by a push consumer."""

    title: ClassVar[str] = "NATS JetStream"
    modes: ClassVar[tuple[Mode, ...]] = (Mode("windowed publish"), Mode("windowed publish of JSON", given="dicts"))
    share: ClassVar[float] = 0.25

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def setup(self, directory: Path) -> None:
        nats = client_library("nats", package="nats-py")
        self._api: Any = client_library("nats.js.api", package="nats-py")
        port = self._stack.enter_context(nats_server(directory))
        self._runner = self._stack.enter_context(asyncio.Runner())
        self._client: Any = self._runner.run(
            nats.connect(f"nats://127.0.0.1:{port}", pending_size=64 << 20, allow_reconnect=False)
        )
        self._stack.callback(lambda: self._runner.run(self._client.close()))
        self._jetstream: Any = self._client.jetstream()
        self._written = 0

    def append(self, rows: Rows, mode: Mode) -> float:
        self._packed = mode.given == "ready"
        self._written = 0
        return self._runner.run(self._append(rows))

    async def _append(self, rows: Rows) -> float:
        with contextlib.suppress(Exception):
            await self._jetstream.delete_stream(_STREAM)
        config = self._api.StreamConfig(name=_STREAM, subjects=[_SUBJECT], storage=self._api.StorageType.FILE)
        await self._jetstream.add_stream(config)
        acknowledged = _Counter()
        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe(inbox, cb=acknowledged.count, pending_msgs_limit=4 * _WINDOW)
        values: list[Any] = rows.payloads if self._packed else rows.plain_dicts
        publish = self._client.publish
        with stopwatch() as watch:
            for start in range(0, rows.count, _BURST):
                for value in values[start : start + _BURST]:
                    await publish(_SUBJECT, value if self._packed else to_json(value), reply=inbox)
                await acknowledged.reach(start + _BURST - _WINDOW)
            await acknowledged.reach(rows.count)
        await subscription.unsubscribe()
        self._written = rows.count
        return watch.seconds

    def read_all(self, *, check: bool = False) -> Reading:
        return self._runner.run(self._read_all(check=check))

    async def _read_all(self, *, check: bool) -> Reading:
        received = _Counter()
        payloads: list[bytes] = []

        async def keep(message: Any) -> None:
            payloads.append(message.data)
            await received.count(message)

        with stopwatch() as watch:
            subscription = await self._jetstream.subscribe(
                _SUBJECT,
                stream=_STREAM,
                cb=keep if check else received.count,
                config=self._api.ConsumerConfig(ack_policy=self._api.AckPolicy.NONE),
                manual_ack=True,
                pending_msgs_limit=10**7,
                pending_bytes_limit=_BUFFER_BYTES,
            )
            await received.reach(self._written)
        await subscription.unsubscribe()
        checksum = sum(map(order_id, payloads)) if check and self._packed else None
        return Reading(received.total, watch.seconds, checksum)

    def teardown(self) -> None:
        self._stack.close()


class _Counter:
    """Counts messages and wakes who waits for a number of them."""

    def __init__(self) -> None:
        self.total = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    async def count(self, message: Any) -> None:
        if b'"error"' in message.data:
            raise RuntimeError(f"JetStream refused a message: {message.data!r}")
        self.total += 1
        if self.total >= self._wanted:
            self._reached.set()

    async def reach(self, total: int) -> None:
        """Wait until ``total`` have come; give up after a long silence."""
        if self.total >= total:
            return
        self._wanted = total
        self._reached.clear()
        await asyncio.wait_for(self._reached.wait(), _SILENCE_SECONDS_MAX)
