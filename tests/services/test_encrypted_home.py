"""A home on an encrypted volume: gocryptfs and fscrypt as the kernel has them, with an app on Spark.

What it is: an app that requires encryption works on a gocryptfs volume, and no byte below it tells what is in it; where
the home, a temporary folder or Spark's folder is on a plain disk (ext4 in a file), it does not start.
Invariants: these tests mount: they need root, /dev/fuse and loop devices, and say so where they cannot.
Not here: every kind of disk (``tests/unit/log/catalog/test_encrypted_volume.py``).
Read next: ``log/catalog/encrypted_volume.py``.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.catalog.encrypted_volume import encryption_of
from headwater.testing.gocryptfs_volume import GocryptfsVolume
from tests.every_byte import places_with

MARK = "zq-marker-zq"
ADD_KEY, SET_POLICY = 0xC0506617, 0x800C6613  # FS_IOC_ADD_ENCRYPTION_KEY, FS_IOC_SET_ENCRYPTION_POLICY
APP = f"""
import sys, headwater as hw
app = hw.App("shop", home=sys.argv[1], home_encryption="required")
users = app.table("users", "id BIGINT, name STRING", key="id")
orders = app.topic("orders", "id BIGINT, user BIGINT, item STRING")
app.view("bought", "SELECT o.id, u.name, upper(o.item) AS item FROM orders o JOIN users u ON o.user = u.id")
for turn in range(2):
    users.upsert([{{"id": n, "name": "{MARK}"}} for n in range(100)])
    orders.append([{{"id": n, "user": n, "item": "{MARK}"}} for n in range(100)])
    app.tick()
    orders.partition(0).roll()
    app.log.local.maintain()
assert all(each.equal for each in app.verify())
print(len([row for row in app.get_view("bought").rows() if row["name"] == "{MARK}"]), "bought")
app.close()
"""


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[GocryptfsVolume]:
    with GocryptfsVolume(tmp_path / "volume") as volume:
        yield volume


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that encrypts only where it is told to."""
    image, mounted = tmp_path / "disk.img", tmp_path / "disk"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", "-O", "encrypt", str(image)], capture_output=True, check=False)
    made = (
        made
        if made.returncode
        else subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], capture_output=True, check=False)
    )
    assert not made.returncode, f"this test needs root and a loop device, to mount a disk: {made.stderr.decode()}"
    try:
        yield mounted
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def run(home: Path, *, temporary: Path, spark: Path | None = None) -> tuple[int, str]:
    """The app in a process of its own; its status, and what it said."""
    for folder in (temporary, spark or temporary):
        folder.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_DIRS": str(spark or temporary),
        "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={temporary}",
    }
    words = [sys.executable, "-c", APP, str(home)]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, errors="replace", check=False, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def test_a_home_on_gocryptfs_works_and_what_is_on_disk_tells_nothing(volume: GocryptfsVolume) -> None:
    assert encryption_of(volume.plain / "home") == "gocryptfs"

    status, said = run(volume.plain / "home", temporary=volume.plain / "tmp")

    assert status == 0, said
    assert "200 bought" in said
    assert len({place.split("/")[1] for place in places_with(volume.plain, MARK)}) > 1  # topics, views, the catalog
    assert places_with(volume.backing, MARK, MARK.upper(), "orders", "bought") == []
    volume.unmount()
    assert list(volume.plain.iterdir()) == []
    volume.mount()
    assert places_with(volume.plain / "home" / "topics", MARK) != []


def test_an_app_does_not_start_where_something_of_it_would_be_on_a_plain_disk(
    volume: GocryptfsVolume, disk: Path
) -> None:
    plain, tmp = disk / "plain", volume.plain / "tmp"
    for what, said in (
        (f"the home {plain}", run(plain, temporary=tmp)),
        (f"the temporary folder {plain}", run(volume.plain / "home", temporary=plain)),
        (f"Spark's folder 1 {plain}", run(volume.plain / "home", temporary=tmp, spark=plain)),
    ):
        assert said[0] == 1, said
        expected = f"NotEncrypted: home_encryption is required, and {what} is on no encrypted volume that can be seen"
        assert expected in said[1], said[1]
    told = subprocess.run(
        [
            sys.executable,
            "-m",
            "headwater.cli.main",
            "topic",
            "create",
            "t",
            "--schema",
            "id BIGINT",
            "--home",
            str(plain),
        ],
        env={**os.environ, "HEADWATER_HOME_ENCRYPTION": "required"},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert (told.returncode, f"the home {plain} is on no encrypted" in told.stderr) == (2, True), told.stderr
    assert not (plain / "catalog.sqlite").exists()


def test_a_directory_with_a_policy_of_fscrypt_is_seen_and_one_beside_it_is_not(disk: Path) -> None:
    safe, plain = disk / "safe", disk / "plain"
    for folder in (safe, plain):
        folder.mkdir()
    key = bytearray(struct.pack("=II32sII32s", 2, 0, b"", 64, 0, b"") + os.urandom(64))
    fd = os.open(safe, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, ADD_KEY, key)
        fcntl.ioctl(fd, SET_POLICY, bytearray(struct.pack("=BBBBB3s16s", 2, 1, 4, 3, 0, b"", bytes(key[8:24]))))
    finally:
        os.close(fd)

    assert encryption_of(safe / "home" / "topics") == "fscrypt"
    assert encryption_of(plain) is None
