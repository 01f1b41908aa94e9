"""Encrypted bytes: what was changed, cut off, doubled, swapped or put elsewhere does not open."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from headwater.encryption.data_key import DataKey
from headwater.encryption.encrypted_bytes import (
    BLOCK_BYTES,
    HEADER_BYTES,
    NotDecrypted,
    decrypted,
    encrypted,
    plain_bytes,
)

KEY = DataKey(bytes(range(32)))
WHOLE_BLOCK = BLOCK_BYTES + 16
SIZES = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES, 3 * BLOCK_BYTES + 5]


def in_pieces(data: bytes, chance: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = chance.choice([0, 1, 7, 4096, BLOCK_BYTES, WHOLE_BLOCK, 5 * BLOCK_BYTES])
        yield data[at : at + size]
        at += size


@pytest.mark.parametrize("size", SIZES)
def test_what_comes_in_any_pieces_comes_out_as_it_was(size: int) -> None:
    chance, data = random.Random(size), os.urandom(size)

    made = b"".join(encrypted(in_pieces(data, chance), KEY, "a"))

    assert b"".join(decrypted(in_pieces(made, chance), KEY, "a")) == data
    assert plain_bytes(len(made)) == size
    assert size < 16 or data[:16] not in made


def test_the_form_is_what_the_documentation_says() -> None:
    """Decrypted by hand, from docs/encryption.md alone."""
    data = os.urandom(BLOCK_BYTES + 9)

    made = b"".join(encrypted([data], KEY, "objects/a"))

    salt = made[16:48]
    cipher = AESGCM(HKDF(SHA256(), 32, salt, b"headwater object\0objects/a").derive(KEY.secret))
    first, last = made[48 : 48 + WHOLE_BLOCK], made[48 + WHOLE_BLOCK :]
    assert made[:8] == b"HWENC1\n\0"
    assert cipher.decrypt(bytes(12), first, None) + cipher.decrypt(bytes(10) + b"\1\1", last, None) == data


def test_the_same_bytes_are_encrypted_differently_each_time() -> None:
    one, two = (b"".join(encrypted([b"x" * 1000], KEY, "a")) for _ in range(2))

    assert one[HEADER_BYTES:] != two[HEADER_BYTES:]


def damaged_forms() -> dict[str, bytes]:
    made = b"".join(encrypted([os.urandom(3 * BLOCK_BYTES + 5)], KEY, "a"))
    head, body = made[:HEADER_BYTES], made[HEADER_BYTES:]
    blocks = [body[at : at + WHOLE_BLOCK] for at in range(0, len(body), WHOLE_BLOCK)]
    other = b"".join(encrypted([os.urandom(3 * BLOCK_BYTES + 5)], KEY, "a"))
    flipped = {}
    for at in (0, 8, 16, 47, HEADER_BYTES, HEADER_BYTES + WHOLE_BLOCK - 1, len(made) // 2, len(made) - 1):
        changed = bytearray(made)
        changed[at] ^= 0x10
        flipped[f"byte {at} flipped"] = bytes(changed)
    return flipped | {
        "nothing": b"",
        "the header cut": made[: HEADER_BYTES - 1],
        "the header alone": head,
        "the last byte cut": made[:-1],
        "the last block cut": head + b"".join(blocks[:-1]),
        "all but the first block cut": head + blocks[0],
        "a byte more": made + b"\0",
        "the last block twice": made + blocks[-1],
        "the first block left out": head + b"".join(blocks[1:]),
        "two blocks swapped": head + blocks[1] + blocks[0] + b"".join(blocks[2:]),
        "a block of another object": head
        + blocks[0]
        + other[HEADER_BYTES + WHOLE_BLOCK :][:WHOLE_BLOCK]
        + b"".join(blocks[2:]),
        "not encrypted": b"PAR1" + os.urandom(1000),
    }


@pytest.mark.parametrize("data", [pytest.param(data, id=what) for what, data in damaged_forms().items()])
def test_what_is_not_as_it_was_written_does_not_open(data: bytes) -> None:
    with pytest.raises(NotDecrypted):
        list(decrypted(in_pieces(data, random.Random(1)), KEY, "a"))


def test_an_object_opens_only_in_its_place_and_with_its_key() -> None:
    made = b"".join(encrypted([b"cups"], KEY, "a"))

    with pytest.raises(NotDecrypted, match="belongs to another place"):
        list(decrypted([made], KEY, "b"))
    with pytest.raises(NotDecrypted, match="with another data key"):
        list(decrypted([made], DataKey.new(), "a"))
