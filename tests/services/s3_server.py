"""A real S3 server for the tests: S3Proxy, a plain process on loopback with its objects in a directory of ours.

What it is: ``S3Server`` starts S3Proxy from the jars that ``bench/setup.sh`` brings; a bucket is a folder.
Invariants: it is stopped by its process id; should the tests be killed, the kernel stops it. A server that comes back
has its objects and its port. Jars that are missing are a failure that names the line that brings them, never a skip.
Not here: faults on the way to it (``faulty_proxy.py``).
Read next: ``test_object_stores.py``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from bench.peer_servers import die_with_parent, free_port, tools_directory

SECONDS_MAX = 60.0
HEAP = ["-Xms48m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
KEY, SECRET, BUCKET = "ada", "s3cret", "lake"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


class S3Server:
    """One server, which can be stopped or killed and started again over the same objects."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.buckets = directory / "buckets"
        (self.buckets / BUCKET).mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def address(self, prefix: str, *, bucket: str = BUCKET, endpoint: str | None = None, settings: str = "") -> str:
        """The address of a part of a bucket, here or through something that stands before the server."""
        return f"s3://{bucket}/{prefix}?endpoint={endpoint or self.endpoint}{settings}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        java, jars = shutil.which("java"), tools_directory() / "s3proxy"
        assert java is not None, "S3Proxy needs Java; on Debian: apt-get install openjdk-17-jre-headless"
        assert list(jars.glob("s3proxy-*.jar")), f"there are no jars of S3Proxy in {jars}: run bench/setup.sh"
        logging, properties = self.directory / "logback.xml", self.directory / "s3proxy.properties"
        logging.write_text(LOGBACK)
        properties.write_text(SETTINGS.format(key=KEY, secret=SECRET, endpoint=self.endpoint, buckets=self.buckets))
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [java, *HEAP, f"-Dlogback.configurationFile={logging}", "-cp", f"{jars}/*", "org.gaul.s3proxy.Main",
                 "--properties", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        deadline = time.monotonic() + SECONDS_MAX
        while not self._answers():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)  # until it listens; nothing is measured by it

    def stop(self) -> None:
        """Stop, and wait until it has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a power cut does it."""
        self._end(signal.SIGKILL)

    def said(self) -> str:
        return (self.directory / "output").read_text(errors="replace")[-3000:]

    def objects(self, prefix: str) -> set[str]:
        """The names of the objects below a prefix, as the server's own files show them."""
        top = self.buckets / BUCKET / prefix
        return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                return connection.recv(12).startswith(b"HTTP/1.1")
        except OSError:
            return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        os.kill(process.pid, how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


SETTINGS = """\
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={key}
s3proxy.credential={secret}
s3proxy.endpoint={endpoint}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={buckets}
"""

LOGBACK = """\
<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%level %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="console"/></root>
</configuration>
"""
