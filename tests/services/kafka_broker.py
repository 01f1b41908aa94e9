"""A real Kafka for the tests: a plain process on loopback, with its data in a directory of ours.

What it is: ``KafkaBroker`` starts one node (KRaft, broker and controller in one) from the jars that ``bench/setup.sh``
brings. It listens three times: openly, with a password (SASL/PLAIN), and with a password over TLS.
Invariants: a broker that comes back has its data and its ports. Jars that are missing are a failure that names the
line that brings them, never a skip.
Not here: starting and stopping (``local_server.py``); what is asked of it (``test_kafka_inlet.py``,
``sinks/test_kafka.py``).
Read next: ``bench/setup.sh``.
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.peer_servers import KAFKA_API_VERSIONS, KAFKA_LOGGING, tools_directory
from headwater.errors import Unavailable
from headwater.testing.local_server import LocalServer, answers, free_port

HEAP = ["-Xms96m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
USER, PASSWORD = "ada", "s3cret"
SECONDS_MAX = 90.0


class KafkaBroker(LocalServer):
    """One broker, which can be stopped or killed and started again over the same data."""

    title = "Kafka"
    start_seconds_max = SECONDS_MAX

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.password_port, self.tls_port, self._controller_port = (free_port() for _ in range(3))
        self._formatted = False

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @cached_property
    def certificate(self) -> Path:
        """The certificate that the broker shows, as PEM: it signed it itself."""
        path = self.folder / "broker.pem"
        path.write_text(ssl.get_server_certificate(("127.0.0.1", self.tls_port)))
        return path

    def _command(self) -> list[str]:
        java, jars = shutil.which("java"), tools_directory() / "kafka"
        assert java is not None, "Kafka needs Java; on Debian: apt-get install openjdk-17-jre-headless"
        assert list(jars.glob("kafka_2.13-*.jar")), f"there are no jars of Kafka in {jars}: run bench/setup.sh"
        logging = self.folder / "log4j2.properties"
        command = [java, *HEAP, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars}/*"]
        properties = str(self.folder / "server.properties")
        if not self._formatted:
            key = self._write_settings(logging)
            identity = ["--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--standalone"]
            made = self._run([*command, "kafka.tools.StorageTool", "format", "--config", properties, *identity])
            assert (made.wait(), key.wait()) == (0, 0), self.said()
            self._formatted = True
        return [*command, "kafka.Kafka", properties]

    def _check(self) -> None:
        """Raise until it leads every partition that it has: it listens a moment earlier."""
        from confluent_kafka.admin import AdminClient

        if not answers(self.port, KAFKA_API_VERSIONS, b"\0"):
            raise Unavailable("it does not listen yet")
        topics = AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(timeout=5).topics
        if any(part.leader < 0 for topic in topics.values() for part in topic.partitions.values()):
            raise Unavailable("it does not lead every partition yet")

    def _write_settings(self, logging: Path) -> subprocess.Popen[bytes]:
        """Write the settings; the process that makes the key for TLS."""
        keytool = shutil.which("keytool")
        assert keytool is not None, "Java's keytool makes the certificate for TLS"
        store = self.folder / "broker.p12"
        key = ["-keystore", str(store), "-storepass", PASSWORD, "-alias", "broker", "-keyalg", "EC"]
        name = ["-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1", "-validity", "30"]
        logging.write_text(KAFKA_LOGGING)
        settings = SETTINGS.format(
            port=self.port,
            password_port=self.password_port,
            tls_port=self.tls_port,
            controller_port=self._controller_port,
            data=self.folder / "data",
            store=store,
            user=USER,
            password=PASSWORD,
        )
        (self.folder / "server.properties").write_text(settings)
        return self._run([keytool, "-genkeypair", *key, *name])

    # What tests do with it, by a client of their own

    @cached_property
    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create(self, topic: str, partitions: int = 1, **settings: str) -> str:
        from confluent_kafka.admin import NewTopic

        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(30)
        return topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)

    def remake(self, topic: str, partitions: int = 1) -> None:
        """Delete a topic and make it again."""
        from confluent_kafka import KafkaException

        self.delete(topic)
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                self.create(topic, partitions)
                return
            except KafkaException as error:  # the old one is still being deleted
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS" or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, and wait until clients are told of them."""
        from confluent_kafka.admin import NewPartitions

        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        deadline = time.monotonic() + SECONDS_MAX
        while len(self._led(topic)) < partitions:
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    def _led(self, topic: str) -> list[int]:
        parts = self.admin.list_topics(topic, 30).topics[topic].partitions.values()
        return [part.id for part in parts if part.leader >= 0]

    def exists(self, topic: str) -> bool:
        return topic in self.admin.list_topics(timeout=30).topics

    def send(self, topic: str, messages: Iterable[tuple[Any, ...]], **settings: Any) -> None:
        """Produce (key, value[, partition[, headers]]), each acknowledged."""
        from confluent_kafka import Producer

        refused: list[Any] = []

        def told(error: Any, _: Any) -> None:
            if error is not None:
                refused.append(error)

        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 2, "log_level": 0, **settings})
        if "transactional.id" in settings:
            producer.init_transactions(30)
            producer.begin_transaction()
        for key, value, *more in messages:
            partition = more[0] if more and more[0] is not None else -1
            producer.produce(topic, value, key, partition, told, headers=more[1] if len(more) > 1 else None)
            producer.poll(0)
        assert producer.flush(60) == 0
        assert refused == []
        if "transactional.id" in settings:
            producer.commit_transaction(30)

    def drop_before(self, topic: str, offset: int) -> None:
        """Delete the messages before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        (dropped,) = self.admin.delete_records([TopicPartition(topic, 0, offset)]).values()
        dropped.result(30)

    def ends(self, topic: str) -> dict[int, int]:
        """The end of what is committed, of each partition."""
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        numbers = self.admin.list_topics(topic, 30).topics[topic].partitions
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers}
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            found = self.admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
            try:
                return {place.partition: future.result(30).offset for place, future in found.items()}
            except KafkaException:  # a broker that just came back does not lead its partitions yet
                assert time.monotonic() < deadline, self.said()
                time.sleep(0.05)

    def read(self, topic: str) -> list[Any]:
        """Every committed message, in the order of each partition; a plain consumer, which is the oracle."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        ends = self.ends(topic)
        places = [TopicPartition(topic, number, 0) for number in ends]
        settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "oracle",
                "log_level": 0,
                "fetch.wait.max.ms": 10,
                **settings,
            }
        )
        messages: list[Any] = []
        try:
            consumer.assign(places)
            while ends:
                for message in consumer.consume(5_000, 0.05):
                    error = message.error()
                    if error is None:
                        messages.append(message)
                    else:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                    if message.offset() + (error is None) >= ends.get(message.partition(), 1 << 62):
                        del ends[message.partition()]
            return messages
        finally:
            consumer.close()

    def latest(self, topic: str) -> dict[str, str]:
        """The latest value of each key that was not deleted: what a compacted topic means."""
        values: dict[str, str] = {}
        for message in self.read(topic):
            key = message.key().decode()
            values.pop(key, None)
            if message.value() is not None:
                values[key] = message.value().decode()
        return values


SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{password_port},SASL_SSL://127.0.0.1:{tls_port},\
CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{password_port},\
SASL_SSL://127.0.0.1:{tls_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
ssl.keystore.type=PKCS12
ssl.keystore.location={store}
ssl.keystore.password={password}
log.dirs={data}
log.index.size.max.bytes=65536
log.cleaner.dedupe.buffer.size=4194304
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=300
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
"""
