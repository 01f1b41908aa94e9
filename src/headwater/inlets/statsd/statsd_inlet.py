"""StatsD inlet: metrics over UDP, into a topic.

What it is: ``StatsD``, the declaration, and ``StatsdInlet``: one thread moves datagrams from the socket to a bounded
queue, another parses them and appends batches.
Invariants: it is lossy and counts the losses. Nothing waits for the log: a full queue, backpressure of the topic and
the kernel's own drops are counted as dropped, invalid lines as refused; so the datagrams sent to this machine are
appended + refused + dropped (the kernel counts datagrams). ``stop`` writes what was received.
Not here: lines (``statsd_lines.py``), aggregation (views).
Read next: ``statsd_lines.py``, ``kernel_drops.py``; ``docs/inlets.md``.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headwater.errors import HeadwaterError, InvalidDeclaration, Unavailable
from headwater.inlets.inlet import Inlet, InletDeclaration
from headwater.inlets.statsd import kernel_drops, statsd_lines
from headwater.inlets.statsd.statsd_lines import Metric, parse
from headwater.log.contract import EventLog, EventTopic

logger = logging.getLogger("headwater.inlets")

DATAGRAM_BYTES_MAX = 65_536
BATCH_DATAGRAMS_MAX = 4096
LINGER_S = 0.05
LOOK_AT_STOP_S = 0.2
TIME = pa.timestamp("us", tz="UTC")
TYPES = {
    "metric": pa.string(),
    "type": pa.string(),
    "value": pa.float64(),
    "delta": pa.bool_(),
    "member": pa.string(),
    "sample_rate": pa.float64(),
    "tags": pa.map_(pa.string(), pa.string()),
}


@dataclass(frozen=True)
class StatsD(InletDeclaration):
    """Ingests StatsD's metrics, one or several in a datagram; a missing topic is declared with ``SCHEMA``.

    ``queue_max`` datagrams may wait to be written; ``buffer_bytes`` is the size of the kernel's buffer before that. A
    ``port`` of 0 takes a free one.

    >>> import headwater as hw, socket, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> inlet = hw.inlets.StatsD("samples", port=0).open(log, "metrics")
    >>> with inlet, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    ...     _ = sender.sendto(b"page.views:1|c|#country:de", inlet.bound)
    ...     inlet.settle(1)
    >>> next(log.get_topic("samples").rows(columns=["metric", "value", "tags"]))
    {'metric': 'page.views', 'value': 1.0, 'tags': {'country': 'de'}}
    """

    kind: ClassVar[str] = "statsd"
    SCHEMA: ClassVar[str] = statsd_lines.SCHEMA

    topic: EventTopic | str
    port: int = 8125
    host: str = "127.0.0.1"
    queue_max: int = 100_000
    buffer_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidDeclaration(
                f"port cannot be {self.port}", hint="Use one from 1 to 65535, or 0 for a free one."
            )
        if self.queue_max < 1:
            raise InvalidDeclaration(f"queue_max cannot be {self.queue_max}", hint="Use a number above zero.")

    def open(self, log: EventLog, name: str, *, app: str = "") -> StatsdInlet:
        return StatsdInlet(self, log, name, self.topic_on(log, self.SCHEMA, event_time="received_at"), app=app)


class StatsdInlet(Inlet):
    """A running StatsD inlet."""

    kind = StatsD.kind

    def __init__(self, declared: StatsD, log: EventLog, name: str, topic: EventTopic, *, app: str = "") -> None:
        super().__init__(log, name, topic, app=app)
        self.declared = declared
        self.columns = [one for one in (*TYPES, "received_at") if one in topic.schema.names]
        if "metric" not in self.columns:
            raise InvalidDeclaration(
                f'topic "{topic.name}" has no column "metric"',
                hint='Declare it with hw.inlets.StatsD.SCHEMA, or leave columns of it out, but not "metric".',
                topic=topic.name,
            )
        self.bound: tuple[str, int] = (declared.host, declared.port)
        self._queue: deque[tuple[int, bytes]] = deque()
        self._waiting = threading.Event()
        self._settled = threading.Condition()
        self._drops = 0
        self._receiving: threading.Thread | None = None

    def _open(self) -> None:
        declared = self.declared
        family = socket.AF_INET6 if ":" in declared.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            # The kernel allows at most net.core.rmem_max; less is no error.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, declared.buffer_bytes)
            self._socket.bind((declared.host, declared.port))
        except OSError as error:
            self._socket.close()
            raise Unavailable(
                f"cannot listen on {declared.host} port {declared.port}: {error.strerror or error}",
                hint="Give another port; another process may have this one.",
                port=declared.port,
            ) from error
        self._socket.settimeout(LOOK_AT_STOP_S)
        self.bound = self._socket.getsockname()[:2]
        self._drops = 0
        self.counter_store.address = f"udp://{self.bound[0]}:{self.bound[1]}"
        self._begin(self._receive, "receiver")
        self._receiving = self._threads[-1]
        self._begin(self._write, "writer")

    def _close(self) -> None:
        """The threads check ``_stopping`` regularly; the receiver ends first, so the writer gets its last datagrams."""
        if self._receiving is not None:
            self._receiving.join()
            self._receiving = None
        self._waiting.set()

    # From the socket into the queue

    def _receive(self) -> None:
        queue, most, clock = self._queue, self.declared.queue_max, self.log.clock
        with self._socket as receiver:
            while True:
                try:
                    datagram = receiver.recv(DATAGRAM_BYTES_MAX)
                except TimeoutError:
                    if self._stopping.is_set():
                        break
                    self._count_drops()
                    continue
                if len(queue) >= most:
                    self._drop(datagram)
                    continue
                queue.append((clock.now_us(), datagram))
                if not self._waiting.is_set():
                    self._waiting.set()
                # A sender that never pauses must not prevent the stop.
                if self._stopping.is_set():
                    receiver.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        for _ in range(most - len(queue)):
                            queue.append((clock.now_us(), receiver.recv(DATAGRAM_BYTES_MAX)))
                    break
            self._count_drops()

    def _drop(self, datagram: bytes) -> None:
        with self._settled:
            self.counter_store.count(dropped=sum(1 for line in datagram.split(b"\n") if line))
            self._settled.notify_all()

    def _count_drops(self) -> None:
        with self._settled:
            drops = kernel_drops.of(self._socket)
            if drops is not None and drops > self._drops:
                self.counter_store.count(dropped=drops - self._drops)
                self._drops = drops
                self._settled.notify_all()

    # From the queue into the log

    def _write(self) -> None:
        while True:
            self._waiting.wait()
            self._waiting.clear()
            ended = self._stopping.is_set() and self._receiving is None
            if not ended:
                self._stopping.wait(LINGER_S)  # more will have come by then
            while self._queue:
                self._write_batch()
                self._count_drops()
            if ended:
                return

    def _write_batch(self) -> None:
        take = self._queue.popleft
        datagrams = [take() for _ in range(min(len(self._queue), BATCH_DATAGRAMS_MAX))]
        rows: list[Metric] = []
        moments: list[int] = []
        refused = 0
        for moment, datagram in datagrams:
            for line in datagram.split(b"\n"):
                if not line:
                    continue
                found = parse(line)
                if found is None:
                    refused += 1
                else:
                    rows += found
                    moments += [moment] * len(found)
        appended, dropped = self._append(rows, moments)
        with self._settled:
            self.counter_store.count(received=len(rows) + refused, appended=appended, refused=refused, dropped=dropped)
            self._settled.notify_all()

    def _append(self, rows: list[Metric], moments: list[int]) -> tuple[int, int]:
        """The number of appended and of lost rows; UDP has no way to report a failure or to wait."""
        if not rows:
            return 0, 0
        try:
            token = self.topic.append(self._batch(rows, moments))
        except HeadwaterError as error:
            self._has_problem(error.message)
            return 0, len(rows)
        self._has_problem(None)
        return len(rows) - token.dropped_rows, token.dropped_rows

    def _batch(self, rows: list[Metric], moments: list[int]) -> pa.RecordBatch:
        by_name = dict(zip(Metric._fields, zip(*rows, strict=True), strict=True))
        arrays = []
        for name in self.columns:
            if name == "received_at":
                arrays.append(pa.array(moments, TIME))
            elif name == "tags":
                arrays.append(pa.array([list(tags.items()) for tags in by_name[name]], TYPES[name]))
            else:
                arrays.append(pa.array(by_name[name], TYPES[name]))
        return pa.RecordBatch.from_arrays(arrays, names=self.columns)

    def settle(self, sent: int, *, timeout: float = 30.0) -> None:
        """Wait until this many metrics were appended, refused or dropped."""

        def known() -> bool:
            counted = self.counters
            return counted.appended + counted.refused + counted.dropped >= sent

        with self._settled:
            if not self._settled.wait_for(known, timeout):
                raise Unavailable(f"{sent} metrics were awaited: {self.counters}", hint="UDP may lose some.")
