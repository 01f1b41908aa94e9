"""A server over a home, without an engine; one for each module, since starting one takes a second."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.app_file import app_of
from headwater.log.home import Log
from tests.services.server.processes import APP, ServerProcess
from tests.services.server.ticks_by_hand import HandTicks


def declared(home: Path) -> Log:
    """The home, with what the app declares."""
    os.environ["SERVED_SHOP_HOME"] = str(home)
    app_of(APP).close()
    return Log(home, maintenance_interval=None)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with declared(tmp_path_factory.mktemp("server") / "home") as log:
        yield log


@pytest.fixture(scope="module")
def ticks(log: Log) -> Iterator[HandTicks]:
    ticks = HandTicks(log)
    yield ticks
    ticks.close()


@pytest.fixture(scope="module")
def server(log: Log, ticks: HandTicks) -> Iterator[ServerProcess]:
    ticks.commit({"DE": 1, "FR": 2})
    server = ServerProcess(log.home)
    yield server
    server.stop()
