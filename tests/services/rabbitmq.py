"""A real RabbitMQ for the tests: a plain process on loopback, with its data in a directory of ours.

What it is: ``RabbitMQ`` starts the broker that Debian's package brings, under a node name, on ports and with an epmd of
its own, so that it meets no other broker of the machine; as root or not.
Invariants: a broker that is not installed is a failure that names the install line, never a skip.
Not here: starting and stopping (``local_server.py``).
Read next: ``tools/services.sh``, which installs it.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from headwater.testing.local_server import LocalServer, free_port
from tests.waiting import eventually

SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one in PATH insists on the user "rabbitmq"
MISSING = (
    "RabbitMQ is not installed, and these tests need it; "
    "on Debian: apt-get update && apt-get install -y --no-install-recommends rabbitmq-server"
)


class RabbitMQ(LocalServer):
    """One broker, which can be killed and started again over the same data."""

    title = "RabbitMQ"
    start_seconds_max = 90.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"
        self._epmd: subprocess.Popen[bytes] | None = None
        epmd_port, distribution_port = free_port(), free_port()
        self.environment = {
            "HOME": str(folder),  # Erlang's cookie
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"headwater-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "environment"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "config"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none",
            "detached": "yes",  # the script replaces itself by the broker, so that its process id is the broker's
        }

    def _command(self) -> list[str]:
        epmd = shutil.which("epmd")
        assert epmd is not None, MISSING
        assert SCRIPT.exists(), MISSING
        if self._epmd is None:
            self._epmd = self._run([epmd, "-port", self.environment["ERL_EPMD_PORT"]])
        return [str(SCRIPT)]

    def _check(self) -> None:
        with self.channel():
            pass

    def stop(self, *, immediate: bool = False) -> None:
        super().stop(immediate=immediate)
        epmd, self._epmd = self._epmd, None
        if epmd is not None:
            epmd.terminate()
            epmd.wait(30)

    @contextlib.contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        try:
            yield connection.channel()
        finally:
            if connection.is_open:
                connection.close()

    def declare(self, queue: str) -> str:
        with self.channel() as channel:
            channel.queue_declare(queue, durable=True)
        return queue

    def waiting(self, queue: str) -> int:
        """How many messages wait in the queue, with no consumer."""
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

    def send(self, queue: str, bodies: list[bytes | str], ids: list[str] | None = None, **said: Any) -> None:
        """Publish persistent messages, each confirmed."""
        with self.channel() as channel:
            channel.confirm_delivery()
            for place, body in enumerate(bodies):
                properties = pika.BasicProperties(delivery_mode=2, message_id=ids[place] if ids else None, **said)
                eventually(partial(_was_routed, channel, queue, body, properties), "the broker has the queue")


def _was_routed(channel: BlockingChannel, queue: str, body: bytes | str, properties: pika.BasicProperties) -> bool:
    """Publish; False when there is no queue yet: a broker that starts again answers before its queues are back."""
    try:
        channel.basic_publish("", queue, body, properties, mandatory=True)
    except pika.exceptions.UnroutableError:
        return False
    return True
