"""Disks that are full or read-only, for real.

What it is: ``SmallDisk``, two megabytes that a test fills and frees, and ``ReadOnlyDisk``. With the right to mount,
both are a tmpfs; without, a limit on the size of files (the kernel refuses just the same) and permissions.
Invariants: what is mounted is unmounted; a limit that was set is taken back.
Not here: the tests (``test_full_disk.py``, ``test_read_only_home.py``).
Read next: ``log/storage/files.py``, which names what the kernel says.
"""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path


def mount(path: Path, options: str) -> bool:
    """Mount a tmpfs; False where that is not allowed."""
    path.mkdir(exist_ok=True)
    try:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def unmount(path: Path) -> None:
    """Unmount, also when something is still open there."""
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)


class SmallDisk:
    """Two megabytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mounted = mount(path, "size=2m")
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        """Leave no room at all."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, self._limits[1]))
            return
        with (self.path / "filler").open("ab", buffering=0) as filler:
            for size in (65_536, 4096, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        """Make room again."""
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)
        (self.path / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        """Give everything back."""
        self.free()
        if self.mounted:
            unmount(self.path)


class ReadOnlyDisk:
    """Can be written until ``protect``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mounted = mount(path, "size=16m")

    def protect(self) -> None:
        """Refuse every change from now on."""
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(self.path)], check=True)
        else:
            self._change_modes(0o222, add=False)

    def close(self) -> None:
        """Give everything back."""
        if self.mounted:
            unmount(self.path)
        else:
            self._change_modes(0o200, add=True)

    def _change_modes(self, bits: int, *, add: bool) -> None:
        for folder, _, names in os.walk(self.path):
            for path in (Path(folder), *(Path(folder) / name for name in names)):
                mode = path.stat().st_mode
                path.chmod(mode | bits if add else mode & ~bits)
