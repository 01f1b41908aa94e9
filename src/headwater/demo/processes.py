"""The demo's child processes: start, reports, stop, kill.

What it is: ``Processes`` starts the roles of ``roles.py`` as processes and collects their reports.
Invariants: leaving the ``with`` block ends every child; reports sent before a kill are read; a child that fails is
noticed, with its last line of output.
Not here: the roles (``roles.py``), the meaning of reports (``audit.py``).
Read next: ``scenario.py``.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

STOP_S = 10.0
LAST_WORDS = 20


class Child:
    """One child process."""

    def __init__(
        self, role: str, name: str, home: Path, reports: queue.SimpleQueue[tuple[str, dict[str, Any]]]
    ) -> None:
        self.role = role
        self.name = name
        self.killed = False
        self._reports = reports
        self._words: deque[str] = deque(maxlen=LAST_WORDS)
        # A session of its own: Ctrl-C reaches the parent only, which then ends the others in good order.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater.demo.roles", role, str(home), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._hear, self._hear_words)]
        for thread in self._threads:
            thread.start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # The last line of one that was killed may be cut.
            with contextlib.suppress(json.JSONDecodeError):
                self._reports.put((self.name, json.loads(line)))

    def _hear_words(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._words.append(line.rstrip())

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def say(self, word: str) -> None:
        """A word on its stdin; one that has gone does not hear it."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """The end without warning: kill -9."""
        self.killed = True
        self.process.kill()
        self.join()

    def join(self, timeout: float = STOP_S) -> None:
        """Wait for its end and for its last report; one that does not end in time is killed."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread in self._threads:
            thread.join(STOP_S)

    @property
    def failure(self) -> str | None:
        """The error that ended it, if one did."""
        status = self.process.poll()
        if self.killed or status in (None, 0):
            return None
        words = [word for word in self._words if word.strip()]
        return f"process {self.name} ended with status {status}: {words[-1] if words else 'no output'}"


class Processes:
    """All processes of one demo."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.children: dict[str, Child] = {}
        self._reports: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()

    def start(self, role: str, name: str) -> Child:
        """Start a process. A name may be given again after its holder was killed."""
        child = self.children[name] = Child(role, name, self.home, self._reports)
        return child

    def reports(self) -> list[tuple[str, dict[str, Any]]]:
        """The reports since the last call, as (name, facts)."""
        heard = []
        with contextlib.suppress(queue.Empty):
            while True:
                heard.append(self._reports.get_nowait())
        return heard

    def stop(self, *roles: str) -> None:
        """Ask all of these roles to end, and wait."""
        chosen = [child for child in self.children.values() if child.role in roles]
        for child in chosen:
            child.say("stop")
        for child in chosen:
            child.join()

    @property
    def failures(self) -> list[str]:
        """The last lines of output of failed processes."""
        return [child.failure for child in self.children.values() if child.failure is not None]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children.values():
            if child.alive:
                child.process.kill()
        for child in self.children.values():
            child.join()
