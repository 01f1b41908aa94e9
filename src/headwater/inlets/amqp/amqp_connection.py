"""AMQP connection: the broker's address, and pika's errors mapped to Headwater's.

What it is: ``client`` (pika, imported late), ``parameters`` of an address, and ``translated``, which maps pika's
errors.
Invariants: a password never appears in a shown address or in an error.
Not here: consuming (``amqp_inlet.py``), publishing (``confirmed_channel.py``). Read next: ``amqp_inlet.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from headwater.errors import InvalidDeclaration, MissingExtra, Unavailable

CONNECT_SECONDS_MAX = 10.0


def client() -> Any:
    with MissingExtra.raised_for("AMQP", "amqp"):
        import pika
        import pika.exceptions
    noisy = logging.getLogger("pika")
    if noisy.level == logging.NOTSET:  # it logs several stack traces for each lost connection; we log a line
        noisy.setLevel(logging.CRITICAL)
    return pika


def check_address(url: str) -> None:
    """Refuse an invalid address.

    >>> check_address("rabbit:5672")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: an AMQP address cannot begin with 'rabbit:'
      Hint: Write amqp://user:password@host:5672/vhost, or amqps:// for TLS; the vhost "/" is written %2F.
    """
    scheme = urlsplit(url).scheme
    if scheme not in ("amqp", "amqps"):
        raise InvalidDeclaration(
            f"an AMQP address cannot begin with {(scheme + ':')!r}",
            hint='Write amqp://user:password@host:5672/vhost, or amqps:// for TLS; the vhost "/" is written %2F.',
        )


def parameters(url: str) -> Any:
    found = client().URLParameters(url)
    found.socket_timeout = found.blocked_connection_timeout = CONNECT_SECONDS_MAX
    found.stack_timeout = CONNECT_SECONDS_MAX
    return found


def shown(url: str, *rest: str) -> str:
    """An address without its password.

    >>> shown("amqp://ada:secret@rabbit:5672/%2F", "orders")
    'amqp://rabbit:5672/%2F orders'
    """
    parts = urlsplit(url)
    return " ".join([f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}", *rest])


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Map the broker's and the network's errors to ``Unavailable``: each may be resolved later."""
    exceptions = client().exceptions
    try:
        yield
    except (exceptions.AMQPError, OSError) as error:
        raise Unavailable(f"{what}: {reason(error)}", hint="It is retried automatically.") from error


def reason(error: BaseException) -> str:
    """A short text for an error of pika; many of its classes have none."""
    text = getattr(error, "reply_text", "") or str(error)
    causes = [repr(each) for each in getattr(error, "exceptions", ())] or [text]
    return f"{type(error).__name__} {causes[0]}".strip()[:300]
