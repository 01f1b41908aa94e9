"""Encrypted volumes: whether what is written at a path is encrypted below the file system, or by it.

What it is: ``encryption_of`` tells what encrypts a path; ``require_encrypted`` refuses places where nothing does.
Invariants: only what is seen counts: a file system that encrypts (gocryptfs, CryFS, eCryptfs), a directory with a
policy of fscrypt, dm-crypt below every device, or memory. In doubt a path is not encrypted. What is mounted inside of a
folder, or is linked to from it, is asked too. Nothing is changed, and nothing of the rest of Headwater is imported.
Not here: encrypting; that is the volume's. What a cloud does below the machine cannot be seen from it.
Read next: ``docs/encryption.md``.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.errors import InvalidDeclaration, NotEncrypted

VARIABLE = "HEADWATER_HOME_ENCRYPTION"
REQUIRED = "required"
ENCRYPTING = {"fuse.gocryptfs": "gocryptfs", "fuse.cryfs": "CryFS", "ecryptfs": "eCryptfs"}
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
NOT_CIPHERS = ("CRYPT-VERITY", "CRYPT-INTEGRITY")  # of the same family of devices, and they encrypt nothing
GET_POLICY = 0xC0096616  # FS_IOC_GET_ENCRYPTION_POLICY_EX: _IOWR('f', 22, u8[9])
POLICY_BYTES = 24
DEPTH_MAX = 16
LINK_DEPTH = 3  # home/topics/NAME/PARTITION, home/views/APP


@dataclass(frozen=True)
class Mount:
    """A mounted file system."""

    point: Path
    kind: str
    source: str


@dataclass(frozen=True)
class Machine:
    """Where the kernel tells of its file systems."""

    mountinfo: Path = field(default=Path("/proc/self/mountinfo"))
    swaps: Path = field(default=Path("/proc/swaps"))
    devices: Path = field(default=Path("/sys/dev/block"))
    btrfs: Path = field(default=Path("/sys/fs/btrfs"))

    def mounts(self) -> list[Mount]:
        """Every mount, in the order in which they were made; none where the kernel does not tell."""
        found = []
        try:
            lines = self.mountinfo.read_text().splitlines()
        except OSError:
            return []
        for line in lines:
            own, _, rest = line.partition(" - ")
            kind, source, *_ = rest.split(" ")
            found.append(Mount(Path(_unescaped(own.split(" ")[4])), kind, _unescaped(source)))
        return found


HERE = Machine()


def standing(path: Path) -> Path:
    """The path, or the nearest directory above it that is there."""
    return next(each for each in (path, *path.parents) if each.is_dir())


def mount_of(path: Path, machine: Machine = HERE) -> Mount | None:
    """The file system that a path is on."""
    found = None
    for mount in machine.mounts():  # a later one at the same point covers an earlier one
        if path.is_relative_to(mount.point) and (found is None or len(mount.point.parts) >= len(found.point.parts)):
            found = mount
    return found


def encryption_of(path: Path, machine: Machine = HERE) -> str | None:
    """What encrypts a path, for people; None: nothing that can be seen. What is in memory alone is not on a disk.

    >>> encryption_of(Path("/proc")) is None
    True
    """
    place = standing(path.absolute()).resolve()
    mount = mount_of(place, machine)
    if mount is None:
        return None
    if mount.kind in IN_MEMORY:
        return f"in memory ({mount.kind})"
    if mount.kind in ENCRYPTING:
        return ENCRYPTING[mount.kind]
    if _has_policy(place):
        return "fscrypt"
    names = [encrypted_device(device) for device in _devices_of(place, mount, machine)]
    return f"dm-crypt ({', '.join(sorted(set(filter(None, names))))})" if names and all(names) else None


def _devices_of(place: Path, mount: Mount, machine: Machine) -> list[Path]:
    """The block devices below a file system, as the kernel tells of them."""
    if mount.kind == "btrfs":  # may be on several, of which the mount names one
        name = os.path.realpath(mount.source).rpartition("/")[2]
        volumes = [sorted(volume.iterdir()) for volume in sorted(machine.btrfs.glob("*/devices"))]
        return next((each for each in volumes if name in {device.name for device in each}), [])
    number = place.stat().st_dev
    return [_device(number, machine)] if os.major(number) else []


def _device(number: int, machine: Machine) -> Path:
    return machine.devices / f"{os.major(number)}:{os.minor(number)}"


def encrypted_device(device: Path, depth: int = 0) -> str | None:
    """The name of the dm-crypt device that a block device is, or those below all of its parts; None: not encrypted."""
    try:
        uuid = (device / "dm" / "uuid").read_text()
        if uuid.startswith("CRYPT-") and not uuid.startswith(NOT_CIPHERS):
            return (device / "dm" / "name").read_text().strip()
    except OSError:
        pass  # no device of the mapper
    try:
        parts = sorted((device / "slaves").iterdir())
    except OSError:
        return None
    if not parts or depth > DEPTH_MAX:
        return None
    names = [encrypted_device(each, depth + 1) for each in parts]
    return ", ".join(dict.fromkeys(filter(None, names))) if all(names) else None


def _has_policy(directory: Path) -> bool:
    """Whether the kernel encrypts what is made in a directory (fscrypt)."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, GET_POLICY, bytearray(struct.pack(f"=Q{POLICY_BYTES}s", POLICY_BYTES, b"")))
    except OSError:  # none, or a file system that knows of none
        return False
    finally:
        os.close(fd)
    return True


