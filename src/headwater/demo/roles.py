"""The demo's roles. Run as ``python -m headwater.demo.roles ROLE HOME NAME``.

What it is: the shop (``simulator.py``), consumers of its page views, and the server; each reports to its parent, one
JSON object a line on stdout.
Invariants: a step is reported after it is done and before the next begins, so the log can be checked even for a killed
process; a role ends when its stdin closes.
Not here: when roles start and die (``scenario.py``), checking (``audit.py``).
Read next: ``processes.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from headwater.demo.example import PAGE_VIEWS, example_file
from headwater.errors import Fenced
from headwater.log.home import Log

GROUP = "recommender"
SESSION_S = 2.0
COMMIT_EVERY_S = 0.25


class Parent:
    """The way to the parent and back."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._woken = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(ValueError):  # closed under us, at the end
            for line in sys.stdin:
                if line.strip() == "stop":
                    break
                self._words.put(line.strip())
                self._woken.set()
        self.stopped.set()
        self._words.put("stop")
        self._woken.set()

    def heard(self, timeout: float | None = None) -> str | None:
        """The next word; None when there is none in time."""
        with contextlib.suppress(queue.Empty):
            return self._words.get() if timeout is None else self._words.get(timeout=timeout or 1e-6)
        return None

    def wait(self, seconds: float) -> None:
        """Sleep, until a word comes."""
        self._woken.wait(seconds)
        self._woken.clear()

    def tell(self, **facts: Any) -> None:
        """One report."""
        sys.stdout.write(json.dumps(facts, default=str) + "\n")
        sys.stdout.flush()


def shop(parent: Parent, log: Log, name: str) -> None:
    """The shop and its visitors."""
    from headwater.demo.simulator import Simulator

    del name
    Simulator(parent, log).run()


def consume(parent: Parent, log: Log, name: str) -> None:
    """A member of a consumer group: reads whole partitions, commits now and then."""
    consumer = log.get_topic(PAGE_VIEWS).consumer(
        GROUP, member=name, session_timeout=SESSION_S, columns=["customer_id"]
    )
    parent.tell(ready=True, member=consumer.member)
    commit_due = time.monotonic() + COMMIT_EVERY_S
    while not parent.stopped.is_set():
        batch = consumer.poll(timeout=COMMIT_EVERY_S)
        if batch is not None:
            parent.tell(seen=[batch.partition, batch.first_offset, batch.next_offset])
        if time.monotonic() >= commit_due:
            with contextlib.suppress(Fenced):  # a pause made the others think that we are gone; it is theirs now
                consumer.commit()
            commit_due = time.monotonic() + COMMIT_EVERY_S
    consumer.close(commit=True)


def serve_app(parent: Parent, log: Log, name: str) -> None:
    """The app, as ``headwater serve`` serves it; what that says on stdout is heard by the parent."""
    from headwater.cli.server.serve_command import serve

    del log, name

    def end() -> None:
        parent.stopped.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=end, daemon=True).start()
    serve(example_file(), port=0, as_json=True)


ROLES: dict[str, Callable[[Parent, Log, str], None]] = {"shop": shop, "consumer": consume, "server": serve_app}


def main() -> None:
    """Play one role until stdin says so."""
    role, home, name = sys.argv[1:]
    with Log(home, create=False) as log:
        ROLES[role](Parent(), log, name)


if __name__ == "__main__":
    main()
