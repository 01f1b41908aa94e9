"""The master: where Spark gets the processes that run its tasks.

What it is: ``is_local`` tells this process's own threads from a cluster; ``check_answers`` asks a standalone master
before Spark does; ``check_shared`` asks executors whether they see a folder.
Invariants: a master that does not answer is one sentence within seconds; Spark itself would try for a minute and then
fail with a page of Java's.
Not here: what executors need to run Python (``executor_environment.py``).
Read next: ``spark_session.py``.
"""

from __future__ import annotations

import functools
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import InvalidDeclaration, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_S = 5.0
PORT = 7077  # Spark's own default
KINDS = "local[*], spark://host:7077, k8s://host:443, yarn"


def is_local(master: str) -> bool:
    """Whether Spark's tasks run in the driver's own Java process.

    >>> is_local("local[2]"), is_local("spark://host:7077")
    (True, False)
    """
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def check_answers(master: str) -> None:
    """Raise unless somebody listens where a standalone master should; others are Spark's to find.

    >>> check_answers("spark//host")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: "spark//host" is no address of a Spark master
      Hint: spark.master is one of local[*], spark://host:7077, k8s://host:443, yarn.
    """
    if is_local(master) or master == "yarn" or master.startswith(("k8s://", "local-cluster[")):
        return
    if not master.startswith("spark://"):
        raise InvalidDeclaration(
            f'"{master}" is no address of a Spark master', hint=f"spark.master is one of {KINDS}.", master=master
        )
    places = master.removeprefix("spark://").split(",")
    failures = [failure for failure in map(_failure, places) if failure is not None]
    if len(failures) == len(places):
        raise Unavailable(
            f"no Spark master answers at {master}",
            detail=f"{failures[0]}. No executor was asked for, and nothing was changed.",
            hint="Is it running, and is this its address? The master's log names it: Starting Spark master at spark://...",
            master=master,
        )


def check_shared(spark: SparkSession, folder: Path, why: str) -> None:
    """Raise unless the executors of a cluster see a folder of the driver's; ``why`` they have to.

    Asked are as many tasks as run at once: a first look, before anything is computed.
    """
    if is_local(str(spark.sparkContext.master)):
        return
    tasks = spark.sparkContext.defaultParallelism
    seen = spark.range(0, tasks, 1, tasks).mapInArrow(functools.partial(_look, str(folder)), "seen BOOLEAN").toArrow()
    if not all(seen.column("seen").to_pylist()):
        raise InvalidDeclaration(
            f"the executors do not see the folder {folder}",
            detail=f"It is on the driver's machine, and {why}.",
            hint='Put the home where all machines see it under the same path; or keep the log on Kafka (log="kafka://...")'
            ' and the state on a store (state="s3://..."): then nothing needs to be shared.',
            folder=str(folder),
        )


def _look(folder: str, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Whether the folder is there, for each task; called on an executor."""
    for batch in numbers:
        yield pa.RecordBatch.from_pydict({"seen": [Path(folder).is_dir()] * batch.num_rows})


def _failure(place: str) -> str | None:
    host, _, port = place.rpartition(":") if ":" in place else (place, "", str(PORT))
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except (OSError, ValueError) as error:
        return f"{place}: {error}"
    return None
