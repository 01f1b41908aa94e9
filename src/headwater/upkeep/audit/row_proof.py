"""Row proofs: documents by which somebody without the home sees that a row was in the log, and that the log only grew.

What it is: ``prove_row`` and ``prove_growth`` make them, as JSON; ``check_proof`` verifies one with SHA-256 alone.
Invariants: a document has all that is hashed, as text: whoever verifies needs no Headwater. It holds against the root
that was noted elsewhere, not against the one that it brings along. The values of a row are in it, also personal ones:
whoever gets the document gets them.
Not here: hashes (``log/proof/``). Read next: ``docs/audit.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from headwater.clock import format_us
from headwater.errors import Misuse, OffsetOutOfRange
from headwater.log.proof.checkpoints import Checkpoint, Checkpoints
from headwater.log.proof.merkle_proof import MerkleNodes, consistency_holds, inclusion_holds
from headwater.log.proof.merkle_tree import HASH_BYTES, CompactRange, leaf_hash
from headwater.log.proof.row_commitments import leaf_data, leaves_of
from headwater.log.storage.framing import stored_schema

if TYPE_CHECKING:
    from headwater.log.topic import Topic

FORMAT = 1


def prove_row(topic: Topic, number: int, offset: int) -> dict[str, Any]:
    """The proof that a row is in the partition up to its newest checkpoint.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> orders = log.topic("orders", "id BIGINT", proof=True)
    >>> _ = orders.append([{"id": 1}, {"id": 2}])
    >>> orders.partition(0).roll(), log.maintain().ok
    (True, True)
    >>> proof = prove_row(orders, 0, 1)
    >>> check_proof(proof, proof["root"]).ok, check_proof({**proof, "offset": 0}, proof["root"]).ok
    (True, False)
    """
    every = Checkpoints.of(topic, number).all()
    holder = next((each for each in every if each.base_offset <= offset < each.next_offset), None)
    if holder is None:
        raise _not_covered(topic, number, offset, every)
    if holder.file is None:
        raise OffsetOutOfRange(
            f'the row {offset} of topic "{topic.name}" partition {number} is not kept any more',
            detail="Retention has dropped it, and what proves it with it. Proofs that were made before hold.",
            topic=topic.name,
            offset=offset,
        )
    nodes, parts = MerkleNodes(), list[dict[str, Any]]()
    for each in every:
        if each is not holder:
            nodes.add_range(each.subtrees)
    for found in holder.read():
        leaves = leaves_of(found.first_offset, found.commitments.tobytes(), len(holder.parts))
        if found.first_offset <= offset < found.next_offset:
            nodes.add_leaves(holder.index(found.first_offset), leaves)
            place = offset - found.first_offset
            texts = _texts(topic, holder, offset) if found.kept[place].any() else {}
            for part in range(len(holder.parts)):
                said: dict[str, Any] = {"commitment": found.commitments[place, part].tobytes().hex()}
                if found.kept[place, part] and part in texts:
                    said |= {"text": texts[part], "salt": found.salts[place, part].tobytes().hex()}
                parts.append(said)
        else:
            nodes.add_range(CompactRange.of(holder.index(found.first_offset), leaves))
    newest, index = every[-1], holder.index(offset)
    return {
        **_head("row", topic, number),
        "offset": offset,
        "index": index,
        "parts": parts,
        "size": newest.size,
        "root": newest.root.hex(),
        "at": format_us(newest.made_us),
        "hashes": [each.hex() for each in nodes.inclusion(index, newest.size)],
    }


def prove_growth(topic: Topic, number: int, size: int) -> dict[str, Any]:
    """The proof that the partition's newest checkpoint continues the one with ``size`` leaves."""
    every, nodes = Checkpoints.of(topic, number).all(), MerkleNodes()
    old = next((each for each in every if each.size == size), None)
    if old is None:
        sizes = ", ".join(str(each.size) for each in every[-5:]) or "none"
        raise Misuse(
            f'topic "{topic.name}" partition {number} has no checkpoint of size {size}',
            hint=f"The newest ones have: {sizes}. A proof begins at a checkpoint that was noted.",
        )
    for each in every:
        nodes.add_range(each.subtrees)
    new = every[-1]
    return {
        **_head("growth", topic, number),
        "old_size": size,
        "old_root": old.root.hex(),
        "size": new.size,
        "root": new.root.hex(),
        "at": format_us(new.made_us),
        "hashes": [each.hex() for each in nodes.consistency(size, new.size)],
    }


