"""An engine's process as its parent sees it: called, ended, or out of date. The processes are real and run no app."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.server.engine.engine_child import EngineChild

ENDLESS = "import time\ntime.sleep(600)\n"


@pytest.fixture
def child(tmp_path: Path) -> Iterator[EngineChild]:
    (tmp_path / "app.py").write_text(ENDLESS)
    child = EngineChild(
        tmp_path / "app.py", tmp_path / "sock", tmp_path / "engine.log", accept_loss=False, standby=True
    )
    yield child
    child.kill()
    child.process.wait(30)


def test_a_child_is_called_unless_the_file_of_the_app_has_changed_since(child: EngineChild, tmp_path: Path) -> None:
    assert child.call()

    (tmp_path / "app.py").write_text(ENDLESS + "# another version")

    assert not child.call()


def test_a_child_that_was_killed_is_not_called_and_its_reports_end(child: EngineChild) -> None:
    os.kill(child.pid, signal.SIGKILL)

    assert list(child.events()) == []
    assert child.ended.wait(30)
    assert not child.call()
    child.end(30)
    assert child.process.returncode == -signal.SIGKILL
