"""Inlets: what lets foreign messages into a topic, without a client of ours.

    webhooks, StatsD, ZeroMQ, AMQP, Kafka  →  inlet  →  topic

What it is: the part of IN that is not capture. A declaration (``Webhook``, ``StatsD``, ``ZeroMQ``, ``Amqp``,
``Kafka``) is opened on a log and becomes an ``Inlet`` with ``start``, ``stop`` and ``counters``. ``AmqpPublisher`` is
the one way back out, here because it shares the broker's connection.
Invariants: importing this imports no client library; a missing one fails with the exact install line. No Spark.
Not here: databases (``capture/``); views' changes to other systems (``sinks/``).
Read next: ``inlet.py``, ``docs/inlets.md``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.inlets.amqp.amqp_inlet import Amqp
    from headwater.inlets.amqp.amqp_publisher import AmqpPublisher
    from headwater.inlets.counters import Counters
    from headwater.inlets.inlet import Inlet
    from headwater.inlets.kafka.kafka_inlet import Kafka
    from headwater.inlets.statsd.statsd_inlet import StatsD
    from headwater.inlets.webhook.signature import Signature
    from headwater.inlets.webhook.webhook_inlet import Webhook
    from headwater.inlets.zeromq.zeromq_inlet import ZeroMQ

__all__ = ["Amqp", "AmqpPublisher", "Counters", "Inlet", "Kafka", "Signature", "StatsD", "Webhook", "ZeroMQ"]

_DEFINED_IN = {
    "Amqp": "amqp.amqp_inlet",
    "AmqpPublisher": "amqp.amqp_publisher",
    "Counters": "counters",
    "Inlet": "inlet",
    "Kafka": "kafka.kafka_inlet",
    "Signature": "webhook.signature",
    "StatsD": "statsd.statsd_inlet",
    "Webhook": "webhook.webhook_inlet",
    "ZeroMQ": "zeromq.zeromq_inlet",
}


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"headwater.inlets.{_DEFINED_IN[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
