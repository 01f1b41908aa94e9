"""One Spark cluster for the tests of this folder: a master and two workers take seconds to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.demo.demo_command import SHORT_LIVED
from headwater.testing.spark_cluster import SparkCluster
from headwater.views.spark import class_archive
from tests.services.s3_server import CREDENTIALS, S3Server
from tests.short_lived import INTERPRETED


@pytest.fixture(scope="module", autouse=True)
def short_lived_drivers() -> Iterator[None]:
    """Queries are not compiled, neither in a driver nor in its executors: ``SubmittedApp`` hands on the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", INTERPRETED)
        yield


@pytest.fixture(scope="session")
def drivers_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that workers and executors do not see."""
    return tmp_path_factory.mktemp("drivers-disk")


@pytest.fixture(scope="session")
def cluster(drivers_disk: Path) -> Iterator[SparkCluster]:
    made = SparkCluster(hidden=drivers_disk)
    for daemon in (made.master, *made.workers):  # executors have the environment of their worker
        daemon.environment["JDK_JAVA_OPTIONS"] = f"{SHORT_LIVED} {drivers_archive()}"
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


def drivers_archive() -> str:
    """The archive of classes that set-up wrote: an executor has a driver's class path, and starts in half the time."""
    options = class_archive.options()
    return options if "SharedArchiveFile" in options else ""  # what they would write at their end is not for drivers
