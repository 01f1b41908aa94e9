"""A real HDFS for the tests: a NameNode and a DataNode, plain processes on loopback, with their data in a directory.

What it is: ``HdfsServer`` starts both from the jar that ``bench/setup.sh`` brings, with PySpark's own jars beside it.
``ask`` is WebHDFS as its documentation has it.
Invariants: a server that comes back has its files and its ports. A jar that is missing is a failure that names the line
that brings it, never a skip.
Not here: starting and stopping (``local_server.py``); faults on the way to it (``faulty_proxy.py``).
Read next: ``test_hdfs_store.py``.
"""

from __future__ import annotations

import json
import shutil
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pyspark

from bench.peer_servers import tools_directory
from headwater.errors import Unavailable
from headwater.testing.local_server import LocalServer, free_port

HEAP = ["-Xms48m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
PROGRAM = "org.apache.hadoop.hdfs.server"
ADMIN = "hdfs-admin"  # the user who formats it may do everything
STATE = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"


class HdfsServer(LocalServer):
    """A NameNode, and the DataNode that belongs to it; ``port`` is the NameNode's HTTP port."""

    title = "HDFS's NameNode"
    start_seconds_max = 90.0

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder)
        self.environment = {"HADOOP_USER_NAME": ADMIN}
        self._data_node = _DataNode(folder, self.environment)
        settings = {
            "fs.defaultFS": f"hdfs://127.0.0.1:{free_port()}",
            "dfs.namenode.http-address": f"127.0.0.1:{self.port}",
            "dfs.namenode.name.dir": (folder / "names").as_uri(),
            "dfs.datanode.data.dir": (folder / "blocks").as_uri(),
            "dfs.datanode.address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.http.address": f"127.0.0.1:{self._data_node.port}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.replication": "1",
            "dfs.namenode.safemode.extension": "0",
        }
        rows = "".join(
            f"<property><name>{name}</name><value>{said}</value></property>" for name, said in settings.items()
        )
        for name in ("core-site.xml", "hdfs-site.xml"):
            (folder / name).write_text(f"<configuration>{rows}</configuration>")

    @property
    def server(self) -> str:
        """What a store is told."""
        return f"127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, operation: str, user: str = ADMIN, **settings: str) -> dict[str, Any]:
        """One request of WebHDFS that the NameNode answers by itself."""
        asked = urllib.parse.urlencode({"op": operation, "user.name": user, **settings})
        request = urllib.request.Request(f"http://{self.server}/webhdfs/v1{path}?{asked}", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read() or b"{}")
        return found

    def start(self) -> HdfsServer:
        """Start both; the first time the NameNode's folder is made."""
        if not (self.folder / "names").exists():
            made = self._run(_java(self.folder, "namenode.NameNode", "-format", "-nonInteractive"))
            assert made.wait() == 0, self.said()
        self._data_node.run()
        super().start()
        return self

    def stop(self, *, immediate: bool = False) -> None:
        """Stop both."""
        self._data_node.stop(immediate=True)
        super().stop(immediate=immediate)

    def _command(self) -> list[str]:
        return _java(self.folder, "namenode.NameNode")

    def _check(self) -> None:
        with urllib.request.urlopen(f"http://{self.server}{STATE}", timeout=5) as answer:
            [state] = json.loads(answer.read())["beans"]
        if state["NumLiveDataNodes"] < 1 or state["FSState"] != "Operational":
            raise Unavailable("it has no DataNode yet")
        self.ask("PUT", "/", "SETPERMISSION", permission="777")


class _DataNode(LocalServer):
    title = "HDFS's DataNode"

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        super().__init__(folder)
        self.environment = environment

    def run(self) -> None:
        """Start it; the NameNode says when it is there."""
        self.process = self._run(_java(self.folder, "datanode.DataNode"))


def _java(folder: Path, program: str, *words: str) -> list[str]:
    java, jars = shutil.which("java"), tools_directory() / "hdfs"
    assert java is not None, "HDFS needs Java; on Debian: apt-get install openjdk-17-jre-headless"
    assert list(jars.glob("hadoop-client-minicluster-*.jar")), f"there is no jar of HDFS in {jars}: run bench/setup.sh"
    places = f"{folder}:{jars}/*:{Path(pyspark.__file__).parent}/jars/*"
    return [java, *HEAP, "-cp", places, f"{PROGRAM}.{program}", *words]
