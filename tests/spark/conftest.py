"""One small Spark for all tests of this folder: it takes seconds to start, so it is started once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import pytest

from headwater.log.home import Log
from headwater.views.spark.analysis_cache import AnalysisCache
from headwater.views.spark.spark_session import start_session
from headwater.views.tick import prepare
from tests.short_lived import SHORT_LIVED

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Without it the workers run whatever "python3" is on the PATH, which may not have this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.update(SHORT_LIVED)
    session = start_session("tests", {"spark.master": "local[2]"})
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def analysed_once() -> Iterator[None]:
    """Spark's analyser is asked once in a session for each text over the same tables, and not once in each home.

    An answer goes by all that it depends on (``analysis_cache.py``), so it is the same in every home.
    """
    with pytest.MonkeyPatch.context() as patch:  # where it is used: the class itself has tests in the same process
        patch.setattr(prepare, "AnalysisCache", AnsweredOnce)
        yield


class AnsweredOnce(AnalysisCache):
    """An analysis cache that begins with the answers which others of this session were given."""

    answers: ClassVar[dict[str, list[str]]] = {}

    def __init__(self, path: Path | None, version: str) -> None:
        super().__init__(path, version)
        self._known = {**self.answers, **self._known}

    def keep(self, key: str, schema: pa.Schema, sentence: str = "") -> None:
        super().keep(key, schema, sentence)
        self.answers[key] = self._known[key]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "home") as log:
        yield log


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    from headwater.views import register

    register(spark)
    return spark
