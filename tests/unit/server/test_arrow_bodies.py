"""Arrow bodies from strangers: whatever the bytes are, rows or a refusal with a sentence."""

from __future__ import annotations

import datetime as dt
import io
import resource
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.errors import RowRefused
from headwater.server.http.renderings import ARROW, rows_text
from headwater.server.http.request_bodies import rows_of
from headwater.server.routes.topic_routes import read_rows

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3]),
        "at": pa.array([NOON] * 3, pa.timestamp("us", "UTC")),
        "name": pa.array(["a", "bb", None]).dictionary_encode(),
        "list": pa.array([[1], [2, 3], None]),
    }
)


def stream(table: pa.Table, compression: str | None = None, *, file: bool = False) -> bytes:
    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(out, table.schema, options=options) as writer:
        writer.write_table(table)
    return out.getvalue()


WHOLE = [stream(ROWS, compression, file=file) for file in (False, True) for compression in (None, "zstd", "lz4")]


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hw.Topic]:
    with hw.Log(tmp_path_factory.mktemp("arrow") / "home", maintenance_interval=None) as log:
        schema = "id BIGINT, at TIMESTAMP, name STRING, list ARRAY<BIGINT>"
        yield log.topic("events", schema, event_time="at")


@st.composite
def damaged(draw: Any) -> bytes:
    """A stream or file with some bytes changed, and perhaps its end cut off."""
    body = bytearray(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(0, 8))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body[: draw(st.one_of(st.just(len(body)), st.integers(0, len(body))))])


@settings(max_examples=500, deadline=None, derandomize=True)
@given(damaged())
@example(WHOLE[0].replace(b"name", b"n\xffme"))  # once an error of the server: a name that is no UTF-8, and a value
@example(WHOLE[0].replace(b"abb", b"a\xffb"))
def test_a_damaged_stream_is_refused_with_a_sentence_or_can_be_read_again(topic: hw.Topic, body: bytes) -> None:
    before = topic.end_offsets()
    try:
        topic.append(rows_of(body, ARROW, topic.schema))
    except RowRefused:
        assert topic.end_offsets() == before

    rows_text(read_rows(topic, before, 10)[1])  # what was taken can also be told


# Made when they are needed: each takes seconds, and a process that only collects this file needs none.
BOMBS: dict[str, Callable[[], pa.Table]] = {
    "compressed zeros": lambda: pa.table({"name": pa.array(["\0" * 300_000_000])}),
    "rows of nothing": lambda: pa.table({"id": pa.nulls(500_000_000)}),
    "one long word of a dictionary": lambda: pa.table(
        {"name": pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array(["x" * 1_000_000]))}
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_stream_that_unpacks_to_gigabytes_is_refused_before_it_is_unpacked(bomb: str) -> None:
    body = stream(BOMBS[bomb](), "zstd" if bomb == "compressed zeros" else None)
    before = pa.total_allocated_bytes()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(RowRefused, match="unpacks to far more than its size"):
        rows_of(body, ARROW, pa.schema([("id", pa.int64()), ("name", pa.string())]))

    assert pa.total_allocated_bytes() == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 64 << 10, "in KiB"


def test_a_sound_stream_is_taken_compressed_or_not() -> None:
    for body in WHOLE[:3]:
        assert rows_of(body, ARROW, ROWS.schema).to_pylist() == ROWS.to_pylist()
