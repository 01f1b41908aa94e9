"""One Spark cluster for the tests of this folder: a master and two workers take seconds to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from headwater.demo.demo_command import SHORT_LIVED
from headwater.testing.spark_cluster import SparkCluster
from headwater.views.spark import class_archive
from tests.spark.conftest import INTERPRETED


@pytest.fixture(scope="module", autouse=True)
def short_lived_drivers() -> Iterator[None]:
    """Queries are not compiled, neither in a driver nor in its executors: ``SubmittedApp`` hands on the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", INTERPRETED)
        yield


@pytest.fixture(scope="session")
def cluster() -> Iterator[SparkCluster]:
    made = SparkCluster()
    for daemon in (made.master, *made.workers):  # executors have the environment of their worker
        daemon.environment["JDK_JAVA_OPTIONS"] = f"{SHORT_LIVED} {drivers_archive()}"
    for worker in made.workers:
        # The interpreter that this environment was made from: it has neither Headwater nor Arrow.
        worker.environment["PATH"] = f"{sys.base_prefix}/bin:{os.environ['PATH']}"
    with made:
        yield made


def drivers_archive() -> str:
    """The archive of classes that set-up wrote: an executor has a driver's class path, and starts in half the time."""
    options = class_archive.options()
    return options if "SharedArchiveFile" in options else ""  # what they would write at their end is not for drivers
