"""Clock correction: the event time of rows from devices with clocks of their own.

What it is: a topic declared with ``clock=("occurred_at", "sent_at")`` has three more columns, filled on append: the
corrected event time, ``received_at``, and ``clock_offset_ms``, received less sent.
Invariants: the device's values are stored unchanged; a corrected time is never after the time of receipt and at most
``BOUND_MS`` before it; equal in meaning to ``headwater.clock.correct``.
Not here: the expression for views (``clock.py``). Read next: ``clock.py``, ``topic.py``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import BOUND_MS
from headwater.errors import InvalidDeclaration
from headwater.log.topic_settings import TopicSettings

RECEIVED, OFFSET = "received_at", "clock_offset_ms"
TIME = pa.timestamp("us", tz="UTC")


def with_clock_columns(schema: pa.Schema, settings: TopicSettings) -> pa.Schema:
    """The declared columns and those that are filled on append.

    >>> settings = TopicSettings(event_time="at", clock=("occurred_at", "sent_at"))
    >>> with_clock_columns(pa.schema([("occurred_at", TIME), ("sent_at", TIME)]), settings).names
    ['occurred_at', 'sent_at', 'at', 'received_at', 'clock_offset_ms']
    """
    if settings.clock is None:
        return schema
    for name in settings.clock:
        if name not in schema.names or schema.field(name).type != TIME:
            raise InvalidDeclaration(
                f'clock names the column "{name}", which is not a TIMESTAMP column of this topic',
                hint="Both columns hold times of the device's clock: when it happened, and when it was sent.",
                column=name,
            )
    return pa.schema(
        [*schema, *(pa.field(name, kind) for name, kind in _clock_columns(settings) if name not in schema.names)]
    )


def input_schema(schema: pa.Schema, settings: TopicSettings) -> pa.Schema:
    """The columns that an append must provide."""
    if settings.clock is None:
        return schema
    filled = {name for name, _ in _clock_columns(settings)}
    return pa.schema([field for field in schema if field.name not in filled])


def corrected(batch: pa.RecordBatch, schema: pa.Schema, settings: TopicSettings, now_us: int) -> pa.RecordBatch:
    """The appended rows with the other columns filled.

    >>> settings = TopicSettings(event_time="at", clock=("occurred_at", "sent_at"))
    >>> schema = with_clock_columns(pa.schema([("occurred_at", TIME), ("sent_at", TIME)]), settings)
    >>> sent = pa.record_batch({"occurred_at": pa.array([0], TIME), "sent_at": pa.array([4_000_000], TIME)})
    >>> row = corrected(sent, schema, settings, now_us=3_600_000_000).to_pylist()[0]
    >>> row["at"].isoformat(), row["clock_offset_ms"]  # four seconds before it came; the device is an hour slow
    ('1970-01-01T00:59:56+00:00', 3596000)
    """
    if settings.clock is None:
        return batch
    assert settings.event_time is not None
    occurred, sent = (batch.column(name).cast(pa.int64()) for name in settings.clock)
    received = pa.array(np.full(batch.num_rows, now_us, dtype=np.int64))
    # The time it took on the device; without a time of sending its clock is taken as right.
    elapsed = pc.coalesce(pc.subtract(sent, occurred), pc.subtract(received, occurred), pa.scalar(0, pa.int64()))
    elapsed = pc.min_element_wise(pc.max_element_wise(elapsed, 0), BOUND_MS * 1000)
    filled = {
        settings.event_time: pc.subtract(received, elapsed).cast(TIME),
        RECEIVED: received.cast(TIME),
        OFFSET: pc.divide(pc.subtract(received, sent), 1000),
    }
    arrays = [filled[field.name] if field.name in filled else batch.column(field.name) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _clock_columns(settings: TopicSettings) -> list[tuple[str, pa.DataType]]:
    return [(settings.event_time or "", TIME), (RECEIVED, TIME), (OFFSET, pa.int64())]
