"""The engine's state is changed by two threads, and no change of one undoes a change of the other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.clock import Clock
from headwater.server.engine.supervisor import READY, RUNNING, STARTING, WAITING, Supervisor

CHANGES = 20_000


@pytest.fixture
def often_switched() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often_switched")
def test_no_change_of_one_thread_undoes_that_of_the_other(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path / "app.py", tmp_path, Clock())
    undone: list[str] = []

    def change(field: str, values: tuple[str, str]) -> None:
        for number in range(CHANGES):
            value = values[number % 2]
            supervisor._change(**{field: value})
            if getattr(supervisor.state, field) != value:
                undone.append(field)

    threads = [
        threading.Thread(target=change, args=("state", (RUNNING, WAITING))),
        threading.Thread(target=change, args=("standby", (STARTING, READY))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert undone == []
