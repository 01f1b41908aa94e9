"""ZeroMQ inlet: messages of PUB and PUSH sockets, into a topic.

What it is: ``ZeroMQ``, the declaration, and ``ZeromqInlet``, whose one thread appends received messages in batches.
Invariants: at most once, as ZeroMQ is: messages in a socket's queue are lost when a process dies, and a publisher drops
messages for a slow subscriber. Where the sender numbers its messages (``sequence``), gaps are counted as dropped. While
the log accepts nothing, the socket is not read, so PUSH senders wait.
Not here: frames (``zeromq_frames.py``). Read next: ``zeromq_frames.py``, ``inlets/ingest.py``; ``docs/inlets.md``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from headwater.capture.door import Door
from headwater.errors import HeadwaterError, InvalidDeclaration, MissingExtra, RowRefused, Unavailable
from headwater.inlets.dead_messages import DeadMessage, DeadMessages
from headwater.inlets.ingest import IncomingMessage, Ingest
from headwater.inlets.inlet import BACKOFF_FIRST_S, Inlet, InletDeclaration
from headwater.inlets.message_door import MessageDoor
from headwater.inlets.zeromq.zeromq_frames import FORMATS, Gaps, ZeromqFrames
from headwater.log.contract import EventLog, EventTopic

logger = logging.getLogger("headwater.inlets")

BATCH_MESSAGES_MAX = 1000
LOOK_AT_STOP_MS = 200


@dataclass(frozen=True)
class ZeroMQ(InletDeclaration):
    """Ingests messages of a PUSH socket (``pattern="pull"``) or a PUB socket (``"sub"``).

    ``format`` is "json" (an object, an array of them, or lines), "arrow" (a stream of Arrow IPC), or "raw": the bytes,
    in the BINARY column ``raw_column``. Of several frames, SUB takes the first as the prefix, kept in ``prefix_column``
    if that is named; a single frame is then "prefix payload". ``sequence`` names a column in which the sender counts.

    >>> import headwater as hw, tempfile, zmq
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> topic = log.topic("clicks", "url STRING")
    >>> inlet = hw.inlets.ZeroMQ(topic, "tcp://127.0.0.1:*", bind=True).open(log, "web")
    >>> with inlet, zmq.Context() as context, context.socket(zmq.PUSH) as sender:
    ...     _ = sender.connect(inlet.address)
    ...     sender.send_json({"url": "/"})
    ...     topic.wait({0: 0}, timeout=30)
    True
    >>> list(topic.rows())
    [{'url': '/'}]
    """

    kind: ClassVar[str] = "zeromq"

    topic: EventTopic | str
    address: str
    pattern: Literal["pull", "sub"] = "pull"
    bind: bool = False
    subscribe: tuple[str, ...] = ("",)
    format: Literal["json", "arrow", "raw"] = "json"
    raw_column: str = "body"
    prefix_column: str | None = None
    sequence: str | None = None
    queue_max: int = 10_000

    def __post_init__(self) -> None:
        if "://" not in self.address:
            raise InvalidDeclaration(f"address cannot be {self.address!r}", hint='Write "tcp://127.0.0.1:5555".')
        for name, allowed in (("pattern", ("pull", "sub")), ("format", FORMATS)):
            if getattr(self, name) not in allowed:
                raise InvalidDeclaration(
                    f"{name} cannot be {getattr(self, name)!r}", hint=f"Use one of: {', '.join(allowed)}."
                )
        if self.queue_max < 1:
            raise InvalidDeclaration(f"queue_max cannot be {self.queue_max}", hint="Use a number above zero.")

    def open(self, log: EventLog, name: str, *, app: str = "") -> ZeromqInlet:
        client()
        return ZeromqInlet(self, log, name, self.topic_on(log), app=app)


def client() -> Any:
    with MissingExtra.raised_for("ZeroMQ", "zeromq"):
        import zmq
    return zmq


class ZeromqInlet(Inlet):
    """A running ZeroMQ inlet."""

    kind = ZeroMQ.kind

    def __init__(self, declared: ZeroMQ, log: EventLog, name: str, topic: EventTopic, *, app: str = "") -> None:
        super().__init__(log, name, topic, app=app)
        self.declared = declared
        wanted = {declared.prefix_column: pa.types.is_string, declared.sequence: pa.types.is_integer}
        if declared.format == "raw":
            wanted[declared.raw_column] = pa.types.is_binary
        for column, fits in wanted.items():
            if column is not None and (column not in topic.schema.names or not fits(topic.schema.field(column).type)):
                raise InvalidDeclaration(
                    f'topic "{topic.name}" has no column "{column}" of the type that this inlet needs',
                    hint="A prefix needs STRING, a sequence BIGINT, raw bytes BINARY.",
                    topic=topic.name,
                    column=column,
                )
        self.ingest = Ingest(topic, self.counter_store)
        self.dead = DeadMessages(log, name)
        self.frames = ZeromqFrames(
            topic,
            declared.format,
            subscribed=declared.pattern == "sub",
            raw_column=declared.raw_column,
            prefix_column=declared.prefix_column,
        )
        self.gaps = Gaps(declared.sequence, declared.prefix_column)

    def pass_by(self, door: Door | None) -> None:
        """Keep no more of messages than a door lets in."""
        self.ingest.door = MessageDoor(door, self.log, self.topic, self.ingest.id_column)
        self.dead.sealed = True

    def _open(self) -> None:
        zmq, declared = client(), self.declared
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL if declared.pattern == "pull" else zmq.SUB)
        try:
            self._socket.setsockopt(zmq.RCVHWM, declared.queue_max)
            self._socket.setsockopt(zmq.LINGER, 0)
            if declared.pattern == "sub":
                for prefix in declared.subscribe:
                    self._socket.setsockopt(zmq.SUBSCRIBE, prefix.encode())
            (self._socket.bind if declared.bind else self._socket.connect)(declared.address)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            verb = "listen on" if declared.bind else "connect to"
            raise Unavailable(
                f"cannot {verb} {declared.address}: {error}", hint="Give another address; the port may be taken."
            ) from error
        self.counter_store.address = self._socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()
        self._begin(self._receive, "receiver")

    def _close(self) -> None:
        """Nothing: the receiver checks ``_stopping`` regularly."""

    def _receive(self) -> None:
        zmq = client()
        try:
            while not self._stopping.is_set():
                if self._socket.poll(LOOK_AT_STOP_MS):
                    self._take(self._waiting(zmq))
            while messages := self._waiting(zmq):  # received messages are written, also on stop
                self._take(messages)
                if len(messages) < BATCH_MESSAGES_MAX:
                    break
        finally:
            self._context.destroy(linger=0)

    def _waiting(self, zmq: Any) -> list[list[bytes]]:
        """The messages in the socket's queue, up to a batch."""
        found: list[list[bytes]] = []
        try:
            while len(found) < BATCH_MESSAGES_MAX:
                found.append(self._socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            pass
        return found

    def _take(self, received: list[list[bytes]]) -> None:
        try:
            self._write(received)
        except HeadwaterError as error:
            self._count_lost(len(received), error.message)
        except Exception as error:  # a bug of ours, or of a library on strange bytes: logged, and counted as lost
            logger.exception('inlet "%s" failed', self.name)
            self._count_lost(len(received), f"unexpected {type(error).__name__}: {error}")

    def _count_lost(self, messages: int, problem: str) -> None:
        self.counter_store.count(dropped=messages)
        self._has_problem(problem)
        self._stopping.wait(BACKOFF_FIRST_S)

    def _write(self, received: list[list[bytes]]) -> None:
        self.counter_store.count(received=len(received))
        messages: list[IncomingMessage] = []
        places: list[int] = []
        dead: list[DeadMessage] = []
        for place, frames in enumerate(received):
            try:
                if self.declared.format == "arrow":
                    self._write_table(frames)
                    continue
                rows = self.frames.rows(frames)
                messages.append(IncomingMessage(rows))
                places.append(place)
                self.counter_store.count(dropped=self.gaps.in_rows(rows))
            except RowRefused as error:
                self.counter_store.count(refused=1)
                dead.append(_dead(frames, error))

        def take() -> None:
            for at, error in self.ingest.take(messages).refused.items():
                dead.append(_dead(received[places[at]], error))

        if messages and not self._until_it_works(take):
            self.counter_store.count(dropped=sum(len(message.rows) for message in messages))
        self._until_it_works(lambda: self.dead.bury(dead))

    def _write_table(self, frames: list[bytes]) -> None:
        table = self.frames.table(frames)
        self.counter_store.count(dropped=self.gaps.in_table(table))

        def append() -> None:
            token = self.topic.append(table)
            self.counter_store.count(appended=table.num_rows - token.dropped_rows, dropped=token.dropped_rows)

        if not self._until_it_works(append):
            self.counter_store.count(dropped=table.num_rows)


def _dead(frames: list[bytes], error: HeadwaterError) -> DeadMessage:
    source = frames[0].decode("utf-8", "replace")[:200] if len(frames) > 1 else None
    return DeadMessage(frames[-1] if frames else b"", error, source=source)
