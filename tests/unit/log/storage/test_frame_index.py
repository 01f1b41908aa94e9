"""The entry and the index: what is packed comes back, and nothing damaged does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.storage.frame_index import DATA, ENTRY_BYTES, HEADER, ROLL, Entry, padded, padding, read_entries

NUMBERS = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(0, 2**31 - 1)
ENTRIES = st.builds(
    Entry,
    kind=st.sampled_from([HEADER, DATA, ROLL]),
    base_offset=NUMBERS,
    position=NUMBERS,
    length=NUMBERS,
    rows=SMALL,
    schema_version=SMALL,
    producer=NUMBERS,
    sequence=NUMBERS,
    appended_us=NUMBERS,
    time_min=NUMBERS,
    time_max=NUMBERS,
    payload_checksum=st.integers(0, 2**64 - 1),
    flags=st.integers(0, 2**16 - 1),
)


@given(ENTRIES)
def test_an_entry_comes_back_as_it_was_packed(entry):
    packed = entry.pack()

    assert len(packed) == ENTRY_BYTES
    assert Entry.unpack(packed) == entry
    assert Entry.of(read_entries(packed)[0]) == entry


@given(ENTRIES, st.integers(0, ENTRY_BYTES - 1), st.integers(1, 255))
def test_no_damaged_byte_goes_unnoticed(entry, at, change):
    packed = bytearray(entry.pack())
    packed[at] ^= change

    assert Entry.unpack(bytes(packed)) is None
    assert len(read_entries(bytes(packed))) == 0


@given(st.lists(ENTRIES, max_size=5), st.integers(0, ENTRY_BYTES - 1))
def test_an_index_is_read_up_to_the_first_entry_that_is_not_whole(entries, cut):
    data = b"".join(entry.pack() for entry in entries)

    whole = read_entries(data + Entry(kind=DATA, base_offset=0, position=0, length=0).pack()[:cut])

    assert [Entry.of(each) for each in whole] == entries


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 1000])
def test_frames_begin_at_multiples_of_sixty_four(length):
    assert padded(length) % 64 == 0
    assert padded(length) - length == len(padding(length)) < 64


def test_the_layout_on_disk_is_pinned():
    entry = Entry(
        kind=DATA,
        base_offset=1,
        position=2,
        length=3,
        rows=4,
        schema_version=5,
        producer=6,
        sequence=7,
        appended_us=8,
        time_min=9,
        time_max=10,
        payload_checksum=11,
        flags=1,
    )

    # A home written today must be readable for ever: whoever changes this raises FORMAT in home.py.
    assert entry.pack().hex() == (
        "48573031020001000100000000000000020000000000000003000000000000000400000005000000"
        "0600000000000000070000000000000008000000000000000900000000000000"
        "0a000000000000000b00000000000000" + "00" * 32 + "f737944fa7cd9a9f"
    )
