"""A real RabbitMQ for the tests: a plain process on loopback, with its data in a directory of ours.

What it is: ``RabbitMQ`` starts the broker that Debian's package brings, under a node name, on ports and with an epmd of
its own, so that it meets no other broker of the machine; as root or not.
Invariants: both processes are stopped by their ids; should the tests be killed, the kernel stops them. A broker that
is not installed is a failure that names the install line, never a skip.
Read next: ``tools/services.sh``, which installs it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from bench.peer_servers import die_with_parent, free_port

SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one in PATH insists on the user "rabbitmq"
SECONDS_MAX = 90.0
MISSING = (
    "RabbitMQ is not installed, and these tests need it; "
    "on Debian: apt-get update && apt-get install -y --no-install-recommends rabbitmq-server"
)


class RabbitMQ:
    """One broker, which can be killed and started again over the same data."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"
        self._epmd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        epmd_port, distribution_port = free_port(), free_port()
        self._environment = {
            **os.environ,
            "HOME": str(directory),  # Erlang's cookie
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"headwater-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "environment"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "config"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none",
            "detached": "yes",  # the script replaces itself by the broker, so that its process id is the broker's
        }

    def start(self) -> None:
        epmd = shutil.which("epmd")
        assert epmd is not None, MISSING
        assert SCRIPT.exists(), MISSING
        if self._epmd is None:
            self._epmd = self._process([epmd, "-port", self._environment["ERL_EPMD_PORT"]])
        self._server = self._process([str(SCRIPT)])
        deadline = time.monotonic() + SECONDS_MAX
        while not self._answers():
            assert self._server.poll() is None, self._words()
            assert time.monotonic() < deadline, self._words()
            time.sleep(0.05)

    def kill(self) -> None:
        """As a power cut does it."""
        self._end(self._server, signal.SIGKILL)
        self._server = None

    def stop(self) -> None:
        self._end(self._server, signal.SIGTERM)
        self._end(self._epmd, signal.SIGTERM)
        self._server = self._epmd = None

    def _process(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.directory / "output").open("ab") as output:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def _end(self, process: subprocess.Popen[bytes] | None, how: signal.Signals) -> None:
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _answers(self) -> bool:
        with contextlib.suppress(pika.exceptions.AMQPError, OSError), self.channel():
            return True
        return False

    def _words(self) -> str:
        return (self.directory / "output").read_text(errors="replace")[-3000:]

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
        """How many messages are in the queue and with nobody."""
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


def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so; a failure after a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not within a minute: {what}"
        time.sleep(0.02)
