"""Merkle proofs against RFC 6962's own definitions, written out recursively, and against roots that are known."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.proof.merkle_proof import MerkleNodes, consistency_holds, inclusion_holds, subtree_holds
from headwater.log.proof.merkle_tree import CompactRange, leaf_hash

# The eight leaves of Certificate Transparency's tests, and the roots of the trees of the first one to eight of them.
KNOWN_LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
KNOWN_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


# The definitions of RFC 6962, section 2.1.


def mth(leaves: list[bytes]) -> bytes:
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    k = split(len(leaves))
    return sha256(b"\x01" + mth(leaves[:k]) + mth(leaves[k:])).digest()


def split(n: int) -> int:
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def path(m: int, leaves: list[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    return [*path(m, leaves[:k]), mth(leaves[k:])] if m < k else [*path(m - k, leaves[k:]), mth(leaves[:k])]


def subproof(m: int, leaves: list[bytes], whole: bool) -> list[bytes]:
    n = len(leaves)
    if m == n:
        return [] if whole else [mth(leaves)]
    k = split(n)
    if m <= k:
        return [*subproof(m, leaves[:k], whole), mth(leaves[k:])]
    return [*subproof(m - k, leaves[k:], False), mth(leaves[:k])]


def grown(leaves: list[bytes], cuts: list[int]) -> MerkleNodes:
    """What is known when only the ranges between cuts are kept, and not a leaf."""
    tree = MerkleNodes()
    for begin, end in zip([0, *cuts], [*cuts, len(leaves)], strict=True):
        tree.add_range(CompactRange.of(begin, [leaf_hash(each) for each in leaves[begin:end]]))
    return tree


def test_the_roots_of_certificate_transparencys_eight_leaves():
    leaves = [bytes.fromhex(each) for each in KNOWN_LEAVES]

    roots = [CompactRange.of(0, [leaf_hash(each) for each in leaves[:size]]).root() for size in range(1, 9)]

    assert [root.hex() for root in roots] == KNOWN_ROOTS
    assert CompactRange.of(0, []).root() == sha256(b"").digest()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=3), max_size=70), st.data())
def test_ranges_that_are_put_together_are_the_range_of_the_whole(leaves, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(leaves)), max_size=6)))
    hashes = [leaf_hash(each) for each in leaves]

    whole = CompactRange.of(0, [])
    for begin, end in zip([0, *cuts], [*cuts, len(leaves)], strict=True):
        piece = CompactRange.of(begin, hashes[begin:end])
        assert CompactRange.unpack(piece.pack()) == piece
        whole += piece

    assert whole == CompactRange.of(0, hashes)
    assert whole.root() == mth(leaves)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=3), min_size=1, max_size=70), st.data())
def test_an_inclusion_proof_is_that_of_the_definition_and_holds(leaves, data):
    index = data.draw(st.integers(0, len(leaves) - 1))
    begin = data.draw(st.integers(0, index))
    tree, hashes = grown(leaves, [begin]), [leaf_hash(each) for each in leaves]
    tree.add_leaves(begin, hashes[begin:])

    proof = tree.inclusion(index, len(leaves))

    assert proof == path(index, leaves)
    assert inclusion_holds(hashes[index], index, len(leaves), proof, mth(leaves))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=3), min_size=1, max_size=70), st.data())
def test_ranges_between_checkpoints_are_enough_to_show_that_one_continues_the_other(leaves, data):
    cuts = sorted(data.draw(st.lists(st.integers(1, len(leaves)), min_size=1, max_size=6)))
    old = data.draw(st.sampled_from(cuts))
    new = data.draw(st.sampled_from([each for each in (*cuts, len(leaves)) if each >= old]))

    proof = grown(leaves, cuts).consistency(old, new)

    assert proof == subproof(old, leaves[:new], True)
    assert consistency_holds(old, new, mth(leaves[:old]), mth(leaves[:new]), proof)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=3), min_size=2, max_size=40), st.data())
def test_no_changed_proof_holds(leaves, data):
    size = len(leaves)
    old = data.draw(st.integers(1, size - 1))
    index = data.draw(st.integers(0, size - 1))
    was, root, leaf = mth(leaves[:old]), mth(leaves), leaf_hash(leaves[index])
    member, continued = path(index, leaves), subproof(old, leaves, True)

    for proof in (member, continued):
        changed = [[*proof, proof[0]], proof[:-1], proof[1:], [root, *proof], [was, *proof], [*proof, root], []]
        bit = data.draw(st.integers(0, 255))
        for place, each in enumerate(proof):
            flipped = bytearray(each)
            flipped[bit // 8] ^= 1 << bit % 8
            changed += [[*proof[:place], bytes(flipped), *proof[place + 1 :]], [*proof[:place], each + b"\0"]]
        for each in changed:
            assert not (proof is member and inclusion_holds(leaf, index, size, each, root))
            assert not (proof is continued and consistency_holds(old, size, was, root, each))
    assert not consistency_holds(old, size, root, was, continued) or was == root
    assert not inclusion_holds(leaf_hash(b"other"), index, size, member, root)
    for index_, size_ in ((-1, size), (size, size), (index + size, size), (0, 0)):
        assert not inclusion_holds(leaf, index_, size_, member, root)
    for old_, size_ in ((0, size), (size + 1, size), (old, 0), (-1, size)):
        assert not consistency_holds(old_, size_, was, root, continued)


def test_leaves_that_are_no_subtree_have_no_proof():
    leaves = [bytes([number]) for number in range(15)]
    tree = MerkleNodes()
    tree.add_leaves(0, [leaf_hash(each) for each in leaves])

    assert subtree_holds(4, 6, 15, mth(leaves[4:6]), mth(leaves), tree.subtree(4, 6, 15))
    assert subtree_holds(8, 15, 15, mth(leaves[8:]), mth(leaves), tree.subtree(8, 15, 15))
    for start, end in ((1, 3), (2, 6), (1, 15)):
        with pytest.raises(ValueError, match="no subtree"):
            tree.subtree(start, end, 15)
        assert not subtree_holds(start, end, 15, mth(leaves[start:end]), mth(leaves), [leaf_hash(b"")] * 4)


def test_bytes_that_are_no_range_are_refused():
    packed = CompactRange.of(3, [leaf_hash(b"a")] * 5).pack()

    for wrong in (b"", packed[:-1], packed + b"x", packed[:7] + b"\x09" + packed[8:]):
        with pytest.raises(ValueError, match="range"):
            CompactRange.unpack(wrong)
