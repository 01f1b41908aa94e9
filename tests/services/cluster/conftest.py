"""One Spark cluster for the tests of this folder: a master and two workers take seconds to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from headwater.testing.spark_cluster import SparkCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[SparkCluster]:
    made = SparkCluster()
    for worker in made.workers:
        # The interpreter that this environment was made from: it has neither Headwater nor Arrow.
        worker.environment["PATH"] = f"{sys.base_prefix}/bin:{os.environ['PATH']}"
    with made:
        yield made
