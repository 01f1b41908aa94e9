"""Sinks: they deliver a view's changes to another system.

    views  →  committed ticks  →  sink task  →  SQLite, PostgreSQL, Redis, …

What it is: one module for each system, all with one contract (``sink.py``); ``sinks/runner/sink_task.py`` runs one
sink, ``sinks/runner/sink_runner.py`` all sinks of an app.
Invariants: importing this imports no client library; a missing one fails on first use with the install line. No Spark.
Not here: declaring (``app.sink``).
Read next: ``sink.py``, ``docs/sinks.md``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.sinks.alert_sink import AlertSink as Alert
    from headwater.sinks.delta_sink import DeltaSink as Delta
    from headwater.sinks.email import Email
    from headwater.sinks.kafka.kafka_sink import KafkaSink as Kafka
    from headwater.sinks.parquet_sink import ParquetSink as Parquet
    from headwater.sinks.postgres.postgres_sink import PostgresSink as Postgres
    from headwater.sinks.redis_sink import RedisSink as Redis
    from headwater.sinks.search_sink import SearchSink as Search
    from headwater.sinks.sink import Sink
    from headwater.sinks.sqlite_sink import SQLiteSink as SQLite
    from headwater.sinks.topic_sink import TopicSink as Topic
    from headwater.sinks.webhook_sink import WebhookSink as Webhook

__all__ = [
    "Alert",
    "Delta",
    "Email",
    "Kafka",
    "Parquet",
    "Postgres",
    "Redis",
    "SQLite",
    "Search",
    "Sink",
    "Topic",
    "Webhook",
]

# hw.sinks.Postgres, beside hw.capture.Postgres: the short name for users, the whole one where the class is defined.
_DEFINED_IN = {
    "Alert": "alert_sink.AlertSink",
    "Delta": "delta_sink.DeltaSink",
    "Email": "email.Email",
    "Kafka": "kafka.kafka_sink.KafkaSink",
    "Parquet": "parquet_sink.ParquetSink",
    "Postgres": "postgres.postgres_sink.PostgresSink",
    "Redis": "redis_sink.RedisSink",
    "SQLite": "sqlite_sink.SQLiteSink",
    "Search": "search_sink.SearchSink",
    "Sink": "sink.Sink",
    "Topic": "topic_sink.TopicSink",
    "Webhook": "webhook_sink.WebhookSink",
}


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, defined = _DEFINED_IN[name].rpartition(".")
    found = globals()[name] = getattr(import_module(f"headwater.sinks.{module}"), defined)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
