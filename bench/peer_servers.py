"""Peers' servers as plain processes: on loopback, on a free port, in a directory that goes away.

Invariants: a server that was started is stopped, by its pid, when its ``with`` block ends, however it ends; should
this process itself be killed, the kernel stops the server. A server that cannot be had raises ``PeerUnavailable``
with the reason, before anything is started. Data lies under the same directory for all, so all use one disk.
Not here: starting and stopping (``local_server.py``); what is asked of the servers (``peers/``), getting them
(``bench/setup.sh``).
Read next: ``bench/log/peers/peer.py``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from headwater.errors import Unavailable
from headwater.testing.local_server import LocalServer, answers, free_port


class PeerUnavailable(Exception):
    """A peer that cannot be measured here; the text says why and what would help."""


def tools_directory() -> Path:
    """Where ``bench/setup.sh`` puts what it brings: ``HEADWATER_TOOLS``, or ``.tools`` here or in the checkout."""
    if named := os.environ.get("HEADWATER_TOOLS"):
        return Path(named)
    checkout = Path(__file__).resolve().parents[1]
    for place in (Path.cwd(), checkout):
        if (place / ".tools").is_dir():
            return place / ".tools"
    return Path.cwd() / ".tools"


@contextlib.contextmanager
def redis_server(directory: Path) -> Iterator[int]:
    """A Redis that appends to its file and syncs it every second; yields the port."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise PeerUnavailable("redis-server is not installed (Debian: apt-get install redis-server)")
    port = free_port()
    command = [binary, "--bind", "127.0.0.1", "--port", str(port), "--dir", "{data}", "--save", ""]
    # Rewrites of the append-only file would only slow Redis down in the middle of a measurement.
    command += ["--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"]
    with running("redis", command, directory=directory, ready=lambda: answers(port, b"PING\r\n", b"+PONG")):
        yield port


@contextlib.contextmanager
def nats_server(directory: Path) -> Iterator[int]:
    """A NATS server with JetStream in files; yields the port."""
    # The wheel puts its binary beside the interpreter, which need not be on PATH.
    binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    if binary is None:
        raise PeerUnavailable('nats-server is not installed (pip install "headwater[bench]")')
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="nats-settings-", dir=directory) as settings:
        config = Path(settings) / "nats.conf"
        # Our client answers only while it is measured, and would be taken for dead while the others have their turns.
        config.write_text('ping_interval: "1h"\n')
        command = [binary, "--config", str(config), "--addr", "127.0.0.1", "--port", str(port), "--jetstream"]
        command += ["--store_dir", "{data}"]
        with running("nats", command, directory=directory, ready=lambda: answers(port, b"", b"INFO ")):
            yield port


@contextlib.contextmanager
def kafka_broker(directory: Path) -> Iterator[int]:
    """A single Kafka node in KRaft mode, broker and controller in one; yields the port."""
    java = shutil.which("java")
    if java is None:
        raise PeerUnavailable("Java is not installed (Debian: apt-get install openjdk-17-jre-headless)")
    jars = tools_directory() / "kafka"
    if not list(jars.glob("kafka_2.13-*.jar")):
        raise PeerUnavailable(f"no Kafka jars in {jars} (run bench/setup.sh in a checkout)")
    port, controller_port = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="kafka-settings-", dir=directory) as settings:
        properties = Path(settings) / "server.properties"
        data = Path(settings) / "data"
        properties.write_text(_KAFKA_PROPERTIES.format(port=port, controller_port=controller_port, data=data))
        logging = Path(settings) / "log4j2.properties"
        logging.write_text(KAFKA_LOGGING)
        classes = [java, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars}/*"]
        identity = ["--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--standalone"]
        formatted = subprocess.run(
            [*classes, "kafka.tools.StorageTool", "format", "--config", str(properties), *identity],
            capture_output=True,
            text=True,
        )
        if formatted.returncode != 0:
            raise PeerUnavailable(f"Kafka could not format its storage: {_last_line(formatted.stderr)}")
        command = [classes[0], "-Xms512m", "-Xmx512m", *classes[1:], "kafka.Kafka", str(properties)]
        with running("kafka", command, directory=directory, ready=lambda: answers(port, KAFKA_API_VERSIONS, b"\0")):
            yield port


@contextlib.contextmanager
def running(name: str, command: list[str], *, directory: Path, ready: Callable[[], bool]) -> Iterator[None]:
    """Run ``command`` (``{data}`` in it becomes a fresh directory), wait until it is ready, and stop it at the end."""
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=directory) as data:
        server = PeerServer(name, [part.replace("{data}", data) for part in command], Path(data), ready)
        try:
            server.start()
        except Unavailable as error:
            raise PeerUnavailable(f"{name} did not start: {_last_line(error.detail or '')}") from error
        try:
            yield
        finally:
            server.stop()


class PeerServer(LocalServer):
    """A server of a program that is no class of its own."""

    def __init__(self, title: str, command: list[str], folder: Path, ready: Callable[[], bool]) -> None:
        super().__init__(folder)
        self.title = title  # type: ignore[misc]
        self._command_line, self._ready = command, ready

    def _command(self) -> list[str]:
        return self._command_line

    def _check(self) -> None:
        if not self._ready():
            raise Unavailable("it does not answer yet")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


# An ApiVersions request of version 0: length 10, api key 18, version 0, correlation 1, no client id. The first byte
# of the answer is the high byte of its length, which is zero. Asked over a socket, because a client library would
# log every refused connection until the broker is up.
KAFKA_API_VERSIONS = bytes([0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xFF, 0xFF])

_KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""

KAFKA_LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""
