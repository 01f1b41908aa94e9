"""A writer that stops between its write and its commit, as a slow one does.

What it is: ``python -m tests.crash.stopped_writer HOME NAME LABEL COUNT HISTORY…``: a process that appends one event to
each of some histories, in a transaction when there are several, and sends itself SIGSTOP at the COUNT-th file change of
that label. ``StoppedWriter`` starts one. Without a label it is not stopped.
Invariants: it has opened the histories before it is told to go on, and prints the position after the append.
Not here: what readers see (``test_late_commits.py``). Read next: ``test_late_commits.py``.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.aggregates import Event, EventStore, EventType
from headwater.log.home import Log
from headwater.log.storage.files import Files

NOTED = EventType.declared("noted", "by STRING")


class StoppingFiles(Files):
    """Files that stop the process, once."""

    def __init__(self, label: str, count: int) -> None:
        self.label, self.left, self.armed = label, count, False

    def write(self, fd: int, parts: Sequence[Any], *, label: str) -> int:
        if self.armed and label == self.label:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
        return super().write(fd, parts, label=label)


class StoppedWriter:
    """A process that writes, and may have stopped inside."""

    def __init__(self, home: Path, name: str, histories: Sequence[str], *, label: str = "", count: int = 1) -> None:
        command = [sys.executable, "-m", "tests.crash.stopped_writer", str(home), name, label, str(count), *histories]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        weakref.finalize(self, self.process.kill)  # a test that failed leaves no stopped process
        assert self.line() == "ready"

    def line(self, timeout: float = 60) -> str | None:
        """What it says next; None when it says nothing."""
        assert self.process.stdout is not None
        poller = select.poll()  # not select, which is limited to the first 1024 descriptors
        poller.register(self.process.stdout, select.POLLIN)
        ready = poller.poll(1000 * timeout)
        return self.process.stdout.readline().decode().strip() if ready else None

    def go(self) -> None:
        """Let it append."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it went on"

    def end(self, how: signal.Signals) -> str | None:
        """Let it go on, or kill it; returns what it says in the end."""
        self.process.send_signal(how)
        said = self.line() if how == signal.SIGCONT else None
        self.process.wait(60)
        return said


def main(home: str, name: str, label: str, count: int, histories: Sequence[str]) -> None:
    files = StoppingFiles(label, count)
    log = Log(home, files=files)
    stores = [EventStore(log, history, [NOTED]) for history in histories]
    for store in stores:
        store.read()
    print("ready", flush=True)
    sys.stdin.readline()
    files.armed = True
    event = Event("noted", {"by": name})
    if len(stores) == 1:
        print(stores[0].append([event]).position, flush=True)
    else:
        with log.transaction() as transaction:
            for store in stores:
                store.append_in(transaction, [event])
        print(transaction.token, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:])
