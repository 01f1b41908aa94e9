"""The address of a log: what opens it.

What it is: ``open_log``, the log of an app: a folder, or ``kafka://…``; ``remote_log``, one that is no folder.
Invariants: the app's home is a folder in any case; a log that is a folder is its own home.
Not here: the logs (``log/home.py``, ``kafka/kafka_log.py``). Read next: ``log/contract.py``.
"""

from __future__ import annotations

import os

from headwater.errors import InvalidDeclaration
from headwater.log.contract import EventLog
from headwater.log.home import Log

KAFKA = "kafka://"


def is_remote(address: str) -> bool:
    """Whether an address is not a folder.

    >>> is_remote("kafka://localhost:9092"), is_remote("./shop-data")
    (True, False)
    """
    return "://" in address


def open_log(home: str | os.PathLike[str], address: str | None = None, *, maintained: bool = True) -> EventLog:
    """The log at an address, for an app with this home; without one, the log in the home itself.

    ``maintained=False``: this process leaves the upkeep of the home to others.

    >>> import tempfile
    >>> open_log(tempfile.mkdtemp(), "pulsar://localhost:6650")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: there is no log of the kind pulsar://
      Hint: Write log="kafka://host:9092", or leave it out: then the log is in the home.
    """
    interval = "30 seconds" if maintained else None
    if address is None:
        return Log(home, maintenance_interval=interval)
    _check_kind(address)
    return remote_log(address, Log(home, maintenance_interval=interval))


def remote_log(address: str, local: Log | None) -> EventLog:
    """The log at an address, for an app with this home, or without one."""
    _check_kind(address)
    from headwater.kafka.kafka_log import KafkaLog

    return KafkaLog(address, local)


def _check_kind(address: str) -> None:
    if not address.startswith(KAFKA):
        kind = address.partition("://")[0] + "://" if is_remote(address) else repr(address)
        raise InvalidDeclaration(
            f"there is no log of the kind {kind}",
            hint='Write log="kafka://host:9092", or leave it out: then the log is in the home.',
        )
