"""A gocryptfs volume for tests and benchmarks: a folder whose bytes on disk are encrypted.

What it is: ``GocryptfsVolume``, a new volume that is mounted until its block ends.
Invariants: it is mounted by a process of ours in the foreground, whose processor time can be told, and unmounted at the
end; the password is in a file that goes with the volume. Where it cannot be mounted, one sentence says what is missing.
Not here: what tells that a folder is encrypted (``log/catalog/encrypted_volume.py``).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.errors import Unavailable

SECONDS_MAX = 30.0


class GocryptfsVolume:
    """A volume in a folder: ``plain``, where files are read and written, and ``backing``, what is on disk of them."""

    def __init__(self, folder: Path) -> None:
        self.backing, self.plain = folder / "backing", folder / "plain"
        self._password = folder / "password"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        for missing, hint in (
            (shutil.which("gocryptfs") is None, "apt-get install -y gocryptfs"),
            (not os.access("/dev/fuse", os.R_OK | os.W_OK), "let this user open /dev/fuse (a container: --device)"),
        ):
            if missing:
                raise Unavailable("a gocryptfs volume cannot be mounted on this machine", hint=f"First: {hint}")
        for path in (self.backing, self.plain):
            path.mkdir(parents=True)
        self._password.write_text("for a test\n")
        made = ["gocryptfs", "-q", "-init", "-scryptn", "10", "-passfile", str(self._password), str(self.backing)]
        subprocess.run(made, check=True, capture_output=True)
        self.mount()
        return self

    def mount(self) -> None:
        """Mount it, again after ``unmount``."""
        words = ["gocryptfs", "-q", "-fg", "-nosyslog", "-passfile", str(self._password)]
        self._process = subprocess.Popen([*words, str(self.backing), str(self.plain)], stderr=subprocess.PIPE)
        deadline = time.monotonic() + SECONDS_MAX
        while not os.path.ismount(self.plain):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                said = self._process.communicate()[1].decode(errors="replace")
                raise Unavailable("gocryptfs did not mount its volume", detail=said.strip()[-500:] or None)
            time.sleep(0.01)

    def unmount(self) -> None:
        """Leave what is on disk."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run(["fusermount", "-u", "-z", str(self.plain)], check=True, capture_output=True)
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)

    @property
    def pid(self) -> int:
        """The process that encrypts."""
        assert self._process is not None
        return self._process.pid

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unmount()
