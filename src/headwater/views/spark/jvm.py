"""The Java process that Spark runs in: whether it is there, and what to say when it is not.

What it is: ``mapped_errors`` turns the errors that py4j raises after that process has ended into one sentence;
``ended`` asks; ``end`` ends it.
Invariants: only what follows from the end of the process is replaced: an error of Headwater's own, or one of a Spark
that runs, goes on as it is. A Spark that somebody else started, whose process is not our child, is never said to have
ended.
Not here: starting it (``spark_session.py``); starting an engine again (``server/engine/supervisor.py``).
Read next: ``views/runtime.py``.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, SparkEnded
from headwater.views.spark import own_process
from headwater.views.spark.worker_errors import told_by_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUT_OF_MEMORY = 3  # the status that Java ends with when its heap is full (spark_session.py tells it to)
CLEARED_S = 5.0
REAPED_S = 2.0  # its sockets are closed a moment before it can be waited for


def ended(spark: SparkSession | None, *, within: float = 0.0) -> int | None:
    """The status that the Java process ended with; None while it runs, or when it is not ours."""
    process = _process(spark)
    if process is None:
        return None
    with contextlib.suppress(subprocess.TimeoutExpired):
        return int(process.wait(within))
    return None


def _process(spark: SparkSession | None) -> subprocess.Popen[bytes] | None:
    return None if spark is None else getattr(spark.sparkContext._gateway, "proc", None)


def end(spark: SparkSession | None, *, within: float = CLEARED_S) -> None:
    """End the Java process that is ours: one whose heap is full does not notice that we have gone."""
    process = _process(spark)
    if process is None:
        return
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()  # it clears up its files, and ends
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def mapped_errors(spark: Callable[[], SparkSession | None], log: Path) -> Iterator[None]:
    """An error that comes from the end of the Java process is ``SparkEnded``; ``log`` is where Java writes to."""
    try:
        yield
    except HeadwaterError:
        raise
    except Exception as error:
        status = ended(spark(), within=REAPED_S if lost_contact(error) else 0.0)
        if status is None:
            told = told_by_worker(error)
            if told is None:
                raise
            raise told from error
        raise SparkEnded(
            f"the Java process that Spark runs in has ended: {how(status)}",
            detail=f"{written_to(log)} What was committed is kept.",
            hint="Start again, and it goes on. If its heap was full, give Spark more of it, as in"
            ' App(spark={"spark.driver.memory": "4g"}); if the machine ran out of memory, less.',
            status=status,
        ) from error


def written_to(log: Path) -> str:
    """Where Java's messages are: a file in a process of Headwater's own, else standard error (``own_process.py``)."""
    return f"Java's messages are in {log}." if own_process.is_claimed() else "Java's messages are on standard error."


def how(status: int) -> str:
    """What an exit status means.

    >>> how(-9), how(1), how(3)
    ('killed by SIGKILL', 'status 1', 'its heap was full (status 3)')
    """
    if status == OUT_OF_MEMORY:
        return f"its heap was full (status {status})"
    if status >= 0:
        return f"status {status}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-status).name}"
    return f"killed by signal {-status}"


def lost_contact(error: BaseException | None) -> bool:
    """Whether an error comes from a Java process that does not answer any more."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    while error is not None:
        if isinstance(error, Py4JNetworkError | ConnectionError | EOFError):
            return True
        # An answer that was cut off: with an exception of Java's it would be a Py4JJavaError, or have a trace.
        if type(error) is Py4JError and "Trace:" not in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
