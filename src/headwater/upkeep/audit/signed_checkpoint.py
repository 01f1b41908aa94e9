"""Signed checkpoints: the newest root of each partition, signed, in the format of https://c2sp.org/tlog-checkpoint.

What it is: ``sign_checkpoints`` writes a note for each partition; ``SignedCheckpoint`` is what such a note says, and
``verified`` reads notes that a key has signed.
Invariants: each partition is a log of its own, whose origin, and name of the key, is the key's name with the topic and
the number of the partition; so one key signs for all, and no note passes for another partition's. The key is never in
the home whose history it signs.
Not here: notes and keys (``signed_note.py``), comparing with a home (``log_audit.py``).
Read next: ``signed_note.py``; ``docs/audit.md``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import KeyRefused, Misuse
from headwater.log.proof.merkle_tree import HASH_BYTES
from headwater.upkeep.audit.log_audit import checkpoints_of
from headwater.upkeep.audit.signed_note import PRIVATE, SigningKey, VerifierKey, notes_in, parts_of

if TYPE_CHECKING:
    from headwater.log.home import Log


@dataclass(frozen=True)
class SignedCheckpoint:
    """What a note says of a partition.

    >>> key = SigningKey("shop.example.com", bytes(32))
    >>> checkpoint = SignedCheckpoint("shop.example.com", "orders", 0, 7, bytes(32))
    >>> print(checkpoint.text, end="")
    shop.example.com/orders/0
    7
    AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
    >>> SignedCheckpoint.verified(checkpoint.signed(key), key.verifier) == checkpoint
    True
    """

    name: str  # of the key
    topic: str
    partition: int
    size: int
    root: bytes

    @property
    def origin(self) -> str:
        """Which log it is of."""
        return f"{self.name}/{self.topic}/{self.partition}"

    @property
    def text(self) -> str:
        """What is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    def signed(self, key: SigningKey) -> str:
        """The note."""
        return key.named(self.origin).sign(self.text)

    def to_dict(self) -> dict[str, Any]:
        """As ``checkpoints_of`` tells a checkpoint, as far as the note says it."""
        return {"topic": self.topic, "partition": self.partition, "size": self.size, "root": self.root.hex()}

    @staticmethod
    def verified(note: str, key: VerifierKey) -> SignedCheckpoint | None:
        """What a note says; None when the key has not signed it."""
        found = _read(parts_of(note)[0], key.name)
        return found if found is not None and key.named(found.origin).opens(note) is not None else None


def _read(text: str, name: str) -> SignedCheckpoint | None:
    """The checkpoint that a text is; None when it is of a log of another name."""
    lines = text.splitlines()
    try:
        origin, size, root = lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True)
        if len(root) != HASH_BYTES or str(size) != lines[1] or size < 0:
            raise ValueError("a root has 32 bytes, a size no sign")
    except (IndexError, ValueError, binascii.Error) as error:
        raise Misuse(
            "this note is no checkpoint",
            detail="Its first lines are an origin, the number of rows, and the root in base64.",
            hint="See https://c2sp.org/tlog-checkpoint for the format.",
        ) from error
    topic, _, number = origin.removeprefix(f"{name}/").rpartition("/")
    if not origin.startswith(f"{name}/") or not topic or not number.isdecimal():
        return None
    return SignedCheckpoint(name, topic, int(number), size, root)


def sign_checkpoints(log: Log, key: SigningKey, names: Sequence[str] = (), *, seal: bool = False) -> dict[str, str]:
    """The notes of the newest checkpoints, by the name of a file for each.

    >>> import headwater as hw, tempfile
    >>> log = hw.Log(tempfile.mkdtemp())
    >>> _ = log.topic("orders", "id BIGINT", proof=True).append([{"id": 1}])
    >>> list(sign_checkpoints(log, SigningKey.new("shop.example.com"), seal=True))
    ['orders-0-1.note']
    """
    found = {}
    for each in checkpoints_of(log, names, seal=seal):
        checkpoint = SignedCheckpoint(
            key.name, each["topic"], each["partition"], each["size"], bytes.fromhex(each["root"])
        )
        found[f"{checkpoint.topic}-{checkpoint.partition}-{checkpoint.size}.note"] = checkpoint.signed(key)
    return found


def verified(text: str, key: VerifierKey) -> tuple[list[SignedCheckpoint], list[str]]:
    """The checkpoints of all notes in a text, and the first line of each that the key has not signed."""
    found, refused = list[SignedCheckpoint](), list[str]()
    for note in notes_in(text):
        checkpoint = SignedCheckpoint.verified(note, key)
        if checkpoint is None:
            refused.append(note.splitlines()[0])
        else:
            found.append(checkpoint)
    return found, refused


def root_of(note: str, key: VerifierKey, proof: Mapping[str, Any], *, old: bool = False) -> str:
    """The root that a note says, for a proof of the same partition and size; ``old``: of the size it grew from."""
    found = SignedCheckpoint.verified(note, key)
    if found is None:
        raise KeyRefused(f"the note of {note.splitlines()[0]} is not signed with the key of {key.name}")
    place = (proof.get("topic"), proof.get("partition"), proof.get("old_size" if old else "size"))
    if (found.topic, found.partition, found.size) != place:
        raise Misuse(
            f"the note is of {found.topic}[{found.partition}] with {found.size} rows, and the proof of "
            f"{place[0]}[{place[1]}] with {place[2]}",
            hint="A proof holds against the checkpoint it was made for: sign it right before.",
        )
    return found.root.hex()


def signing_key(path: Path, home: Path) -> SigningKey:
    """The key in a file outside of a home."""
    if path.resolve().is_relative_to(home.resolve()):
        raise KeyRefused(
            f"the key {path} is in the home whose history it signs",
            detail="Who can write to the home could sign another history with it.",
            hint="Keep it where only the program that signs can read it, on another machine if possible.",
        )
    return SigningKey.read(path)


def verifier_key(given: str) -> VerifierKey:
    """The key that is given as a text, or by a file with it; a file with the signing key has it, too.

    >>> verifier_key(str(SigningKey("shop.example.com", bytes(32)).verifier)).name
    'shop.example.com'
    """
    path = Path(given)
    if "+" in given and not path.exists():
        return VerifierKey.parse(given)
    try:
        text = path.read_text("ascii", "replace")
    except OSError as error:
        raise KeyRefused(f"the key file {given} cannot be read: {error.strerror}") from error
    return SigningKey.read(path).verifier if text.startswith(PRIVATE) else VerifierKey.parse(text)
