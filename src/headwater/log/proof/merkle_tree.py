"""Merkle tree (RFC 6962): one hash that stands for a whole sequence, and grows with it.

What it is: the hashes of leaves and nodes, and ``CompactRange``, the fewest nodes that a run of leaves is known by.
Invariants: a leaf's hash begins with a zero byte and a node's with a one, so that neither can be passed off as the
other. A range over n leaves has at most 2 log2(n) nodes; two neighbouring ranges make one, so a segment costs its own
rows and no others. The root of no leaves is the hash of nothing.
Not here: proofs (``merkle_proof.py``), what is hashed (``row_commitments.py``).
Read next: ``merkle_proof.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()
LEAF, NODE = b"\x00", b"\x01"
_HEAD, _PIECE = struct.Struct(">QQI"), struct.Struct(">B32s")


def leaf_hash(data: bytes) -> bytes:
    """The hash of a leaf.

    >>> leaf_hash(b"").hex()[:16]
    '6e340b9cffb37a98'
    """
    return sha256(LEAF + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of a node over two others.

    >>> node_hash(leaf_hash(b""), leaf_hash(b"\\x00")).hex()[:16]
    'fac54203e7cc696c'
    """
    return sha256(NODE + left + right).digest()


def largest_power_below(size: int) -> int:
    """Where a tree of at least two leaves is divided: the largest power of two that is less than its size.

    >>> [largest_power_below(size) for size in (2, 3, 4, 5, 8, 9)]
    [1, 2, 2, 4, 4, 8]
    """
    return 1 << ((size - 1).bit_length() - 1)


@dataclass(frozen=True)
class CompactRange:
    """The roots of the largest perfect subtrees over the leaves from ``begin`` up to ``end``, from left to right.

    >>> first = CompactRange.of(0, [leaf_hash(b"a"), leaf_hash(b"b"), leaf_hash(b"c")])
    >>> [(level, index) for level, index, _ in first.nodes()]
    [(1, 0), (0, 2)]
    >>> both = first + CompactRange.of(3, [leaf_hash(b"d")])
    >>> both == CompactRange.of(0, [leaf_hash(each) for each in (b"a", b"b", b"c", b"d")])
    True
    >>> CompactRange.unpack(both.pack()).root() == both.root()
    True
    """

    begin: int
    end: int
    pieces: tuple[tuple[int, bytes], ...]  # the level of each subtree (0: a leaf) and its root

    @staticmethod
    def of(begin: int, leaves: Sequence[bytes]) -> CompactRange:
        """The range over these leaves' hashes."""
        left: list[tuple[int, bytes]] = []
        right: list[tuple[int, bytes]] = []
        level, first, row = 0, begin, list(leaves)
        while row:
            if first & 1:
                left.append((level, row.pop(0)))
                first += 1
            if len(row) & 1:
                right.append((level, row.pop()))
            row = parents(row)
            level, first = level + 1, first >> 1
        return CompactRange(begin, begin + len(leaves), (*left, *reversed(right)))

    def __add__(self, following: CompactRange) -> CompactRange:
        """The range over both."""
        if following.begin != self.end:
            raise ValueError(f"a range that begins at {following.begin} does not follow one that ends at {self.end}")
        stack = list(self.pieces)
        starts = [index << level for level, index, _ in self.nodes()]
        for level, index, root in following.nodes():
            start = index << level
            while stack and stack[-1][0] == level and start >> level & 1:
                root = node_hash(stack.pop()[1], root)
                level, start = level + 1, starts.pop()
            stack.append((level, root))
            starts.append(start)
        return CompactRange(self.begin, following.end, tuple(stack))

    def nodes(self) -> Iterator[tuple[int, int, bytes]]:
        """Level, index within the level, and root of each subtree."""
        start = self.begin
        for level, root in self.pieces:
            yield level, start >> level, root
            start += 1 << level

    def root(self) -> bytes:
        """The root of the tree whose leaves these are; only of a range from 0."""
        if self.begin:
            raise ValueError(f"a range that begins at {self.begin} is no tree")
        if not self.pieces:
            return EMPTY_ROOT
        root = self.pieces[-1][1]
        for _, left in reversed(self.pieces[:-1]):
            root = node_hash(left, root)
        return root

    def pack(self) -> bytes:
        """The range as bytes."""
        pieces = b"".join(_PIECE.pack(level, root) for level, root in self.pieces)
        return _HEAD.pack(self.begin, self.end, len(self.pieces)) + pieces

    @staticmethod
    def unpack(packed: bytes) -> CompactRange:
        """The range of such bytes; ``ValueError`` when they are none."""
        try:
            begin, end, count = _HEAD.unpack_from(packed)
            if len(packed) != _HEAD.size + count * _PIECE.size:
                raise ValueError("the bytes of a range are cut off")
            pieces = tuple((level, root) for level, root in _PIECE.iter_unpack(packed[_HEAD.size :]))
        except struct.error as error:
            raise ValueError("these bytes are no range") from error
        if begin + sum(1 << level for level, _ in pieces) != end:
            raise ValueError("the subtrees of a range are not as many leaves as it says")
        return CompactRange(begin, end, pieces)


def parents(row: Sequence[bytes]) -> list[bytes]:
    """The nodes over an even number of neighbours."""
    return [sha256(NODE + left + right).digest() for left, right in zip(row[::2], row[1::2], strict=True)]
