"""Encrypted store: a repository whose every object is encrypted before it leaves this machine.

What it is: ``EncryptedStore`` keeps the contract of ``objects/object_store.py`` over another store; ``opened_store``
opens the store of a repository with the user's key, or without one where nothing is encrypted.

    keys/a.json, keys/b.json    the data key, as users' keys have wrapped it; two equal objects, since all hangs on them
    objects/j/7vcx…             an object: its name is encrypted too, since names tell of topics and of contents
    the others                  names as ever (when backups were made, who has the turn), contents encrypted

Invariants: encrypted bytes belong to their name, so objects that were swapped do not open. One name has one encrypted
name (AES-SIV), so what is there is found, and a second backup writes what is new. Sizes are told without decrypting. A
place is encrypted from its first object on, or never: a mixture is refused.
Not noticed: that whole objects were put back as they were before, or removed where nothing names them, as the newest
manifest.
Not here: the form of encrypted bytes (``encryption/encrypted_bytes.py``). Read next: ``backup_repository.py``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from headwater.encryption.data_key import DataKey, KeyRecord
from headwater.encryption.encrypted_bytes import NotDecrypted, decrypted, encrypted, plain_bytes
from headwater.encryption.encryption_key import EncryptionKey, KeySource
from headwater.errors import BackupDamaged, KeyRefused, MissingExtra
from headwater.objects.object_store import CHUNK_BYTES, ObjectStore, StoredObject

KEY_RECORDS = ("keys/a.json", "keys/b.json")
HIDDEN = "objects/"  # names below are encrypted
USED = ("backups/", "erasures/", "erased/", "turns/")  # a place that has some, and no keys, is not encrypted
PART_CHARACTERS = 200  # of a name between two slashes: file systems take 255
NAME_KEY_BYTES = 64


class EncryptedStore(ObjectStore):
    """Objects that the store below has encrypted.

    >>> import tempfile
    >>> from headwater.objects.folder_store import FolderStore
    >>> below = FolderStore(Path(tempfile.mkdtemp()))
    >>> store = EncryptedStore(below, DataKey.new())
    >>> store.put("objects/orders/1", b"three cups")
    >>> [(each.name, each.bytes) for each in store.list("objects/")], store.get("objects/orders/1")
    ([('objects/orders/1', 10)], b'three cups')
    >>> ["orders" in each.name or b"cups" in below.get(each.name) for each in below.list("objects/")]
    [False]
    """

    def __init__(self, below: ObjectStore, key: DataKey) -> None:
        with MissingExtra.raised_for("encryption", "encryption"):
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV
        self.below = below
        self.shown = below.shown
        self._key = key
        self._names = AESSIV(key.derived(b"headwater names", NAME_KEY_BYTES))

    def create(self, name: str, data: bytes) -> bool:
        """See ``ObjectStore.create``."""
        return self.below.create(self._hidden(name), b"".join(encrypted([data], self._key, name)))

    def put(self, name: str, data: bytes | Path | Iterable[bytes]) -> None:
        """See ``ObjectStore.put``."""
        pieces = _Encrypted([data] if isinstance(data, bytes) else data, self._key, name)
        self.below.put(self._hidden(name), b"".join(pieces) if isinstance(data, bytes) else pieces)

    def copy(self, name: str, other: str) -> None:
        """See ``ObjectStore.copy``; through this machine, since encrypted bytes belong to their name."""
        if self.below.get_range(self._hidden(name), 0, 1) is None:
            raise FileNotFoundError(name)
        self.put(other, _Read(self, name))

    def get(self, name: str) -> bytes | None:
        """See ``ObjectStore.get``."""
        data = self.below.get(self._hidden(name))
        return None if data is None else b"".join(self._decrypted(name, [data]))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        """See ``ObjectStore.get_range``; all before it is read."""
        pieces, found, at = self.read(name), bytearray(), 0
        if pieces is None:
            return None
        for piece in pieces:
            found += piece[max(0, start - at) : max(0, start + length - at)]
            at += len(piece)
        return bytes(found)

    def read(self, name: str) -> Iterator[bytes] | None:
        """See ``ObjectStore.read``."""
        pieces = self.below.read(self._hidden(name))
        return None if pieces is None else self._decrypted(name, pieces)

    def list(self, prefix: str) -> list[StoredObject]:
        """See ``ObjectStore.list``. What has a name of no object of ours is no object."""
        inside = prefix.startswith(HIDDEN)
        found = []
        for each in self.below.list(HIDDEN if inside else prefix):
            name = self._shown(each.name) if inside else each.name
            if name is not None and name.startswith(prefix):
                found.append(StoredObject(name, plain_bytes(each.bytes), each.modified_s))
        return sorted(found, key=lambda each: each.name)

    def delete(self, name: str) -> None:
        """See ``ObjectStore.delete``."""
        self.below.delete(self._hidden(name))

    def remove_unfinished(self, before_s: float) -> None:
        """See ``ObjectStore.remove_unfinished``."""
        self.below.remove_unfinished(before_s)

    # Keys

    def rotate(self, key: EncryptionKey) -> None:
        """Let this key open the place, and only this one. Nothing else is written anew."""
        record = KeyRecord.wrapping(self._key, key).to_bytes()
        # A process that is killed in between leaves a place that both keys open.
        for name in reversed(KEY_RECORDS):
            self.below.put(name, record)

    def key_problems(self) -> tuple[str, ...]:
        """What is wrong with the records of keys, though one of them was opened."""
        records, problems = _records(self.below)
        if not problems and len(records) < len(KEY_RECORDS):
            problems.append(f"one of {' and '.join(KEY_RECORDS)} is missing; the next backup makes it again")
        if len({record.to_bytes() for record in records.values()}) > 1:
            problems.append(f"{' and '.join(KEY_RECORDS)} differ: a rotation of the key was interrupted, do it again")
        return tuple(problems)

    # Names and bytes

    def _decrypted(self, name: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
        try:
            yield from decrypted(pieces, self._key, name)
        except NotDecrypted as error:
            raise BackupDamaged(
                f"the object {name} at {self.shown} is damaged",
                detail=f"It cannot be decrypted: {error}. It lies there as {self._hidden(name)}.",
                hint="Restore another backup. Remove the object; the next backup copies it again if the home has it.",
                object=name,
            ) from error

    def _hidden(self, name: str) -> str:
        """The name in the store below."""
        if not name.startswith(HIDDEN):
            return name
        data = self._names.encrypt(name.removeprefix(HIDDEN).encode(), None)
        text = base64.b32encode(data).decode().rstrip("=").lower()  # some file systems take a for A
        # The first character, which is any of 32, is a folder.
        parts = [text[:1], *(text[at : at + PART_CHARACTERS] for at in range(1, len(text), PART_CHARACTERS))]
        return HIDDEN + "/".join(parts)

    def _shown(self, hidden: str) -> str | None:
        """The name of an object of the store below; None if it is not one of ours."""
        from cryptography.exceptions import InvalidTag

        text = hidden.removeprefix(HIDDEN).replace("/", "").upper()
        try:
            name = HIDDEN + self._names.decrypt(base64.b32decode(text + "=" * (-len(text) % 8)), None).decode()
        except (InvalidTag, ValueError):
            return None
        return name if self._hidden(name) == hidden else None


class _Encrypted:
    """Encrypted bytes that can be made again from the first piece on: a store may have to send them twice."""

    def __init__(self, data: Path | Iterable[bytes], key: DataKey, name: str) -> None:
        self._data, self._key, self._name = data, key, name

    def __iter__(self) -> Iterator[bytes]:
        return encrypted(_pieces_of(self._data) if isinstance(self._data, Path) else self._data, self._key, self._name)


class _Read:
    """An object that can be read again."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store, self._name = store, name

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._store.read(self._name) or ())


