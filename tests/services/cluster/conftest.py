"""One Spark cluster for the tests of this folder: a master and two workers take seconds to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.spark_cluster import SparkCluster
from tests.services.s3_server import CREDENTIALS, S3Server


@pytest.fixture(scope="session")
def drivers_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that workers and executors do not see."""
    return tmp_path_factory.mktemp("drivers-disk")


@pytest.fixture(scope="session")
def cluster(drivers_disk: Path) -> Iterator[SparkCluster]:
    made = SparkCluster(hidden=drivers_disk)
    for worker in made.workers:
        # The interpreter that this environment was made from: it has neither Headwater nor Arrow.
        worker.environment["PATH"] = f"{sys.base_prefix}/bin:{os.environ['PATH']}"
    with made:
        yield made


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server = S3Server(tmp_path / "s3")
    server.start()
    yield server
    server.stop()
