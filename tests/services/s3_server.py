"""A real S3 server for the tests: S3Proxy, a plain process on loopback with its objects in a directory of ours.

What it is: ``S3Server`` starts S3Proxy from the jars that ``bench/setup.sh`` brings; a bucket is a folder.
Invariants: a server that comes back has its objects and its port. Jars that are missing are a failure that names the
line that brings them, never a skip.
Not here: starting and stopping (``local_server.py``); faults on the way to it (``faulty_proxy.py``).
Read next: ``test_object_stores.py``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.peer_servers import tools_directory
from headwater.errors import Unavailable
from headwater.testing.local_server import LocalServer, answers

HEAP = ["-Xms48m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
KEY, SECRET, BUCKET = "ada", "s3cret", "lake"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


class S3Server(LocalServer):
    """One server, which can be stopped or killed and started again over the same objects."""

    title = "S3Proxy"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.buckets = folder / "buckets"
        (self.buckets / BUCKET).mkdir(parents=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def address(self, prefix: str, *, bucket: str = BUCKET, endpoint: str | None = None, settings: str = "") -> str:
        """The address of a part of a bucket, here or through something that stands before the server."""
        return f"s3://{bucket}/{prefix}?endpoint={endpoint or self.endpoint}{settings}"

    def objects(self, prefix: str) -> set[str]:
        """The names of the objects below a prefix, as the server's own files show them."""
        top = self.buckets / BUCKET / prefix
        return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}

    def _command(self) -> list[str]:
        java, jars = shutil.which("java"), tools_directory() / "s3proxy"
        assert java is not None, "S3Proxy needs Java; on Debian: apt-get install openjdk-17-jre-headless"
        assert list(jars.glob("s3proxy-*.jar")), f"there are no jars of S3Proxy in {jars}: run bench/setup.sh"
        logging, properties = self.folder / "logback.xml", self.folder / "s3proxy.properties"
        logging.write_text(LOGBACK)
        properties.write_text(SETTINGS.format(key=KEY, secret=SECRET, endpoint=self.endpoint, buckets=self.buckets))
        program = ["-cp", f"{jars}/*", "org.gaul.s3proxy.Main", "--properties", str(properties)]
        return [java, *HEAP, f"-Dlogback.configurationFile={logging}", *program]

    def _check(self) -> None:
        if not answers(self.port, GET, b"HTTP/1.1"):
            raise Unavailable("it does not listen yet")


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
