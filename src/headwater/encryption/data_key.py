"""Data key: the key that bytes are encrypted with, stored only as users' keys have wrapped it.

What it is: ``DataKey``, 256 random bits and what is derived from them; ``KeyRecord``, the text that is stored beside
what it encrypts: for each user's key its id and the data key wrapped by it (AES key wrap, RFC 3394).
Invariants: a record tells nothing without a user's key. A wrong key is told by its id, before anything is decrypted.
Rotation makes a new record of the same data key, so nothing else is written anew. A damaged record is noticed.
Not here: where records are (``upkeep/backup/encrypted_store.py``), encrypted bytes (``encrypted_bytes.py``).
Read next: ``encrypted_bytes.py``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.encryption.encryption_key import KEY_BYTES, EncryptionKey
from headwater.errors import BackupDamaged, KeyRefused, MissingExtra, NewerFormat

FORMAT = 1
ID_BYTES = 8


@dataclass(frozen=True)
class DataKey:
    """What encrypts; ``derived`` gives a key for each purpose.

    >>> key = DataKey(bytes(32))
    >>> key, len(key.derived(b"names", 64)), key.derived(b"a") != key.derived(b"b")
    (DataKey(), 64, True)
    """

    secret: bytes = field(repr=False)

    @staticmethod
    def new() -> DataKey:
        return DataKey(secrets.token_bytes(KEY_BYTES))

    @property
    def id(self) -> bytes:
        """What encrypted bytes say of their key."""
        return hmac.new(self.secret, b"headwater data key id", hashlib.sha256).digest()[:ID_BYTES]

    def derived(self, purpose: bytes, length: int = KEY_BYTES, *, salt: bytes = b"") -> bytes:
        """A key of its own for a purpose (HKDF, RFC 5869)."""
        return _derived(self.secret, purpose, length, salt)


@dataclass(frozen=True)
class KeyRecord:
    """A data key as the users' keys have wrapped it.

    >>> key, other = EncryptionKey(b"k" * 32, "a.key"), EncryptionKey(b"o" * 32, "b.key")
    >>> data = DataKey.new()
    >>> record = KeyRecord.from_bytes(KeyRecord.wrapping(data, key).to_bytes(), "here")
    >>> record.unwrap(key, "the backups at here") == data
    True
    >>> record.unwrap(other, "the backups at here")
    Traceback (most recent call last):
        ...
    headwater.errors.KeyRefused: the backups at here were made with key 213bd0c4fd713519; b.key holds 265c9ad53ee7f019
      Hint: Give the file or command of that key.
    """

    wrapped: Mapping[str, bytes]  # by the id of the user's key

    @staticmethod
    def wrapping(data_key: DataKey, key: EncryptionKey) -> KeyRecord:
        """The record by which this key alone opens."""
        with MissingExtra.raised_for("encryption", "encryption"):
            from cryptography.hazmat.primitives.keywrap import aes_key_wrap
        return KeyRecord({key.id: aes_key_wrap(_wrapping_key(key), data_key.secret)})

    def unwrap(self, key: EncryptionKey, what: str) -> DataKey:
        """The data key; ``KeyRefused`` when the record was made with another key."""
        with MissingExtra.raised_for("encryption", "encryption"):
            from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap
        if key.id not in self.wrapped:
            raise KeyRefused(
                f"{what} were made with key {self.ids}; {key.origin} holds {key.id}",
                hint="Give the file or command of that key.",
                key=key.id,
            )
        try:
            return DataKey(aes_key_unwrap(_wrapping_key(key), self.wrapped[key.id]))
        except InvalidUnwrap as error:
            raise BackupDamaged(f"the key record of {what} is damaged", key=key.id) from error

    @property
    def ids(self) -> str:
        """The ids of the keys that open it."""
        return " or ".join(sorted(self.wrapped))

    def to_bytes(self) -> bytes:
        """The stored text, with its checksum."""
        text = json.dumps({"format": FORMAT, "wrapped": {name: data.hex() for name, data in self.wrapped.items()}})
        return f"{hashlib.sha256(text.encode()).hexdigest()} {text}\n".encode()

    @staticmethod
    def from_bytes(data: bytes, where: str) -> KeyRecord:
        """The record in these bytes; ``BackupDamaged`` when they are not what was written."""
        checksum, _, text = data.rstrip(b"\n").partition(b" ")
        if checksum != hashlib.sha256(text).hexdigest().encode():
            raise BackupDamaged(f"the key record {where} is damaged", detail="Its bytes do not match its checksum.")
        fields = json.loads(text)
        if fields["format"] > FORMAT:
            raise NewerFormat(
                f"the key record {where} has format {fields['format']}; this Headwater knows formats up to {FORMAT}",
                hint="Upgrade: pip install --upgrade headwater",
            )
        return KeyRecord({name: bytes.fromhex(wrapped) for name, wrapped in fields["wrapped"].items()})


def _wrapping_key(key: EncryptionKey) -> bytes:
    return _derived(key.secret, b"headwater wrapping key", KEY_BYTES, b"")


def _derived(secret: bytes, purpose: bytes, length: int, salt: bytes) -> bytes:
    with MissingExtra.raised_for("encryption", "encryption"):
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    return HKDF(SHA256(), length, salt or None, purpose).derive(secret)
