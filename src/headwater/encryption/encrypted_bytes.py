"""Encrypted bytes: a form of which every change is noticed.

What it is: ``encrypted`` encrypts pieces of bytes, ``decrypted`` decrypts them, ``plain_bytes`` tells the size inside.

    8 bytes     b"HWENC1\\n\\0"
    8 bytes     the id of the data key
    32 bytes    salt, random
    blocks      each 256 KiB, the last one shorter, encrypted by AES-256-GCM, with 16 bytes of tag

Invariants: the key of each object is derived from the data key, the salt and the place where it belongs: so no two
objects share a key, and one that was put in another's place does not open. The nonce of a block is its number and
whether it is the last one: blocks that are missing, cut off, doubled or in another order do not open. Nothing is given
out that was not authenticated, but what comes before a cut is given out first: the end is known only at the end.
Not here: keys (``data_key.py``), places (``upkeep/backup/encrypted_store.py``). Read next: ``encrypted_store.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headwater.encryption.data_key import ID_BYTES, DataKey
from headwater.errors import MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"HWENC1\n\0"
SALT_BYTES = 32
HEADER_BYTES = len(MAGIC) + ID_BYTES + SALT_BYTES
BLOCK_BYTES = 256 << 10
TAG_BYTES = 16
ENCRYPTED_BLOCK_BYTES = BLOCK_BYTES + TAG_BYTES


class NotDecrypted(Exception):
    """These bytes are not what was encrypted with this key for this place, or not all of it."""


def encrypted(pieces: Iterable[bytes], key: DataKey, place: str) -> Iterator[bytes]:
    """The same bytes encrypted, for one place.

    >>> key = DataKey.new()
    >>> made = b"".join(encrypted([b"cup", b"board"], key, "a"))
    >>> b"".join(decrypted([made], key, "a")), b"cup" in made, plain_bytes(len(made))
    (b'cupboard', False, 8)
    >>> list(decrypted([made], key, "b"))
    Traceback (most recent call last):
        ...
    headwater.encryption.encrypted_bytes.NotDecrypted: block 0 was changed, or belongs to another place
    """
    salt = os.urandom(SALT_BYTES)
    cipher = _cipher(key, salt, place)
    yield MAGIC + key.id + salt
    for number, block, last in _blocks(pieces, BLOCK_BYTES):
        yield cipher.encrypt(_nonce(number, last=last), block, None)


def decrypted(pieces: Iterable[bytes], key: DataKey, place: str) -> Iterator[bytes]:
    """What was encrypted; ``NotDecrypted`` at the first block that is not what was written."""
    source = iter(pieces)
    head = bytearray()
    while len(head) < HEADER_BYTES and (piece := next(source, None)) is not None:
        head += piece
    if len(head) < HEADER_BYTES or head[: len(MAGIC)] != MAGIC:
        raise NotDecrypted("it does not begin as an encrypted object does")
    if head[len(MAGIC) : len(MAGIC) + ID_BYTES] != key.id:
        raise NotDecrypted("it was encrypted with another data key")
    with MissingExtra.raised_for("encryption", "encryption"):
        from cryptography.exceptions import InvalidTag
    cipher = _cipher(key, bytes(head[HEADER_BYTES - SALT_BYTES : HEADER_BYTES]), place)
    for number, block, last in _blocks(_following(bytes(head[HEADER_BYTES:]), source), ENCRYPTED_BLOCK_BYTES):
        try:
            plain = cipher.decrypt(_nonce(number, last=last), block, None)
        except (InvalidTag, ValueError) as error:
            raise NotDecrypted(f"block {number} was changed, or belongs to another place") from error
        yield plain


def plain_bytes(size: int) -> int:
    """How many bytes were encrypted into so many; 0 for what is too small.

    >>> sizes = [len(b"".join(encrypted([bytes(n)], DataKey.new(), ""))) for n in (0, 1, 262_144, 262_145, 600_000)]
    >>> [plain_bytes(size) for size in sizes]
    [0, 1, 262144, 262145, 600000]
    """
    inside = size - HEADER_BYTES
    return max(0, inside - TAG_BYTES * max(1, -(-inside // ENCRYPTED_BLOCK_BYTES)))


def _cipher(key: DataKey, salt: bytes, place: str) -> AESGCM:
    with MissingExtra.raised_for("encryption", "encryption"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM(key.derived(b"headwater object\0" + place.encode(), salt=salt))


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\1" if last else b"\0")


def _blocks(pieces: Iterable[bytes], size: int) -> Iterator[tuple[int, bytes | memoryview, bool]]:
    """The same bytes in blocks of one size, numbered; whether it is the last one, which may be shorter.

    Blocks of a large piece are not copied. There is at least one.
    """
    number, rest = 0, b""
    for piece in pieces:
        data, begin = memoryview(piece), 0
        if rest:
            begin = min(len(data), size - len(rest))
            rest += data[:begin]
            if begin == len(data):  # the block may be the last one: it waits for what follows
                continue
            yield number, rest, False
            number += 1
        while len(data) - begin > size:
            yield number, data[begin : begin + size], False
            number, begin = number + 1, begin + size
        rest = bytes(data[begin:])
    yield number, rest, True


def _following(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from others
