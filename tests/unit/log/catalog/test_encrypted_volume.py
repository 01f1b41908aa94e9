"""What is seen of encryption below a path: made trees of what the kernel tells, since no test has every kind of disk.

Real volumes are in ``tests/services/test_encrypted_home.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.errors import InvalidDeclaration, NotEncrypted
from headwater.log.catalog.encrypted_volume import (
    Machine,
    encrypted_device,
    encryption_of,
    folders_of,
    is_required,
    plain_swaps,
    require_encrypted,
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "mountinfo", tmp_path / "swaps", tmp_path / "sys", tmp_path / "btrfs")
    made.swaps.write_text("Filename Type Size Used Priority\n")
    mounted(made, ("/", "ext4", "/dev/vda1"))
    return made


def mounted(machine: Machine, *mounts: tuple[object, str, str]) -> None:
    lines = [
        f"{n} 1 0:{n} / {str(point).replace(' ', chr(92) + '040')} rw,relatime shared:1 - {kind} {source} rw"
        for n, (point, kind, source) in enumerate(mounts, 20)
    ]
    machine.mountinfo.write_text("\n".join(lines) + "\n")


def device(at: Path, uuid: str | None = None, *slaves: Path) -> Path:
    (at / "slaves").mkdir(parents=True)
    if uuid is not None:
        (at / "dm").mkdir()
        (at / "dm" / "uuid").write_text(f"{uuid}\n")
        (at / "dm" / "name").write_text("shop\n")
    for slave in slaves:
        (at / "slaves" / slave.name).symlink_to(slave)
    return at


def test_a_file_system_that_encrypts_is_seen_by_the_longest_mount_and_the_last_at_one_point(
    machine: Machine, tmp_path: Path
) -> None:
    shop, other = tmp_path / "my shop", tmp_path / "my shop too"
    for folder in (shop / "data", other):
        folder.mkdir(parents=True)
    mounted(machine, (shop, "fuse.gocryptfs", "/srv/x"), ("/", "ext4", "/dev/vda1"))
    assert encryption_of(shop / "data" / "none yet", machine) == "gocryptfs"
    assert encryption_of(other, machine) is None

    for kind, found in (
        ("ecryptfs", "eCryptfs"),
        ("fuse.gocryptfs-reverse", None),
        ("fuse.sshfs", None),
        ("tmpfs", "in memory (tmpfs)"),
    ):
        mounted(machine, ("/", "ext4", "/dev/vda1"), (shop, "fuse.gocryptfs", "/srv/x"), (shop, kind, "x"))
        assert encryption_of(shop, machine) == found, kind


def test_a_device_is_encrypted_when_all_of_its_parts_are(tmp_path: Path) -> None:
    disk, crypt = device(tmp_path / "vda"), device(tmp_path / "dm-0", "CRYPT-LUKS2-77aa-shop", tmp_path / "vda")
    verity = device(tmp_path / "dm-1", "CRYPT-VERITY-77aa-shop", disk)

    assert encrypted_device(crypt) == "shop"
    assert encrypted_device(device(tmp_path / "lvm", "LVM-8f2a", crypt)) == "shop"
    assert encrypted_device(device(tmp_path / "half", "LVM-8f2b", crypt, disk)) is None
    assert [encrypted_device(each) for each in (disk, verity, tmp_path / "none")] == [None] * 3
    assert encrypted_device(device(tmp_path / "over", "CRYPT-VERITY-77ab-shop", crypt)) == "shop"


def test_btrfs_over_several_devices_needs_all_of_them(machine: Machine, tmp_path: Path) -> None:
    crypt, disk = device(tmp_path / "dm-0", "CRYPT-LUKS2-77aa-shop"), device(tmp_path / "vdb")
    mounted(machine, ("/", "btrfs", "/dev/dm-0"))
    devices = machine.btrfs / "8f2a" / "devices"
    devices.mkdir(parents=True)
    (devices / "dm-0").symlink_to(crypt)
    assert encryption_of(tmp_path, machine) == "dm-crypt (shop)"

    (devices / "vdb").symlink_to(disk)

    assert encryption_of(tmp_path, machine) is None


def test_the_device_of_a_path_is_looked_up(machine: Machine) -> None:
    number = Path("/").stat().st_dev
    if os.major(number):
        device(machine.devices / f"{os.major(number)}:{os.minor(number)}", "CRYPT-LUKS2-77aa-shop")
    assert encryption_of(Path("/"), machine) == ("dm-crypt (shop)" if os.major(number) else None)


def test_what_is_mounted_inside_or_linked_to_is_asked_too(machine: Machine, tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "topics" / "000001-orders").mkdir(parents=True)
    elsewhere.mkdir()
    safe = (home, "fuse.gocryptfs", "x")
    mounted(machine, ("/", "ext4", "/dev/vda1"), safe)
    require_encrypted({"the home": home}, machine)

    mounted(machine, ("/", "ext4", "/dev/vda1"), safe, (home / "topics", "xfs", "/dev/vdb1"))
    with pytest.raises(NotEncrypted) as inside:
        require_encrypted({"the home": home}, machine)
    mounted(machine, ("/", "ext4", "/dev/vda1"), safe)
    (home / "topics" / "000001-orders" / "0").symlink_to(elsewhere)
    with pytest.raises(NotEncrypted) as linked:
        require_encrypted({"the home": home}, machine)

    assert str(inside.value).startswith(
        f"home_encryption is required, and the home {home / 'topics'} is on no encrypted volume that can be seen "
        f"(xfs on /dev/vdb1, mounted at {home / 'topics'})\n"
    )
    assert linked.value.message.startswith(f"home_encryption is required, and the home {elsewhere} is on no encrypted")


def test_swap_is_refused_unless_it_is_encrypted_or_in_memory(machine: Machine, tmp_path: Path) -> None:
    file, zram = tmp_path / "swapfile", tmp_path / "zram0"
    for path in (file, zram):
        path.touch()
    machine.swaps.write_text(f"Filename Type Size Used Priority\n{zram} partition 1 0 -2\n{file} file 1 0 -3\n")
    assert plain_swaps(machine) == [str(file)]
    with pytest.raises(NotEncrypted, match=r"and the swap .*swapfile is not encrypted"):
        require_encrypted({}, machine)

    mounted(machine, ("/", "ecryptfs", "x"))

    require_encrypted({}, machine)


def test_it_is_required_by_the_app_or_the_machine_and_by_no_other_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_required()
    assert is_required("required")
    monkeypatch.setenv("HEADWATER_HOME_ENCRYPTION", "required")
    assert is_required()
    assert list(folders_of("shop-data")) == ["the home", "the temporary folder"]
    monkeypatch.setenv("HEADWATER_HOME_ENCRYPTION", "yes")
    with pytest.raises(InvalidDeclaration, match="HEADWATER_HOME_ENCRYPTION cannot be 'yes'"):
        is_required()
