"""How tests are shared out when two workers run them: by file; the browser's all to one, for they share an engine."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

TOGETHER = ("tests/browser/",)  # folders whose files share something that takes long to start


class Sharing(LoadFileScheduling):
    """By file, but some folders whole."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return Sharing(config, log) if config.getvalue("dist") == "loadfile" else None
