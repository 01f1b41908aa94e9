"""The store of encrypted repositories keeps the contract of every store, and shows nothing to the one below."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.keywrap import aes_key_unwrap

from headwater.encryption.data_key import DataKey
from headwater.encryption.encryption_key import KeySource, new_key_file
from headwater.errors import BackupDamaged, KeyRefused
from headwater.objects.folder_store import FolderStore
from headwater.objects.object_store import ObjectStore
from headwater.upkeep.backup.encrypted_store import KEY_RECORDS, EncryptedStore, opened_store
from tests.unit.objects.memory_store import MemoryStore
from tests.unit.objects.store_conformance import PROMISES


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_it_keeps_the_contract(promise: Callable[[ObjectStore, Path], None], tmp_path: Path) -> None:
    promise(EncryptedStore(FolderStore(tmp_path / "shared"), DataKey.new()), tmp_path)


def test_names_of_objects_are_hidden_whatever_their_length_and_found_again(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path / "shared")
    store = EncryptedStore(folder, DataKey.new())
    names = sorted(f"objects/runs/shop/{'revenue-of-customers-' * times}{times}.parquet" for times in range(1, 20))
    for name in names:
        store.put(name, name.encode())
    (tmp_path / "shared" / "objects" / "Thumbs.db").write_text("of another program")

    below = [each.name for each in folder.list("objects/")]

    assert [each.name for each in store.list("objects/")] == names
    assert [each.name for each in store.list("objects/runs/shop/")] == names
    assert [store.get(name) for name in names] == [name.encode() for name in names]
    assert not [name for name in below if "revenue" in name or "parquet" in name]
    assert max(len(part) for name in below for part in name.split("/")) <= 200


def test_a_place_is_read_by_other_code_from_the_documentation_alone(tmp_path: Path) -> None:
    """docs/encryption.md, "The form"."""
    new_key_file(tmp_path / "shop.key")
    written = {"objects/segments/000001-orders/0.parquet": os.urandom(300_000), "backups/1.json": b"manifest"}
    store = opened_store(FolderStore(tmp_path / "shared"), KeySource(file=tmp_path / "shop.key"), make=True)
    for name, data in written.items():
        store.put(name, data)

    def derived(secret: bytes, info: bytes, length: int = 32, salt: bytes | None = None) -> bytes:
        return HKDF(SHA256(), length, salt, info).derive(secret)

    key = bytes.fromhex((tmp_path / "shop.key").read_text().splitlines()[1])
    checksum, _, text = (tmp_path / "shared" / "keys" / "b.json").read_bytes().strip().partition(b" ")
    (wrapped,) = json.loads(text)["wrapped"].values()
    data_key = aes_key_unwrap(derived(key, b"headwater wrapping key"), bytes.fromhex(wrapped))
    names, read = AESSIV(derived(data_key, b"headwater names", 64)), dict[str, bytes]()
    for path in (tmp_path / "shared").rglob("*"):
        if path.is_file() and path.parent.name != "keys":
            name = str(path.relative_to(tmp_path / "shared"))
            if name.startswith("objects/"):
                code = name.removeprefix("objects/").replace("/", "").upper()
                name = "objects/" + names.decrypt(base64.b32decode(code + "=" * (-len(code) % 8)), None).decode()
            data = path.read_bytes()
            cipher = AESGCM(derived(data_key, b"headwater object\0" + name.encode(), salt=data[16:48]))
            blocks = [data[at : at + 262_160] for at in range(48, len(data), 262_160)]
            ends = [b"\0"] * (len(blocks) - 1) + [b"\1"]
            read[name] = b"".join(
                cipher.decrypt(number.to_bytes(11, "big") + end, block, None)
                for number, (block, end) in enumerate(zip(blocks, ends, strict=True))
            )

    assert checksum.decode() == hashlib.sha256(text).hexdigest()
    assert read == written


def test_objects_that_were_swapped_are_noticed() -> None:
    below = MemoryStore()
    store = EncryptedStore(below, DataKey.new())
    store.put("objects/a", b"aaaa")
    store.put("objects/b", b"bbbb")
    one, two = below.objects
    below.objects[one], below.objects[two] = below.objects[two], below.objects[one]

    with pytest.raises(BackupDamaged, match="the object objects/a at memory is damaged"):
        store.get("objects/a")


def test_a_place_is_encrypted_from_its_first_object_on_or_never(tmp_path: Path) -> None:
    new_key_file(tmp_path / "one.key")
    new_key_file(tmp_path / "two.key")
    one, two = (KeySource(file=tmp_path / name) for name in ("one.key", "two.key"))
    plain, place = MemoryStore(), MemoryStore()
    plain.put("backups/1.json", b"{}")
    with pytest.raises(KeyRefused, match="are not encrypted, and a key was given"):
        opened_store(plain, one, make=True)
    assert opened_store(plain, None) is plain
    assert opened_store(place, one) is place  # nothing is there to read: nothing is made
    assert place.objects == {}
    opened_store(place, one, make=True).put("backups/1.json", b"{}")
    with pytest.raises(KeyRefused, match=f"encrypted with key {one.load().id}, and no key was given"):
        opened_store(place, None)
    with pytest.raises(KeyRefused, match=f"made with key {one.load().id}; .*two.key holds {two.load().id}"):
        opened_store(place, two, make=True)

    assert opened_store(place, one).get("backups/1.json") == b"{}"


def test_one_of_the_two_key_records_is_enough_and_the_next_backup_makes_the_other_again(tmp_path: Path) -> None:
    new_key_file(tmp_path / "one.key")
    key = KeySource(file=tmp_path / "one.key")
    for gone in KEY_RECORDS:
        for broken in (None, b"no record"):
            place = MemoryStore()
            opened_store(place, key, make=True).put("backups/1.json", b"{}")
            whole = dict(place.objects)
            place.objects.pop(gone)
            if broken is not None:
                place.objects[gone] = broken

            store = opened_store(place, key)
            assert isinstance(store, EncryptedStore)
            assert store.get("backups/1.json") == b"{}"
            assert len(store.key_problems()) == 1
            opened_store(place, key, make=True)
            assert place.objects == whole
    place.objects = dict.fromkeys(KEY_RECORDS, b"no record")
    with pytest.raises(BackupDamaged, match=r"the key record keys/a.json at memory is damaged"):
        opened_store(place, key)


def test_a_rotation_that_was_killed_leaves_a_place_that_both_keys_open(tmp_path: Path) -> None:
    keys = [new_key_file(tmp_path / name) for name in ("one.key", "two.key")]
    one, two = (KeySource(file=tmp_path / name) for name in ("one.key", "two.key"))
    place = MemoryStore()
    store = opened_store(place, one, make=True)
    assert isinstance(store, EncryptedStore)
    store.put("objects/a", b"aaaa")
    before = {name: data for name, data in place.objects.items() if name not in KEY_RECORDS}

    put, done = place.put, list[str]()

    def dies(name: str, data: bytes) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(name)
        put(name, data)

    place.put = dies  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        store.rotate(keys[1])
    place.put = put  # type: ignore[method-assign]
    assert [opened_store(place, each).get("objects/a") for each in (one, two)] == [b"aaaa", b"aaaa"]
    assert "differ: a rotation of the key was interrupted" in store.key_problems()[0]

    store.rotate(keys[1])

    assert store.key_problems() == ()
    assert opened_store(place, two).get("objects/a") == b"aaaa"
    with pytest.raises(KeyRefused, match="were made with key"):
        opened_store(place, one)
    assert {name: data for name, data in place.objects.items() if name not in KEY_RECORDS} == before
