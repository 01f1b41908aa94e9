"""Where crash tests keep their homes.

What it is: the fixtures ``quick_path``, a directory in memory where the system has one, and ``spark``.
Invariants: it is empty at first and removed at the end. The crashes here are simulated or are those of processes, so
nothing is proved by waiting for a real disk at each of the many thousand syncs.
Not here: the book of what was sent (``ledger.py``).
Read next: ``test_every_boundary.py``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.conftest import spark

__all__ = ["quick_path", "spark"]

MEMORY = Path("/dev/shm")


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="headwater-", dir=MEMORY))
    yield path
    shutil.rmtree(path, ignore_errors=True)
