"""Headwater: one ordered, typed log, and everything derived from it kept in step.

    capture / append  →  log  →  tick (Spark)  →  views  →  sinks, subscribers, queries

What works today: the log (``Log``, ``Topic``, producers, consumer groups, work groups), views and their sinks, declared
in an ``App``. Importing this starts no JVM and imports neither pyspark nor pandas; a name brings its module with it
when it is first used, so that ``headwater --help`` does not wait for pyarrow.
Read next: ``app.py``, ``log/home.py``, ``ARCHITECTURE.md``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater import aggregates, capture, clock, errors, inlets, sinks
    from headwater.app import App
    from headwater.capture.captured_position import gtid, lsn
    from headwater.errors import HeadwaterError
    from headwater.log.batch import Batch
    from headwater.log.home import Log
    from headwater.log.producer import Producer
    from headwater.log.schema.event_metadata import Metadata
    from headwater.log.schema.personal_columns import Personal
    from headwater.log.token import Token
    from headwater.log.topic import Topic
    from headwater.patterns.pattern_builder import pattern

__version__ = "0.1.0"

__all__ = [
    "App",
    "Batch",
    "HeadwaterError",
    "Log",
    "Metadata",
    "Personal",
    "Producer",
    "Token",
    "Topic",
    "__version__",
    "aggregates",
    "capture",
    "clock",
    "errors",
    "gtid",
    "inlets",
    "lsn",
    "pattern",
    "sinks",
]

_DEFINED_IN = {
    "App": "headwater.app",
    "Batch": "headwater.log.batch",
    "HeadwaterError": "headwater.errors",
    "Log": "headwater.log.home",
    "Metadata": "headwater.log.schema.event_metadata",
    "Personal": "headwater.log.schema.personal_columns",
    "Producer": "headwater.log.producer",
    "Token": "headwater.log.token",
    "Topic": "headwater.log.topic",
    "gtid": "headwater.capture.captured_position",
    "lsn": "headwater.capture.captured_position",
    "pattern": "headwater.patterns.pattern_builder",
}


def __getattr__(name: str) -> Any:
    if name in ("aggregates", "capture", "clock", "errors", "inlets", "sinks"):
        return import_module(f"headwater.{name}")
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_DEFINED_IN[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
