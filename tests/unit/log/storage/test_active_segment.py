"""A segment that is still Arrow: written frame by frame, read by offset, checked by checksum."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.errors import CorruptSegment
from headwater.log.storage.active_segment import ArrowSegment, Frame, SegmentWriter, Stamp, joined, segment_name
from headwater.log.storage.files import Files
from headwater.log.storage.frame_index import NO_TIME_MAX, NO_TIME_MIN

SCHEMA = pa.schema([pa.field("x", pa.int64())])


def frame(values):
    batch = pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)
    return Frame(batch.serialize(), len(values), 0, 0, NO_TIME_MIN, NO_TIME_MAX)


@pytest.fixture
def writer(tmp_path):
    writer = SegmentWriter.create(tmp_path, 100, SCHEMA, 1, Files(), durable=True)
    yield writer
    writer.close()


def append(writer, *frames):
    size = writer.held.stat(0).st_size
    listed = ArrowSegment(writer.directory, writer.base_offset)
    following = listed.next_offset
    listed.close()
    return writer.append(
        [frame(f) for f in frames], position=size, base_offset=following, version=1, stamp=Stamp(now_us=5, sync=True)
    )


def values(chunks):
    return [x for chunk in chunks for x in chunk.batch.column("x").to_pylist()]


def test_names_sort_as_offsets_do():
    assert sorted([segment_name(9), segment_name(10), segment_name(123456)]) == [
        segment_name(9),
        segment_name(10),
        segment_name(123456),
    ]


def test_what_is_appended_is_read_from_any_offset_to_any_other(writer):
    append(writer, [0, 1, 2], [3])
    append(writer, [4, 5, 6, 7])
    segment = ArrowSegment(writer.directory, 100)

    assert (segment.base_offset, segment.next_offset) == (100, 108)
    for start in range(9):
        for stop in range(start, 9):
            assert values(segment.read(100 + start, 100 + stop)) == list(range(start, stop))


def test_an_open_segment_sees_what_is_appended_later_and_the_end(writer):
    segment = ArrowSegment(writer.directory, 100)
    append(writer, [1, 2])

    assert segment.refresh()
    assert not segment.refresh()
    assert values(segment.read(100, 102)) == [1, 2]
    assert segment.next_base is None

    writer.roll(102)
    segment.refresh()
    assert segment.next_base == 102


def test_a_flipped_byte_is_an_error_that_names_file_and_offsets(writer):
    entries = append(writer, [1], [2, 3])
    path = writer.directory / f"{segment_name(100)}.arrow"
    contents = bytearray(path.read_bytes())
    contents[entries[1].position + 200] ^= 1
    path.write_bytes(contents)
    segment = ArrowSegment(writer.directory, 100)

    assert values(segment.read(100, 101)) == [1]
    with pytest.raises(CorruptSegment, match="offsets 101 to 102") as damage:
        values(segment.read(100, 103))

    assert damage.value.data == {"file": str(path), "offset": 101}


def test_many_small_frames_are_read_in_few_calls_and_joined(writer):
    append(writer, *[[n] for n in range(500)])
    segment = ArrowSegment(writer.directory, 100)

    chunk = joined(list(segment.read(150, 300)))

    assert (chunk.first_offset, chunk.next_offset, chunk.offsets) == (150, 300, None)
    assert chunk.batch.column("x").to_pylist() == list(range(50, 200))


def test_creating_over_what_an_interrupted_creation_left_begins_anew(tmp_path):
    (tmp_path / f"{segment_name(0)}.arrow").write_bytes(b"half a hea")
    (tmp_path / f"{segment_name(0)}.index").write_bytes(b"x" * 128)

    SegmentWriter.create(tmp_path, 0, SCHEMA, 1, Files(), durable=False).close()

    segment = ArrowSegment(tmp_path, 0)
    assert segment.next_offset == 0
    assert segment.schema.equals(SCHEMA)
