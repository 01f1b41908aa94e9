"""One small Spark for all tests of this folder: it takes seconds to start, so it is started once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headwater.log.home import Log
from headwater.views.session import DEFAULTS, start_session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

# The session that an app starts, but for two things. Every test runs other queries, each a few times: Java's second
# compiler would work on one core all along for code that is hardly run again.
SETTINGS = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": DEFAULTS["spark.driver.extraJavaOptions"] + " -XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Without it the workers run whatever "python3" is on the PATH, which may not have this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = start_session("tests", SETTINGS)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home") as log:
        yield log


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    from headwater.views import register

    register(spark)
    return spark
