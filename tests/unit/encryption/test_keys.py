"""Where keys come from, what is refused, and that a message never has one in it."""

from __future__ import annotations

import hashlib
import hmac
import sys
from pathlib import Path

import pytest

from headwater.encryption.data_key import DataKey, KeyRecord
from headwater.encryption.encryption_key import EncryptionKey, KeySource, new_key_file
from headwater.errors import BackupDamaged, InvalidDeclaration, KeyRefused, NewerFormat

DIGITS = "0123456789abcdef" * 4


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "some.key"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_new_key_is_random_readable_by_its_owner_only_and_never_replaced(tmp_path: Path) -> None:
    one, two = new_key_file(tmp_path / "one.key"), new_key_file(tmp_path / "two.key")
    text = (tmp_path / "one.key").read_text()
    with pytest.raises(KeyRefused, match="is there already"):
        new_key_file(tmp_path / "one.key")

    digits = text.splitlines()[1]
    assert one.id != two.id
    assert one.id == hmac.new(bytes.fromhex(digits), b"headwater key id", hashlib.sha256).hexdigest()[:16]
    assert one.id in text.splitlines()[0]
    assert (tmp_path / "one.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "one.key").read_text() == text
    assert digits not in repr(one) + str(one)


def test_a_key_comes_from_a_file_or_from_a_command(tmp_path: Path) -> None:
    path = key_file(tmp_path, f"# mine\n\n  {DIGITS.upper()}\n")
    command = f"{sys.executable} -c 'print(\"{DIGITS}\")'"

    assert KeySource(file=path).load().secret == bytes.fromhex(DIGITS)
    assert KeySource(command=command).load().secret == bytes.fromhex(DIGITS)
    assert KeySource.of(None, None) is None
    with pytest.raises(InvalidDeclaration, match="not from both"):
        KeySource.of(path, command)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (DIGITS[:-1], 0o600, "gives no key"),
        (f"{DIGITS}\n{DIGITS}", 0o600, "gives no key"),
        ("", 0o600, "gives no key"),
        ("ü" * 64, 0o600, "gives no key"),
        (DIGITS, 0o644, "everybody may read the key file"),
    ],
)
def test_a_file_that_is_no_good_key_is_refused_without_showing_it(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    with pytest.raises(KeyRefused, match=said) as error:
        KeySource(file=key_file(tmp_path, text, mode)).load()

    assert not text or text not in str(error.value)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("false", "the key command 'false' ended with status 1"),
        ("no-such-program-here", "cannot be run"),
        ("", "cannot be run"),
        ("echo 'open", "cannot be run"),
        ("echo short", "the command 'echo short' gives no key"),
    ],
)
def test_a_command_that_gives_no_key_is_told(command: str, said: str) -> None:
    with pytest.raises(KeyRefused) as error:
        KeySource(command=command).load()

    assert said in str(error.value)


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(KeyRefused, match="cannot be read: No such file"):
        KeySource(file=tmp_path / "none.key").load()


def test_a_damaged_or_newer_key_record_is_told() -> None:
    data, key = DataKey.new(), EncryptionKey(b"k" * 32, "a.key")
    written = KeyRecord.wrapping(data, key).to_bytes()
    for at in range(0, len(written) - 1, 7):
        changed = bytearray(written)
        changed[at] ^= 4
        with pytest.raises(BackupDamaged, match="the key record here is damaged"):
            KeyRecord.from_bytes(bytes(changed), "here")
    newer = written.partition(b" ")[2].strip().replace(b'"format": 1', b'"format": 9')
    with pytest.raises(NewerFormat):
        KeyRecord.from_bytes(hashlib.sha256(newer).hexdigest().encode() + b" " + newer, "here")

    assert data.secret not in written
    assert KeyRecord.from_bytes(written, "here").unwrap(key, "it") == data
