"""Headwater: one ordered, typed log, and everything derived from it kept in step.

    capture / append  →  log  →  tick (Spark)  →  views  →  sinks, subscribers, queries

What works today is the log: ``Log``, ``Topic``, producers, consumer groups, work groups. ``App`` is what a user
declares. Importing this starts no JVM and imports neither pyspark nor pandas.
Read next: ``app.py``, ``log/home.py``, ``ARCHITECTURE.md``.
"""

from headwater import errors
from headwater.app import App
from headwater.errors import HeadwaterError
from headwater.log.batch import Batch
from headwater.log.home import Log
from headwater.log.producer import Producer
from headwater.log.token import Token
from headwater.log.topic import Topic

__version__ = "0.1.0"

__all__ = ["App", "Batch", "HeadwaterError", "Log", "Producer", "Token", "Topic", "__version__", "errors"]
