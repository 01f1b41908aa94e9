"""Producer: a buffer that takes single rows and appends batches.

What it is: ``Producer`` appends when enough rows have come or a short time has passed.
Invariants: rows are written in the order of ``send`` and are in the log when ``flush`` returns. A refused batch is
raised by the next ``send`` or ``flush``, never dropped in silence. A named producer numbers its batches, so a retry is
not written twice; a batch that failed (a full disk, backpressure) is retried before any later one.
Not here: conversion of rows (``log/schema/row_conversion.py``), durability (the topic's ``fsync``).
Read next: ``topic.py``.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import ClosedError
from headwater.log.commits.append_request import taken_over
from headwater.log.commits.sequence_ranges import CHUNKS_PER_SEQUENCE
from headwater.log.event_time import heartbeats
from headwater.log.schema.event_metadata import Metadata, with_metadata
from headwater.log.token import Token

if TYPE_CHECKING:
    from headwater.log.contract import EventTopic


class Producer:
    """A buffered producer, created by ``topic.producer()``. Threads may share one.

    ``last_sequence`` is the highest number that is in the log. A program that died in the middle of an append does not
    know whether it was written, and tries the same number again: if it is there, it is recognised.

    >>> import headwater as hw, tempfile
    >>> topic = hw.Log(tempfile.mkdtemp()).topic("t", "x INT")
    >>> producer = topic.producer("importer")
    >>> producer.last_sequence  # nothing yet
    -1
    >>> token = producer.append([{"x": 1}], sequence=10)
    >>> token = producer.append([{"x": 1}], sequence=10)  # recognised
    >>> producer.last_sequence, topic.end_offsets()
    (10, {0: 1})
    >>> producer.send({"x": 2})  # buffered
    >>> str(producer.flush())
    't:0=2'
    >>> producer.close()
    """

    def __init__(self, topic: EventTopic, name: str | None, *, batch_rows: int, linger: float) -> None:
        self.topic = topic
        self.name = name
        self.batch_rows = batch_rows
        self.linger = linger
        # The writing thread takes rows from the left while others append: no row falls between two lists.
        self._buffer: deque[Any] = deque()
        self._unfinished: tuple[pa.RecordBatch, int] | None = None
        self._lock = threading.RLock()
        self._token = Token({topic.name: {}})
        self._error: BaseException | None = None
        self._closed = False
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._id, self.epoch, self.last_sequence = 0, 0, -1
        if name is not None:
            opened = topic.open_producer(name)
            self._id, self.epoch, stored = opened.id, opened.epoch, opened.last_sequence
            self.last_sequence = stored // CHUNKS_PER_SEQUENCE if stored >= 0 else -1

    def send(self, row: Any) -> None:
        """Buffer one row; it is written with others, at the latest after ``linger`` seconds."""
        buffer = self._buffer
        buffer.append(row)
        if len(buffer) >= self.batch_rows or self._error is not None:
            self.flush()
        elif len(buffer) == 1:
            self._start_lingering()

    def append(self, rows: Any, *, sequence: int | None = None, metadata: Metadata | None = None) -> Token:
        """Write a batch at once, after the buffered rows. Without ``sequence`` it gets the next one."""
        with self._lock:
            self._flush()
            return self._append(rows, sequence, metadata)

    def flush(self) -> Token:
        """Write the buffered rows; returns a token that contains every row sent so far."""
        with self._lock:
            self._flush()
            return self._token

    def heartbeat(self, nothing_before: dt.datetime) -> Token:
        """Promise that this producer will send no row before a moment. The buffered rows are written first.

        >>> import datetime as dt, headwater as hw, tempfile
        >>> topic = hw.Log(tempfile.mkdtemp()).topic("clicks", "at TIMESTAMP", event_time="at")
        >>> with topic.producer("phone") as producer:
        ...     _ = producer.heartbeat(dt.datetime(2026, 1, 1, 12))
        >>> topic.watermark()["producers"][0]["producer"]
        'phone'
        """
        self.flush()
        return heartbeats.send(self.topic, nothing_before, self._id)

    def require_newest(self, db: sqlite3.Connection) -> None:
        """Raise ``Fenced`` when a newer producer has taken the name; inside a transaction of the catalog."""
        row = db.execute("SELECT epoch FROM producers WHERE id = ?", (self._id,)).fetchone()
        newest = 0 if row is None else int(row["epoch"])
        if self.name is not None and newest != self.epoch:
            raise taken_over(self.name, self.epoch, newest)

    def _flush(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            self._wanted.set()  # later rows are still in the buffer
            raise error
        if self._closed and self._buffer:
            raise ClosedError("this producer is closed", hint="Make a new one with topic.producer().")
        self._finish()
        rows = self._taken()
        if rows:
            self._append(rows, None)

    def _taken(self) -> list[Any]:
        take = self._buffer.popleft
        return [take() for _ in range(len(self._buffer))]

    def _append(self, rows: Any, sequence: int | None, metadata: Metadata | None = None) -> Token:
        batch = with_metadata(self.topic.row_batch(rows), metadata)
        if self.name is not None:
            self._unfinished = (batch, self.last_sequence + 1 if sequence is None else sequence)
            return self._finish()
        token = self.topic.append_batch(batch)
        self._token = self._token | token
        return token

    def _finish(self) -> Token:
        """Write the numbered batch that is not confirmed yet; if it is in the log, it is recognised."""
        if self._unfinished is None:
            return self._token
        batch, number = self._unfinished
        token = self.topic.append_batch(
            batch, producer=self.name, sequence=number, producer_id=self._id, epoch=self.epoch
        )
        self._unfinished = None
        self.last_sequence = max(self.last_sequence, number)
        self._token = self._token | token
        return token

    def _start_lingering(self) -> None:
        if self._closed:
            self._buffer.clear()
            raise ClosedError("this producer is closed", hint="Make a new one with topic.producer().")
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._linger, name="headwater-producer", daemon=True)
                    self._thread.start()
        self._wanted.set()

    def _linger(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closed:
                return
            self.topic.clock.sleep(self.linger)
            with self._lock:
                if self._closed:
                    return
                if self._error is not None:
                    continue  # the caller gets the error first; later rows stay in the buffer
                try:
                    self._flush()
                except BaseException as error:  # raised by the next send or flush
                    self._error = error

    def close(self) -> None:
        """Write the buffered rows and stop."""
        with self._lock:
            if self._closed:
                return
            try:
                self._flush()
            finally:
                self._closed = True
                self._wanted.set()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
