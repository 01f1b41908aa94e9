"""Damage that no program made: cut files and flipped bytes.

What it is: a small topic, closed; then each byte of its last frame and of its whole index is flipped, or the file is
cut there; then it is opened.
Invariants: opening never fails and says what it did; what is read is a prefix of what was written, at least up to the
frame before the damage; appending goes on from there and survives another opening. Damage in the middle of what was
synced, and in a sealed segment, is an error when it is read, never silence.
Not here: crashes (``test_every_boundary.py``).
Read next: ``log/storage/recovery.py``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headwater.errors import CorruptSegment
from headwater.log.maintenance.sealing import seal_partition
from headwater.log.storage.active_segment import ArrowSegment
from headwater.log.storage.frame_index import ENTRY_BYTES
from tests.crash.ledger import QuietLog, many

FRAMES = ([1, 2], [3], [4, 5, 6])
ALL = [x for frame in FRAMES for x in frame]
# A file that was closed in order is the same under each policy, and recovery does not ask for it: so by default one
# policy meets the even places and the other the odd ones. HEADWATER_THOROUGH=2 lets both meet all.
POLICIES = ("always", "interval")


def places(home: Path, first: int, end: int, step: int = 1) -> range:
    """Where files are damaged: every ``step`` bytes, of which each policy has its share."""
    shares = max(1, len(POLICIES) // many(1))
    return range(first + step * (POLICIES.index(home.name) % shares), end, step * shares)


@pytest.fixture(params=POLICIES)
def written(request: pytest.FixtureRequest, quick_path: Path) -> Path:
    """A home with three appends, all synced."""
    home = quick_path / request.param
    with QuietLog(home) as log:
        topic = log.topic("t", "x BIGINT", fsync=request.param)
        for frame in FRAMES:
            topic.append([{"x": x} for x in frame])
        topic.partition(0).sync()
    return home


def files_of(home: Path) -> tuple[Path, Path]:
    (data,) = home.glob("topics/*/0/*.arrow")
    return data, data.with_suffix(".index")


def damaged_copy(home: Path, *, suffix: str, cut: int | None = None, flip: int | None = None) -> Path:
    copy = home.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(home, copy)
    path = files_of(copy)[0].with_suffix(suffix)
    contents = bytearray(path.read_bytes())
    if cut is not None:
        del contents[cut:]
    if flip is not None:
        contents[flip] ^= 0x41
    path.write_bytes(contents)
    return copy


def open_append_and_open_again(home: Path, *, at_least: int) -> tuple[list[int], bool]:
    """What could be read, and whether anything was said; checks that the log goes on from there."""
    with QuietLog(home) as log:
        topic = log.get_topic("t")
        survivors = [row["x"] for row in topic.rows()]
        assert survivors == ALL[: len(survivors)], "not a prefix of what was written"
        assert len(survivors) in (at_least, 2, 3, 6), "half a batch"
        assert len(survivors) >= at_least
        told = bool(log.recoveries)
        topic.append([{"x": 100}])
    with QuietLog(home) as log:
        assert [row["x"] for row in log.get_topic("t").rows()] == [*survivors, 100]
        assert log.recoveries == []
        report = log.check()
        assert report.ok, str(report)
    return survivors, told


def frame_positions(home: Path) -> list[int]:
    """Where each frame begins, and where the last ends."""
    data, _ = files_of(home)
    segment = ArrowSegment(data.parent, 0)
    positions = segment.entries["position"].tolist()
    segment.close()
    return [*positions, data.stat().st_size]


def test_cutting_the_data_anywhere_in_the_last_two_frames_keeps_the_whole_ones(written: Path) -> None:
    _, second, third, end = frame_positions(written)

    for cut in places(written, second, end):
        home = damaged_copy(written, suffix=".arrow", cut=cut)
        survivors, told = open_append_and_open_again(home, at_least=2 if cut < third else 3)
        # Only the padding after the last frame can go without a row going.
        assert told or survivors == ALL


def test_flipping_any_byte_of_the_last_frame_never_yields_a_wrong_row(written: Path) -> None:
    _, _, third, end = frame_positions(written)

    for flip in places(written, third, end):
        home = damaged_copy(written, suffix=".arrow", flip=flip)
        survivors, told = open_append_and_open_again(home, at_least=3)
        assert told or survivors == ALL


def test_cutting_the_index_anywhere_loses_nothing(written: Path) -> None:
    _, index = files_of(written)

    for cut in places(written, 0, index.stat().st_size, 3):
        home = damaged_copy(written, suffix=".index", cut=cut)
        survivors, told = open_append_and_open_again(home, at_least=6)
        assert survivors == ALL
        assert told


def test_flipping_any_byte_of_the_index_loses_nothing(written: Path) -> None:
    _, index = files_of(written)

    for flip in places(written, 0, index.stat().st_size):
        home = damaged_copy(written, suffix=".index", flip=flip)
        survivors, told = open_append_and_open_again(home, at_least=6)
        assert survivors == ALL
        assert told


def test_a_lost_index_is_made_anew(written: Path) -> None:
    home = damaged_copy(written, suffix=".index")
    files_of(home)[1].unlink()

    survivors, told = open_append_and_open_again(home, at_least=6)

    assert survivors == ALL
    assert told


def test_a_flipped_byte_in_the_middle_of_synced_rows_is_an_error_not_a_gap(written: Path) -> None:
    first, second, third, _ = frame_positions(written)

    for flip in [*range(first + ENTRY_BYTES, first + ENTRY_BYTES + 64, 7), *range(second + ENTRY_BYTES, third - 64, 7)]:
        home = damaged_copy(written, suffix=".arrow", flip=flip)
        with QuietLog(home) as log:
            topic = log.get_topic("t")
            assert topic.end_offsets() == {0: 6}
            with pytest.raises(CorruptSegment, match="are damaged") as damage:
                list(topic.rows())
            assert not log.check().ok

        assert "backup" in str(damage.value)
        assert damage.value.data["file"].endswith(".arrow")


def test_a_damaged_header_with_rows_behind_it_is_an_error_and_the_file_is_left_alone(written: Path) -> None:
    for flip in (0, 5, 17, ENTRY_BYTES - 1, ENTRY_BYTES + 3):
        home = damaged_copy(written, suffix=".arrow", flip=flip)
        data, _ = files_of(home)
        before = data.read_bytes()

        with QuietLog(home) as log, pytest.raises(CorruptSegment, match="header"):
            list(log.get_topic("t").rows())
        assert data.read_bytes() == before


def test_a_flipped_byte_anywhere_in_a_sealed_segment_is_an_error_when_it_is_read(written: Path) -> None:
    with QuietLog(written) as log:
        topic = log.get_topic("t")
        topic.partition(0).roll()
        assert seal_partition(topic, 0) == 1
    (sealed,) = written.glob("topics/*/0/*.parquet")
    whole = sealed.read_bytes()

    for flip in places(written, 0, len(whole), 11):
        sealed.write_bytes(whole[:flip] + bytes([whole[flip] ^ 0x41]) + whole[flip + 1 :])
        with QuietLog(written) as log:
            with pytest.raises(CorruptSegment, match="is damaged"):
                list(log.get_topic("t").rows())
            assert flip % 5 or not log.check().ok


def test_a_sealed_segment_that_is_cut_or_gone_is_an_error_when_it_is_read(written: Path) -> None:
    with QuietLog(written) as log:
        topic = log.get_topic("t")
        topic.partition(0).roll()
        seal_partition(topic, 0)
    (sealed,) = written.glob("topics/*/0/*.parquet")
    whole = sealed.read_bytes()

    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        sealed.write_bytes(whole[:size])
        with QuietLog(written) as log, pytest.raises(CorruptSegment, match="is damaged"):
            list(log.get_topic("t").rows())
    sealed.unlink()
    with QuietLog(written) as log, pytest.raises(CorruptSegment, match="no segment holds offset 0"):
        list(log.get_topic("t").rows())
