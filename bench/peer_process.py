"""A peer in a process and a Python environment of its own: started, listened to, stopped.

What it is: ``started`` and ``heard``, which run a peer's program and wait for what it says, and ``Opening``, which
knows when it first opened a file, so that its start-up is not timed.
Invariants: the process is stopped, by its pid, however this ends; a peer that cannot be had, ends early, or does not
answer in time raises ``PeerUnavailable`` with the reason.
Not here: what the peers are given and asked (``views/peers/``, ``time/peers/``).
Read next: ``views/peers/runs.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.peer_servers import PeerUnavailable, tools_directory
from headwater.testing.local_server import die_with_parent


def interpreter(environment: str) -> Path:
    """The Python of an environment under ``.tools``."""
    python = tools_directory() / environment / "bin" / "python"
    if not python.exists():
        raise PeerUnavailable(f"no {python} (run bench/views/setup.sh in a checkout)")
    return python


@contextlib.contextmanager
def started(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The peer's process, in a session of its own with all that it starts; stopped at the end."""
    environment = {**os.environ, "PATHWAY_THREADS": str(os.cpu_count()), "PYTHONUNBUFFERED": "1"}
    environment.pop("PYTHONPATH", None)
    with (folder / "words.txt").open("w") as words:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
            env=environment,
            start_new_session=True,
            # Flink's JVM ends by itself when the Python that started it is gone.
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def heard(process: subprocess.Popen[str], said: str, title: str, folder: Path, seconds_max: float) -> dict[str, Any]:
    """Wait until the peer says this; all that it said with it, ``at`` which time for one."""
    assert process.stdout is not None
    deadline = time.monotonic() + seconds_max
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([process.stdout], [], [], left)[0]:
            break
        line = process.stdout.readline()
        if not line:
            complaint = (folder / "words.txt").read_text().strip().splitlines()
            raise PeerUnavailable(f"{title} ended: {complaint[-1] if complaint else 'it said nothing'}")
        if line.startswith('{"said"'):
            words: dict[str, Any] = json.loads(line)
            assert words["said"] == said
            return words
    raise PeerUnavailable(f"{title} did not arrive at an answer in {seconds_max:.0f} s")


class Opening:
    """When a file was first opened; known on Linux only, elsewhere the clock starts when the files are put there."""

    def __init__(self, folders: list[Path]) -> None:
        self._found: list[tuple[float, str]] = []
        if sys.platform != "linux":
            return
        from inotify_simple import INotify, flags

        self._notify = INotify()
        for folder in folders:
            self._notify.add_watch(folder, flags.OPEN)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        # Read at once: inotify's events carry no time of their own.
        with contextlib.suppress(OSError, ValueError):
            while True:
                for event in self._notify.read():
                    self._found.append((time.time(), event.name))

    def firsts(self, beginnings: Sequence[str]) -> list[float | None]:
        """When the first file was opened whose name begins so, for each beginning. Nothing is watched after that."""
        if sys.platform == "linux":
            self._notify.close()
        found = list(self._found)
        return [min((at for at, name in found if name.startswith(one)), default=None) for one in beginnings]