def _head(kind: str, topic: Topic, number: int) -> dict[str, Any]:
    return {
        "headwater_proof": FORMAT,
        "kind": kind,
        "home": topic.log.identity,
        "topic": topic.name,
        "partition": number,
    }


def _texts(topic: Topic, holder: Checkpoint, offset: int) -> dict[int, str]:
    """The texts of a row's parts, as it is in its segment now; empty when it is not there."""
    row = topic.row_for_reading(holder.schema_version)
    schema = stored_schema(row.schemas[holder.schema_version], row)
    segment = topic.log.registry.sealed_at(topic.id, holder.partition, topic.directory / str(holder.partition), offset)
    for chunk in segment.read(offset, offset + 1, None) if segment is not None else ():
        if chunk.batch.num_rows:
            return {part: texts[0] for part, texts in enumerate(holder.parts.texts(chunk, schema))}
    return {}


def _not_covered(topic: Topic, number: int, offset: int, every: list[Checkpoint]) -> Misuse:
    if not topic.settings.proof and not every:
        return Misuse(
            f'topic "{topic.name}" keeps no proofs',
            hint="Declare it with proof=True: its rows are hashed when they are sealed.",
            topic=topic.name,
        )
    covered = f"Covered are offsets {every[0].base_offset} to {every[-1].next_offset - 1}." if every else None
    return Misuse(
        f'no checkpoint of topic "{topic.name}" partition {number} has offset {offset}',
        detail=covered,
        hint="Rows are hashed when their segment is sealed: headwater audit checkpoint --seal does it now.",
        topic=topic.name,
    )


# Verification, without a home


@dataclass(frozen=True)
class CheckedProof:
    """What a document shows, or why it does not."""

    ok: bool
    says: str
    shown: tuple[str, ...] = ()  # the texts of the row that are proven
    erased: int = 0  # parts of the row whose values are not kept any more

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return {"ok": self.ok, "says": self.says, "shown": list(self.shown), "erased": self.erased}


def check_proof(document: Mapping[str, Any], root: str, *, old_root: str | None = None) -> CheckedProof:
    """Verify a document against a root that was noted elsewhere; of growth, also the older one."""
    try:
        if document["headwater_proof"] != FORMAT:
            return CheckedProof(False, f"it is of format {document['headwater_proof']!r}, which is not known here")
        hashes, trusted = [bytes.fromhex(each) for each in document["hashes"]], bytes.fromhex(root)
        size, place = int(document["size"]), f"{document['topic']}[{document['partition']}]"
        if document["kind"] == "growth":
            old, was = int(document["old_size"]), bytes.fromhex(old_root or document["old_root"])
            if consistency_holds(old, size, was, trusted, hashes):
                return CheckedProof(True, f"{place} of {size} rows continues the one of {old} rows")
            return CheckedProof(False, f"{place} of {size} rows is not shown to continue the one of {old} rows")
        return _row_checked(document, place, size, hashes, trusted)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        return CheckedProof(False, f"the document is no proof: {type(error).__name__}: {error}")


def _row_checked(
    document: Mapping[str, Any], place: str, size: int, hashes: list[bytes], trusted: bytes
) -> CheckedProof:
    offset, commitments, shown = int(document["offset"]), b"", []
    for part in document["parts"]:
        commitment = bytes.fromhex(part["commitment"])
        if len(commitment) != HASH_BYTES:
            raise ValueError("a commitment has 32 bytes")
        if "text" in part:
            text = part["text"].encode("utf-8", "surrogatepass")
            if sha256(bytes.fromhex(part["salt"]) + text).digest() != commitment:
                return CheckedProof(False, f"{place}@{offset}: the text {part['text']} is not the one that was hashed")
            shown.append(part["text"])
        commitments += commitment
    leaf = leaf_hash(leaf_data(offset, commitments))
    if not inclusion_holds(leaf, int(document["index"]), size, hashes, trusted):
        return CheckedProof(False, f"{place}@{offset} is not shown to be in the tree with this root")
    erased = len(document["parts"]) - len(shown)
    return CheckedProof(True, f"{place}@{offset} is in the tree with this root", tuple(shown), erased)
