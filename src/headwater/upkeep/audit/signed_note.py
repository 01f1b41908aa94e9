"""Signed notes: a text with Ed25519 signatures, in the format of https://c2sp.org/signed-note.

What it is: ``SigningKey`` signs a text, ``VerifierKey`` opens a note; both are written as that format writes keys, so
that other programs verify ours, and ours theirs.
Invariants: a note opens only for a key whose name and id one of its signatures has, and none of these may be wrong.
Signatures of others are passed over. A signing key is in a file that its owner alone can read, and in no message.
Not here: what is signed (``signed_checkpoint.py``). Cosignatures of witnesses are signatures of others here.
Read next: ``signed_checkpoint.py``.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import KeyRefused, MissingExtra, Misuse

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ED25519 = b"\x01"
KEY_BYTES, SIGNATURE_BYTES, ID_BYTES = 32, 64, 4
PRIVATE = "PRIVATE+KEY+"
DASH = "\N{EM DASH} "
SIGNATURES_MAX = 100
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
KEY_FORM = "A verifier key is NAME+ID+KEY on one line, as `headwater audit key show FILE` writes it."


@dataclass(frozen=True)
class VerifierKey:
    """A name and a public key: what somebody needs who verifies.

    >>> key = VerifierKey.parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    >>> key.name, str(key) == "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
    ('PeterNeumann', True)
    """

    name: str
    public: bytes

    @property
    def id(self) -> bytes:
        """Which key a signature is of: the start of a hash over name and key."""
        return _id(self.name, self.public)

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{_text(ED25519 + self.public)}"

    @staticmethod
    def parse(text: str) -> VerifierKey:
        """The key that such a text is."""
        parts = text.strip().split("+", 2)
        data = _bytes(parts[2]) if len(parts) == 3 else None
        if data is None or not is_name(parts[0]) or len(data) != 1 + KEY_BYTES or data[:1] != ED25519:
            raise KeyRefused(f"{text.strip()[:100]!r} is no verifier key", detail=KEY_FORM)
        key = VerifierKey(parts[0], data[1:])
        if key.id.hex() != parts[1]:
            raise KeyRefused(
                f"the verifier key of {key.name} has the id {parts[1]}, and its bytes {key.id.hex()}",
                detail="It was not copied whole.",
            )
        return key

    def named(self, name: str) -> VerifierKey:
        """The same key under another name."""
        return VerifierKey(name, self.public)

    def opens(self, note: str) -> str | None:
        """The text of a note that this key has signed; None when it has not, or a signature of it is wrong."""
        text, signatures = parts_of(note)
        mine = [data for name, key, data in signatures if (name, key) == (self.name, self.id)]
        return text if mine and all(self._holds(data, text) for data in mine) else None

    def _holds(self, signature: bytes, text: str) -> bool:
        with MissingExtra.raised_for("signed checkpoints", "encryption"):
            from cryptography.exceptions import InvalidSignature
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, text.encode())
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """A name and a private key.

    >>> key = SigningKey("example.com/log", bytes(32))
    >>> note = key.sign("hello\\n")
    >>> key.verifier.opens(note), key.verifier.opens(note.replace("hello", "hallo"))
    ('hello\\n', None)
    """

    name: str
    seed: bytes = field(repr=False)

    @property
    def verifier(self) -> VerifierKey:
        """Its public half."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return VerifierKey(self.name, self._private().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    def _private(self) -> Ed25519PrivateKey:
        with MissingExtra.raised_for("signed checkpoints", "encryption"):
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    def named(self, name: str) -> SigningKey:
        """The same key under another name."""
        return SigningKey(name, self.seed)

    def sign(self, text: str) -> str:
        """The note of a text."""
        if not text.endswith("\n") or CONTROL.search(text):
            raise Misuse("a text that is signed ends with a line feed, and has no other control characters")
        signature = self.verifier.id + self._private().sign(text.encode())
        return f"{text}\n{DASH}{self.name} {_text(signature)}\n"

    def write(self, path: Path) -> None:
        """Write it to a file that only its owner can read; a file that is there is never replaced."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise KeyRefused(f"{path} is there already", hint="A key is never replaced. Name another file.") from error
        except OSError as error:
            raise KeyRefused(f"the key file {path} cannot be made: {error.strerror}") from error
        with os.fdopen(fd, "w") as file:
            file.write(f"{PRIVATE}{self.name}+{self.verifier.id.hex()}+{_text(ED25519 + self.seed)}\n")
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def new(name: str) -> SigningKey:
        """A key that nobody has."""
        if not is_name(name):
            raise Misuse(
                f"a key cannot have the name {name!r}",
                hint="Use the name of the log without a scheme, as in shop.example.com: no spaces, no plus sign.",
            )
        return SigningKey(name, secrets.token_bytes(KEY_BYTES))

    @staticmethod
    def read(path: Path) -> SigningKey:
        """The key in a file."""
        try:
            if path.is_file() and path.stat().st_mode & 0o007:
                raise KeyRefused(f"everybody may read the key file {path}", hint=f"chmod 600 {path}")
            text = path.read_text("ascii", "replace").strip()
        except OSError as error:
            hint = f"headwater audit key new {path} --name shop.example.com" if not path.exists() else None
            raise KeyRefused(f"the key file {path} cannot be read: {error.strerror}", hint=hint) from error
        parts = text.removeprefix(PRIVATE).split("+", 2)
        data = _bytes(parts[2]) if text.startswith(PRIVATE) and len(parts) == 3 else None
        if data is None or not is_name(parts[0]) or len(data) != 1 + KEY_BYTES or data[:1] != ED25519:
            raise KeyRefused(f"{path} holds no signing key", hint="headwater audit key new FILE --name NAME makes one.")
        key = SigningKey(parts[0], data[1:])
        if key.verifier.id.hex() != parts[1]:
            raise KeyRefused(f"the key in {path} is damaged", detail="Its bytes do not have its id.")
        return key


def is_name(text: str) -> bool:
    """Whether a key may have this name.

    >>> is_name("example.com/log"), is_name("a b"), is_name("a+b"), is_name("")
    (True, False, False, False)
    """
    return bool(text) and "+" not in text and not CONTROL.search(text) and not re.search(r"\s", text)


def parts_of(note: str) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    """The text of a note, and its signatures: name, id of the key, bytes. Nothing of it is verified."""
    text, parted, lines = note.rpartition("\n\n")
    signatures = []
    for line in lines.splitlines() if parted and lines.endswith("\n") and not CONTROL.search(note) else ():
        name, _, encoded = line.removeprefix(DASH).partition(" ")
        data = _bytes(encoded)
        if not line.startswith(DASH) or not is_name(name) or data is None or len(data) <= ID_BYTES:
            raise _malformed(f"{line[:100]!r} is no line with a signature")
        signatures.append((name, data[:ID_BYTES], data[ID_BYTES:]))
    if not signatures or not text or len(signatures) > SIGNATURES_MAX:
        raise _malformed(f"It has a text, an empty line, and 1 to {SIGNATURES_MAX} lines with signatures.")
    return text + "\n", signatures


def notes_in(text: str) -> list[str]:
    """The notes that stand one below the other in a text, with empty lines between them.

    >>> a, b = (SigningKey("example.com/log", bytes(32)).sign(f"{word}\\n") for word in ("a", "b"))
    >>> notes_in(f"{a}\\n{b}") == [a, b]
    True
    """
    found, lines, signed = list[str](), list[str](), False
    for line in text.splitlines():
        if signed and not line.startswith(DASH):
            found.append("".join(lines))
            lines, signed = [], False
        if lines or line:
            lines.append(f"{line}\n")
        signed = line.startswith(DASH)
    return [*found, "".join(lines)] if lines else found


def _malformed(detail: str) -> Misuse:
    return Misuse("this is no signed note", detail=detail, hint="See https://c2sp.org/signed-note for the format.")


def _id(name: str, public: bytes) -> bytes:
    return sha256(name.encode() + b"\n" + ED25519 + public).digest()[:ID_BYTES]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
