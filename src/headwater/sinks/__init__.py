"""Sinks: what carries a view's changes to another system.

    views  →  committed ticks  →  follower  →  SQLite, PostgreSQL, Redis, …

What it is: the folder OUT. Each sink is a module of its own that keeps one contract (``sink.py``); ``follower.py``
leads one along the ticks, ``convoy.py`` all of an app.
Invariants: importing this imports no client library; the first use of a sink does, and says what to install. No Spark.
Not here: declaring (``app.sink``).
Read next: ``sink.py``, ``docs/sinks.md``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.sinks.alert import Alert
    from headwater.sinks.delta import Delta
    from headwater.sinks.mail import Email
    from headwater.sinks.parquet import Parquet
    from headwater.sinks.postgres import Postgres
    from headwater.sinks.redis import Redis
    from headwater.sinks.search import Search
    from headwater.sinks.sink import Sink
    from headwater.sinks.sqlite import SQLite
    from headwater.sinks.topic import Topic
    from headwater.sinks.webhook import Webhook

__all__ = [
    "Alert", "Delta", "Email", "Parquet", "Postgres", "Redis", "SQLite", "Search", "Sink", "Topic", "Webhook",
]  # fmt: skip

_HOMES = {
    "Alert": "alert", "Delta": "delta", "Email": "mail", "Parquet": "parquet", "Postgres": "postgres",
    "Redis": "redis", "SQLite": "sqlite", "Search": "search", "Sink": "sink", "Topic": "topic", "Webhook": "webhook",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"headwater.sinks.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
