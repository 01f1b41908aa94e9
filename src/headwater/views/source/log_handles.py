"""The homes that a Python worker of Spark has open.

What it is: one ``Log`` per home and process, opened when a reader first needs it and kept: a stream asks for the latest
offsets many times a second, and opening each time would cost more than the answer.
Invariants: nothing is made (a wrong path is an error, not a new home); a forked process opens its own; a home that was
removed and created again under the same path is opened again.
Not here: the user's own ``Log``, which only the user opens and closes. No pyspark.
Read next: ``data_source.py``.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from headwater.errors import InvalidDeclaration
from headwater.log.catalog.home_folder import FORMAT_FILE
from headwater.log.contract import EventLog, EventTopic
from headwater.log.home import Log
from headwater.log_address import is_remote

_open: dict[tuple[int, str], tuple[int, EventLog]] = {}
_looked_up: dict[tuple[str, str], tuple[float, EventTopic]] = {}
_lock = threading.Lock()


def open_topic(home: str, name: str, *, age: float = 0.0) -> EventTopic:
    """The topic from this process's own ``Log``, as the catalog knew it at most ``age`` seconds ago.

    Looking it up takes about a millisecond, asking a topic for its end a tenth of that.
    """
    log = opened(home)
    known = _looked_up.get((home, name))
    if known is not None and known[1].log is log and log.clock.monotonic() - known[0] < age:
        return known[1]
    topic = log.get_topic(name)
    _looked_up[home, name] = (log.clock.monotonic(), topic)
    return topic


def opened(home: str) -> EventLog:
    """This process's log of a home, or of an address such as ``kafka://…``.

    >>> opened("/no/such/place")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: there is no Headwater home at /no/such/place
      Hint: Check .option("home", "…"); an absolute path means the same to every process of Spark.
    """
    if is_remote(home):
        return _remote(home)
    path = Path(home).expanduser().absolute()
    key = (os.getpid(), str(path))
    with _lock:
        try:
            made = (path / FORMAT_FILE).stat().st_ino
        except OSError as error:
            raise InvalidDeclaration(
                f"there is no Headwater home at {path}",
                hint='Check .option("home", "…"); an absolute path means the same to every process of Spark.',
                home=str(path),
            ) from error
        known = _open.get(key)
        if known is not None and known[0] == made and not known[1].closed:
            return known[1]
        log = Log(path, create=False)
        _open[key] = (made, log)
        return log


def _remote(address: str) -> EventLog:
    """This process's log at an address; nothing is kept beside it, so it needs no home."""
    from headwater.kafka.kafka_log import KafkaLog

    key = (os.getpid(), address)
    with _lock:
        known = _open.get(key)
        if known is None or known[1].closed:
            known = _open[key] = (0, KafkaLog(address))
        return known[1]
