"""One small Spark for all tests of this folder: it takes seconds to start, so it is started once."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headwater.log.home import Log

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Without it the workers run whatever "python3" is on the PATH, which may not have this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("headwater-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    # PySpark logs every analysis error as a page of JSON; the tests provoke some on purpose.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
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
