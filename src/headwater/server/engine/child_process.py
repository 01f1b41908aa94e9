"""A child process of the server: the engine, or the query engine.

What it is: ``start_child`` starts a Python module with a lifeline (its standard input) and a pipe to its parent;
``time_limit`` cancels the Spark jobs of a thread in such a child.
Invariants: a child leads a session of its own, so Ctrl-C reaches the server only and one signal ends the child with its
JVM. The first line on its standard input carries the channel's secret, which never appears among its arguments.
Not here: requests and answers (``engine_channel.py``), restarting (``supervisor.py``).
Read next: ``engine_channel.py``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from headwater.errors import AnswerTooLarge, SparkEnded
from headwater.views.lifecycle.liveness import QUESTIONS

# What an engine that stands by reports when it is prepared, and what it is told when it is to run the app.
STANDING_BY, GO = "standing_by", "go"


def start_child(
    module: str, arguments: Sequence[str], first_line: str, log: Path
) -> tuple[subprocess.Popen[bytes], BinaryIO]:
    """Start ``python -m module *arguments PIPE``; returns the process and the reading end of its pipe."""
    reading, writing = os.pipe()
    messages = open(reading, "rb")  # noqa: SIM115
    try:
        with open(log, "ab", buffering=0) as out:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments, str(writing)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                pass_fds=(writing,),
                start_new_session=True,
                env={"PYSPARK_PYTHON": sys.executable, **os.environ},  # workers run the driver's interpreter
            )
    except BaseException:
        messages.close()
        raise
    finally:
        os.close(writing)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(first_line.encode() + b"\n")
        process.stdin.flush()
    return process, messages


def close_lifeline(process: subprocess.Popen[bytes]) -> None:
    """Close a child's standard input, upon which the child ends."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


@contextmanager
def time_limit(spark: Any, seconds: float, expired: Callable[[float], Exception]) -> Iterator[None]:
    """Cancel the Spark jobs of this thread after ``seconds``; what they raise then becomes ``expired(seconds)``."""
    context = spark.sparkContext
    group, over = uuid.uuid4().hex, threading.Event()
    context.setJobGroup(group, "a request to the server", True)
    QUESTIONS.add(group)

    def cancel() -> None:
        over.set()
        context.cancelJobGroup(group)

    timer = threading.Timer(seconds, cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (AnswerTooLarge, SparkEnded):
        raise
    except Exception as error:
        if over.is_set():
            raise expired(seconds) from error
        raise
    finally:
        timer.cancel()
        QUESTIONS.discard(group)
        with contextlib.suppress(Exception):  # the JVM may have ended
            context.setLocalProperty("spark.jobGroup.id", "")  # the thread may serve another request