def _pieces_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


# Keys


def opened_store(store: ObjectStore, source: KeySource | None, *, make: bool = False) -> ObjectStore:
    """The store of a repository, decrypted; ``KeyRefused`` when the key is missing, wrong, or there is nothing for it.

    ``make``: an empty place gets its keys.
    """
    records, problems = _records(store)
    if not records and problems:
        raise BackupDamaged(
            problems[0],
            detail="Without it nothing can be decrypted.",
            hint=f"Bring {' or '.join(KEY_RECORDS)} back from another copy of the place.",
        )
    if source is None:
        if records:
            raise KeyRefused(
                f"the backups at {store.shown} are encrypted with key {_ids(records)}, and no key was given",
                hint="Give it: --key-file FILE or --key-command COMMAND; in Python key_file= or key_command=.",
            )
        return store
    key = source.load()
    if not records:
        if any(store.list(each) for each in USED):
            raise KeyRefused(
                f"the backups at {store.shown} are not encrypted, and a key was given",
                detail=f"Or {' and '.join(KEY_RECORDS)} are lost. A place is encrypted from the first backup or never.",
                hint="Give encrypted backups a place of their own, or leave the key out; bring lost records back.",
            )
        if not make:
            return store
        store.create(KEY_RECORDS[0], KeyRecord.wrapping(DataKey.new(), key).to_bytes())  # unless another was first
        return opened_store(store, source, make=True)
    record = next((each for each in records.values() if key.id in each.wrapped), next(iter(records.values())))
    data_key = record.unwrap(key, f"the backups at {store.shown}")
    if make:
        for name in KEY_RECORDS:
            if name not in records:
                store.put(name, record.to_bytes())
    return EncryptedStore(store, data_key)


def _records(store: ObjectStore) -> tuple[dict[str, KeyRecord], list[str]]:
    """The records that can be read, and what is wrong with the others."""
    records, problems = dict[str, KeyRecord](), list[str]()
    for name in KEY_RECORDS:
        data = store.get(name)
        if data is not None:
            try:
                records[name] = KeyRecord.from_bytes(data, f"{name} at {store.shown}")
            except BackupDamaged as error:
                problems.append(error.message)
    return records, problems


def _ids(records: Mapping[str, KeyRecord]) -> str:
    return next(iter(records.values())).ids
