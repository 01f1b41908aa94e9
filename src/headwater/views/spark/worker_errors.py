"""Errors of workers: what a Python process of an executor could not read or write, told as ours.

What it is: ``told_by_worker`` finds the error of Headwater's that a Python worker has raised in the text of Spark's;
``told_plainly_by_workers`` raises it.
Invariants: only errors of the log and of the state are found, which are nothing of a view's: what a user's function
raises stays Spark's.
Not here: errors of queries (``spark_errors.py``); the end of the Java process (``jvm.py``).
Read next: ``views/state/remote/executor_tasks.py``, ``views/source/data_source.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from headwater import errors
from headwater.errors import Corruption, HeadwaterError, ObjectStoreRefused, Unavailable

# As Python writes an exception that is not caught: our errors have two lines more at most, which are indented.
WORKER_ERROR = re.compile(r"headwater\.errors\.(?P<kind>\w+): (?P<message>[^\n]*)(?P<more>(\n  \S[^\n]*){0,2})")
NOT_OF_A_VIEW = (Unavailable, Corruption, ObjectStoreRefused)  # the store, the log or their data


@contextmanager
def told_plainly_by_workers() -> Iterator[None]:
    """Raise what a worker said instead of Spark's words around it."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        told = told_by_worker(error)
        if told is None:
            raise
        raise told from error


def told_by_worker(error: BaseException) -> HeadwaterError | None:
    """What a Python worker said of the log or the state, which it reads itself; None: the error is another one.

    >>> text = "Job aborted: headwater.errors.ObjectStoreUnavailable: s3://lake is silent\\n  Hint: Wait.\\nat java"
    >>> told = told_by_worker(Exception(text))
    >>> type(told).__name__, told.message, told.hint
    ('ObjectStoreUnavailable', 's3://lake is silent', 'Wait.')
    """
    found = WORKER_ERROR.search(str(error))
    kind = getattr(errors, found["kind"], None) if found is not None else None
    if found is None or kind is None or not issubclass(kind, NOT_OF_A_VIEW):
        return None
    lines = [line.strip() for line in (found["more"] or "").splitlines() if line.strip()]
    hint = next((line.removeprefix("Hint: ") for line in lines if line.startswith("Hint: ")), None)
    detail = next((line for line in lines if not line.startswith("Hint: ")), None)
    told: HeadwaterError = kind(found["message"], detail=detail, hint=hint)
    return told
