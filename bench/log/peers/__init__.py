"""The systems that people use today for what the log does, each at its best.

Invariants: one module for each system, all with the contract of ``bench/log/peers/peer.py``; settings were chosen by
measuring, and the comment beside a setting says so. A client library is imported only when its peer is set up.
Not here: when and how often a peer is called (``bench/log_bench.py``).
Read next: ``bench/log/peers/peer.py``.
"""

from bench.log.peers.kafka_broker import KafkaBroker
from bench.log.peers.nats_jetstream import NatsJetStream
from bench.log.peers.peer import Mode, Peer, Reading
from bench.log.peers.redis_streams import RedisStreams
from bench.log.peers.sqlite_wal import SqliteWal

PEERS: dict[str, type[Peer]] = {"sqlite": SqliteWal, "redis": RedisStreams, "nats": NatsJetStream, "kafka": KafkaBroker}

__all__ = ["PEERS", "KafkaBroker", "Mode", "NatsJetStream", "Peer", "Reading", "RedisStreams", "SqliteWal"]
