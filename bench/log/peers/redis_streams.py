"""Redis Streams: pipelined ``XADD``, the append-only file synced every second.

Invariants: pipelines of 1 000 commands; one packed field an entry, which was twice as fast as one field a column.
With ``hiredis`` installed (the extra brings it) redis-py packs and parses in C: half as fast again to write, three
times as fast to read.
Not here: consumer groups; a plain ``XRANGE`` is the faster read.
Read next: ``nats_jetstream.py``.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, ClassVar

from bench.log.order_rows import Rows, order_id, to_json
from bench.log.peers.peer import Mode, Peer, Reading, client_library, stopwatch
from bench.peer_servers import redis_server

_PIPELINE_COMMANDS = 1_000
_PAGE_ENTRIES = 10_000
_STREAM = "orders"


class RedisStreams(Peer):
    """``XADD`` in pipelines, ``XRANGE`` in pages."""

    title: ClassVar[str] = "Redis Streams"
    modes: ClassVar[tuple[Mode, ...]] = (Mode("pipelined XADD"), Mode("pipelined XADD of JSON", given="dicts"))
    share: ClassVar[float] = 0.25

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def setup(self, directory: Path) -> None:
        redis = client_library("redis", package="redis")
        port = self._stack.enter_context(redis_server(directory))
        # Protocol 2 answers XRANGE as plain lists; raw commands skip redis-py's conversion of every entry.
        self._client: Any = redis.Redis(port=port, protocol=2)
        self._stack.callback(self._client.close)
        self._client.ping()

    def append(self, rows: Rows, mode: Mode) -> float:
        values: list[Any] = rows.payloads if mode.given == "ready" else rows.plain_dicts
        self._packed = mode.given == "ready"
        self._client.flushall()
        with stopwatch() as watch:
            for start in range(0, rows.count, _PIPELINE_COMMANDS):
                pipeline = self._client.pipeline(transaction=False)
                command = pipeline.execute_command
                for value in values[start : start + _PIPELINE_COMMANDS]:
                    command("XADD", _STREAM, "*", "d", value if self._packed else to_json(value))
                pipeline.execute()
        return watch.seconds

    def read_all(self, *, check: bool = False) -> Reading:
        count, checksum, after = 0, 0, b"-"
        with stopwatch() as watch:
            while entries := self._client.execute_command("XRANGE", _STREAM, after, "+", "COUNT", _PAGE_ENTRIES):
                count += len(entries)
                last = entries[-1][0]
                after = b"(" + (last if isinstance(last, bytes) else last.encode())
                if check and self._packed:
                    checksum += sum(order_id(_payload(fields)) for _, fields in entries)
        return Reading(count, watch.seconds, checksum if check and self._packed else None)

    def teardown(self) -> None:
        self._stack.close()


def _payload(fields: Any) -> bytes:
    """The one value of an entry: redis-py gives a list or a dict, depending on its version."""
    value: bytes = next(iter(fields.values())) if isinstance(fields, dict) else fields[1]
    return value