# Requiring it


def is_required(setting: str | None = None) -> bool:
    """Whether the setting, or else the variable, says that a home must be encrypted.

    >>> is_required("required")
    True
    >>> is_required("perhaps")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: home_encryption cannot be 'perhaps'
      Hint: Write home_encryption="required", or leave it out.
    """
    for name, value in (("home_encryption", setting), (VARIABLE, os.environ.get(VARIABLE) or None)):
        if value not in (None, REQUIRED):
            raise InvalidDeclaration(
                f"{name} cannot be {value!r}", hint='Write home_encryption="required", or leave it out.'
            )
        if value is not None:
            return True
    return False


def folders_of(home: str | os.PathLike[str]) -> dict[str, Path]:
    """Where a process over a home writes, besides Spark."""
    return {"the home": Path(home).expanduser(), "the temporary folder": Path(tempfile.gettempdir())}


def require_encrypted(places: Mapping[str, Path], machine: Machine = HERE) -> None:
    """Refuse to go on while one of these places, or the swap, is not encrypted: {what it is: path}."""
    for what, path in places.items():
        for place in _everything_in(path, machine):
            if encryption_of(place, machine) is None:
                raise _refused(what, place, machine)
    for text in plain_swaps(machine):
        raise NotEncrypted(
            f"home_encryption is required, and the swap {text} is not encrypted",
            detail="What is in memory may be written there.",
            hint="Turn it off (swapoff), or put it on an encrypted device: docs/encryption.md.",
        )


def _refused(what: str, place: Path, machine: Machine) -> NotEncrypted:
    mount = mount_of(standing(place).resolve(), machine)
    on = "" if mount is None else f" ({mount.kind} on {mount.source}, mounted at {mount.point})"
    return NotEncrypted(
        f"home_encryption is required, and {what} {place} is on no encrypted volume that can be seen{on}",
        detail="gocryptfs, CryFS, eCryptfs, fscrypt, dm-crypt below every device, and memory are seen.",
        hint="Is the volume mounted? `headwater doctor` tells of each place; docs/encryption.md sets one up.",
        path=str(place),
    )


def _everything_in(path: Path, machine: Machine) -> Iterator[Path]:
    """A folder, what is mounted inside of it, and what links near its top lead to."""
    yield path
    top = standing(path.absolute()).resolve()
    if top != path.absolute().resolve():
        return
    yield from (mount.point for mount in machine.mounts() if mount.point != top and mount.point.is_relative_to(top))
    folders = [top]
    for _ in range(LINK_DEPTH):
        entries = [entry for folder in folders for entry in os.scandir(folder)]
        yield from (Path(entry.path).resolve() for entry in entries if entry.is_symlink())
        folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def plain_swaps(machine: Machine = HERE) -> list[str]:
    """The swap devices and files that are not encrypted, and not in memory (zram)."""
    try:
        lines = machine.swaps.read_text().splitlines()[1:]
    except OSError:
        return []
    found = []
    for name in (Path(_unescaped(line.split()[0])) for line in lines):
        try:
            number = name.stat().st_rdev
        except OSError:
            found.append(str(name))
            continue
        if name.name.startswith("zram"):
            continue
        if not (encrypted_device(_device(number, machine)) if number else encryption_of(name.parent, machine)):
            found.append(str(name))
    return found


def _unescaped(text: str) -> str:
    """A path as the kernel writes it: spaces and the like are octal numbers.

    >>> _unescaped("/srv/my\\\\040shop")
    '/srv/my shop'
    """
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
