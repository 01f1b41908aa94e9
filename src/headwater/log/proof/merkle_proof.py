"""Merkle proofs (RFC 6962): that a leaf is in a tree, and that a tree continues an earlier one.

What it is: ``MerkleNodes`` makes proofs of the nodes that it knows; ``inclusion_holds``, ``consistency_holds`` and
``subtree_holds`` verify them, with nothing but hashes.
Invariants: a proof has exactly the hashes that it needs; one too many, too few or of another length does not hold. Both
kinds are one recursion over the tree's division: an inclusion is a subtree of one leaf, whose root is known.
Not here: hashes (``merkle_tree.py``), what proofs look like in a file (``upkeep/audit/``).
Read next: ``checkpoints.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.log.proof.merkle_tree import (
    EMPTY_ROOT,
    HASH_BYTES,
    CompactRange,
    largest_power_below,
    node_hash,
    parents,
)


class MerkleNodes:
    """Nodes of one tree: of ranges, and of leaves that proofs are about.

    >>> from headwater.log.proof.merkle_tree import leaf_hash
    >>> leaves = [leaf_hash(bytes([number])) for number in range(7)]
    >>> tree = MerkleNodes()
    >>> tree.add_range(CompactRange.of(0, leaves[:4]))
    >>> tree.add_leaves(4, leaves[4:])
    >>> proof = tree.inclusion(5, 7)
    >>> len(proof), inclusion_holds(leaves[5], 5, 7, proof, tree.root(7))
    (3, True)
    >>> consistency_holds(4, 7, tree.root(4), tree.root(7), tree.consistency(4, 7))
    True
    >>> tree.inclusion(1, 7)
    Traceback (most recent call last):
        ...
    KeyError: 'the tree has no node over leaf 0 alone'
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], bytes] = {}

    def add_range(self, known: CompactRange) -> None:
        """Know the nodes of a range."""
        for level, index, root in known.nodes():
            self._nodes[level, index] = root

    def add_leaves(self, begin: int, leaves: Sequence[bytes]) -> None:
        """Know these leaves, and every node that is over them alone."""
        level, first, row = 0, begin, list(leaves)
        while row:
            self._nodes.update(((level, first + place), root) for place, root in enumerate(row))
            skipped = first & 1
            row = row[skipped:]
            row = parents(row[: len(row) & ~1])
            level, first = level + 1, (first + skipped) >> 1

    def root(self, size: int) -> bytes:
        """The root of the tree of the first ``size`` leaves."""
        return self._root_of(0, size) if size else EMPTY_ROOT

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """The proof that a leaf is in the tree of ``size`` leaves."""
        if not 0 <= index < size:
            raise ValueError(f"leaf {index} is not in a tree of {size}")
        return self._proof(index, index + 1, 0, size, known=True)

    def consistency(self, old: int, new: int) -> list[bytes]:
        """The proof that the tree of ``new`` leaves continues that of ``old`` ones."""
        if not 0 < old <= new:
            raise ValueError(f"a tree of {new} does not continue one of {old}")
        return self.subtree(0, old, new)

    def subtree(self, start: int, end: int, size: int) -> list[bytes]:
        """The proof that the leaves from ``start`` to ``end`` are a subtree of the tree of ``size``."""
        return self._proof(start, end, 0, size, known=True)

    def _proof(self, start: int, end: int, low: int, high: int, *, known: bool) -> list[bytes]:
        if start == low and end == high:
            return [] if known else [self._root_of(low, high)]
        middle = low + largest_power_below(high - low)
        if end <= middle:
            return [*self._proof(start, end, low, middle, known=known), self._root_of(middle, high)]
        if start < middle:  # it reaches over the division; the part to the left is whole
            if start != low:
                raise ValueError(f"leaves {start} to {end} are no subtree")
            return [*self._proof(middle, end, middle, high, known=False), self._root_of(low, middle)]
        return [*self._proof(start, end, middle, high, known=known), self._root_of(low, middle)]

    def _root_of(self, low: int, high: int) -> bytes:
        size = high - low
        if size & (size - 1) == 0:
            level = size.bit_length() - 1
            return self._perfect(level, low >> level)
        middle = low + largest_power_below(size)
        return node_hash(self._root_of(low, middle), self._root_of(middle, high))

    def _perfect(self, level: int, index: int) -> bytes:
        known = self._nodes.get((level, index))
        if known is not None:
            return known
        if level == 0:
            raise KeyError(f"the tree has no node over leaf {index} alone")
        root = node_hash(self._perfect(level - 1, 2 * index), self._perfect(level - 1, 2 * index + 1))
        self._nodes[level, index] = root
        return root


def inclusion_holds(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether the proof shows that the leaf of this hash is the one at ``index`` in the tree of this root."""
    return 0 <= index < size and len(leaf) == HASH_BYTES and _holds(index, index + 1, size, leaf, root, proof)


def consistency_holds(old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the proof shows that a tree continues an earlier one. Of an empty one nothing can be shown."""
    return 0 < old <= new and _holds(0, old, new, old_root, new_root, proof)


def subtree_holds(start: int, end: int, size: int, subroot: bytes, root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the proof shows that the leaves from ``start`` to ``end``, of this root, are a subtree of a tree.

    >>> subtree_holds(4, 4, 8, EMPTY_ROOT, b"", [])  # nothing is a part of everything
    True
    """
    if not 0 <= start <= end <= size:
        return False
    if start == end:
        return subroot == EMPTY_ROOT and not proof
    return _holds(start, end, size, subroot, root, proof)


def _holds(start: int, end: int, size: int, subroot: bytes, root: bytes, proof: Sequence[bytes]) -> bool:
    if (start, end) == (0, size):
        return not proof and subroot == root
    if any(len(each) != HASH_BYTES for each in (subroot, *proof)):
        return False  # what is hashed side by side has one length, so that it can be divided in one way only
    left = list(proof)
    try:
        was, is_now = _rebuilt(start, end, size, subroot, left)
    except ValueError:
        return False
    return not left and was == subroot and is_now == root


def _rebuilt(start: int, end: int, size: int, known: bytes | None, left: list[bytes]) -> tuple[bytes, bytes]:
    """The roots of the subtree and of the tree over it, taking from the end of the proof what is beside the way."""
    if start == 0 and end == size:
        found = _taken(left) if known is None else known
        return found, found
    beside, middle = _taken(left), largest_power_below(size)
    if end <= middle:
        was, is_now = _rebuilt(start, end, middle, known, left)
        return was, node_hash(is_now, beside)
    if start >= middle:
        was, is_now = _rebuilt(start - middle, end - middle, size - middle, known, left)
        return was, node_hash(beside, is_now)
    if start:
        raise ValueError("these leaves are no subtree")
    was, is_now = _rebuilt(0, end - middle, size - middle, None, left)
    return node_hash(beside, was), node_hash(beside, is_now)


def _taken(left: list[bytes]) -> bytes:
    if not left:
        raise ValueError("the proof is too short")
    return left.pop()
