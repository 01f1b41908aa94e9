"""The systems that people use today for what the log does, each at its best.

Invariants: one module for each system, all with the contract of ``peer.py``; settings were chosen by measuring, and
the comment beside a setting says so. A client library is imported only when its peer is set up.
Not here: when and how often a peer is called (``../log_bench.py``).
Read next: ``peer.py``.
"""

from headwater.bench.peers.kafka_broker import KafkaBroker
from headwater.bench.peers.nats_jetstream import NatsJetStream
from headwater.bench.peers.peer import Mode, Peer, Reading
from headwater.bench.peers.redis_streams import RedisStreams
from headwater.bench.peers.sqlite_wal import SqliteWal

PEERS: dict[str, type[Peer]] = {
    "sqlite": SqliteWal,
    "redis": RedisStreams,
    "nats": NatsJetStream,
    "kafka": KafkaBroker,
}

__all__ = ["PEERS", "KafkaBroker", "Mode", "NatsJetStream", "Peer", "Reading", "RedisStreams", "SqliteWal"]
