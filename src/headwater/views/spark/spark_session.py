"""The Spark session: what it needs to know before it can read a topic.

What it is: starting Spark for an app, registering the data source, and what workers and messages need.
Invariants: pyspark is imported here only when it is called for; a missing pyspark is one sentence with the install
line; registering twice is harmless; a session that the user started is used, and never stopped.
Not here: the source itself (``views/source/data_source.py``); the settings of a view's own sessions
(``views/stages/view_sessions.py``); what is changed in the host process (``own_process.py``).
Read next: ``views/source/data_source.py``.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import MissingExtra
from headwater.log.catalog.encrypted_volume import is_required, require_encrypted
from headwater.views.spark import class_archive, own_process
from headwater.views.spark.cluster_master import check_answers, is_local
from headwater.views.spark.executor_environment import worker_python
from headwater.views.spark.plans.lane_check import wanted_lane

if TYPE_CHECKING:
    from py4j.java_gateway import JavaClass, JVMView
    from pyspark.sql import SparkSession

# PySpark logs every failed query as a page of JSON, before the exception that says the same.
NOISY_LOGGER = "SQLQueryContextLogger"


def register_source(spark: SparkSession) -> None:
    """See ``headwater.views.register``."""
    with MissingExtra.raised_for("reading topics with Spark", "spark"):
        from headwater.views.source.data_source import TopicSource
    use_this_python(spark)
    logging.getLogger(NOISY_LOGGER).setLevel(logging.CRITICAL + 1)
    # Spark registers the source in this session, but first looks for its name in the session that is active in this
    # thread, and refuses a name that is there already unless the two are one.
    sessions: JavaClass = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        spark.dataSource.register(TopicSource)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


QUIET = Path(__file__).with_name("log4j2.properties")

# A Java that ran out of memory may go on for ever without doing anything: it is to end, and be started again.
ENDS_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
JAVA_OPTIONS, CLASS_PATH = "spark.driver.extraJavaOptions", "spark.driver.extraClassPath"
DEFAULTS = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Each sort and each hash table begins with a page, and a small query has many: Spark would take 32 MB for each.
    "spark.buffer.pageSize": "1m",
    # Spark's own words on start-up and about each broadcast are not for our users.
    JAVA_OPTIONS: f"-Dlog4j2.configurationFile={QUIET.as_uri()} -XX:+UseParallelGC",
    "spark.sql.artifact.isolation.enabled": "false",
}


# A Spark of this machine alone listens to this machine alone. Executors of a cluster must reach the driver.
LOCAL_ONLY = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

# What pyspark asks Java for by name, again at each call: for a short name Java looks through some 250 files and ten
# packages before it finds the class. It was a tenth of Java's time in the tests of paused views.
ASKED_FOR = (
    "PythonErrorUtils",
    "PythonSQLUtils",
    "PythonUtils",
    "functions",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
)


def start_session(
    name: str, settings: Mapping[str, str], java_log: Path | None = None, *, encrypted: bool = False
) -> SparkSession:
    """The session that runs now, or a new one: local unless ``settings`` say otherwise.

    ``encrypted``: only one that writes to encrypted volumes here.
    """
    spark = _session(name, settings, java_log)
    if encrypted or is_required():
        require_encrypted(local_folders(spark))
    return spark


def _session(name: str, settings: Mapping[str, str], java_log: Path | None) -> SparkSession:
    wanted_lane()  # a wrong word in the environment is told before anything is started
    with MissingExtra.raised_for("keeping views", "spark"):
        from pyspark.sql import SparkSession
    wanted = {**DEFAULTS, **settings}
    if is_local(wanted["spark.master"]):
        wanted = {**LOCAL_ONLY, **wanted}
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    logging.getLogger(NOISY_LOGGER).setLevel(logging.CRITICAL + 1)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_answers(wanted["spark.master"])
    builder = SparkSession.builder.appName(f"headwater-{name}")
    if JAVA_OPTIONS not in settings and CLASS_PATH not in settings:
        wanted[JAVA_OPTIONS] += f" {class_archive.options()}"
    if "OnOutOfMemory" not in wanted[JAVA_OPTIONS]:
        wanted[JAVA_OPTIONS] += f" {ENDS_WITHOUT_MEMORY}"
    for key, value in wanted.items():
        builder = builder.config(key, value)
    with own_process.starting(java_log):
        spark: SparkSession = builder.getOrCreate()
    own_process.started(spark)
    use_this_python(spark)
    look_up_once(spark._jvm)
    return spark


def local_folders(spark: SparkSession) -> dict[str, Path]:
    """Where Spark, in this process, writes what does not fit into memory, and Java its temporary files."""
    java = spark._jvm
    assert java is not None
    folders = java.org.apache.spark.util.Utils.getConfiguredLocalDirs(spark.sparkContext._jsc.sc().conf())
    temporary = java.java.lang.System.getProperty("java.io.tmpdir")
    return {
        **{f"Spark's folder {number}": Path(folder) for number, folder in enumerate(folders, 1)},
        "Java's temporary folder": Path(temporary),
    }


def look_up_once(java: JVMView) -> None:
    """The names of ``ASKED_FOR``, and the class that tells what an exception is, become attributes of the gateway."""
    for name in ASKED_FOR:
        setattr(java, name, getattr(java, name))
    java.py4j = java.py4j
    java.py4j.reflection = java.py4j.reflection
    java.py4j.reflection.TypeUtil = java.py4j.reflection.TypeUtil


def use_this_python(spark: SparkSession) -> None:
    """Workers run the interpreter that runs the driver, by its path here and by its version elsewhere, unless the user
    chose one.

    Spark's own default is whatever ``python3`` is on the PATH, which often has neither pyspark nor this package.
    """
    context = spark.sparkContext
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if chosen is None:
        context.pythonExec = sys.executable if is_local(str(context.master)) else worker_python()
