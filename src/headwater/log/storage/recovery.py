"""Recovery: the repair of a partition's tail after a crash.

What it is: ``recover_tail`` restores the last segment's two files to the last whole frame.
Invariants: a frame is kept when its bytes match its checksum; a whole frame that the index lacks is added, one of a
commit over several partitions only if that was decided (``log/commits/commit_records.py``); the rest is cut off and
reported. A second run changes nothing. Damage below the synced length, with whole frames after it, is
corruption and no crash: nothing is cut; reading and ``check`` report it. The caller holds the partition's lock.
Not here: sealed segments (never repaired), group positions (``partition_writer.py`` clamps them).
Read next: ``partition_writer.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from headwater.log.storage.active_segment import segment_name
from headwater.log.storage.files import Files
from headwater.log.storage.frame_index import (
    CONTINUES,
    DATA,
    DURABLE,
    ENTRY_BYTES,
    HEADER,
    ROLL,
    Entry,
    padded,
    padding,
)


@dataclass(frozen=True)
class Recovery:
    """The result of recovering one partition's last segment."""

    file: str
    next_offset: int
    cut_bytes: int = 0
    adopted_rows: int = 0
    lost_rows: int = 0
    mended: bool = False  # the index, or the last frame's entry, was damaged and rewritten; no row was lost by that
    empty: bool = False  # the segment was never completely created; it was removed

    @property
    def changed(self) -> bool:
        return bool(self.cut_bytes or self.adopted_rows or self.lost_rows or self.mended or self.empty)

    def __str__(self) -> str:
        if self.empty:
            return f"{self.file}: removed, its creation was interrupted"
        parts = [f"{self.file}: recovered to offset {self.next_offset}"]
        if self.adopted_rows:
            parts.append(f"{self.adopted_rows} whole rows had not been listed yet and were kept")
        if self.cut_bytes:
            parts.append(f"{self.cut_bytes} bytes of an unfinished write were cut off")
        if self.lost_rows:
            parts.append(f"{self.lost_rows} listed rows did not survive")
        if self.mended and len(parts) == 1:
            parts.append("a damaged index entry was rewritten")
        return "; ".join(parts)


def recover_tail(directory: Path, base_offset: int, files: Files, is_committed: Callable[[int], bool]) -> Recovery:
    """Repair the last segment of a partition. See the module's invariants."""
    name = segment_name(base_offset)
    data_path, index_path = directory / f"{name}.arrow", directory / f"{name}.index"
    data_fd = files.create(data_path, label="recover.open_data")
    try:
        index_fd = files.create(index_path, label="recover.open_index")
        try:
            return _recover(data_path, data_fd, index_path, index_fd, base_offset, files, is_committed)
        finally:
            os.close(index_fd)
    finally:
        os.close(data_fd)


def _recover(
    data_path: Path,
    data_fd: int,
    index_path: Path,
    index_fd: int,
    base_offset: int,
    files: Files,
    is_committed: Callable[[int], bool],
) -> Recovery:
    data_bytes = os.fstat(data_fd).st_size
    header = _whole_frame(data_fd, 0, data_bytes)
    if header is None or header.kind != HEADER:
        if _header_was_synced(index_fd):
            return Recovery(str(data_path), base_offset)  # not a crash but damage: reading reports it
        # The index first: an index without data would be swept as a leftover at any time.
        files.unlink(index_path, label="recover.remove_index")
        files.unlink(data_path, label="recover.remove_data")
        return Recovery(str(data_path), base_offset, empty=True)

    listed, synced, roll = _listed(index_fd, header, base_offset)
    kept, lost_rows = _verified(data_fd, data_bytes, listed, synced)
    end = kept[-1].end if kept else header.end
    next_offset = kept[-1].next_offset if kept else base_offset
    lost = len(kept) < len(listed)
    roll = roll if not lost else None

    adopted: list[Entry] = []
    while roll is None and not lost:  # frames that were written whole but whose entry was not
        frame = _whole_frame(data_fd, end, data_bytes)
        if frame is None or frame.kind != DATA or frame.base_offset != next_offset:
            break
        if frame.transaction and not is_committed(frame.transaction):
            break
        adopted.append(frame)
        end, next_offset = frame.end, frame.next_offset
    while adopted and adopted[-1].flags & CONTINUES:  # the first frames of a large append whose last was not written
        torn = adopted.pop()
        end, next_offset = torn.position, torn.base_offset

    cut_bytes = max(0, data_bytes - end)
    if data_bytes != end:  # it may also be too short: the padding after the last frame was cut
        files.truncate(data_fd, end, label="recover.cut_data")
    if adopted or not synced:
        # Adopted frames may have been written for fsync="always" and not been synced: a retry of the same append is
        # recognised from here on, and acknowledged, so they must be synced.
        files.sync(data_fd, label="recover.sync_data")
        synced = end
    mended = _mend_index(index_fd, base_offset, kept, adopted, roll, min(synced, end), files)
    if kept:
        mended = _mend_frame(data_fd, kept[-1], files) or mended
    return Recovery(str(data_path), next_offset, cut_bytes, sum(entry.rows for entry in adopted), lost_rows, mended)


