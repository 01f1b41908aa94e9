"""Inlets: what lets foreign messages into a topic, without a client of ours.

    webhooks, StatsD, ZeroMQ, AMQP  →  inlet  →  topic

What it is: the part of IN that is not capture. A declaration (``Webhook``, ``StatsD``, ``ZeroMQ``, ``Amqp``) is opened
on a log and becomes an ``Inlet`` with ``start``, ``stop`` and ``counters``. ``AmqpPublisher`` is the one way back out,
here because it shares the broker's connection.
Invariants: importing this imports no client library; a missing one fails with the exact install line. No Spark.
Not here: databases (``capture/``); views' changes to other systems (``sinks/``).
Read next: ``inlet.py``, ``docs/inlets.md``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.inlets.amqp import Amqp
    from headwater.inlets.amqp_publisher import AmqpPublisher
    from headwater.inlets.inlet import Inlet
    from headwater.inlets.signature import Signature
    from headwater.inlets.statsd import StatsD
    from headwater.inlets.tally import Counters
    from headwater.inlets.webhook import Webhook
    from headwater.inlets.zeromq import ZeroMQ

__all__ = ["Amqp", "AmqpPublisher", "Counters", "Inlet", "Signature", "StatsD", "Webhook", "ZeroMQ"]

_HOMES = {
    "Amqp": "amqp", "AmqpPublisher": "amqp_publisher", "Counters": "tally", "Inlet": "inlet",
    "Signature": "signature", "StatsD": "statsd", "Webhook": "webhook", "ZeroMQ": "zeromq",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"headwater.inlets.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
