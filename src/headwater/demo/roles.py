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
from collections.abc import Callable
from typing import Any

from headwater.app_declarations import LOG_VARIABLE
from headwater.demo.example import PAGE_VIEWS, example_file
from headwater.errors import Fenced
from headwater.log.contract import EventLog
from headwater.log_address import open_log

GROUP = "recommender"
SESSION_S = 2.0
POLL_S = 0.25
COUNTED, COUNTED_DDL = "page_views_counted", "source INT, first BIGINT, following BIGINT"


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


def shop(parent: Parent, log: EventLog, name: str) -> None:
    """The shop and its visitors."""
    from headwater.demo.simulator import Simulator

    del name
    Simulator(parent, log).run()


def consume(parent: Parent, log: EventLog, name: str) -> None:
    """A member of a consumer group: what it counts and how far it has read are one transaction."""
    counted = log.topic(COUNTED, COUNTED_DDL)
    consumer = log.get_topic(PAGE_VIEWS).consumer(
        GROUP, member=name, session_timeout=SESSION_S, columns=["customer_id"]
    )
    parent.tell(ready=True, member=consumer.member)
    while not parent.stopped.is_set():
        batch = consumer.poll(timeout=POLL_S)
        if batch is None:
            continue
        parent.tell(seen=[batch.partition, batch.first_offset, batch.next_offset])
        row = {"source": batch.partition, "first": batch.first_offset, "following": batch.next_offset}
        with contextlib.suppress(Fenced), log.transaction() as t:  # fenced: it is another member's now
            t.append(counted, [row])
            t.commit(consumer, batch)
    consumer.close()


def serve_app(parent: Parent, log: EventLog, name: str) -> None:
    """The app, as ``headwater serve`` serves it; what that says on stdout is heard by the parent."""
    from headwater.cli.server.serve_command import serve

    del log, name

    def end() -> None:
        parent.stopped.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=end, daemon=True).start()
    serve(example_file(), port=0, standby=True, as_json=True)


ROLES: dict[str, Callable[[Parent, EventLog, str], None]] = {"shop": shop, "consumer": consume, "server": serve_app}


def main() -> None:
    """Play one role until stdin says so."""
    role, home, name = sys.argv[1:]
    with contextlib.closing(open_log(home, os.environ.get(LOG_VARIABLE))) as log:
        ROLES[role](Parent(), log, name)


if __name__ == "__main__":
    main()