def _header_was_synced(index_fd: int) -> bool:
    """Whether the index says that the data file's header was synced; then rows may follow it."""
    first = Entry.unpack(os.pread(index_fd, ENTRY_BYTES, 0))
    return first is not None and first.kind == HEADER and first.position > 0


def _listed(index_fd: int, header: Entry, base_offset: int) -> tuple[list[Entry], int, Entry | None]:
    """The index's consecutive good entries, the synced position, and the ROLL entry if there is one."""
    size = os.fstat(index_fd).st_size
    data = os.pread(index_fd, size, 0)
    first = Entry.unpack(data)
    synced = first.position if first is not None and first.kind == HEADER else 0
    entries: list[Entry] = []
    position, offset = header.end, base_offset
    for at in range(ENTRY_BYTES, size, ENTRY_BYTES):
        entry = Entry.unpack(data[at : at + ENTRY_BYTES])
        if entry is not None and entry.kind == ROLL and entry.base_offset == offset:
            return entries, synced, entry
        if entry is None or entry.kind != DATA or entry.position != position or entry.base_offset != offset:
            break
        entries.append(entry)
        position, offset = entry.end, entry.next_offset
    return entries, synced, None


def _verified(data_fd: int, data_bytes: int, listed: list[Entry], synced: int) -> tuple[list[Entry], int]:
    """The listed frames that may stay. Only unsynced ones, and the last, are verified."""
    for number, entry in enumerate(listed):
        past_the_end = entry.position + ENTRY_BYTES + entry.length > data_bytes
        unsure = (entry.end > synced and not entry.flags & DURABLE) or number == len(listed) - 1
        if past_the_end or (unsure and not _payload_holds(data_fd, entry)):
            return listed[:number], sum(entry.rows for entry in listed[number:])
    return listed, 0


def _payload_holds(data_fd: int, entry: Entry) -> bool:
    payload = os.pread(data_fd, entry.length, entry.position + ENTRY_BYTES)
    return len(payload) == entry.length and xxhash.xxh3_64_intdigest(payload) == entry.payload_checksum


def _whole_frame(data_fd: int, position: int, data_bytes: int) -> Entry | None:
    """The frame at this byte, when its entry and its payload are both whole."""
    if position + ENTRY_BYTES > data_bytes:
        return None
    entry = Entry.unpack(os.pread(data_fd, ENTRY_BYTES, position))
    if entry is None or entry.position != position or position + ENTRY_BYTES + padded(entry.length) > data_bytes:
        return None
    return entry if _payload_holds(data_fd, entry) else None


def _mend_frame(data_fd: int, entry: Entry, files: Files) -> bool:
    """Rewrite a frame's damaged entry and padding; its rows are known to be whole."""
    mended = False
    rows_end = entry.position + ENTRY_BYTES + entry.length
    for wanted, position in ((entry.pack(), entry.position), (padding(entry.length), rows_end)):
        if os.pread(data_fd, len(wanted), position) != wanted:
            files.write_at(data_fd, wanted, position, label="recover.write_frame")
            mended = True
    return mended


def _mend_index(
    index_fd: int,
    base_offset: int,
    kept: list[Entry],
    adopted: list[Entry],
    roll: Entry | None,
    synced: int,
    files: Files,
) -> bool:
    """Make the index match the data file; returns whether it was changed."""
    size = os.fstat(index_fd).st_size
    have = os.pread(index_fd, size, 0)
    header = Entry.unpack(have)
    mended = False
    if header is None or header.kind != HEADER or header.position > synced:
        fresh = Entry(kind=HEADER, base_offset=base_offset, position=synced, length=0).pack()
        files.write_at(index_fd, fresh, 0, label="recover.write_index_header")
        size = max(size, ENTRY_BYTES)
        mended = True
    # Entries that stay are left in place, since other processes may read them; the rest is cut and rewritten. A crash
    # in between loses only copies of entries in the data file.
    wanted = b"".join(entry.pack() for entry in [*kept, *adopted] + ([roll] if roll else []))
    have = have[ENTRY_BYTES:]
    same = 0
    while same < len(wanted) and have[same : same + ENTRY_BYTES] == wanted[same : same + ENTRY_BYTES]:
        same += ENTRY_BYTES
    if size > ENTRY_BYTES + same:
        files.truncate(index_fd, ENTRY_BYTES + same, label="recover.cut_index")
        mended = True
    if wanted[same:]:
        files.write(index_fd, [wanted[same:]], label="recover.write_index")
        mended = True
    return mended
