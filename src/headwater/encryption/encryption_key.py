"""Encryption key: 256 bits that a user keeps, in a file or behind a command.

What it is: ``KeySource`` says where a key comes from, and loads it; ``EncryptionKey`` is the key; ``new_key_file``
makes one.
Invariants: a key is never stored by Headwater, nor shown, nor part of a message: its id is, which tells nothing of it.
A key file that everybody may read is refused. A command that does not end is given up after ``COMMAND_SECONDS``.
Not here: what a key encrypts (``data_key.py``). Read next: ``data_key.py``.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import shlex
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from headwater.errors import InvalidDeclaration, KeyRefused

KEY_BYTES = 32
COMMAND_SECONDS = 60.0
FORM = "A key is 64 hexadecimal digits on a line; lines that begin with # are comments."


@dataclass(frozen=True)
class EncryptionKey:
    """A key, and where it came from, for messages.

    >>> key = EncryptionKey(bytes(32), "shop.key")
    >>> key.id, key
    ('638f3a69ddeed8f9', EncryptionKey(origin='shop.key'))
    """

    secret: bytes = field(repr=False)
    origin: str

    @property
    def id(self) -> str:
        """A name of the key that can be shown: nothing of the key follows from it."""
        return hmac.new(self.secret, b"headwater key id", hashlib.sha256).hexdigest()[:16]


@dataclass(frozen=True)
class KeySource:
    """Where a key comes from: a file, or a command that writes it to its standard output.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "shop.key"
    >>> made = new_key_file(path)
    >>> KeySource(file=path).load() == made, KeySource(command=f"cat {path}").load().id == made.id
    (True, True)
    """

    file: Path | None = None
    command: str | None = None

    @staticmethod
    def of(file: str | os.PathLike[str] | None, command: str | None) -> KeySource | None:
        """The source that was given, if any.

        >>> KeySource.of(None, "vault kv get -field=key secret/shop")
        KeySource(file=None, command='vault kv get -field=key secret/shop')
        """
        if file is not None and command is not None:
            raise InvalidDeclaration(
                "a key comes from a file or from a command, not from both",
                hint="Leave key_file or key_command (--key-file, --key-command) out.",
            )
        if file is None and command is None:
            return None
        return KeySource(None if file is None else Path(file).expanduser().absolute(), command)

    def words(self) -> list[str]:
        """The options that give another process of ours the same source."""
        return ["--key-file", str(self.file)] if self.file is not None else ["--key-command", self.command or ""]

    def load(self) -> EncryptionKey:
        """Read the file or run the command; ``KeyRefused`` says what is wrong with what came."""
        if self.file is not None:
            return EncryptionKey(_secret(_read(self.file), str(self.file)), str(self.file))
        command = self.command or ""
        return EncryptionKey(_secret(_run(command), f"the command {command!r}"), f"the command {command!r}")


def new_key_file(path: Path) -> EncryptionKey:
    """Make a key, in a file that only its owner can read; a file that is there is never replaced.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "shop.key"
    >>> _ = new_key_file(path)
    >>> oct(path.stat().st_mode & 0o777)
    '0o600'
    """
    key = EncryptionKey(secrets.token_bytes(KEY_BYTES), str(path))
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise KeyRefused(
            f"{path} is there already", hint="A key is never replaced: what it encrypted would be lost. Name another."
        ) from error
    except OSError as error:
        raise KeyRefused(f"the key file {path} cannot be made: {error.strerror}") from error
    with os.fdopen(fd, "w") as file:
        file.write(f"# Headwater key {key.id}: what it encrypted is lost without it\n{key.secret.hex()}\n")
        file.flush()
        os.fsync(file.fileno())
    return key


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            if stat.S_ISREG(mode := os.fstat(file.fileno()).st_mode) and mode & 0o007:
                raise KeyRefused(f"everybody may read the key file {path}", hint=f"chmod 600 {path}")
            return file.read(1 << 16).decode("ascii", "replace")
    except OSError as error:
        raise KeyRefused(
            f"the key file {path} cannot be read: {error.strerror}",
            hint=f"headwater backup new-key {path} makes a key." if isinstance(error, FileNotFoundError) else None,
        ) from error


def _run(command: str) -> str:
    try:
        words = shlex.split(command)
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise KeyRefused(f"the key command {command!r} did not end in {COMMAND_SECONDS:.0f} s") from error
    except (OSError, ValueError, IndexError) as error:
        raise KeyRefused(
            f"the key command {command!r} cannot be run: {error}",
            hint="It is run without a shell: a program and words.",
        ) from error
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())[-300:]
        raise KeyRefused(f"the key command {command!r} ended with status {done.returncode}", detail=said or None)
    return done.stdout.decode("ascii", "replace")


def _secret(text: str, origin: str) -> bytes:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if len(lines) != 1 or not re.fullmatch(f"[0-9a-fA-F]{{{2 * KEY_BYTES}}}", lines[0]):
        raise KeyRefused(f"{origin} gives no key", detail=FORM, hint="headwater backup new-key FILE makes one.")
    return bytes.fromhex(lines[0])
