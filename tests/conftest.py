"""The order of the suite.

What it is: the files that take longest come first, so that of two processes neither waits for the other in the end.
Invariants: the order within a file stays; a file that is not named here comes after those that are.
Not here: fixtures (each folder has its own).
Read next: ``Makefile``, target ``test``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

LONGEST_FIRST = (
    "services/test_demo.py", "spark/test_tpch.py", "crash/test_views_survive_kill.py", "spark/test_views_as_of.py",
    "spark/test_timed_views.py", "unit/test_docs.py", "spark/test_windows_equal_batch.py", "spark/test_nexmark.py",
    "crash/test_capture_torture.py", "services/sinks/test_app.py", "compiler/test_as_of.py", "spark", "crash",
    "services", "compiler",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.path))


def _rank(path: Path) -> int:
    text = path.as_posix()
    return next((rank for rank, name in enumerate(LONGEST_FIRST) if f"tests/{name}" in text), len(LONGEST_FIRST))
