"""The address of a log on Kafka: ``kafka://host:9092?prefix=shop.&replicas=3``.

What it is: ``KafkaAddress``, the cluster and how the log lies in it: the prefix of its topics' names, the replicas of
those that it makes, and the form of rows without a key.
Invariants: what is shown has no secret in it; the address itself opens the same log in another process.
Not here: connecting (``kafka_client.py``). Read next: ``kafka_log.py``; ``docs/kafka.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import parse_qsl

from headwater.errors import InvalidDeclaration
from headwater.kafka.kafka_client import KafkaCluster

SCHEME = "kafka://"
OWN = ("prefix", "replicas", "rows", "registry", "transaction_timeout_ms", "kept_bytes")
EXAMPLE = "kafka://kafka-1:9092,kafka-2:9092?prefix=shop.&replicas=3"

RowForm = Literal["arrow", "json"]


@dataclass(frozen=True)
class KafkaAddress:
    """Where a log on Kafka is.

    >>> address = KafkaAddress.parse("kafka://localhost:9092?prefix=shop.&sasl.password=s3cret")
    >>> address.shown, address.prefix, address.cluster.settings["sasl.password"]
    ('kafka://localhost:9092?prefix=shop.', 'shop.', 's3cret')
    >>> KafkaAddress.parse("kafka://localhost?replicas=some")
    Traceback (most recent call last):
        ...
    headwater.errors.InvalidDeclaration: a Kafka cluster is not reached at 'localhost'
      Hint: Write host:port, several with commas between: "kafka-1:9092,kafka-2:9092".
    """

    text: str
    cluster: KafkaCluster
    prefix: str = ""
    replicas: int = 1
    rows: RowForm = "arrow"
    transaction_timeout_ms: int = 10_000
    registry: str | None = None  # of schemas, for topics with values="avro"; it may have a password in it
    kept_bytes: int = 64 << 20  # of each partition, of what a process read last: a tick reads a range several times

    @staticmethod
    def parse(text: str) -> KafkaAddress:
        """The address that a text is."""
        servers, _, query = text.removeprefix(SCHEME).partition("?")
        given = dict(parse_qsl(query, keep_blank_values=True))
        own = {name: given.pop(name) for name in OWN if name in given}
        cluster = KafkaCluster(servers.rstrip("/"), given)
        rows = own.get("rows", "arrow")
        if rows not in ("arrow", "json"):
            raise InvalidDeclaration(f"rows cannot be {rows!r} in {SCHEME}…", hint='Use "arrow" or "json".')
        return KafkaAddress(
            text,
            cluster,
            own.get("prefix", ""),
            _number(own, "replicas", 1),
            cast("RowForm", rows),
            _number(own, "transaction_timeout_ms", 10_000),
            own.get("registry"),
            _number(own, "kept_bytes", 64 << 20),
        )

    @property
    def shown(self) -> str:
        """Without settings of the client, among which secrets are."""
        own = {"prefix": self.prefix} if self.prefix else {}
        return SCHEME + self.cluster.servers + "".join(f"?{name}={value}" for name, value in own.items())


def _number(given: dict[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InvalidDeclaration(f"{name} cannot be {text!r} in {SCHEME}…", hint=f"For example {EXAMPLE}.")
    return int(text)
