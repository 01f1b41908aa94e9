"""The master: where Spark gets the processes that run its tasks.

What it is: ``is_local`` tells this process's own threads from a cluster; ``check_answers`` asks a standalone master
before Spark does.
Invariants: a master that does not answer is one sentence within seconds; Spark itself would try for a minute and then
fail with a page of Java's.
Not here: what executors need to run Python (``executor_environment.py``).
Read next: ``spark_session.py``.
"""

from __future__ import annotations

import re
import socket

from headwater.errors import InvalidDeclaration, Unavailable

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


def _failure(place: str) -> str | None:
    host, _, port = place.rpartition(":") if ":" in place else (place, "", str(PORT))
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except (OSError, ValueError) as error:
        return f"{place}: {error}"
    return None
